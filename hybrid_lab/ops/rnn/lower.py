"""RNN and its gradient as products and _recurrence: for each layer and direction a product of all inputs, and steps."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hybrid_lab.ops.framework.dtypes import is_floating
from hybrid_lab.ops.framework.protocols import Functions, Gradients, Tensor
from hybrid_lab.ops.rnn.kernels import GATES, Sizes

if TYPE_CHECKING:
    from hybrid_lab.ops.rnn.rnn import Recurrent

Parts = list[dict[str, Tensor]]


def unpacked(
    F: Functions, sizes: Sizes, vector: Tensor, width: int, wanted: Sequence[str] = ("wx", "wh", "wr", "bx", "bh")
) -> Parts:
    """wx, wh, bx and bh, and wr of a projection, of every layer and direction, cut out of the packed parameters."""
    found: Parts = [{} for _ in range(sizes.layers * sizes.directions)]
    start = 0
    for place, name, shape in sizes.pieces(width):
        stop = start + prod(shape)
        if name in wanted:
            piece = F.slice_axis(vector, axis=0, begin=start, end=stop)
            found[place][name] = F.Reshape(piece, shape=shape) if len(shape) > 1 else piece
        start = stop
    return found


def one(F: Functions, array: Tensor, place: int) -> Tensor:
    """array[place], without the first axis."""
    if array.shape[0] != 1:
        array = F.slice_axis(array, axis=0, begin=place, end=place + 1)
    return F.Reshape(array, shape=(-3, -2))  # no batch in an attribute


def joined(F: Functions, items: Sequence[Tensor], axis: int) -> Tensor:
    return items[0] if len(items) == 1 else F.Concat(*items, dim=axis)


def piled(F: Functions, items: Sequence[Tensor]) -> Tensor:
    """Arrays of one shape along a new first axis."""
    return joined(F, [F.expand_dims(item, axis=0) for item in items], 0)


def masked(F: Functions, array: Tensor, lengths: Tensor | None) -> Tensor:
    """0 behind the end of each sequence."""
    return array if lengths is None else F.SequenceMask(array, lengths, use_sequence_length=True)


def read(F: Functions, op: Recurrent, inputs: Sequence[Tensor]) -> dict[str, Any]:
    """The inputs of RNN by name. A length that is no number counts as 0."""
    given = op.read(inputs)
    lengths = given["sequence_length"]
    if lengths is not None and is_floating(lengths.dtype):
        given["sequence_length"] = F.where(F.broadcast_equal(lengths, lengths), lengths, 0.0)
    return given


def recurrence_attributes(sizes: Sizes, direction: int, lengths: Tensor | None) -> dict[str, Any]:
    found: dict[str, Any] = {"mode": sizes.mode, "reverse": direction == 1, "use_sequence_length": lengths is not None}
    if sizes.projection:
        found["use_projection"] = True
    if sizes.clip is not None:
        found |= dict(zip(("clip_min", "clip_max", "clip_nan"), sizes.clip, strict=True))
    return found


def forward(F: Functions, op: Recurrent, given: dict[str, Any], drops: bool) -> dict[str, Any]:
    """y; states, cells and gates of each layer and direction; the outputs below the last layer; dropout's mask."""
    sizes, x, lengths = op.sizes, given["data"], given["sequence_length"]
    steps, batch, width = x.shape
    found: dict[str, Any] = {"states": [], "cells": [], "gates": [], "lower": [], "mask": None}
    if drops:
        shape = (sizes.layers - 1, steps, batch, sizes.directions * sizes.units)
        found["mask"] = F._dropout_mask(np.broadcast_to(np.zeros((), bool), shape), p=op.p)
    weights, below = unpacked(F, sizes, given["parameters"], width), masked(F, x, lengths)
    for layer in range(sizes.layers):
        if layer and drops:
            below = F._masked_scale(below, one(F, found["mask"], layer - 1), scale=op.scale())
        outputs = []
        for direction in range(sizes.directions):
            place = layer * sizes.directions + direction
            values = _direction(F, sizes, below, weights[place], given, place, direction)
            names = ("states", "cells", "gates") if sizes.mode == "lstm" else ("states", "gates")
            for name, value in zip(names, values, strict=False):
                found[name].append(value)
            outputs.append(masked(F, values[0], lengths))
        below = joined(F, outputs, 2)
        found["lower"].append(below)
    found["y"] = found["lower"].pop()
    return found


