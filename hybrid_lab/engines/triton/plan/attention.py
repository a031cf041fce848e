"""Attention as one call of the vendor's library, if no other operator reads its weights: forward, and gradient.

    scores = batch_dot(q, k, transpose_b=True) * scale
    y = batch_dot(softmax(scores), v)                             y, sums = vendor_attention(q, k, v)

    dweights = batch_dot(dy, v, transpose_b=True)
    dscores = _softmax_grad(dweights, weights) * scale
    dq, dk = batch_dot(dscores, k), batch_dot(dscores, q, transpose_a=True)
    dv = batch_dot(weights, dy, transpose_a=True)                 dq, dk, dv = vendor_attention_grad(dy, q, k, v, ...)

This happens before lowering. `sums` are the logarithms of the sums of exponentials, one for each query: the forward
saves them, and y, in the place of the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hybrid_lab.engines.triton.plan.saved import forward_value, with_saved
from hybrid_lab.graph.call_graphs import Split
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Node, Value, input_node
from hybrid_lab.ops.framework.dtypes import NARROW
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.signature import Signature
from hybrid_lab.ops.framework.types import Array

#: The numbers of a query, key or value: the library takes multiples of EIGHT, at most WIDEST.
EIGHT, WIDEST = 8, 256
#: The attributes of a softmax over the last axis and nothing else.
_PLAIN_SOFTMAX = {"axis": -1, "temperature": None, "use_length": False, "dtype": None}


class VendorAttention(Operator):
    """softmax(q k^T scale) v of arrays (batch, queries, width). Outputs: the result, in training `sums` too."""

    name: ClassVar[str] = "vendor_attention"
    scale: float

    def __init__(self, scale: float, num_outputs: int):
        members = {"scale": scale, "signature": Signature(outputs=num_outputs), "attributes": {}, "inferred": {}}
        for key, value in members.items():
            object.__setattr__(self, key, value)

    def __repr__(self) -> str:
        return f"{self.name}(scale={self.scale!r})"

    def numpy(self, q: Array, k: Array, v: Array) -> tuple[Array | None, ...]:  # type: ignore[override]
        """For comparisons; the gradient computes the weights again."""
        y = (_weights(q, k, self.scale) @ v.astype(np.float32)).astype(q.dtype)
        return (y, None) if self.signature.outputs == 2 else (y,)


class VendorAttentionGrad(VendorAttention):
    """Its gradients. Inputs: the gradient of the result, q, k, v, the result, `sums`. Outputs: of q, k and v."""

    name: ClassVar[str] = "vendor_attention_grad"

    def numpy(  # type: ignore[override]
        self, dy: Array, q: Array, k: Array, v: Array, y: Array, sums: Array | None
    ) -> tuple[Array, ...]:
        weights, d = _weights(q, k, self.scale), dy.astype(np.float32)
        inner = d @ v.astype(np.float32).swapaxes(1, 2)
        scores = weights * (inner - (inner * weights).sum(-1, keepdims=True)) * np.float32(self.scale)
        found = scores @ k.astype(np.float32), scores.swapaxes(1, 2) @ q.astype(np.float32), weights.swapaxes(1, 2) @ d
        return tuple([gradient.astype(q.dtype) for gradient in found])


def _weights(q: Array, k: Array, scale: float) -> Array:
    scores: Array = q.astype(np.float32) @ k.astype(np.float32).swapaxes(1, 2) * np.float32(scale)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    return scores / scores.sum(-1, keepdims=True)


@dataclass(frozen=True)
class _AttentionMatch:
    """An attention of a graph: its last product, its softmax, its operands, and the factor of its scores."""

    mixed: Node
    softmax: Node
    operands: tuple[Value, Value, Value]
    scale: float


def _attentions(graph: Graph, saved: Iterable[Value] = ()) -> list[_AttentionMatch]:
    """The attentions of a graph of which only the result is read. saved : values that may be saved"""
    users, roots = graph.users(), set(graph.roots) - set(saved)
    return [
        found for node in graph.operators if (found := _attention_at(node)) is not None
        and all(len(users.get(value, ())) == 1 and value not in roots for value in _inner(found))
    ]  # fmt: skip


def _attention_at(mixed: Node) -> _AttentionMatch | None:
    if not _is_product(mixed, False, False) or mixed.outputs[0].dtype.name not in NARROW:
        return None
    softmax = mixed.values_in[0].node
    if softmax.op.name != "softmax" or len(softmax.inputs) != 1 or not _is_plain(softmax):
        return None
    product, scale = _scaled(softmax.values_in[0])
    if not _is_product(product, False, True):
        return None
    q, k, v = (*product.values_in, mixed.values_in[1])
    width = q.shape[2]
    if not q.shape[2] == k.shape[2] == v.shape[2] or width % EIGHT or width > WIDEST:
        return None
    return _AttentionMatch(mixed, softmax, (q, k, v), scale)


def _inner(found: _AttentionMatch) -> list[Value]:
    """The scores, before and after they are scaled, and the weights."""
    values, value = [found.softmax.outputs[0]], found.softmax.values_in[0]
    while value.node.op.name != "batch_dot":
        values.append(value)
        value = value.node.values_in[0]
    return [*values, value]


def _is_plain(softmax: Node) -> bool:
    op = softmax.op
    return all(getattr(op, name, value) == value for name, value in _PLAIN_SOFTMAX.items())


def _is_product(node: Node, turn_a: bool, turn_b: bool) -> bool:
    op: Any = node.op
    if op.name != "batch_dot" or len(node.outputs[0].shape) != 3 or len(node.values_in) != 2:
        return False
    return (bool(op.transpose_a), bool(op.transpose_b)) == (turn_a, turn_b)


def _scaled(value: Value) -> tuple[Node, float]:
    """The operator that makes a value, and the number that its result is multiplied with."""
    node = value.node
    if node.op.name in ("broadcast_mul", "broadcast_div") and len(node.values_in) == 1:
        first, second = node.inputs
        if isinstance(first, Value) and isinstance(second, (int, float)):
            return first.node, float(second) if node.op.name == "broadcast_mul" else 1.0 / float(second)
    return node, 1.0


def with_vendor_attention(graph: Graph, computes: Callable[[Node], bool]) -> Graph:
    """A graph with attentions by the library. computes : whether one with this last product is the library's"""
    found = {each.mixed: each for each in _attentions(graph) if computes(each.mixed)}
    if not found:
        return graph
    new = _Rebuilt(graph, lambda node, new: _attended(node, found[node], new, 1).outputs if node in found else None)
    return new.graph(graph.inputs, graph.outputs)


