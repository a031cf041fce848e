"""Follows tensors from the arguments of hybrid_forward (or forward) through the statements of a method."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ..diagnostics import rules as catalogue
from ..diagnostics.finding import Edit, Fix, Severity
from ..diagnostics.rules.checking import Attribute, Mark
from ..diagnostics.rules.values import NONE, OTHER, Kind, Value, element_of, join, sequence, tensor
from . import names
from .arguments import seeds
from .calls import Calls
from .classes import Function, Module, SourceClass
from .source import Source

Environment = dict[str, Value]


@dataclass(eq=False)
class Frame:
    """One function being walked. returns: (node, value, decided by the mode or the sort of the inputs)."""

    function: Function | None
    module: Module
    source: Source
    env: Environment
    closure: Frame | None = None
    owner: SourceClass | None = None
    returns: list[tuple[ast.AST, Value, bool]] = field(default_factory=list)
    varying: bool = False
    raising: bool = False


@cache
def _rules_by_node() -> dict[type, list[catalogue.Rule]]:
    table: dict[type, list[catalogue.Rule]] = {}
    for record in catalogue.all():
        for node_type in record.nodes:
            table.setdefault(node_type, []).append(record)
    return table


class Taint(Calls):
    """The checker: runs the methods of one class on abstract values and lets the rules look at every node.

    `marks` collects (mark, rule, source), each place once per rule. Nothing of the user's code is executed.
    """

    def __init__(self) -> None:
        self.style = "hybrid_forward"
        self.operators: str | None = None
        self.block: SourceClass | None = None
        self.marks: dict[tuple[str, int, int, int], tuple[Mark, catalogue.Rule, Source]] = {}
        self.frames: list[Frame] = []
        self.quiet = 0
        self.constructing: SourceClass | None = None
        self.classes: list[SourceClass] = []
        self.budget = 400_000
        self.summaries: dict[Any, Value] = {}
        self.values: dict[int, Value] = {}
        self.handlers: dict[type, Callable[[Any], Value]] = {}
        self.by_node = _rules_by_node()

    # What rules ask (diagnostics.rules.checking.Checking)

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    def value(self, node: ast.AST | None) -> Value:
        return OTHER if node is None else self.values.get(id(node), OTHER)

    def dotted(self, node: ast.AST | None) -> str | None:
        value = self.value(node)
        return value.ref if value.kind is Kind.MODULE and isinstance(value.ref, str) else None

    def text(self, node: ast.AST) -> str:
        return self.frame.source.segment(node)

    def root_name(self, node: ast.AST) -> str | None:
        if isinstance(node, ast.Name):
            return node.id if self.value(node).has_tensor else None
        for child in ast.iter_child_nodes(node):
            if (name := self.root_name(child)) is not None:
                return name
        return None

    def tensor_name(self, node: ast.AST) -> str:
        text = " ".join(self.text(node).split())
        return text if isinstance(node, ast.Name) or len(text) <= 40 else self.root_name(node) or "x"

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self.frame.source.parents.get(id(node))

    def function(self) -> Any:
        return self.frame.function.node if self.frame.function else None

    def returns(self) -> list[tuple[ast.AST, Value, bool]]:
        return self.frame.returns

    def replace(self, node: ast.AST, text: str) -> Edit:
        return self.frame.source.edit(node, text)

    def insert(self, line: int, byte: int, text: str) -> Edit:
        return self.frame.source.insertion(line, byte, text)

    def mark(
        self,
        node: ast.AST,
        tensor: str | None = None,
        *,
        fix: Fix | None = None,
        severity: Severity | None = None,
        portability: bool | None = None,
        message: str | None = None,
        rewrite: str | None = None,
        **facts: Any,
    ) -> Mark:
        return Mark(node, tensor, facts, fix, severity, portability, message, rewrite)

    @property
    def source(self) -> Source:
        return self.frame.source

    @property
    def makes_graph(self) -> bool:
        cls = self.block
        return cls is not None and (cls.find("hybrid_forward") is not None or cls.find("forward") is not None)

    @property
    def depth(self) -> int:
        return len(self.frames)

    def statement(self, node: ast.AST) -> ast.AST:
        while not isinstance(node, ast.stmt) and (parent := self.parent(node)) is not None:
            node = parent
        return node

    @property
    def raising(self) -> bool:
        return self.frame.raising

    def is_block(self, value: Value) -> bool | None:
        if isinstance(value.ref, SourceClass):
            return bool(value.ref.hybrid) if value.ref.hybrid is not None else None
        return names.is_block_class(value.ref) if isinstance(value.ref, str) else None

    def kind_of_block(self, value: Value) -> str:
        if isinstance(value.ref, SourceClass):
            return value.ref.name
        return str(value.ref or "Block").rpartition(".")[2]

    # Letting the rules look

    def look(self, node: ast.AST) -> None:
        if self.quiet:
            return
        for record in self.by_node.get(type(node), ()):
            assert record.at is not None
            for mark in record.at(node, self) or ():
                line, col, *_ = self.frame.source.span(mark.node)
                key = (record.code, id(self.frame.source), line, col)
                if key not in self.marks:
                    self.marks[key] = (mark, record, self.frame.source)

    # A class

    def check_class(self, cls: SourceClass) -> None:
        """Walk the constructor, then the method that makes the graph; all marks are in `marks`."""
        self.construct(cls)
        self.block = cls
        cls_hybrid = cls.own_methods.get("hybrid_forward")
        inherited = cls.find("hybrid_forward")
        forward = cls.own_methods.get("forward")
        self.style = "hybrid_forward" if inherited is not None else "forward"
        self.operators = None
        self.frames.append(Frame(None, cls.module, cls.source, {}, owner=cls))
        self.look(cls.node)
        self.frames.pop()
        if cls_hybrid is not None:
            self.walk_method(cls, cls_hybrid, takes_operators=True)
        elif inherited is None and forward is not None:
            self.walk_method(cls, forward, takes_operators=False)

    def construct(self, cls: SourceClass) -> None:
        """Learn what stands on self: class-level names, then everything `__init__` assigns."""
        if cls.constructed:
            return
        cls.constructed = True
        self.quiet += 1
        outer, self.constructing = self.constructing, cls
        for base in reversed(list(cls.mro())):
            self.frames.append(Frame(None, base.module, base.source, {}, owner=base))
            for statement in base.node.body:
                if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
                    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                    found = self.evaluate(statement.value)
                    for target in targets:
                        if isinstance(target, ast.Name):
                            cls.attributes[target.id] = Attribute(target.id, found, statement)
            self.frames.pop()
        init = cls.find("__init__")
        if init is not None:
            self.frames.append(Frame(None, init.module, init.source, {}, owner=cls))
            self.enter(init, [], {}, Value(Kind.SELF, ref=cls), unknown_arguments=True)
            self.frames.pop()
        self.constructing = outer
        self.quiet -= 1

    def walk_method(self, cls: SourceClass, method: Function, takes_operators: bool) -> None:
        arguments = method.node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        env: Environment = {}
        if positional:
            env[positional[0].arg] = Value(Kind.SELF, ref=cls)
        rest = positional[1:]
        if takes_operators and rest:
            self.operators = rest[0].arg
            env[rest[0].arg] = Value(Kind.OPERATORS, ref="")
            rest = rest[1:]
        env |= seeds(method.node, [*rest, *arguments.kwonlyargs], set(cls.parameters))
        if arguments.vararg:
            env[arguments.vararg.arg] = sequence(element=tensor(arguments.vararg.arg, single=False))
        if arguments.kwarg:
            env[arguments.kwarg.arg] = Value(Kind.MAPPING, element=tensor(arguments.kwarg.arg, depends=False))
        self.frames.append(Frame(method, method.module, method.source, env, owner=cls))
        self.run(method.node.body)
        self.look(method.node)
        self.frames.pop()

    # Statements. `run` tells whether control reaches the end of the block.

    def run(self, body: Iterable[ast.stmt]) -> bool:
        for statement in body:
            handler = getattr(self, f"do_{type(statement).__name__}", None)
            self.budget -= 1
            if self.budget < 0:
                return True
            reached = handler(statement) if handler is not None else self.do_nothing(statement)
            if reached is False:
                return False
        return True

    def do_nothing(self, node: ast.stmt) -> None:
        self.look(node)

    def do_Expr(self, node: ast.Expr) -> None:
        self.evaluate(node.value)
        self.look(node)

    def do_Assign(self, node: ast.Assign) -> None:
        value = self.evaluate(node.value)
        for target in node.targets:
            self.bind(target, value)
        self.look(node)

    def do_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.bind(node.target, self.evaluate(node.value))
        self.look(node)

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        before = self.load_target(node.target)
        right = self.evaluate(node.value)
        self.values[id(node.target)] = before
        self.look(node)
        self.bind(node.target, self.arithmetic(node.op, before, right))

    def do_Return(self, node: ast.Return) -> bool:
        value = NONE if node.value is None else self.evaluate(node.value)
        self.frame.returns.append((node, value, self.frame.varying))
        self.look(node)
        return False

    def do_Raise(self, node: ast.Raise) -> bool:
        self.frame.raising = True
        if node.exc is not None:
            self.evaluate(node.exc)
        self.frame.raising = False
        return False

    def do_Break(self, node: ast.Break) -> bool:
        return False

    do_Continue = do_Break

    def do_Assert(self, node: ast.Assert) -> None:
        self.evaluate(node.test)
        self.look(node)
        if node.msg is not None:
            self.frame.raising = True
            self.evaluate(node.msg)
            self.frame.raising = False
        self.narrow(node.test, True)

    def do_If(self, node: ast.If) -> bool:
        test = self.evaluate(node.test)
        self.look(node)
        frame = self.frame
        varying = frame.varying
        frame.varying = varying or self.decided_anew(test)
        before = dict(frame.env)
        only_eager = self.eager_branch(node.test)
        reached_body = self._branch(node.body, node.test, True, quiet=only_eager is True)
        after_body = frame.env
        frame.env = dict(before)
        reached_else = self._branch(node.orelse, node.test, False, quiet=only_eager is False)
        if reached_body and reached_else:
            frame.env = _joined(after_body, frame.env)
        elif reached_body:
            frame.env = after_body
        # What follows a branch that has returned is decided by the same test.
        frame.varying = frame.varying if not (reached_body and reached_else) else varying
        return reached_body or reached_else

    def _branch(self, body: list[ast.stmt], test: ast.expr, outcome: bool, quiet: bool) -> bool:
        self.quiet += quiet
        self.narrow(test, outcome)
        reached = self.run(body)
        self.quiet -= quiet
        return reached

    def do_While(self, node: ast.While) -> bool:
        self._loop(node, lambda: self.narrow_after(node.test))
        forever = isinstance(node.test, ast.Constant) and node.test.value is True
        return not forever or any(isinstance(inner, ast.Break) for inner in ast.walk(node))

    def do_For(self, node: ast.For | ast.AsyncFor) -> None:
        iterable = self.evaluate(node.iter)
        self.look(node)
        self._loop(node, lambda: self.bind(node.target, self.member(iterable)))

    do_AsyncFor = do_For

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, start: Any) -> None:
        """The body is walked until nothing new is learnt about the names, three times at most."""
        for _ in range(3):
            before = dict(self.frame.env)
            start()
            if isinstance(node, ast.While):
                self.look(node)
            self.run(node.body)
            self.frame.env = _joined(before, self.frame.env)
            if self.frame.env == before:
                break
        self.run(node.orelse)

    def narrow_after(self, test: ast.expr) -> None:
        self.evaluate(test)
        self.narrow(test, True)

    def do_With(self, node: ast.With | ast.AsyncWith) -> bool:
        for item in node.items:
            value = self.evaluate(item.context_expr)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, OTHER if value.has_tensor else value)
        self.look(node)
        return self.run(node.body)

    do_AsyncWith = do_With

    def do_Try(self, node: ast.Try) -> bool:
        before = dict(self.frame.env)
        reached = self.run(node.body)
        self.look(node)
        partial = _joined(before, self.frame.env)
        if reached:
            reached = self.run(node.orelse)
        ends = [self.frame.env] if reached else []
        for handler in node.handlers:
            self.frame.env = dict(partial)
            if handler.name:
                self.frame.env[handler.name] = OTHER
            if self.run(handler.body):
                ends.append(self.frame.env)
        self.frame.env = ends[0] if ends else dict(partial)
        for end in ends[1:]:
            self.frame.env = _joined(self.frame.env, end)
        finished = self.run(node.finalbody)
        return bool(ends) and finished

    do_TryStar = do_Try

    def do_Match(self, node: ast.Match) -> None:
        subject = self.evaluate(node.subject)
        self.look(node)
        before = dict(self.frame.env)
        ends = [before]
        for case in node.cases:
            self.frame.env = dict(before)
            for pattern in ast.walk(case.pattern):
                name = getattr(pattern, "name", None) or getattr(pattern, "rest", None)
                if isinstance(name, str):
                    self.frame.env[name] = subject if pattern is case.pattern else self.member(subject)
            if case.guard is not None:
                self.evaluate(case.guard)
            if self.run(case.body):
                ends.append(self.frame.env)
        self.frame.env = ends[0]
        for end in ends[1:]:
            self.frame.env = _joined(self.frame.env, end)

    def do_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        closure = self.frame if self.frame.function is not None else None
        function = Function(node, self.frame.source, self.frame.module, closure=closure)
        self.frame.env[node.name] = Value(Kind.FUNCTION, ref=function)

    do_AsyncFunctionDef = do_FunctionDef

    def do_ClassDef(self, node: ast.ClassDef) -> None:
        cls = SourceClass(node.name, node, self.frame.source, self.frame.module)
        cls.bases = tuple(self._base(self.evaluate(base)) for base in node.bases)
        closure = self.frame if self.frame.function is not None else None
        for statement in node.body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                method = Function(statement, self.frame.source, self.frame.module, owner=cls, closure=closure)
                cls.own_methods[statement.name] = method
        self.frame.env[node.name] = Value(Kind.CLASS, ref=cls)
        self.classes.append(cls)

    @staticmethod
    def _base(value: Value) -> SourceClass | str | None:
        if isinstance(value.ref, SourceClass):
            return value.ref
        if value.kind is Kind.MODULE and isinstance(value.ref, str) and not value.ref.startswith("?."):
            return value.ref
        return None

    # A module

    def define(self, module: Module) -> list[SourceClass]:
        """Learn the names of a module, without remarks; its classes, those inside functions too."""
        self.classes = []
        self.quiet += 1
        frame = Frame(None, module, module.source, module.names)
        self.frames.append(frame)
        try:
            self.run(module.source.tree.body)
        except RecursionError:
            del self.frames[1:]  # an expression nested too deeply; what was learnt so far holds
        # Branches replace the environment; what they found belongs to the module.
        module.names.update(frame.env)
        self.frames.pop()
        for function in _functions_with_classes(module.source.tree):
            inner = Frame(Function(function, module.source, module), module, module.source, {})
            inner.env.update({argument.arg: OTHER for argument in ast.walk(function) if isinstance(argument, ast.arg)})
            self.frames.append(inner)
            for statement in function.body:
                if isinstance(statement, (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.If, ast.Try)):
                    self.run([statement])
            self.frames.pop()
        self.quiet -= 1
        return self.classes

    def do_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            root = alias.name.partition(".")[0]
            dotted = alias.name if alias.asname else root
            self.frame.env[alias.asname or root] = Value(Kind.MODULE, ref=names.canonical(dotted))

    def do_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = "." * node.level + (node.module or "")
        for alias in node.names:
            self.frame.env[alias.asname or alias.name] = Value(Kind.MODULE, ref=names.canonical(f"{base}.{alias.name}"))

    def do_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.frame.env.pop(target.id, None)

    # Names and targets

    def bind(self, target: ast.expr, value: Value) -> None:
        """Assign an abstract value to a target expression."""
        self.values[id(target)] = value
        if isinstance(target, ast.Name):
            named = value.kind is Kind.TENSOR and value.name is None
            self.frame.env[target.id] = value.but(name=target.id) if named else value
        elif isinstance(target, (ast.Tuple, ast.List)):
            for element, part in zip(target.elts, self.unpacked(value, target.elts), strict=True):
                self.bind(element.value if isinstance(element, ast.Starred) else element, part)
        elif isinstance(target, ast.Attribute):
            owner = self.evaluate(target.value)
            if owner.kind is Kind.SELF:
                self.store_on_self(target, target.attr, value)
            self.values[id(target)] = value
            self.look(target)
        elif isinstance(target, ast.Subscript):
            owner = self.evaluate(target.value)
            self.evaluate(target.slice)
            self.look(target)
            if owner.kind in (Kind.SEQUENCE, Kind.MAPPING):
                self.grow(target.value, owner, value)

    def store_on_self(self, target: ast.AST, name: str, value: Value) -> None:
        if self.constructing is None:
            return
        if value.site is not None:
            self.constructing.registered.add(value.site)
        known = self.constructing.attributes.get(name)
        if known is not None and known.value != NONE and known.value.kind is not Kind.CONSTANT:
            # A second assignment on another path: keep what is sure, and the place that tells most.
            value = known.value if value.kind in (Kind.CONSTANT, Kind.OTHER) else value
        self.constructing.attributes[name] = Attribute(name, value, target)

    def grow(self, container: ast.expr, owner: Value, value: Value) -> None:
        """A container got a new member."""
        grown = Value(owner.kind, element=join(element_of(owner), value) if owner.members else value, depends=False)
        if isinstance(container, ast.Name):
            frame: Frame | None = self.frame
            while frame is not None and container.id not in frame.env:
                frame = frame.closure
            (frame or self.frame).env[container.id] = grown
        elif isinstance(container, ast.Attribute) and self.value(container.value).kind is Kind.SELF:
            if self.constructing is not None:
                node = self.constructing.attributes.get(container.attr)
                place = node.node if node is not None else container
                self.constructing.attributes[container.attr] = Attribute(container.attr, grown, place)

    def unpacked(self, value: Value, targets: list[ast.expr]) -> list[Value]:
        count = len(targets)
        starred = next((i for i, t in enumerate(targets) if isinstance(t, ast.Starred)), None)
        if value.items is not None and starred is None and len(value.items) == count:
            return list(value.items)
        part = self.member(value)
        parts = [part] * count
        if starred is not None:
            if value.items is not None and len(value.items) >= count - 1:
                tail = count - 1 - starred
                middle = value.items[starred : len(value.items) - tail]
                ends = value.items[len(value.items) - tail :] if tail else ()
                return [*value.items[:starred], sequence(middle), *ends]
            parts[starred] = sequence(element=part)
        return parts

    def load_target(self, target: ast.expr) -> Value:
        if isinstance(target, ast.Name):
            return self.lookup(target.id)
        if isinstance(target, ast.Attribute):
            return self.attribute_of(self.evaluate(target.value), target.attr)
        if isinstance(target, ast.Subscript):
            owner = self.evaluate(target.value)
            self.evaluate(target.slice)
            return self.subscript_of(owner, target.slice)
        return OTHER

    # What a test tells about names

    def narrow(self, test: ast.expr, outcome: bool) -> None:
        """Learn from a condition that turned out `outcome`."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self.narrow(test.operand, not outcome)
        elif isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) is outcome:
            for operand in test.values:
                self.narrow(operand, outcome)
        elif isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.left, ast.Name):
            right = test.comparators[0]
            if isinstance(right, ast.Constant) and right.value is None and isinstance(test.ops[0], (ast.Is, ast.IsNot)):
                self._narrow_none(test.left.id, isinstance(test.ops[0], ast.Is) is outcome)
        elif isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "isinstance":
            if len(test.args) == 2 and isinstance(test.args[0], ast.Name):
                self._narrow_class(test.args[0].id, test.args[1], outcome)

    def _narrow_none(self, name: str, is_none: bool) -> None:
        value = self.frame.env.get(name)
        if value is not None and value.kind is Kind.TENSOR:
            self.frame.env[name] = NONE if is_none else value.but(optional=False)

    def _narrow_class(self, name: str, classes: ast.expr, outcome: bool) -> None:
        value = self.frame.env.get(name)
        if value is None or value.kind is not Kind.TENSOR:
            return
        asked = {
            child.attr if isinstance(child, ast.Attribute) else child.id
            for child in ast.walk(classes)
            if isinstance(child, (ast.Name, ast.Attribute))
        }
        if asked & {"list", "tuple", "List", "Tuple", "Sequence"}:
            self.frame.env[name] = sequence(element=tensor(name)) if outcome else value.but(single=True)
        elif outcome and asked & {"int", "float", "bool", "str", "dict", "Number", "integer_types", "numeric_types"}:
            self.frame.env[name] = OTHER

    def decided_anew(self, test: Value) -> bool:
        return test.kind is Kind.MODE


def _joined(a: Mapping[str, Value], b: Mapping[str, Value]) -> Environment:
    joined = {**b, **a}
    for name, value in a.items():
        if (other := b.get(name)) is not None and other is not value:
            joined[name] = join(value, other)
    return joined


def _functions_with_classes(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions and methods in whose bodies classes are defined."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            blocks = [node.body, *(part.body for part in node.body if isinstance(part, (ast.If, ast.With, ast.Try)))]
            if any(isinstance(statement, ast.ClassDef) for block in blocks for statement in block):
                yield node