def _direction(
    F: Functions, sizes: Sizes, below: Tensor, weights: dict[str, Tensor], given: dict[str, Any], place: int,
    direction: int,
) -> tuple[Tensor, ...]:  # fmt: skip
    """states, an LSTM's cells, and the gates if there are some."""
    rows, hidden, lengths = GATES[sizes.mode] * sizes.hidden, sizes.hidden, given["sequence_length"]
    bias, extra = weights["bx"] + weights["bh"], []
    if sizes.mode == "gru":  # the hidden half of n is multiplied by r with its bias
        gates, n = (
            [F.slice_axis(weights[name], axis=0, begin=begin * hidden, end=end * hidden) for name in ("bx", "bh")]
            for begin, end in ((0, 2), (2, 3))
        )
        bias, extra = F.Concat(gates[0] + gates[1], n[0], dim=0), [n[1]]
    projected = F.FullyConnected(below, weights["wx"], bias, num_hidden=rows, flatten=False)
    states = [one(F, given[name], place) for name in ("state", "state_cell") if given[name] is not None]
    last = [item for item in (weights.get("wr"), lengths) if item is not None]
    inputs = [projected, weights["wh"], *extra, *states, *last]
    made = F._recurrence(*inputs, **recurrence_attributes(sizes, direction, lengths))
    return made if isinstance(made, tuple) else (made,)


def finals(F: Functions, sizes: Sizes, states: list[Tensor], first: Tensor) -> Tensor:
    """The states after each direction's last step: (layers * directions, N, units). first : before all"""
    ends = []
    if not states[0].shape[0]:
        return F.identity(first)
    for place, item in enumerate(states):
        # No number of steps is an attribute: sequences of another length have the same graph.
        begin, end = (0, 1) if sizes.directions == 2 and place % 2 else (-1, None)
        ends.append(F.slice_axis(item, axis=0, begin=begin, end=end))
    return joined(F, ends, 0)


def backward(
    F: Functions, op: Recurrent, given: dict[str, Any], kept: dict[str, Any], heads: Sequence[Tensor | None]
) -> Gradients:
    """Gradients of data, parameters, state and state_cell. kept : as `forward` leaves it; heads : None for 0"""
    sizes, x, lengths = op.sizes, given["data"], given["sequence_length"]
    weights = unpacked(F, sizes, given["parameters"], x.shape[2], ("wx", "wh", "wr"))
    places = sizes.layers * sizes.directions
    dweights: Parts = [{} for _ in range(places)]
    dstates: list[Any] = [None] * places
    dcells: list[Any] = [None] * places
    dy = F.zeros_like(kept["y"]) if heads[0] is None else heads[0]
    for layer in reversed(range(sizes.layers)):
        below = masked(F, x, lengths) if layer == 0 else kept["lower"][layer - 1]
        mask = None if layer == 0 or kept["mask"] is None else one(F, kept["mask"], layer - 1)
        if mask is not None:
            below = F._masked_scale(below, mask, scale=op.scale())
        output = kept["y"] if layer == sizes.layers - 1 else kept["lower"][layer]
        flat = F.Reshape(below, shape=(-1, below.shape[2]))
        dbelow: Tensor | None = None
        for direction in range(sizes.directions):
            place = layer * sizes.directions + direction
            states: dict[str, tuple[Tensor, Tensor]] = {}
            for name, head in zip(("state", "state_cell"), (*heads[1:], None, None), strict=False):
                if given[name] is not None:
                    first = one(F, given[name], place)
                    states[name] = first, F.zeros_like(first) if head is None else one(F, head, place)
            part = [
                item if sizes.directions == 1
                else F.slice_axis(item, axis=2, begin=direction * sizes.units, end=(direction + 1) * sizes.units)
                for item in (output, dy)
            ]  # fmt: skip
            before = _before(F, part[0], states["state"][0], lengths, direction)
            found = _step_gradients(
                F, sizes, kept, part[0], masked(F, part[1], lengths), weights[place], states, before, lengths, place,
                direction,
            )  # fmt: skip
            dstates[place], dcells[place] = found["state"], found["cell"]
            entering, dweights[place] = _weight_gradients(F, sizes, found, flat, before)
            if sizes.projection:
                dweights[place]["wr"] = _projection_gradient(F, sizes, found, kept, place)
            product = F.dot(entering, weights[place]["wx"])
            dbelow = product if dbelow is None else dbelow + product
        dy = F.reshape_like(dbelow, below)
        if mask is not None:
            dy = F._masked_scale(dy, mask, scale=op.scale())
    pieces = [F.Reshape(dweights[place][name], shape=(-1,)) for place, name, _ in sizes.pieces(x.shape[2])]
    dcell = piled(F, dcells) if sizes.mode == "lstm" else None
    return dy, joined(F, pieces, 0), piled(F, dstates), dcell


