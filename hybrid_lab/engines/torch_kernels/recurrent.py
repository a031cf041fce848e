"""The table's entries for the LSTM: one product per layer for all steps, then a few calls per step on views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hybrid_lab.engines.torch_kernels.rules import Kernel, needs, rule, shape_of

if TYPE_CHECKING:
    from types import ModuleType

    from torch import Tensor

    from hybrid_lab.graph.node import Node
    from hybrid_lab.ops.rnn.rnn import RNN, RNNGrad


def lstm_only(op: RNN | RNNGrad) -> None:
    """Raise Unmappable where the operator is not a plain LSTM."""
    needs(op.mode == "lstm", f"mode={op.mode!r}")
    needs(op.sizes.clip is None and not op.use_sequence_length, "clipped states or sequence lengths")


def split_weights(op: RNN | RNNGrad, vector: Tensor, width: int) -> list[dict[str, Tensor]]:
    """Views on the packed vector, one entry per layer and direction."""
    weights: list[dict[str, Tensor]] = [{} for _ in range(op.sizes.layers * op.sizes.directions)]
    start = 0
    for place, name, shape in op.sizes.pieces(width):
        stop = start + shape[0] * (shape[1] if len(shape) > 1 else 1)
        weights[place][name] = vector[start:stop].view(shape)
        start = stop
    return weights


def _order(steps: int, direction: int) -> range:
    return range(steps - 1, -1, -1) if direction else range(steps)


@rule("RNN")
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
                for t in _order(steps, direction):
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


@rule("_rnn_grad")
def _lstm_grad(torch: ModuleType, node: Node, op: RNNGrad) -> Kernel:
    lstm_only(op)
    hidden, directions = op.state_size, op.sizes.directions
    needs(op.kept and not op.p, "a backward of its own forward, or dropout between layers")
    steps, batch, width = shape_of(node, 0)

    def kernel(
        x: Tensor, vector: Tensor, state: Tensor, cell: Tensor, y: Tensor, gates: Tensor, cells: Tensor, *rest: Tensor
    ) -> tuple[Tensor, ...]:
        lower, given = (rest[0], rest[1:]) if op.num_layers > 1 else ((), rest)
        weights, dvector = split_weights(op, vector, width), torch.empty_like(vector)
        dweights = split_weights(op, dvector, width)
        dabove, dfirst, dcells = from_above(torch, op, y, state, cell, given)
        for layer in range(op.num_layers - 1, -1, -1):
            below, output = (x if layer == 0 else lower[layer - 1]), (y if layer == op.num_layers - 1 else lower[layer])
            dbelow = None
            for direction in range(directions):
                place = layer * directions + direction
                part = slice(direction * hidden, (direction + 1) * hidden)
                d = _back(
                    torch, weights[place], gates[place], cells[place], cell[place], dabove[..., part], dfirst[place],
                    dcells[place], _order(steps, direction),
                ).view(steps * batch, 4 * hidden)  # fmt: skip
                before = _shifted(torch, output[..., part], state[place], direction)
                made = dweights[place]
                torch.mm(d.t(), below.reshape(steps * batch, -1), out=made["wx"])
                torch.mm(d.t(), before.view(steps * batch, hidden), out=made["wh"])
                torch.sum(d, 0, out=made["bx"])
                made["bh"].copy_(made["bx"])
                found = torch.mm(d, weights[place]["wx"])
                dbelow = found if dbelow is None else dbelow.add_(found)
            assert dbelow is not None
            dabove = dbelow.view(steps, batch, -1)
        return dabove, dvector, dfirst, dcells

    return kernel


def from_above(
    torch: ModuleType, op: RNNGrad, y: Tensor, state: Tensor, cell: Tensor, given: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """What a backward starts with: the gradients of the output, and of the final states in memory that it may change.

    given : the output gradients that there are, those that `op.heads` names
    """
    heads = iter(given)
    dy, dstate, dcell = ([next(heads) if there else None for there in op.heads] + [None, None])[:3]
    return (
        torch.zeros_like(y) if dy is None else dy,
        torch.zeros_like(state) if dstate is None else dstate.clone(),
        torch.zeros_like(cell) if dcell is None else dcell.clone(),
    )


def _shifted(torch: ModuleType, values: Tensor, first: Tensor, direction: int) -> Tensor:
    """What the state was before every step."""
    parts = [values[1:], first[None]] if direction else [first[None], values[:-1]]
    return torch.cat(parts)


def _back(
    torch: ModuleType,
    w: dict[str, Tensor],
    gates: Tensor,
    cells: Tensor,
    c0: Tensor,
    dy: Tensor,
    dh: Tensor,
    dc: Tensor,
    order: range,
) -> Tensor:
    """Gradients before the activations, (T, N, 4 H). dh, dc : of the final states on entry, of the first on return."""
    steps, batch, hidden = cells.shape
    i, f, g, o = gates.split(hidden, 2)
    bounded = torch.tanh(cells)
    before = _shifted(torch, cells, c0, int(order.step < 0))
    # All that does not depend on later steps: what dc is multiplied with for i, f and g, what dh is for o and dc.
    factors = gates.new_empty((steps, batch, 4, hidden))
    torch.mul(i * (1 - i), g, out=factors[:, :, 0])
    torch.mul(f * (1 - f), before, out=factors[:, :, 1])
    torch.mul(1 - g * g, i, out=factors[:, :, 2])
    torch.mul(o * (1 - o), bounded, out=factors[:, :, 3])
    through = (1 - bounded * bounded).mul_(o)
    d = torch.empty_like(gates)
    rows = [item.unbind(0) for item in (dy, through, factors, d.view(steps, batch, 4, hidden), d, f)]
    for t in reversed(order):
        head, opened, factor, parts, flat, kept = (item[t] for item in rows)
        dh.add_(head)
        dc.addcmul_(dh, opened)
        torch.mul(factor[:, :3], dc[:, None], out=parts[:, :3])
        torch.mul(factor[:, 3], dh, out=parts[:, 3])
        dc.mul_(kept)
        torch.mm(flat, w["wh"], out=dh)
    return d
