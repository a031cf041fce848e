"""Lower one operator into the primitives that its record names; random ones keep their draw.

Dropout(x, p=0.5)  draw 2     becomes     mask = _dropout_mask(x)  draw 2
                                          _masked_scale(x, mask, scale=2.0)
"""

from __future__ import annotations

from collections.abc import Sequence

from hybrid_lab.graph.builder import Builder, Expr
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.ops.framework.operator import Operator


def lower_random(graph: Graph) -> Graph:
    """Random operators that do more than draw become a draw and arithmetic, so that the arithmetic can be fused.

    The drawing node keeps the draw number; numbers do not change. Recurrent layers stay whole: few engines have their
    parts, and those take them apart with `decompose`.
    """

    def rewrite(node: Node, inputs: tuple[object, ...]) -> Sequence[Value] | None:
        taken = node.op.random and is_composite(node.op) and node.inputs and node.op.family != "rnn"
        return lower(node, inputs) if taken else None

    return graph.map(rewrite)


def is_composite(op: Operator) -> bool:
    """Whether the record says how to write the operator in others; else it is a primitive."""
    return type(op).lower is not Operator.lower


def lower(node: Node, inputs: Sequence[object]) -> tuple[Value, ...]:
    """The outputs of `node` over new inputs, written in primitives by its record."""
    builder = Builder()
    with builder.origin(node):
        results = node.op.lower(builder, *map(builder.expr, inputs))
    results = results if isinstance(results, (tuple, list)) else (results,)
    return tuple(item.value if isinstance(item, Expr) else item for item in results)