def _before(F: Functions, output: Tensor, first: Tensor, lengths: Tensor | None, direction: int) -> Tensor:
    """(T, N, units): the state before each step that counts."""
    first = F.expand_dims(first, axis=0)
    if direction == 1 and lengths is not None:  # outputs are 0 behind the end, where the state still is the first one
        everywhere = F.broadcast_like(first, output)
        output = output + (everywhere - masked(F, everywhere, lengths))
    if output.shape[0] < 2:
        return first if output.shape[0] else output
    if direction == 1:
        return F.Concat(F.slice_axis(output, axis=0, begin=1, end=None), first, dim=0)
    return F.Concat(first, F.slice_axis(output, axis=0, begin=0, end=-1), dim=0)


def _step_gradients(
    F: Functions, sizes: Sizes, kept: dict[str, Any], output: Tensor, dy: Tensor, weights: dict[str, Tensor],
    states: dict[str, tuple[Tensor, Tensor]], before: Tensor, lengths: Tensor | None, place: int, direction: int,
) -> dict[str, Any]:  # fmt: skip
    """Gradients: "entering" and "behind", of the gates' arguments on the input's and on the hidden side; "state" and
    "cell", of the first states; with a projection "states", of the state after each step.
    """
    last = [item for item in (weights.get("wr"), lengths) if item is not None]
    inputs = [dy, weights["wh"], states["state"][1]]
    if sizes.mode == "lstm":
        cell, dcell = states["state_cell"]
        inputs += [dcell, kept["gates"][place], kept["cells"][place], cell]
    elif sizes.mode == "gru":
        inputs += [kept["gates"][place], before]
    else:
        inputs += [output]
    made = cast(
        tuple[Tensor, ...], F._recurrence_grad(*inputs, *last, **recurrence_attributes(sizes, direction, lengths))
    )
    found: dict[str, Any] = {"entering": made[0], "behind": made[0], "cell": None}
    more = {"lstm": ("state", "cell"), "gru": ("behind", "state")}.get(sizes.mode, ("state",))
    names = ("states", *more) if sizes.projection else more
    return found | dict(zip(names, made[1:], strict=True))


def _weight_gradients(
    F: Functions, sizes: Sizes, found: dict[str, Any], below: Tensor, before: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """The gradient of the gates' arguments on the input's side, (T * N, rows), and the gradients of wx, wh, bx and bh.

    found : of `_step_gradients`; below : the layer's input, (T * N, C); before : the state before each step
    """
    rows = found["entering"].shape[2]
    entering, behind = (F.Reshape(found[name], shape=(-1, rows)) for name in ("entering", "behind"))
    return entering, {
        "wx": F.dot(entering, below, transpose_a=True),
        "wh": F.dot(behind, F.Reshape(before, shape=(-1, sizes.units)), transpose_a=True),
        "bx": F.sum(entering, axis=0),
        "bh": F.sum(behind, axis=0),
    }


def _projection_gradient(F: Functions, sizes: Sizes, found: dict[str, Any], kept: dict[str, Any], place: int) -> Tensor:
    """The gradient of wr, (P, H). The projection reads o * tanh(c), of which the forward keeps both factors."""
    out = F.slice_axis(kept["gates"][place], axis=2, begin=3 * sizes.hidden, end=4 * sizes.hidden)
    read = F.Reshape(out * F.tanh(kept["cells"][place]), shape=(-1, sizes.hidden))
    return F.dot(F.Reshape(found["states"], shape=(-1, sizes.units)), read, transpose_a=True)
