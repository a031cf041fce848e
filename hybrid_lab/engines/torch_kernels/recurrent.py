"""The table's entries for the LSTM: one product per layer for all steps, then a few calls per step on views."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hybrid_lab.engines.torch_kernels.registry import Kernel, entry, needs, shape_of

if TYPE_CHECKING:
    from types import ModuleType

    from torch import Tensor

    from hybrid_lab.graph.node import Node
    from hybrid_lab.ops.rnn.rnn import RNN, RNNGrad


def lstm_only(op: RNN | RNNGrad) -> None:
    """Raise Unmappable if the operator is not a plain LSTM."""
    needs(op.mode == "lstm", f"mode={op.mode!r}")
    needs(op.sizes.clip is None and not op.use_sequence_length, "clipped states or sequence lengths")
    needs(op.projection_size is None, "projected states")


def split_weights(op: RNN | RNNGrad, vector: Tensor, width: int) -> list[dict[str, Tensor]]:
    """Views on the packed vector, one entry per layer and direction."""
    weights: list[dict[str, Tensor]] = [{} for _ in range(op.sizes.layers * op.sizes.directions)]
    start = 0
    for place, name, shape in op.sizes.pieces(width):
        stop = start + shape[0] * (shape[1] if len(shape) > 1 else 1)
        weights[place][name] = vector[start:stop].view(shape)
        start = stop
    return weights


def _order(steps: int, reverse: bool) -> range:
    return range(steps - 1, -1, -1) if reverse else range(steps)


@entry("RNN")
def _lstm(torch: ModuleType, node: Node, op: RNN) -> Kernel:
    lstm_only(op)
    hidden, directions = op.state_size, op.sizes.directions
    steps, batch, width = shape_of(node, 0)
    places = op.num_layers * directions

    def kernel(x: Tensor, vector: Tensor, state: Tensor, cell: Tensor) -> tuple[Tensor, ...] | Tensor:
        weights = split_weights(op, vector, width)
        gates = x.new_empty((places, steps, batch, 4 * hidden))
        cells = x.new_empty((places, steps, batch, hidden))
        layers = x.new_empty((op.num_layers, steps, batch, directions * hidden))
        finals = [x.new_empty((places, batch, hidden)) for _ in range(2)]
        below = x
        for layer in range(op.num_layers):
            for direction in range(directions):
                place = layer * directions + direction
                w = weights[place]
                flat = gates[place].view(steps * batch, 4 * hidden)
                torch.addmm(w["bx"] + w["bh"], below.reshape(steps * batch, -1), w["wx"].t(), out=flat)
                y = layers[layer][..., direction * hidden : (direction + 1) * hidden]
                h, c = state[place], cell[place]
                recurrent = w["wh"].t().contiguous()
                rows = [gates[place].unbind(0), cells[place].unbind(0), y.unbind(0)]
                for t in _order(steps, direction == 1):
                    step, now, out = (item[t] for item in rows)
                    step.addmm_(h, recurrent)
                    i, f, g, o = step.split(hidden, 1)
                    step[:, : 2 * hidden].sigmoid_()
                    g.tanh_()
                    o.sigmoid_()
                    torch.mul(f, c, out=now)
                    now.addcmul_(i, g)
                    torch.mul(torch.tanh(now), o, out=out)
                    h, c = out, now
                finals[0][place], finals[1][place] = h, c
            below = layers[layer]
        # The last layer's outputs in memory of their own, which the lower ones do not keep alive.
        y = layers[-1] if op.num_layers == 1 else layers[-1].clone()
        made = [y, *finals] if op.state_outputs else [y]
        if op.signature.outputs > op.signature.visible:  # bound to training
            made += [gates, cells, layers[:-1]][: len(op.saved)]
        return tuple(made) if len(made) > 1 else made[0]

    return kernel


@dataclass(frozen=True)
class LayerBackward:
    """The operands and results of the backward of one layer in one direction. N : batch, H : hidden size, T : steps

    place : number of the layer and direction; reverse : from the last step to the first
    below, output : the layer's input, and its output in this direction, (T, N, H)
    h, c : the first states, (N, H)
    dy : the gradient of the output
    dh, dc : gradients of the final states; the backward overwrites them with the gradients of the first states
    weights, dweights : the weights wx, wh, bx and bh, and the memory for their gradients
    """

    place: int
    reverse: bool
    below: Tensor
    output: Tensor
    h: Tensor
    c: Tensor
    dy: Tensor
    dh: Tensor
    dc: Tensor
    weights: dict[str, Tensor]
    dweights: dict[str, Tensor]


def backward_of_layers(
    torch: ModuleType,
    op: RNNGrad,
    operands: tuple[Tensor, ...],
    lower: Tensor | tuple[()],
    heads: Sequence[Tensor],
    backward: Callable[[LayerBackward], Tensor],
) -> tuple[Tensor, ...]:
    """The gradients of an LSTM's inputs.

    operands : x, the packed weights, the first states h and c, the output
    lower : outputs of the layers below the last; heads : gradients of the outputs that `op.heads` marks
    backward : runs one layer in one direction and returns the gradient of the layer's input
    """
    x, vector, state, cell, y = operands
    weights, dvector = split_weights(op, vector, x.shape[2]), torch.empty_like(vector)
    dweights = split_weights(op, dvector, x.shape[2])
    given = iter(heads)
    dy, dstate, dcell = ([next(given) if there else None for there in op.heads] + [None, None])[:3]
    dabove = torch.zeros_like(y) if dy is None else dy
    # In memory that may be written to.
    dfirst = torch.zeros_like(state) if dstate is None else dstate.clone()
    dcells = torch.zeros_like(cell) if dcell is None else dcell.clone()
    hidden, directions = op.state_size, op.sizes.directions
    for layer in range(op.num_layers - 1, -1, -1):
        below, output = (x if layer == 0 else lower[layer - 1]), (y if layer == op.num_layers - 1 else lower[layer])
        gradients = []
        for direction in range(directions):
            place, part = layer * directions + direction, slice(direction * hidden, (direction + 1) * hidden)
            gradients.append(
                backward(
                    LayerBackward(
                        place, direction == 1, below, output[..., part], state[place], cell[place], dabove[..., part],
                        dfirst[place], dcells[place], weights[place], dweights[place],
                    )
                )
            )  # fmt: skip
        dabove = gradients[0] if directions == 1 else gradients[0].add_(gradients[1])
    return dabove, dvector, dfirst, dcells


@entry("_rnn_grad")
def _lstm_grad(torch: ModuleType, node: Node, op: RNNGrad) -> Kernel:
    lstm_only(op)
    needs(op.kept and not op.p, "a backward of its own forward, or dropout between layers")
    rows = math.prod(shape_of(node, 0)[:2])

    def kernel(*inputs: Tensor) -> tuple[Tensor, ...]:
        operands, (gates, cells, *rest) = inputs[:5], inputs[5:]
        lower, heads = (rest[0], rest[1:]) if op.num_layers > 1 else ((), rest)

        def backward(layer: LayerBackward) -> Tensor:
            d = _through_gates(torch, layer, gates[layer.place], cells[layer.place]).flatten(0, 1)
            before = _shifted(torch, layer.output, layer.h, layer.reverse)
            torch.mm(d.t(), layer.below.reshape(rows, -1), out=layer.dweights["wx"])
            torch.mm(d.t(), before.view(rows, -1), out=layer.dweights["wh"])
            torch.sum(d, 0, out=layer.dweights["bx"])
            layer.dweights["bh"].copy_(layer.dweights["bx"])
            return torch.mm(d, layer.weights["wx"]).view(layer.below.shape)

        return backward_of_layers(torch, op, operands, lower, heads, backward)

    return kernel


def _shifted(torch: ModuleType, values: Tensor, first: Tensor, reverse: bool) -> Tensor:
    """The state before every step."""
    return torch.cat([values[1:], first[None]] if reverse else [first[None], values[:-1]])


def _through_gates(torch: ModuleType, layer: LayerBackward, gates: Tensor, cells: Tensor) -> Tensor:
    """Gradients before the activations, (T, N, 4 H)."""
    dy, dh, dc = layer.dy, layer.dh, layer.dc
    steps, batch, hidden = cells.shape
    i, f, g, o = gates.split(hidden, 2)
    bounded = torch.tanh(cells)
    before = _shifted(torch, cells, layer.c, layer.reverse)
    # All that does not depend on later steps: what dc is multiplied with for i, f and g, what dh is for o and dc.
    factors = gates.new_empty((steps, batch, 4, hidden))
    torch.mul(i * (1 - i), g, out=factors[:, :, 0])
    torch.mul(f * (1 - f), before, out=factors[:, :, 1])
    torch.mul(1 - g * g, i, out=factors[:, :, 2])
    torch.mul(o * (1 - o), bounded, out=factors[:, :, 3])
    through = (1 - bounded * bounded).mul_(o)
    d = torch.empty_like(gates)
    rows = [item.unbind(0) for item in (dy, through, factors, d.view(steps, batch, 4, hidden), d, f)]
    for t in reversed(_order(steps, layer.reverse)):
        head, opened, factor, parts, flat, kept = (item[t] for item in rows)
        dh.add_(head)
        dc.addcmul_(dh, opened)
        torch.mul(factor[:, :3], dc[:, None], out=parts[:, :3])
        torch.mul(factor[:, 3], dh, out=parts[:, 3])
        dc.mul_(kept)
        torch.mm(flat, layer.weights["wh"], out=dh)
    return d
