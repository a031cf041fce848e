"""Layout: fewer transposes and reshapes.

transpose(transpose(x))              = one transpose, or x
reshape(reshape(x))                  = one reshape, or x
transpose(f(transpose(x), 2))        = f(x, 2) where every transpose on the way cancels
dot(transpose(x), y)                 = dot(x, y, transpose_a=True), and so for batch_dot
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.ops.arrays.movement import Permutation
from hybrid_lab.ops.framework.operator import get
from hybrid_lab.ops.framework.pointwise import Elementwise
from hybrid_lab.ops.linalg.linalg import BatchDot, Dot

Order = tuple[int, ...]

#: Number of pointwise operators through which a transpose looks for transposes that it cancels.
_DEPTH = 8


def layout(graph: Graph) -> Graph:
    """An inferred graph with the same numbers. Simplify it afterwards: what is merged may be there already."""
    alone = {value for value, readers in graph.users().items() if len(readers) == 1} - set(graph.roots)

    def rewrite(node: Node, inputs: tuple[object, ...]) -> Sequence[Value] | None:
        op, order = node.op, order_of(node)
        if order is not None and isinstance(inputs[0], Value):
            moved = _transposed(node, inputs[0], order, alone, 0)
            if moved is not None:
                return (moved,)
        if op.in_order and isinstance(inputs[0], Value) and inputs[0].node.op.in_order:
            return (_reshaped(node, inputs[0].node.inputs[0]),)
        if type(op) in (Dot, BatchDot):
            return _product(node, inputs)
        # A rewritten value with one reader still has one.
        current = node if inputs == node.inputs else node.replace(inputs=inputs)
        alone.update(new for old, new in zip(node.outputs, current.outputs, strict=True) if old in alone)
        return current.outputs

    return graph.map(rewrite)


def order_of(node: Node) -> Order | None:
    """The permutation that a transpose does; None for other operators."""
    return node.op.order(len(node.outputs[0].shape)) if isinstance(node.op, Permutation) else None


def _transposed(node: Node, value: Value, order: Order, alone: set[Value], depth: int) -> Value | None:
    """`value` with its axes in `order`, if that takes no transpose more than there are; else None.

    node : whose place the new nodes take
    """
    if order == tuple(range(len(order))):
        return value
    maker = value.node
    inner = order_of(maker)
    if inner is not None:
        merged = tuple(inner[axis] for axis in order)
        source = maker.inputs[0]
        if merged == tuple(range(len(merged))):
            return source
        return make_node(get("transpose").bind(axes=merged), (source,), origin=node).outputs[0] if depth == 0 else None
    if not isinstance(maker.op, Elementwise) or value not in alone or depth == _DEPTH or len(maker.outputs) != 1:
        return None
    inputs: list[Any] = []
    for item in maker.inputs:
        if isinstance(item, Value) and item.shape != ():
            # An operand of lower rank is aligned at the last axis: there is nothing to permute it by.
            moved = _transposed(node, item, order, alone, depth + 1) if len(item.shape) == len(order) else None
            if moved is None:
                return None
            item = moved
        inputs.append(item)
    return maker.replace(inputs=inputs, shapes=(tuple(value.shape[axis] for axis in order),)).outputs[0]


def _reshaped(node: Node, source: Value) -> Value:
    """`source` in the shape of the node's output; the batch, where it leads, is not written down."""
    before, after = source.shape, node.outputs[0].shape
    if before == after:
        return source
    if 0 in after[1:] or (0 in after and before[:1] != after[:1]):
        like = node.replace(op=get("reshape_like").bind(), inputs=(source, node.outputs[0]))
        return like.outputs[0]
    codes = (0 if before[:1] == after[:1] else -1, *after[1:]) if after else ()
    return node.replace(op=get("Reshape").bind(shape=codes), inputs=(source,)).outputs[0]


def _product(node: Node, inputs: tuple[object, ...]) -> Any:
    """A matrix product with its operands' transposes in its own attributes."""
    op: Any = node.op
    flags, operands = [op.transpose_a, op.transpose_b], list(inputs)
    for index, item in enumerate(inputs):
        if not isinstance(item, Value):
            continue
        rank = len(item.shape)
        if order_of(item.node) != (*range(rank - 2), rank - 1, rank - 2) or (op.name == "dot" and rank != 2):
            continue
        flags[index], operands[index] = not flags[index], item.node.inputs[0]
    if operands == list(inputs):
        return None
    return node.replace(op=op.variant(transpose_a=flags[0], transpose_b=flags[1]), inputs=operands).outputs
