"""NumPy kernels of the steps of one recurrent layer in one direction, and the sizes of a stack of such layers.

A step is one small product and the gates. Invalid steps, which lie behind the end of a sequence, leave the state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from hybrid_lab.ops.framework.protocols import Scratch
from hybrid_lab.ops.framework.types import Array

#: Gates per mode, in the order of MXNet's rows: i, f, g, o of an LSTM; r, z, n of a GRU.
GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}
#: Arrays of size H per step that a backward reads in addition to the outputs. A GRU keeps the hidden half of n as well.
KEPT = {"rnn_relu": 0, "rnn_tanh": 0, "lstm": 4, "gru": 4}

#: Bounds of an LSTM's cell state, and whether NaN becomes a bound as well.
Clip = tuple[float, float, bool]


class Sizes(NamedTuple):
    """The numbers of a stack of recurrent layers."""

    mode: str
    hidden: int
    layers: int
    directions: int
    clip: Clip | None = None
    projection: int | None = None

    @property
    def units(self) -> int:
        """Units of a state in one direction: the projected units of an LSTM with projection, else the hidden units."""
        return self.projection or self.hidden

    def widths(self, input_size: int) -> list[int]:
        """The input size of every layer."""
        return [input_size] + [self.units * self.directions] * (self.layers - 1)

    def parameters(self, input_size: int) -> int:
        """Length of the packed parameter vector."""
        rows = GATES[self.mode] * self.hidden
        places = self.layers * self.directions
        widths = input_size + self.units * self.directions * (self.layers - 1)
        per_place = rows * self.units + (self.projection or 0) * self.hidden + 2 * rows
        return rows * self.directions * widths + places * per_place

    def pieces(self, input_size: int) -> Iterator[tuple[int, str, tuple[int, ...]]]:
        """(layer * directions + direction, name, shape) in the packed order: all weights, then all biases.

        Names: "wx" and "wh", the weights of input and state; "wr", of a projection; "bx" and "bh", the biases
        """
        rows = GATES[self.mode] * self.hidden
        for layer, width in enumerate(self.widths(input_size)):
            for direction in range(self.directions):
                place = layer * self.directions + direction
                yield place, "wx", (rows, width)
                yield place, "wh", (rows, self.units)
                if self.projection:
                    yield place, "wr", (self.projection, self.hidden)
        for place in range(self.layers * self.directions):
            yield place, "bx", (rows,)
            yield place, "bh", (rows,)


class Order(NamedTuple):
    """The steps in the order in which a forward computes them. invalid : (T, N, 1) bool, or None if all count"""

    steps: Sequence[int]
    invalid: Array | None

    def before(self, values: Array, first: Array, scratch: Scratch) -> Array:
        """The values of the step that comes before each one in this order."""
        result = scratch(values.shape, values.dtype)
        if self.steps:
            earlier, later = list(self.steps[:-1]), list(self.steps[1:])
            result[later], result[self.steps[0]] = values[earlier], first
        return result


def _sigmoid(x: Array) -> None:
    """1 / (1 + exp(-x)) in place of x."""
    x *= -1  # np.negative of 2.4 reads strided memory wrongly in place
    np.exp(x, out=x)
    x += 1
    np.reciprocal(x, out=x)


# -- forward -----------------------------------------------------------------------------------------------------------


def plain(mode: str, projected: Array, weight: Array, h: Array, order: Order, states: Array) -> None:
    """Fill `states`. projected, states : (T, N, H); weight : (H, H); h : (N, H)"""
    for t in order.steps:
        state = np.matmul(h, weight.T, out=states[t])
        state += projected[t]
        if mode == "rnn_tanh":
            np.tanh(state, out=state)
        else:
            np.maximum(state, 0, out=state)
        if order.invalid is not None:
            np.copyto(state, h, where=order.invalid[t])
        h = state


def lstm(
    projected: Array, weight: Array, projection: Array | None, h: Array, c: Array, order: Order, clip: Clip | None,
    scratch: Scratch, states: Array, cells: Array, gates: Array,
) -> None:  # fmt: skip
    """Fill `states`, `cells` and `gates`. projected, gates : (T, N, 4 H); cells : (T, N, H); c : (N, H)

    weight : (4 H, H); states : (T, N, H); h : (N, H); with a projection, (P, H), they have P in place of the last H
    """
    batch, hidden = c.shape
    product, part = scratch((batch, 4 * hidden), h.dtype), scratch((batch, hidden), h.dtype)
    for t in order.steps:
        step, cell, state = gates[t], cells[t], states[t]
        i, f, g, o = (step[:, k * hidden : (k + 1) * hidden] for k in range(4))
        np.add(projected[t], np.matmul(h, weight.T, out=product), out=step)
        _sigmoid(step[:, : 2 * hidden])
        np.tanh(g, out=g)
        _sigmoid(o)
        np.multiply(f, c, out=cell)
        np.multiply(i, g, out=part)
        cell += part
        if clip is not None:
            low, high, numbers = clip
            least, most = (np.fmin, np.fmax) if numbers else (np.minimum, np.maximum)
            least(cell, cell.dtype.type(high), out=cell)
            most(cell, cell.dtype.type(low), out=cell)
        if order.invalid is not None:
            np.copyto(cell, c, where=order.invalid[t])
        np.tanh(cell, out=part)
        if projection is None:
            np.multiply(o, part, out=state)
        else:
            np.matmul(np.multiply(o, part, out=part), projection.T, out=state)
        if order.invalid is not None:
            np.copyto(state, h, where=order.invalid[t])
        h, c = state, cell


def gru(
    projected: Array, weight: Array, hidden_bias: Array, h: Array, order: Order, scratch: Scratch, states: Array,
    gates: Array,
) -> None:  # fmt: skip
    """Fill `states` and `gates`: r, z, n and n's hidden half. projected : (T, N, 3 H); weight : (3 H, H); hidden_bias :
    (H,); states : (T, N, H); gates : (T, N, 4 H); h : (N, H)
    """
    batch, hidden = h.shape
    product = scratch((batch, 3 * hidden), h.dtype)
    for t in order.steps:
        step, state = gates[t], states[t]
        both, n, inner = step[:, : 2 * hidden], step[:, 2 * hidden : 3 * hidden], step[:, 3 * hidden :]
        np.matmul(h, weight.T, out=product)
        np.add(projected[t][:, : 2 * hidden], product[:, : 2 * hidden], out=both)
        _sigmoid(both)
        np.add(product[:, 2 * hidden :], hidden_bias, out=inner)
        np.multiply(both[:, :hidden], inner, out=n)
        n += projected[t][:, 2 * hidden :]
        np.tanh(n, out=n)
        np.subtract(h, n, out=state)
        state *= both[:, hidden:]
        state += n
        if order.invalid is not None:
            np.copyto(state, h, where=order.invalid[t])
        h = state


# -- gradients ---------------------------------------------------------------------------------------------------------
# Everything that does not depend on later steps is computed first, for all steps at once; then there is one small
# product per step, from the last to the first. dh and dc are the gradients of the last states on entry, of the first
# ones on return; gradients that arrive at invalid steps are 0.


def plain_gradient(
    mode: str, weight: Array, states: Array, dy: Array, dh: Array, order: Order, scratch: Scratch, out: Array
) -> None:
    """Fill `out`, (T, N, H), with the gradients of the arguments of tanh or relu."""
    if mode == "rnn_tanh":
        np.multiply(states, states, out=out)
        np.subtract(1, out, out=out)
    else:
        np.greater(states, 0, out=out)
    if order.invalid is not None:
        np.copyto(out, 0, where=order.invalid)
    kept = scratch(dh.shape, dh.dtype)
    for t in reversed(order.steps):
        dh += dy[t]
        if order.invalid is not None:
            np.multiply(dh, order.invalid[t], out=kept)
        out[t] *= dh
        np.matmul(out[t], weight, out=dh)
        if order.invalid is not None:
            dh += kept


def lstm_gradient(
    weight: Array, projection: Array | None, c: Array, gates: Array, cells: Array, dy: Array, dh: Array, dc: Array,
    order: Order, clip: Clip | None, scratch: Scratch, out: Array, dstates: Array | None = None,
) -> None:  # fmt: skip
    """Fill `out`, (T, N, 4 H), with the gradients of the gates' arguments.

    projection : (P, H); with it, dstates, (T, N, P), is filled with the whole gradient of the state after each step
    """
    steps, batch, hidden = cells.shape
    kind, invalid = dy.dtype, order.invalid
    factors = out.reshape(steps, batch, 4, hidden)
    i, f, g, o = np.moveaxis(gates.reshape(factors.shape), 2, 0)
    di, df, dg, do = np.moveaxis(factors, 2, 0)
    through = np.tanh(cells, out=scratch(cells.shape, kind))  # later o (1 - tanh(c)^2), from the cell to the output
    for target, gate, other in ((di, i, g), (df, f, order.before(cells, c, scratch)), (do, o, through)):
        np.subtract(1, gate, out=target)
        target *= gate
        target *= other
    np.multiply(g, g, out=dg)
    np.subtract(1, dg, out=dg)
    dg *= i
    np.multiply(through, through, out=through)
    np.subtract(1, through, out=through)
    through *= o
    inside = None if clip is None else (cells > clip[0]) & (cells < clip[1])
    if invalid is not None:
        np.copyto(factors, 0, where=invalid[..., None])
        np.copyto(through, 0, where=invalid)
        f = np.where(invalid, 1, f).astype(kind)
        inside = None if inside is None else inside | invalid
    part, kept = scratch(dc.shape, kind), scratch(dh.shape, kind)
    for t in reversed(order.steps):
        step = factors[t]
        dh += dy[t]
        if invalid is not None:
            np.multiply(dh, invalid[t], out=kept)
        dhidden = dh
        if projection is not None and dstates is not None:
            np.copyto(dstates[t], dh)
            if invalid is not None:
                np.copyto(dstates[t], 0, where=invalid[t])
            dhidden = np.matmul(dh, projection, out=part)
        step[:, 3] *= dhidden
        dc += np.multiply(dhidden, through[t], out=part)
        if inside is not None:
            dc *= inside[t]
        step[:, :3] *= dc[:, None]
        dc *= f[t]
        np.matmul(out[t], weight, out=dh)
        if invalid is not None:
            dh += kept


def gru_gradient(
    weight: Array, gates: Array, before: Array, dy: Array, dh: Array, order: Order, scratch: Scratch,
    entering: Array, behind: Array,
) -> None:  # fmt: skip
    """Fill `entering` and `behind`, (T, N, 3 H), with the gradients of the arguments' input and hidden halves.

    before : (T, N, H), the state before each step
    """
    steps, batch, hidden = dy.shape
    kind = dy.dtype
    r, z, n, inner = np.moveaxis(gates.reshape(steps, batch, 4, hidden), 2, 0)
    # n on the input's side; r, z, and n's hidden half.
    factors = scratch((steps, batch, 4, hidden), kind)
    dn, dr, dz, dinner = np.moveaxis(factors, 2, 0)
    np.multiply(n, n, out=dn)
    np.subtract(1, dn, out=dn)
    np.subtract(1, z, out=dz)
    dn *= dz
    np.multiply(dn, r, out=dinner)
    np.subtract(1, r, out=dr)
    dr *= dinner
    dr *= inner
    dz *= z
    dz *= np.subtract(before, n, out=scratch(n.shape, kind))
    if order.invalid is not None:
        np.copyto(factors, 0, where=order.invalid[..., None])
        z = np.where(order.invalid, 1, z).astype(kind)
    product = scratch((batch, hidden), kind)
    for t in reversed(order.steps):
        step = factors[t]
        dh += dy[t]
        step *= dh[:, None]
        np.matmul(step[:, 1:].reshape(batch, 3 * hidden), weight, out=product)
        dh *= z[t]
        dh += product
    flat = factors.reshape(steps, batch, 4 * hidden)
    np.copyto(behind, flat[..., hidden:])
    np.copyto(entering[..., : 2 * hidden], flat[..., hidden : 3 * hidden])
    np.copyto(entering[..., 2 * hidden :], flat[..., :hidden])
