"""Recurrent layers as one call of the vendor's library: RNN and its gradient stay whole and save the library's values.

A training-mode RNN saves its gates, cells and lower layers for the gradient. The library saves them in memory of a
layout of its own, the reserve. So forward and backward of a recorded call are rewritten in pairs, before fusion:

    forward     y, gates, cells = RNN(x, w, h, c)               y, reserve = vendor_rnn(x, w, h, c)
    backward    ... = _rnn_grad(x, w, h, c, y, gates, cells, dy)    ... = vendor_rnn_grad(x, w, h, c, y, reserve, dy)

A layer with sequence lengths, clipped or projected states, or dropout between its layers stays our own kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from hybrid_lab.engines.library_rnn import LibraryRNN
from hybrid_lab.engines.triton.plan.saved import forward_value, with_saved
from hybrid_lab.graph.call_graphs import Split
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value, input_node
from hybrid_lab.ops.framework.run import run_kernel
from hybrid_lab.ops.rnn.rnn import RNN, RNNGrad

#: dtypes of the layers that the library computes.
DTYPES = ("float32", "float16")


class VendorRNN(LibraryRNN):
    """RNN in training. Outputs: those that the user sees, and the reserve, whose size only the library knows."""

    name: ClassVar[str] = "vendor_rnn"

    def numpy(self, *inputs: Any) -> tuple[np.ndarray | None, ...]:  # type: ignore[override]
        """The user's outputs, for comparisons; there is no reserve, and the gradient computes the layer again."""
        record: Any = self.record
        return (*run_kernel(record.bind_mode(False), list(inputs)), None)


class VendorRNNGrad(VendorRNN):
    """Its gradient. Inputs: RNN's inputs, its output, the reserve, gradients of outputs as `heads` says."""

    name: ClassVar[str] = "vendor_rnn_grad"
    record: RNNGrad

    def numpy(self, *inputs: Any) -> tuple[np.ndarray, ...]:  # type: ignore[override]
        count = len(self.record.roles)
        again: Any = self.record.variant(kept=False)
        return tuple(run_kernel(again, [*inputs[:count], *inputs[count + 2 :]]))


def reserved(op: RNN | RNNGrad, data: Sequence[int], dtype: np.dtype[Any]) -> tuple[int]:
    """The shape that the reserve is planned with: the bytes of what RNN saves. The library may take more."""
    steps, batch, _ = data
    return (sum(prod(op.saved_shape(name, steps, batch)) for name in (*op.saved, "gates")) * dtype.itemsize,)


def is_plain(node: Node) -> bool:
    """Whether a layer, or its gradient, has nothing that the library lacks."""
    op = node.op
    if not isinstance(op, (RNN, RNNGrad)) or node.outputs[0].dtype.name not in DTYPES:
        return False
    drops = op.p > 0 and op.num_layers > 1 and not getattr(op, "_predict", False)
    empty = any(0 in value.shape for value in node.values_in)
    return not (op.use_sequence_length or op.sizes.clip or op.projection_size or drops or empty)


def saves_nothing(node: Node) -> bool:
    """Whether a node is a layer in prediction."""
    return isinstance(node.op, RNN) and len(node.outputs) == node.op.signature.visible


def layers_of(node: Node) -> RNN | RNNGrad | None:
    """The layers that a node computes by the library, or whose gradient; None for other operators."""
    if isinstance(node.op, VendorRNN):
        return node.op.record
    return node.op if isinstance(node.op, RNN) else None


def with_vendor_layers(split: Split, computes: Callable[[Node], bool]) -> Split:
    """The graphs of a recorded call with the layers that the library computes; the same ones if there are none.

    computes : whether the library computes an RNN or its gradient
    """
    pairs = list(_pairs(split, computes))
    if not pairs:
        return split
    forward, reserves = split.forward, dict[Node, Value]()
    layers = {layer: read for layer, _, read in pairs}

    def lay(node: Node, inputs: tuple[Any, ...]) -> Sequence[Value] | None:
        if node not in layers:
            return None
        op: Any = node.op
        visible, data = op.signature.visible, node.values_in[0]
        shapes = (*(value.shape for value in node.outputs[:visible]), reserved(op, data.shape, data.dtype))
        dtypes = (*[node.outputs[0].dtype] * visible, np.dtype("uint8"))
        new = node.replace(op=VendorRNN(op, visible + 1), inputs=inputs, shapes=shapes, dtypes=dtypes)
        reserves[node] = new.outputs[visible]
        # No operator reads the values that were left out; any value may stand in their place.
        return (*new.outputs[:visible], *[new.outputs[0]] * (len(node.outputs) - visible))

    changed = forward.map(lay)
    kept: dict[Node, Value] = {}
    added: dict[Value, Value] = {}
    for layer, gradient, _ in pairs:
        value = reserves[layer]
        kept[gradient] = added[value] = input_node("reserve", "saved", shape=value.shape, dtype=value.dtype)

    def turn(node: Node, inputs: tuple[Any, ...]) -> Sequence[Value] | None:
        if node not in kept:
            return None
        op: Any = node.op
        count = len(op.roles) + 1
        given = (*inputs[:count], kept[node], *inputs[count + len(op.saved) :])
        return node.replace(op=VendorRNNGrad(op, len(node.outputs)), inputs=given).outputs

    backward = split.backward.map(turn)
    dropped = {value for _, _, read in pairs for value in read}
    inputs = [value for value in backward.inputs if value not in dropped]
    backward = Graph(inputs, backward.outputs, backward.effects, backward.draws, backward.name)
    return with_saved(Split(changed, split.backward, split.sources), backward, dropped, added)


def _pairs(split: Split, computes: Callable[[Node], bool]) -> Iterator[tuple[Node, Node, tuple[Value, ...]]]:
    """Layers of the forward, their gradients in the backward, and the backward's inputs for the layers' saved values,
    if nothing else reads these.
    """
    forward, backward = split.forward, split.backward
    before, after, roots = forward.users(), backward.users(), list(forward.roots)
    sources = dict(zip(backward.inputs, split.sources, strict=True))
    for node in backward.operators:
        op = node.op
        if not isinstance(op, RNNGrad) or not op.kept or not computes(node):
            continue
        y, *read = node.values_in[len(op.roles) : len(op.roles) + 1 + len(op.saved)]
        output = forward_value(split, sources[y]) if y in sources else None
        layer = None if output is None else output.node
        if layer is None or not isinstance(layer.op, RNN) or output is not layer.outputs[0] or not computes(layer):
            continue
        saved = [forward_value(split, sources[value]) for value in read if value in sources]
        if saved != list(layer.outputs[layer.op.signature.visible :]):
            continue
        if all(value not in before and roots.count(value) == 1 for value in saved if value is not None) and all(
            after[value] == [node] for value in read
        ):
            yield layer, node, tuple(read)
