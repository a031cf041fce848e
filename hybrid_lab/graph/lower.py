"""Lower operators into primitives where an engine wants the parts apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.graph.builder import Builder, Expr
from hybrid_lab.graph.graph import Graph, reachable
from hybrid_lab.graph.node import Constant, Node, Value
from hybrid_lab.ops.operator import Operator


def lower_random(graph: Graph) -> Graph:
    """Random operators that do more than draw become a draw and arithmetic, so that the arithmetic can be fused.

    The drawing node keeps the draw number; numbers do not change.
    """

    def rewrite(node: Node, inputs: tuple[Any, ...]) -> Any:
        if not (node.op.random and node.inputs and type(node.op).lower is not Operator.lower):
            return None
        return lower(node, inputs)

    return graph.map(rewrite)


def lower(node: Node, inputs: Sequence[Any]) -> tuple[Value, ...]:
    """The outputs of `node` over new inputs, written in primitives by its record."""
    builder = _DrawingBuilder(node.draw)
    with builder.origin(node):
        results = node.op.lower(builder, *map(builder.expr, inputs))
    results = results if isinstance(results, (tuple, list)) else (results,)
    return tuple(item.value if isinstance(item, Expr) else item for item in results)


class _DrawingBuilder(Builder):
    """Gives the draw number of the lowered node to the random node that takes its place."""

    def __init__(self, draw: int | None):
        super().__init__()
        self._draw = draw

    def append(self, op: Operator, inputs: Sequence[Any], draw: int | None = None) -> tuple[Value, ...]:
        return super().append(op, inputs, self._draw if op.random else draw)


def lower_where(graph: Graph, wanted: Callable[[Node], bool]) -> Graph:
    """Lower composite operators whose parts are all `wanted`; the others stay whole."""

    def rewrite(node: Node, inputs: tuple[Any, ...]) -> Any:
        if type(node.op).lower is Operator.lower or wanted(node) or not node.inputs:
            return None
        try:
            values = lower(node, inputs)
        except Unmappable:
            return None
        given = {item for item in inputs if isinstance(item, Value)}
        made = reachable([value for value in values if isinstance(value, Value)], given)
        if not all(isinstance(item.op, Constant) or wanted(item) for item in made):
            return None
        return values if len(values) == len(node.outputs) else None

    return graph.map(rewrite)
