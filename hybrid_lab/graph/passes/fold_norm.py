"""Fold BatchNorm in prediction into the convolution or dense layer before it.

With standing statistics BatchNorm is y = x * scale + shift per channel, and the layer before it can do that itself:

    scale = gamma / sqrt(moving_var + eps)        W' = W * scale, per output channel
    shift = beta - moving_mean * scale            b' = b * scale + shift

W' and b' depend on parameters alone, so that `hoist` takes them out of every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hybrid_lab.graph.builder import Builder, Expr
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.graph.passes.hoist import steady_values


def fold_norm(graph: Graph) -> Graph:
    """An inferred graph that is bound to prediction, with fewer BatchNorms.

    A BatchNorm stays if its statistics are read, if its numbers depend on anything but parameters, in float16
    (scaled weights may leave its range), and on data straight from the caller (subtracting the mean first is more exact
    there). Behind a layer that others read too, it becomes one scale and shift.

    A graph that quantizes to 8 bits stays as it is: another rounding may change the result by a whole step of 8 bits.
    """
    if graph.has_eight_bits:
        return graph
    users, roots = graph.users(), set(graph.roots)
    steady = steady_values(graph)
    computed = _computed(graph)
    builder = Builder()

    def rewrite(node: Node, inputs: tuple[object, ...]) -> Sequence[Value] | None:
        if node.op.name != "BatchNorm" or not _is_fixed(node, steady, users, roots):
            return None
        before = node.inputs[0]
        alone = len(users[before]) == 1 and before not in roots
        with builder.origin(node):
            folded = _folded(builder, node, inputs, steady) if alone else None
            if folded is None and before in computed:
                scale, shift = _scale_and_shift(builder, node, inputs)
                folded = builder._channel_affine(builder.expr(inputs[0]), scale, shift, axis=node.op.axis).value  # type: ignore[attr-defined]
        return None if folded is None else (folded, *node.outputs[1:])

    return graph.map(rewrite)


def _is_fixed(node: Node, steady: set[Value], users: dict[Value, list[Node]], roots: set[Value]) -> bool:
    """Whether the node is a scale and shift by parameters, of one floating type that is wide enough."""
    if node.op.from_batch or any(value in users or value in roots for value in node.outputs[1:]):  # type: ignore[attr-defined]
        return False
    dtypes = {item.dtype.name if isinstance(item, Value) else "" for item in node.inputs}
    return dtypes in ({"float32"}, {"float64"}) and all(item in steady for item in node.inputs[1:])


def _scale_and_shift(F: Builder, node: Node, inputs: tuple[object, ...]) -> tuple[Expr, Expr]:
    op: Any = node.op
    gamma, beta, mean, variance = map(F.expr, inputs[1:])
    inverse = F.rsqrt(variance + op.eps)
    scale = inverse if op.fix_gamma else inverse * gamma
    return scale, beta - mean * scale


def _folded(F: Builder, norm: Node, inputs: tuple[Any, ...], steady: set[Value]) -> Value | None:
    """The layer before `norm` with scaled weights, or None if there is no such layer."""
    layer: Node = inputs[0].node
    channels, rank = layer.op.channels, len(norm.inputs[0].shape)
    if channels is None or (norm.op.axis - channels) % rank or not all(item in steady for item in layer.inputs[1:]):  # type: ignore[attr-defined]
        return None
    weight, *bias = map(F.expr, layer.inputs[1:])
    scale, shift = _scale_and_shift(F, norm, inputs)
    scaled: Any = layer.op.scaled_weight(F, weight, scale)
    shift = bias[0] * scale + shift if bias else shift
    name = layer.inputs[1].node.name or layer.op.name.lower()
    folded = (_named(scaled.value, f"{name}_folded"), _named(shift.value, f"{name}_folded_bias"))
    steady.update(folded)
    return layer.replace(op=layer.op.variant(no_bias=False), inputs=(layer.inputs[0], *folded)).outputs[0]


def _named(value: Value, name: str) -> Value:
    """The same value under a name, which its input has once it is hoisted."""
    return value.node.replace(name=name).outputs[value.index]


def _computed(graph: Graph) -> set[Value]:
    """Values with a sum of products behind them: they carry its rounding, and one more changes nothing."""
    computed: set[Value] = set()
    for node in graph.nodes:
        if node.op.family in ("conv", "deconv", "linalg") or any(value in computed for value in node.values_in):
            computed.update(node.outputs)
    return computed
