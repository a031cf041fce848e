"""LSTMs by oneDNN, whose forward keeps values for its backward in memory with its own layout.

A record's saved values are known to every engine; oneDNN's workspace has no documented layout. So it stays inside one
recorded call: `WorkspaceTraining` runs the two graphs with such layers, and does not hand out these values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.engines.engine import ForwardState, Ready, Training
from hybrid_lab.engines.library_rnn import LibraryRNN
from hybrid_lab.engines.torch_kernels.fused import Item
from hybrid_lab.engines.torch_kernels.recurrent import LayerBackward, backward_of_layers, lstm_only, split_weights
from hybrid_lab.engines.torch_kernels.registry import Kernel, entry, shape_of
from hybrid_lab.graph.call_graphs import Split
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value, input_node
from hybrid_lab.ops.rnn.rnn import RNN, RNNGrad

if TYPE_CHECKING:
    from types import ModuleType

    from torch import Tensor

#: The number of LSTMs among the modes of torch's kernel.
_LSTM = 2
#: The inputs of a gradient before the forward's saved values: the LSTM's inputs and its output.
_GIVEN = 5


class WorkspaceLSTM(LibraryRNN):
    """RNN in training, by oneDNN. Outputs: the user's outputs, the last cell states of all layers, the outputs of the
    lower layers if there are several layers, a workspace for each layer and direction.
    """

    name: ClassVar[str] = "torch_lstm"


class WorkspaceGradient(WorkspaceLSTM):
    """Its gradient. Inputs: RNN's inputs, its output, the last cell states, the outputs of the lower layers if there
    are several layers, gradients of outputs as `heads` says, the workspaces.
    """

    name: ClassVar[str] = "torch_lstm_grad"
    record: RNNGrad


@entry("torch_lstm")
def _workspace_lstm(torch: ModuleType, node: Node, operator: WorkspaceLSTM) -> Kernel:
    op = operator.record
    hidden, directions, (_, _, width) = op.state_size, op.sizes.directions, shape_of(node, 0)
    layer_forward = torch.ops.aten.mkldnn_rnn_layer.default

    def kernel(x: Tensor, vector: Tensor, state: Tensor, cell: Tensor) -> tuple[Tensor, ...]:
        weights = split_weights(op, vector, width)
        state, cell = state.contiguous(), cell.contiguous()  # oneDNN reads them as if they were
        outputs, hs, cs, spaces = [], [], [], []
        below = x.contiguous()
        for layer in range(op.num_layers):
            found = []
            for direction in range(directions):
                place = layer * directions + direction
                w = weights[place]
                with torch.enable_grad():  # else it keeps nothing
                    y, h, c, space = layer_forward(
                        below, w["wx"], w["wh"], w["bx"], w["bh"], state[place], cell[place], direction == 1, [],
                        _LSTM, hidden, 1, True, False, False, True,
                    )  # fmt: skip
                found.append(y)
                hs.append(h)
                cs.append(c)
                spaces.append(space.view(torch.float32))
            below = found[0] if directions == 1 else torch.cat(found, -1)
            outputs.append(below)
        cells = torch.stack(cs)
        made = [outputs[-1], torch.stack(hs), cells.clone()] if op.state_outputs else [outputs[-1]]
        made.append(cells)
        if op.num_layers > 1:
            made.append(outputs[0][None] if len(outputs) == 2 else torch.stack(outputs[:-1]))
        return (*made, *spaces)

    return kernel


@entry("torch_lstm_grad")
def _workspace_gradient(torch: ModuleType, node: Node, operator: WorkspaceGradient) -> Kernel:
    op = operator.record
    places = op.num_layers * op.sizes.directions
    layer_backward = torch.ops.aten.mkldnn_rnn_layer_backward.default

    def kernel(
        x: Tensor, vector: Tensor, state: Tensor, cell: Tensor, y: Tensor, cells: Tensor, *rest: Tensor
    ) -> tuple[Tensor, ...]:
        lower, heads = (rest[0], rest[1:-places]) if op.num_layers > 1 else ((), rest[:-places])
        spaces, cells = rest[-places:], cells.contiguous()

        def backward(layer: LayerBackward) -> Tensor:
            place, output, w = layer.place, layer.output.contiguous(), layer.weights
            dbelow, *dweights, dh, dc = layer_backward(
                layer.below.contiguous(), w["wx"], w["wh"], w["bx"], w["bh"], layer.h, layer.c, output,
                output[0 if layer.reverse else -1], cells[place], layer.dy.contiguous(), layer.dh.contiguous(),
                layer.dc.contiguous(), layer.reverse, _LSTM, op.state_size, 1, True, True, False, [], False,
                spaces[place].view(torch.uint8),
            )  # fmt: skip
            for name, gradient in zip(("wx", "wh", "bx", "bh"), dweights, strict=True):
                layer.dweights[name].copy_(gradient)
            layer.dh.copy_(dh)
            layer.dc.copy_(dc)
            return dbelow

        operands = (x, vector, state.contiguous(), cell.contiguous(), y)
        return backward_of_layers(torch, op, operands, lower, heads, backward)

    return kernel


@cache
def _workspace(steps: int, batch: int, width: int, hidden: int) -> int:
    """How many float32 numbers the workspace of one layer takes; 0 if torch has no such kernel."""
    import torch

    if not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.aten, "mkldnn_rnn_layer_backward")):
        return 0
    vectors = torch.zeros(2, 4 * hidden)
    states = torch.zeros(2, batch, hidden)
    weights = torch.zeros(4 * hidden, width), torch.zeros(4 * hidden, hidden), *vectors
    try:
        with torch.enable_grad():
            kept = torch.ops.aten.mkldnn_rnn_layer.default(
                torch.zeros(steps, batch, width),
                *weights,
                *states,
                False,
                [],
                _LSTM,
                hidden,
                1,
                True,
                False,
                False,
                True,
            )[3]
    except RuntimeError:  # oneDNN has no such primitive for this processor
        return 0
    return 0 if kept is None or kept.numel() % 4 else kept.numel() // 4


class _Pair:
    """An LSTM of the forward, its gradient in the backward, and the LSTM's saved values between them.

    kept : the forward's values; read : the backward's inputs that they become
    """

    def __init__(self, layer: Node, gradient: Node, kept: Sequence[Value], read: Sequence[Value]):
        self.layer, self.gradient, self.kept, self.read = layer, gradient, tuple(kept), tuple(read)
        op = layer.op
        assert isinstance(op, RNN) and layer.shapes is not None
        (steps, batch, width), hidden, directions = layer.inputs[0].shape, op.state_size, op.sizes.directions
        widths = [width, *[directions * hidden] * (op.num_layers - 1)]
        spaces = [_workspace(steps, batch, each, hidden) for each in widths for _ in range(directions)]
        self.possible = all(spaces)
        visible, lower = layer.shapes[: op.signature.visible], layer.shapes[op.signature.visible + 2 :]
        self.new = [(len(spaces), batch, hidden), *lower, *((size,) for size in spaces)]
        """The shapes of what is kept instead."""
        shapes = (*visible, *self.new)
        self.layer_changes = {
            "op": WorkspaceLSTM(op, len(shapes)), "shapes": shapes, "dtypes": (np.dtype("float32"),) * len(shapes)
        }  # fmt: skip
        self.inputs = [input_node("kept", "saved", shape=shape, dtype=np.dtype("float32")) for shape in self.new]

    def operands(self, inputs: Sequence[Item]) -> tuple[Item, ...]:
        """The inputs of the new gradient from the inputs of the old gradient."""
        spaces = -self.new[0][0]
        first, heads = inputs[:_GIVEN], inputs[_GIVEN + len(self.read) :]
        return (*first, *self.inputs[:spaces], *heads, *self.inputs[spaces:])


def _pairs(split: Split) -> Iterator[_Pair]:
    forward, backward = split.forward, split.backward
    saved = {
        value: forward.outputs[split.num_outputs + index]
        for value, (kind, index) in zip(backward.inputs, split.sources, strict=True)
        if kind == "saved"
    }
    before, after, roots = forward.users(), backward.users(), forward.roots
    for node in backward.nodes:
        op = node.op
        if not isinstance(op, RNNGrad) or not op.kept or op.p or node.inputs[0].dtype != np.float32:
            continue
        try:
            lstm_only(op)
        except Unmappable:
            continue
        read = node.inputs[_GIVEN : _GIVEN + len(op.saved)]
        kept = [saved.get(value) for value in read]
        layer = None if kept[0] is None else kept[0].node
        if layer is None or not isinstance(layer.op, RNN) or kept != list(layer.outputs[layer.op.signature.visible :]):
            continue
        values = [value for value in kept if value is not None]
        if all(value not in before and roots.count(value) == 1 for value in values) and all(
            after[value] == [node] for value in read
        ):
            found = _Pair(layer, node, values, read)
            if found.possible:
                yield found


class Rewritten:
    """The two graphs of a recorded call with oneDNN's LSTMs, as `split`.

    inputs : their places among the inputs of the original backward; None if they are not there
    kept : index of each original saved value among the new saved values; None if it is gone
    """

    def __init__(self, pairs: Sequence[_Pair], split: Split):
        forward, backward, first = split.forward, split.backward, split.num_outputs
        layers = {pair.layer: pair for pair in pairs}
        gradients = {pair.gradient: pair for pair in pairs}
        gone = {value for pair in pairs for value in pair.kept}
        made: list[Value] = []

        def lay(node: Node, inputs: tuple[Item, ...]) -> Sequence[Value] | None:
            if node not in layers:
                return None
            new = node.replace(inputs=inputs, **layers[node].layer_changes)
            visible = layers[node].layer.op.signature.visible
            made.extend(new.outputs[visible:])
            # No operator reads the values that were left out; any value may stand in their place.
            return (*new.outputs[:visible], *[new.outputs[0]] * (len(node.outputs) - visible))

        def turn(node: Node, inputs: tuple[Item, ...]) -> Sequence[Value] | None:
            if node not in gradients:
                return None
            assert isinstance(node.op, RNNGrad)
            return node.replace(op=WorkspaceGradient(node.op, 4), inputs=gradients[node].operands(inputs)).outputs

        changed, turned = forward.map(lay), backward.map(turn)
        old = [value in gone for value in forward.outputs[first:]]
        staying = [index for index, lost in enumerate(old) if not lost]
        self.kept = [None if lost else staying.index(index) for index, lost in enumerate(old)]
        outputs = [*changed.outputs[:first], *(changed.outputs[first + index] for index in staying), *made]
        new_forward = Graph(changed.inputs, outputs, changed.effects, changed.draws, changed.name)

        read = {value for pair in pairs for value in pair.read}
        rest = [index for index, value in enumerate(backward.inputs) if value not in read]
        order = {pair.layer: pair.inputs for pair in pairs}
        fresh = [value for node in forward.nodes if node in order for value in order[node]]
        inputs = [*(backward.inputs[index] for index in rest), *fresh]
        new_backward = Graph(inputs, turned.outputs, turned.effects, turned.draws, turned.name)
        self.inputs: list[int | None] = [*rest, *[None] * len(fresh)]
        sources = [split.sources[index] for index in rest]
        sources = [(kind, (self.kept[number] or 0) if kind == "saved" else number) for kind, number in sources]
        sources += [("saved", len(staying) + place) for place in range(len(fresh))]
        self.split = Split(new_forward, new_backward, tuple(sources))


def rewritten(split: Split) -> Rewritten | None:
    """The graphs with oneDNN's LSTMs, or None if no LSTM qualifies."""
    if not any(node.op.name == "RNN" for node in split.forward.nodes):
        return None
    pairs = list(_pairs(split))
    return Rewritten(pairs, split) if pairs else None


