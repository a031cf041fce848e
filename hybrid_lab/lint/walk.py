"""Walk: the state of a walk over the user's code without running it. The modules beside it are functions over a Walk.

`expressions` and `calls` register how each kind of syntax is evaluated, `statements` how each is executed.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterable
from functools import cache, singledispatch

from ..diagnostics import expression
from ..diagnostics import rules as catalogue
from ..diagnostics.finding import Edit, Fix, Severity
from ..diagnostics.rules.checking import Mark
from ..diagnostics.rules.values import OTHER, Kind, Value
from . import names
from .classes import Frame, FunctionNode, SourceClass
from .source import Source


@cache
def _rules_by_node() -> dict[type, list[catalogue.Rule]]:
    table: dict[type, list[catalogue.Rule]] = {}
    for record in catalogue.all():
        for node_type in record.nodes:
            table.setdefault(node_type, []).append(record)
    return table


class Walk:
    """What is known at one point of the code, and the answers to what rules ask (diagnostics.rules.checking.Checking).

    values: what each expression holds, by the id of its node
    frames: the functions being walked, innermost last
    marks: (mark, rule, source) of all places that rules objected to, each place once per rule
    quiet: above 0, rules do not look
    budget: nodes that may still be walked
    constructing: the class whose constructor is being walked
    summaries: what functions returned, by their arguments
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
        self.summaries: dict[Hashable, Value] = {}
        self.values: dict[int, Value] = {}

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    def look(self, node: ast.AST) -> None:
        """Let the rules look at a node whose parts have been evaluated."""
        if self.quiet:
            return
        for record in _rules_by_node().get(type(node), ()):
            assert record.at is not None
            for mark in record.at(node, self) or ():
                line, col, *_ = self.frame.source.span(mark.node)
                key = (record.code, id(self.frame.source), line, col)
                if key not in self.marks:
                    self.marks[key] = (mark, record, self.frame.source)

    # What rules ask

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

    def function(self) -> FunctionNode | None:
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
        **facts: object,
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


def evaluate(walk: Walk, node: ast.expr) -> Value:
    """The abstract value of an expression; every rule then looks at it."""
    walk.budget -= 1
    if walk.budget < 0:
        return OTHER
    value = walk.values[id(node)] = value_of.dispatch(type(node))(node, walk)
    walk.look(node)
    return value


@singledispatch
def value_of(node: ast.AST, walk: Walk) -> Value:
    """How `evaluate` gets the value of one kind of syntax; of other kinds it evaluates the parts."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            evaluate(walk, child)
    return OTHER


def run(walk: Walk, body: Iterable[ast.stmt]) -> bool:
    """Walk over statements; whether control reaches their end."""
    for statement in body:
        walk.budget -= 1
        if walk.budget < 0:
            return True
        if execute.dispatch(type(statement))(statement, walk) is False:
            return False
    return True


@singledispatch
def execute(node: ast.AST, walk: Walk) -> bool | None:
    """What one kind of statement does to the names; False where control does not reach the next statement."""
    walk.look(node)
    return None