def split_with_vendor_attention(split: Split, computes: Callable[[Node], bool]) -> Split:
    """Both graphs of a recorded call with attentions by the library, if both their parts are found."""
    saved = {forward_value(split, source): value for value, source in
             zip(split.backward.inputs, split.sources, strict=True) if source[0] == "saved"}  # fmt: skip
    users, roots = split.backward.users(), set(split.backward.roots)
    pairs: dict[Node, tuple[_AttentionMatch, _AttentionGradient, Value]] = {}
    for found in _attentions(split.forward, [value for value in saved if value is not None]):
        weights = saved.get(found.softmax.outputs[0])
        others = [value for value in _inner(found) if value in saved and value is not found.softmax.outputs[0]]
        if weights is None or others or not computes(found.mixed) or weights in roots:
            continue
        gradient = _gradient_of(weights, found, users, roots)
        if gradient is not None:
            pairs[found.mixed] = found, gradient, weights
    if not pairs:
        return split
    made: dict[Node, Node] = {}

    def attend(node: Node, new: _Rebuilt) -> Sequence[Value] | None:
        if node not in pairs:
            return None
        made[node] = _attended(node, pairs[node][0], new, 2)
        return made[node].outputs[:1]

    rebuilt = _Rebuilt(split.forward, attend)
    for node in pairs:
        rebuilt.of(node.outputs[0])
    forward = rebuilt.graph(split.forward.inputs, split.forward.outputs)
    added = {
        value: input_node("kept", "saved", shape=value.shape, dtype=value.dtype)
        for node in made.values() for value in node.outputs
    }  # fmt: skip
    ends = {end: node for node, (_, gradient, _) in pairs.items() for end in gradient.ends}
    gradients: dict[Node, Node] = {}

    def turn(node: Node, new: _Rebuilt) -> Sequence[Value] | None:
        mixed = ends.get(node)
        if mixed is None:
            return None
        found, gradient, _ = pairs[mixed]
        if mixed not in gradients:
            inputs = [new.of(value) for value in gradient.operands]
            inputs += [added[value] for value in made[mixed].outputs]
            shapes = tuple(end.outputs[0].shape for end in gradient.ends)
            gradients[mixed] = node.replace(
                op=VendorAttentionGrad(found.scale, 3), inputs=tuple(inputs), shapes=shapes,
                dtypes=(node.outputs[0].dtype,) * 3,
            )  # fmt: skip
        return (gradients[mixed].outputs[gradient.ends.index(node)],)

    dropped = {weights for _, _, weights in pairs.values()}
    inputs = [value for value in split.backward.inputs if value not in dropped]
    backward = _Rebuilt(split.backward, turn).graph(inputs, split.backward.outputs)
    return with_saved(Split(forward, split.backward, split.sources), backward, dropped, added)


