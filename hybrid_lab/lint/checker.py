"""The checker: the questions rules may ask, and the walk over a class and a module."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from ..diagnostics import expression
from ..diagnostics import rules as catalogue
from ..diagnostics.finding import Edit, Fix, Severity
from ..diagnostics.rules.checking import Attribute, Mark
from ..diagnostics.rules.values import OTHER, Kind, Value, sequence, tensor
from . import names
from .arguments import seeds
from .classes import Function, Module, SourceClass
from .frame import Environment, Frame
from .source import Source
from .taint import Taint


@cache
def _rules_by_node() -> dict[type, list[catalogue.Rule]]:
    table: dict[type, list[catalogue.Rule]] = {}
    for record in catalogue.all():
        for node_type in record.nodes:
            table.setdefault(node_type, []).append(record)
    return table


class Checker(Taint):
    """Runs the methods of one class on abstract values and lets the rules look at every node.

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
        self.budget = 200_000
        self.summaries: dict[Any, Value] = {}
        self.values: dict[int, Value] = {}
        self.handlers: dict[type, Callable[[Any], Value]] = {}
        self.by_node = _rules_by_node()

    # What rules ask (diagnostics.rules.checking.Checking)

    def value(self, node: ast.AST | None) -> Value:
        return OTHER if node is None else self.values.get(id(node), OTHER)

    def dotted(self, node: ast.AST | None) -> str | None:
        value = self.value(node)
        return value.ref if value.kind is Kind.MODULE and isinstance(value.ref, str) else None

    def text(self, node: ast.AST) -> str:
        return self.frame.source.segment(node)

    def root_name(self, node: ast.AST) -> str | None:
        return expression.root_name(node, lambda name: self.value(name).has_tensor)

    def tensor_name(self, node: ast.AST) -> str:
        return expression.tensor_name(node, self.text(node), lambda name: self.value(name).has_tensor)

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
        self.frames.append(Frame(method, method.module, method.source, env, closure=method.closure, owner=cls))
        self.run(getattr(method.node, "body", ()))
        self.look(method.node)
        self.frames.pop()

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
            self.run(function.body)
            self.frames.pop()
        self.quiet -= 1
        return self.classes


def _functions_with_classes(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions and methods in whose bodies classes are defined."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            blocks = [node.body, *(part.body for part in node.body if isinstance(part, (ast.If, ast.With, ast.Try)))]
            if any(isinstance(statement, ast.ClassDef) for block in blocks for statement in block):
                yield node
