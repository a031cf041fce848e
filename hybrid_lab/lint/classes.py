"""Definitions in the source: modules, functions and classes, and which classes are HybridBlocks."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from . import names
from .source import Source
from .values import Kind, Value

Environment = dict[str, Value]
MarkKey = tuple[str, int, tuple[int, int, int, int]]
"""Code of a rule, identity of a Source, and the span in it."""
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def positional_arguments(function: FunctionNode) -> list[ast.arg]:
    """The arguments that may be passed by position, `self` included."""
    return [*function.args.posonlyargs, *function.args.args]


def passed(call: ast.Call) -> list[ast.expr]:
    """The arguments of a call, by position or keyword."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


@dataclass(eq=False)
class Module:
    """The names of one module or notebook. `lookup` finds names that the source does not define: in a live namespace.

    imported : finds a function of an imported module by its dotted name
    given : the names that the code gives to objects or asks for, in any cell
    """

    source: Source
    names: dict[str, Value] = field(default_factory=dict)
    lookup: Callable[[str], Value | None] = lambda name: None
    imported: Callable[[str], Value | None] = lambda dotted: None
    given: frozenset[str] = frozenset()


@dataclass(eq=False)
class Function:
    """A function, method or lambda of the source. owner : the class it was defined in; closure : the frame around
    it.
    """

    node: FunctionNode
    source: Source
    module: Module
    owner: SourceClass | None = None
    closure: Frame | None = None

    @property
    def name(self) -> str:
        """Its name in the source."""
        return getattr(self.node, "name", "<lambda>")

    @property
    def in_checked_method(self) -> bool:
        """Whether it is defined inside the method that is checked."""
        return self.closure is not None and self.closure.checked

    @property
    def kind(self) -> str:
        """ "method", "static", "class" or "property"."""
        for decorator in getattr(self.node, "decorator_list", ()):
            name = decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", "")
            if name in ("staticmethod", "classmethod"):
                return name.removesuffix("method")
            if name in ("property", "cached_property"):
                return "property"
        return "method"


@dataclass
class Attribute:
    """An attribute of self. node : the assignment."""

    name: str
    value: Value
    node: ast.AST


def is_stub(method: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> bool:
    """Whether a method's body only says that a subclass defines it."""
    return all(
        isinstance(s, ast.Pass | ast.Raise) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
        for s in getattr(method, "body", ())
    )


AUTOGRAD_FUNCTION = "mx.autograd.Function"
"""The base of classes with a backward of their own; also the `ref` of the value of an instance."""

_ANCESTORS = 32
"""Classes that one class comes from, at most."""


@dataclass(eq=False)
class SourceClass:
    """A class of the source. bases : classes of the source, dotted names, or None if nothing is known."""

    name: str
    node: ast.ClassDef
    source: Source
    module: Module
    bases: tuple[SourceClass | str | None, ...] = ()
    own_methods: dict[str, Function] = field(default_factory=dict)
    attributes: dict[str, Attribute] = field(default_factory=dict)
    registered: set[int] = field(default_factory=set)
    added: list[tuple[ast.AST, Value]] = field(default_factory=list)
    constructed: bool = False

    def mro(self) -> Iterator[SourceClass]:
        """The class and its bases in the source, each once, derived first; no more than anybody writes."""
        order: list[SourceClass] = [self]
        seen = {self}
        for cls in order:
            yield cls
            for base in cls.bases:
                if isinstance(base, SourceClass) and base not in seen and len(order) < _ANCESTORS:
                    order.append(base)
                    seen.add(base)

    def find(self, method: str, after: SourceClass | None = None) -> Function | None:
        """A method, looked up through the bases; after : only in the classes behind that one, as `super()` does."""
        chain = list(self.mro())
        if after is not None:
            behind = [index for index, cls in enumerate(chain) if cls.node is after.node]
            chain = chain[behind[0] + 1 :] if behind else chain
        return next((cls.own_methods[method] for cls in chain if method in cls.own_methods), None)

    @property
    def parameters(self) -> Iterator[str]:
        """The names of the attributes that are parameters, in order."""
        return (name for name, attribute in self.attributes.items() if attribute.value.kind is Kind.PARAMETER)

    @property
    def hybrid(self) -> bool | None:
        """True: a HybridBlock; False: a plain Block or no Block; None: its bases are not known."""
        ancestors = set(self.mro())
        answers: dict[SourceClass, bool | None] = {}
        pending = [self]
        while pending:
            cls = pending[-1]
            bases = [base for base in cls.bases if isinstance(base, SourceClass) and base not in answers]
            if (first := [base for base in bases if base in ancestors]) and len(pending) < _ANCESTORS:
                pending.append(first[0])
            else:
                answers[pending.pop()] = cls._hybrid(answers)
        return answers[self]

    def _hybrid(self, known: Mapping[SourceClass, bool | None]) -> bool | None:
        """`hybrid`, by the answers for its bases."""
        answers = [
            known.get(base) if isinstance(base, SourceClass) else names.is_block_class(base) if base else None
            for base in self.bases
        ]
        if True in answers:
            return True
        if False in answers:
            return False
        unknown = any(base is None or isinstance(base, str) for base in self.bases)
        if unknown and takes_operators(self.own_methods.get("hybrid_forward")):
            return True  # a base from elsewhere, and the method only HybridBlocks have
        return None if unknown else False

    @property
    def is_block(self) -> bool:
        """Whether it is a Block of either sort."""
        if self.hybrid:
            return True
        known = (base for cls in self.mro() for base in cls.bases if isinstance(base, str))
        return any(names.is_block_class(base) is False for base in known)

    @property
    def is_autograd_function(self) -> bool:
        """Whether its instances are functions with a backward of their own."""
        return any(base == AUTOGRAD_FUNCTION for cls in self.mro() for base in cls.bases)

    def __repr__(self) -> str:
        return f"<class {self.name} of {self.source.file}>"


@dataclass(eq=False)
class Frame:
    """One function being walked.

    returns : (node, value, decided by the mode or the sort of the inputs)
    checked : whether this is the checked method, or a function inside it
    at : the expression being evaluated
    marks : the marks in this function, unless it is checked, and in the functions that it called
    grown : names of the module in `env`, whose containers got members here
    """

    function: Function | None
    module: Module
    source: Source
    env: Environment
    closure: Frame | None = None
    owner: SourceClass | None = None
    returns: list[tuple[ast.AST, Value, bool]] = field(default_factory=list)
    varying: bool = False
    raising: bool = False
    checked: bool = False
    at: ast.AST | None = None
    marks: set[MarkKey] = field(default_factory=set)
    grown: set[str] = field(default_factory=set)


def takes_operators(function: Function | None) -> bool:
    """Whether the second argument is called F."""
    if function is None:
        return False
    arguments = positional_arguments(function.node)
    return len(arguments) > 1 and arguments[1].arg == "F"