class _Inner(ForwardState):
    """The saved values of a forward; None in place of what only the same training can read."""

    __slots__ = ("kept",)

    def __init__(self, kept: ForwardState, places: Sequence[int | None]):
        super().__init__([None if place is None else kept.saved[place] for place in places])  # type: ignore[misc]
        self.kept = kept


class WorkspaceTraining(Training):
    """A recorded call by the rewritten graphs. `forward` and `backward` are of the graphs as they were."""

    def __init__(self, plain: Training, inner: Training, found: Rewritten):
        self._plain, self._inner, self._found = plain, inner, found
        self.forward, self.backward = plain.forward, plain.backward
        self.forward.report, self.backward.report = inner.forward.report, inner.backward.report
        self.begin = self._begin

    def release(self) -> None:
        self._plain.release()
        self._inner.release()

    def _begin(self, inputs: Sequence[np.ndarray], rng: tuple[int, int]) -> tuple[list[np.ndarray], ForwardState]:
        results, kept = self._inner.begin(inputs, rng)
        return results, _Inner(kept, self._found.kept)

    def finish(
        self,
        kept: ForwardState,
        operands: Sequence[np.ndarray],
        rng: tuple[int, int],
        last: bool = True,
        out: Sequence[np.ndarray | None] | None = None,
        ready: Ready | None = None,
    ) -> list[np.ndarray]:
        assert isinstance(kept, _Inner)
        inner, found = kept.kept, self._found
        if inner.spent:
            return self._inner.finish(inner, operands, rng, last, out)  # which says so
        given = [
            inner.saved[number] if place is None else operands[place]
            for place, (_, number) in zip(found.inputs, found.split.sources, strict=True)
        ]
        return self._inner.finish(inner, given, rng, last, out, ready)