def _attended(node: Node, found: _AttentionMatch, new: _Rebuilt, outputs: int) -> Node:
    inputs = tuple([new.of(value) for value in found.operands])
    shape, dtype = node.outputs[0].shape, node.outputs[0].dtype
    return node.replace(
        op=VendorAttention(found.scale, outputs), inputs=inputs, shapes=(shape, shape[:2])[:outputs],
        dtypes=(dtype, np.dtype("float32"))[:outputs],
    )  # fmt: skip


@dataclass(frozen=True)
class _AttentionGradient:
    """operands : the result's gradient, q, k and v in the backward; ends : the products that give dq, dk and dv"""

    operands: tuple[Value, Value, Value, Value]
    ends: tuple[Node, Node, Node]


def _gradient_of(
    weights: Value, found: _AttentionMatch, users: Mapping[Value, Sequence[Node]], roots: set[Value]
) -> _AttentionGradient | None:
    """The gradient of an attention, if only the three gradients at its ends are read elsewhere."""

    def only(value: Value, count: int = 1) -> Sequence[Node]:
        readers = users.get(value, ())
        return readers if len(readers) == count and value not in roots else ()

    readers = users.get(weights, ())
    softmax = next((node for node in readers if node.op.name == "_softmax_grad"), None)
    value_end = next((node for node in readers if _is_product(node, True, False)), None)
    if softmax is None or value_end is None or len(readers) != 2 or value_end.values_in[0] is not weights:
        return None
    inner = softmax.values_in[0].node
    if softmax.values_in[1] is not weights or not _is_product(inner, False, True) or len(only(inner.outputs[0])) != 1:
        return None
    dy, v = inner.values_in
    scores, scale = softmax.outputs[0], 1.0
    if found.scale != 1.0:
        (scaled, *_) = (*only(scores), softmax)
        node, scale = _scaled(scaled.outputs[0])
        if node is not softmax:
            return None
        scores = scaled.outputs[0]
    ends = only(scores, 2)
    query_end = next((node for node in ends if _is_product(node, False, False) and node.values_in[0] is scores), None)
    key_end = next((node for node in ends if _is_product(node, True, False) and node.values_in[0] is scores), None)
    if scale != found.scale or query_end is None or key_end is None or value_end.values_in[1] is not dy:
        return None
    q, k = key_end.values_in[1], query_end.values_in[1]
    if [item.shape for item in (q, k, v)] != [item.shape for item in found.operands]:
        return None
    return _AttentionGradient((dy, q, k, v), (query_end, key_end, value_end))


class _Rebuilt:
    """A graph rebuilt in its own order, except for values that a replacement needs earlier.

    replace : (node, this) -> the values in the place of its outputs, or None
    """

    def __init__(self, graph: Graph, replace: Callable[[Node, _Rebuilt], Sequence[Value] | None]):
        self._source, self._replace = graph, replace
        self._new: dict[Value, Value] = {}
        self._position = {node: index for index, node in enumerate(graph.nodes)}

    def of(self, value: Value) -> Value:
        """A value of the old graph in the new one."""
        if value not in self._new:
            waiting, seen = [value.node], dict[Node, None]()
            while waiting:  # the operators before it, in the order of the graph
                node = waiting.pop()
                if node not in seen and node.outputs[0] not in self._new:
                    seen[node] = None
                    waiting += [item.node for item in node.values_in] if self._plain(node) else []
            for node in sorted(seen, key=self._position.__getitem__):
                if node.outputs[0] not in self._new:
                    self._write(node)
        return self._new[value]

    def _plain(self, node: Node) -> bool:
        return not isinstance(node.op, (Input, Constant))

    def _write(self, node: Node) -> None:
        if not self._plain(node):
            self._new.update(zip(node.outputs, node.outputs, strict=True))
            return
        values = self._replace(node, self)
        if values is None:
            inputs = tuple([self.of(item) if isinstance(item, Value) else item for item in node.inputs])
            values = node.replace(inputs=inputs).outputs
        self._new.update(zip(node.outputs, values, strict=True))

    def graph(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> Graph:
        """The new graph, without unused values."""
        source = self._source
        results = [self.of(value) for value in outputs]
        effects = [(target, self.of(value)) for target, value in source.effects]
        return Graph(inputs, results, effects, source.draws, source.name)
