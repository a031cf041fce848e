"""Live classes and Blocks: finds their source and resolves names in memory, without calling anything."""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
import types
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from . import names
from .budget import NODES, Budget
from .checker import define
from .classes import Attribute, Function, Module, SourceClass
from .known_names import names_given
from .source import nested_statements, parsed
from .values import OTHER, Kind, Value, constant, mapping, sequence
from .walk import Walk

if TYPE_CHECKING:
    from hybrid_lab.gluon import Block

_PACKAGE = __name__.partition(".")[0]


class Live:
    """Finds the source of live objects."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._files: dict[tuple[str, int], tuple[Module, list[SourceClass]]] = {}
        self._classes: dict[type, SourceClass | None] = {}

    def source_class(self, cls: type) -> SourceClass | None:
        """The class in its source; None if the source is not at hand (or the class is this package's own)."""
        if cls not in self._classes:
            self._classes[cls] = None  # a class that refers to itself ends here
            self._classes[cls] = self._find_class(cls)
        return self._classes[cls]

    def _find_class(self, cls: type) -> SourceClass | None:
        if in_package(cls) or cls is object:
            return None
        code = _first_code(cls)
        if code is None:
            return None
        file, line = code
        module = sys.modules.get(cls.__module__)
        _, classes = self.file(file, vars(module) if module is not None else {})
        named = [node for node in classes if node.name == cls.__name__]
        around = [node for node in named if node.node.lineno <= line <= (node.node.end_lineno or line)]
        node = next(iter((around or named)[-1:]), None)
        if node is not None:
            node.bases = tuple(self._base(base) for base in cls.__bases__)
        return node

    def _base(self, cls: type) -> SourceClass | str | None:
        value = self.value_of(cls)
        if isinstance(value.ref, SourceClass):
            return value.ref
        return value.ref if value.kind is Kind.MODULE and isinstance(value.ref, str) else None

    def file(self, file: str, namespace: dict[str, object]) -> tuple[Module, list[SourceClass]]:
        """The definitions of a file (or cell); names not defined there are looked up in `namespace`."""
        text = "".join(linecache.getlines(file))
        key = (file, hash(text))
        if key not in self._files:
            self._budget.nodes -= len(text) >> 6
            source = parsed("" if self._budget.is_spent else text, file)
            module = Module(source, {}, self.lookup_in(namespace), self.imported, names_given(source))
            self._files[key] = (module, [])
            self._files[key] = (module, define(Walk(NODES), module))
        return self._files[key]

    def lookup_in(self, namespace: dict[str, object]) -> Callable[[str], Value | None]:
        """The lookup of a Module whose other names are in a live namespace."""

        def lookup(name: str) -> Value | None:
            return self.value_of(namespace[name]) if name in namespace else None

        return lookup

    def imported(self, dotted: str) -> Value | None:
        """The function of this name, of a module that is imported already; None if its source is not to be had."""
        parent, _, name = dotted.rpartition(".")
        module = sys.modules.get(parent)
        function = getattr(module, "__dict__", {}).get(name)
        value = self._function(function) if isinstance(function, types.FunctionType) else OTHER
        return value if value.kind is Kind.FUNCTION else None

    def value_of(self, thing: object) -> Value:
        """The abstract value of a live object."""
        if isinstance(thing, types.ModuleType):
            return Value(Kind.MODULE, ref=names.canonical(thing.__name__))
        if isinstance(thing, type):
            if in_package(thing):
                return Value(Kind.MODULE, ref=dotted_class(thing))
            if (source_class := self.source_class(thing)) is not None:
                return Value(Kind.CLASS, ref=source_class)
            return Value(Kind.MODULE, ref=f"{thing.__module__}.{thing.__qualname__}")
        if isinstance(thing, types.FunctionType):
            return self._function(thing)
        if isinstance(thing, types.BuiltinFunctionType):
            return Value(Kind.MODULE, ref=f"{thing.__module__}.{thing.__name__}")
        if thing is None or isinstance(thing, bool | int | float | str):
            return constant(thing)
        if is_a(thing, "Block"):
            return self.block_value(cast("Block", thing))
        if is_a(thing, "Parameter"):
            return Value(Kind.PARAMETER)
        if is_a(thing, "NDArray"):
            return Value(Kind.ARRAY)
        if isinstance(thing, list | tuple) and len(thing) <= 64:
            return sequence(tuple(self.value_of(item) for item in thing))
        if isinstance(thing, dict) and len(thing) <= 64 and thing:
            items = [self.value_of(item) for item in thing.values()]
            blocks = [item for item in items if item.kind is Kind.BLOCK]
            return mapping((blocks or items)[0])
        return OTHER

    def _function(self, function: types.FunctionType) -> Value:
        if (function.__module__ or "").partition(".")[0] == _PACKAGE:
            return Value(Kind.MODULE, ref=names.canonical(f"{function.__module__}.{function.__name__}"))
        code = function.__code__
        module, _ = self.file(code.co_filename, function.__globals__)
        for node in nested_statements(module.source.tree.body):
            if isinstance(node, ast.FunctionDef) and node.name == code.co_name:
                if min([node.lineno, *(d.lineno for d in node.decorator_list)]) == code.co_firstlineno:
                    return Value(Kind.FUNCTION, ref=Function(node, module.source, module))
        return Value(Kind.MODULE, ref=f"{function.__module__}.{function.__name__}")

    def block_value(self, block: Block) -> Value:
        """A live child: its class, and whether it is known to give one tensor."""
        cls = self.source_class(type(block))
        ref: object = cls if cls is not None else dotted_class(type(block))
        return Value(
            Kind.BLOCK, ref=ref, site=id(block), depends=False, like="one output" if _one_output(block) else None
        )

    def with_instance(self, cls: SourceClass, block: Block, construct: Callable[[SourceClass], None]) -> SourceClass:
        """The class as this instance has it: its real children and parameters in place of what `__init__` says."""
        from hybrid_lab.gluon import access  # loaded already if a Block is alive

        live = replace(cls, attributes={}, registered=set(), added=[], constructed=False)
        construct(live)
        live.added.clear()
        children = access.children(block)
        places = {name: attribute.node for name, attribute in live.attributes.items()}
        for name, attribute in list(live.attributes.items()):
            if attribute.value.kind in (Kind.BLOCK, Kind.PARAMETER):
                del live.attributes[name]
        inside = {id(child) for child in children.values()}
        for name, child in children.items():
            live.attributes[name] = Attribute(name, self.block_value(child), places.get(name, live.node))
        for name in access.own_parameters(block):
            live.attributes[name] = Attribute(name, Value(Kind.PARAMETER), places.get(name, live.node))
        for name, thing in vars(block).items():
            known = live.attributes.get(name)
            if known is not None and known.value.kind not in (Kind.SEQUENCE, Kind.MAPPING, Kind.OTHER):
                continue
            if name.startswith("_") and name not in places:
                continue  # Gluon's own
            value = self.value_of(thing)
            if value.kind in (Kind.SEQUENCE, Kind.MAPPING):
                parts = list(thing.values()) if isinstance(thing, dict) else list(thing)
                hidden = [part for part in parts if is_a(part, "Block") and id(part) not in inside]
                live.registered |= {id(part) for part in parts if id(part) in inside}
                if not hidden and any(is_a(part, "Block") for part in parts):
                    live.registered |= {id(part) for part in parts}
            if value.kind in (Kind.ARRAY, Kind.SEQUENCE, Kind.MAPPING):
                live.attributes[name] = Attribute(name, value, places.get(name, live.node))
        return live


_PLAIN = (bool, int, float, str, bytes, type(None))


def look_of(block: Block) -> Hashable:
    """A key, equal for Blocks that `with_instance` treats alike; None if it cannot tell."""
    from hybrid_lab.gluon import access  # loaded already if a Block is alive
    from hybrid_lab.hybridize.block import OWN

    numbers: dict[int, int] = {}
    children = [
        (name, type(child), numbers.setdefault(id(child), len(numbers)), _one_output(child))
        for name, child in access.children(block).items()
    ]
    attributes: list[Hashable] = []
    for name, thing in vars(block).items():
        if name in OWN:
            continue
        if isinstance(thing, (list, tuple, dict)):
            if not isinstance(thing, (list, tuple)) or not all(type(item) in _PLAIN for item in thing):
                return None
            attributes.append((name, *((type(item), item) for item in thing)))
        attributes.append((name, type(thing)))
    return type(block), tuple(children), tuple(access.own_parameters(block)), tuple(attributes)


def in_package(cls: type) -> bool:
    """Whether a class is this package's own."""
    return (cls.__module__ or "").partition(".")[0] == _PACKAGE


def is_a(thing: object, name: str) -> bool:
    """Whether an object's class is, or comes from, the package's class of that name (which need not be loaded)."""
    return any(cls.__name__ == name and in_package(cls) for cls in type(thing).__mro__)


def is_hybrid(cls: type) -> bool:
    """Whether a class is a HybridBlock."""
    return any(base.__name__ == "HybridBlock" and in_package(base) for base in cls.__mro__)


def dotted_class(cls: type) -> str:
    """The canonical name of a class of this package: `mx.gluon.nn.Dense`, `mx.nd.NDArray`."""
    if any(base.__name__ == "Block" and in_package(base) for base in cls.__mro__):
        if is_hybrid(cls):
            return f"mx.gluon.{cls.__name__}" if cls.__name__ == "HybridBlock" else f"mx.gluon.nn.{cls.__name__}"
        # A plain Block counts as one whatever it is called.
        return f"mx.gluon.{cls.__name__ if cls.__name__ in names.PLAIN_BLOCKS else 'Block'}"
    known = {"NDArray": "mx.nd.NDArray", "Symbol": "mx.sym.Symbol", "Parameter": "mx.gluon.Parameter"}
    known["Constant"] = "mx.gluon.Constant"
    return known.get(cls.__name__, names.canonical(f"{cls.__module__}.{cls.__qualname__}"))


def _first_code(cls: type) -> tuple[str, int] | None:
    """File and first line of some method written in the class, or where `inspect` finds the class."""
    for member in vars(cls).values():
        function = inspect.unwrap(getattr(member, "__func__", None) or getattr(member, "fget", None) or member)
        if isinstance(function, types.FunctionType) and function.__qualname__.startswith(cls.__qualname__):
            return function.__code__.co_filename, function.__code__.co_firstlineno
    try:
        return inspect.getfile(cls), inspect.getsourcelines(cls)[1]
    except (TypeError, OSError):
        return None


def _one_output(block: Block) -> bool:
    """Whether a live block gives one tensor, by its class or by its last child's."""
    from hybrid_lab.gluon import access

    for _ in range(64):
        if type(block).__name__ in names.SINGLE_OUTPUT_LAYERS and in_package(type(block)):
            return True
        in_sequence = type(block).__name__ in ("HybridSequential", "Sequential") and in_package(type(block))
        if not in_sequence or not access.children(block):
            return False
        block = list(access.children(block).values())[-1]
    return False
