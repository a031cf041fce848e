"""NumPy kernels of recurrent layers: one input product per layer and direction, one small product per time step.

What a backward needs is written where it is computed: `gates` holds the activated gates, `cells` the LSTM's cell
states. A sigmoid is 1 / (1 + exp(-x)), whose minus is in the weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from hybrid_lab.ops.framework.protocols import Scratch
from hybrid_lab.ops.framework.types import Array
from hybrid_lab.ops.kernels import blas

#: Gates per mode, in the order of MXNet's rows: i, f, g, o of an LSTM; r, z, n of a GRU.
GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}
#: Arrays of size H per step that a backward reads besides the outputs. A GRU keeps the hidden half of n as well.
KEPT = {"rnn_relu": 0, "rnn_tanh": 0, "lstm": 4, "gru": 4}
#: What each gate's weights are multiplied with: gates that take a sigmoid are computed negated.
_SIGNS = {"lstm": (-1.0, -1.0, 1.0, -1.0), "gru": (-1.0, -1.0, 1.0)}


class Weights(NamedTuple):
    """One layer in one direction. wx : (G * H, I); wh : (G * H, H); bx, bh : (G * H,)"""

    wx: np.ndarray
    wh: np.ndarray
    bx: np.ndarray
    bh: np.ndarray


class Sizes(NamedTuple):
    """The numbers of a stack of recurrent layers. clip : bounds of the LSTM's cell state, and what becomes of NaN."""

    mode: str
    hidden: int
    layers: int
    directions: int
    clip: tuple[float, float, bool] | None = None

    def widths(self, input_size: int) -> list[int]:
        """The input size of every layer."""
        return [input_size] + [self.hidden * self.directions] * (self.layers - 1)

    def parameters(self, input_size: int) -> int:
        """Length of the packed parameter vector."""
        rows = GATES[self.mode] * self.hidden
        return sum(self.directions * rows * (width + self.hidden + 2) for width in self.widths(input_size))

    def pieces(self, input_size: int) -> Iterator[tuple[int, str, tuple[int, ...]]]:
        """(layer * directions + direction, "wx" ..., shape) in the packed order: all weights, then all biases."""
        rows = GATES[self.mode] * self.hidden
        for layer, width in enumerate(self.widths(input_size)):
            for direction in range(self.directions):
                place = layer * self.directions + direction
                yield place, "wx", (rows, width)
                yield place, "wh", (rows, self.hidden)
        for place in range(self.layers * self.directions):
            yield place, "bx", (rows,)
            yield place, "bh", (rows,)

    def unpack(self, vector: np.ndarray, input_size: int) -> list[Weights]:
        """Views on the packed vector, one entry per layer and direction."""
        found: list[dict[str, np.ndarray]] = [{} for _ in range(self.layers * self.directions)]
        start = 0
        for place, name, shape in self.pieces(input_size):
            stop = start + int(np.prod(shape))
            found[place][name] = vector[start:stop].reshape(shape)
            start = stop
        return [Weights(**item) for item in found]


class Lengths(NamedTuple):
    """Sequences of unequal lengths. valid, invalid : (T, N, 1) bool; last : (N,) index of the last step, -1 for none"""

    valid: np.ndarray
    invalid: np.ndarray
    last: np.ndarray


def read_lengths(lengths: np.ndarray | None, steps: int) -> Lengths | None:
    """Steps from sequence_length[n] on do not count: outputs are 0, states stay."""
    if lengths is None:
        return None
    counts = np.clip(np.nan_to_num(np.asarray(lengths, np.float64)), 0, steps).astype(np.int64)
    valid = (np.arange(steps)[:, None] < counts)[..., None]
    return Lengths(valid, ~valid, counts - 1)


class Kept(NamedTuple):
    """What a forward writes for the backward, one entry per layer and direction; memory may be shared in prediction.

    gates, cells : see run_direction
    lower : (T, N, D * H) outputs of the layers below the last; mask : what dropout keeps of them, or None
    scale : what kept elements are multiplied with
    """

    gates: Any = None
    cells: Any = None
    lower: Any = None
    mask: Any = None
    scale: float = 1.0

    def entrance(self, layer: int, scratch: Scratch) -> np.ndarray:
        """The input of a layer above the first: the outputs below it after dropout."""
        below = self.lower[layer - 1]
        if self.mask is None:
            return below
        dropped = scratch(below.shape, below.dtype)
        np.multiply(below, self.mask[layer - 1], out=dropped)
        dropped *= below.dtype.type(self.scale)
        return dropped


def forward(
    sizes: Sizes, x: np.ndarray, weights: list[Weights], state: np.ndarray, cell: np.ndarray | None,
    lengths: Lengths | None, kept: Kept, y: np.ndarray, final: np.ndarray | None, final_cell: np.ndarray | None,
    scratch: Scratch,
) -> None:  # fmt: skip
    """All layers. x : (T, N, C), contiguous; state, cell, final, final_cell : (L * D, N, H); y : (T, N, D * H)."""
    hidden, directions = sizes.hidden, sizes.directions
    for layer in range(sizes.layers):
        below = x if layer == 0 else kept.entrance(layer, scratch)
        target = y if layer == sizes.layers - 1 else kept.lower[layer]
        for direction in range(directions):
            place = layer * directions + direction
            h, c = run_direction(
                sizes, below, weights[place], state[place], None if cell is None else cell[place],
                target[..., direction * hidden : (direction + 1) * hidden],
                None if kept.gates is None else kept.gates[place], None if kept.cells is None else kept.cells[place],
                direction == 1, lengths, scratch,
            )  # fmt: skip
            if final is not None:
                final[place] = h
            if final_cell is not None:
                final_cell[place] = c


def run_direction(
    sizes: Sizes, x: np.ndarray, weights: Weights, h0: np.ndarray, c0: np.ndarray | None, y: np.ndarray,
    gates: np.ndarray | None, cells: np.ndarray | None, reverse: bool, lengths: Lengths | None, scratch: Scratch,
) -> tuple[np.ndarray, np.ndarray | None]:  # fmt: skip
    """One layer in one direction; returns the final states (views, or memory of its own).

    x : (T, N, I), contiguous; h0, c0 : (N, H); y : (T, N, H), filled; gates : (T, N, kept * H) and cells : (T, N, H),
    filled for LSTM and GRU
    """
    steps, batch, _ = x.shape
    order = range(steps - 1, -1, -1) if reverse else range(steps)
    mode, kind = sizes.mode, x.dtype
    rows = GATES[mode] * sizes.hidden
    signs = np.repeat(np.asarray(_SIGNS.get(mode, (1.0,)), kind), sizes.hidden)
    bias = weights.bx + weights.bh
    if mode == "gru":
        bias[2 * sizes.hidden :] = weights.bx[2 * sizes.hidden :]
    recurrent = scratch((sizes.hidden, rows), kind)
    np.multiply(weights.wh.T, signs, out=recurrent)
    entrance = scratch((x.shape[2], rows), kind)
    np.multiply(weights.wx.T, signs, out=entrance)
    projected = gates if mode == "lstm" and gates is not None else scratch((steps, batch, rows), kind)
    blas.matmul(x.reshape(steps * batch, x.shape[2]), entrance, out=projected.reshape(steps * batch, rows))
    projected += bias * signs
    carry = [] if lengths is None else [scratch((batch, sizes.hidden), kind) for _ in range(2)]
    # The exp of a gate that is shut for good overflows to infinity, which is what the sigmoid needs.
    with blas.small_products(batch * sizes.hidden * rows), np.errstate(over="ignore"):
        if mode == "lstm":
            assert c0 is not None and cells is not None
            return _lstm(sizes, projected, recurrent, h0, c0, y, cells, order, lengths, carry, scratch)
        if mode == "gru":
            assert gates is not None
            hidden_bias = weights.bh[2 * sizes.hidden :]
            return _gru(projected, recurrent, hidden_bias, h0, y, gates, order, lengths, carry, scratch), None
        return _plain(mode, projected, recurrent, h0, y, order, lengths, carry, scratch), None


def _settle(lengths: Lengths, carry: list[np.ndarray], t: int, h: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The state after a step where some sequences have ended: theirs stays h and their output becomes 0."""
    after = carry[0] if h is not carry[0] else carry[1]
    np.copyto(after, y)
    np.copyto(after, h, where=lengths.invalid[t])
    np.copyto(y, 0, where=lengths.invalid[t])
    return after


def _lstm(
    sizes: Sizes, gates: np.ndarray, recurrent: np.ndarray, h: Array, c: Array, y: np.ndarray, cells: Array,
    order: range, lengths: Lengths | None, carry: list[np.ndarray], scratch: Scratch,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    batch, hidden = h.shape
    product, part = scratch((batch, 4 * hidden), y.dtype), scratch((batch, hidden), y.dtype)
    i, f, g, o = (gates[..., k * hidden : (k + 1) * hidden] for k in range(4))
    for t in order:
        step, cell = gates[t], cells[t]
        np.matmul(h, recurrent, out=product)
        step += product
        _sigmoid(step[:, : 2 * hidden])
        np.tanh(g[t], out=g[t])
        _sigmoid(o[t])
        np.multiply(f[t], c, out=cell)
        np.multiply(i[t], g[t], out=part)
        cell += part
        if sizes.clip is not None:
            _clip(cell, *sizes.clip)
        if lengths is not None:
            np.copyto(cell, c, where=lengths.invalid[t])
        np.tanh(cell, out=part)
        np.multiply(o[t], part, out=y[t])
        h, c = y[t] if lengths is None else _settle(lengths, carry, t, h, y[t]), cell
    return h, c


def _sigmoid(negated: np.ndarray) -> None:
    """1 / (1 + exp(x)) in place of x."""
    np.exp(negated, out=negated)
    negated += 1
    np.reciprocal(negated, out=negated)


def _clip(cell: np.ndarray, low: float, high: float, numbers: bool) -> None:
    """Into [low, high]; numbers : NaN becomes a bound as well."""
    least, most = (np.fmin, np.fmax) if numbers else (np.minimum, np.maximum)
    least(cell, cell.dtype.type(high), out=cell)
    most(cell, cell.dtype.type(low), out=cell)


def _gru(
    projected: np.ndarray, recurrent: np.ndarray, hidden_bias: np.ndarray, h: Array, y: np.ndarray, gates: Array,
    order: range, lengths: Lengths | None, carry: list[np.ndarray], scratch: Scratch,
) -> np.ndarray:  # fmt: skip
    batch, hidden = h.shape
    product = scratch((batch, 3 * hidden), y.dtype)
    for t in order:
        both, n, inner = gates[t][:, : 2 * hidden], gates[t][:, 2 * hidden : 3 * hidden], gates[t][:, 3 * hidden :]
        np.matmul(h, recurrent, out=product)
        np.add(projected[t][:, : 2 * hidden], product[:, : 2 * hidden], out=both)
        _sigmoid(both)
        np.add(product[:, 2 * hidden :], hidden_bias, out=inner)
        np.multiply(both[:, :hidden], inner, out=n)
        n += projected[t][:, 2 * hidden :]
        np.tanh(n, out=n)
        np.subtract(h, n, out=y[t])
        y[t] *= both[:, hidden:]
        y[t] += n
        h = y[t] if lengths is None else _settle(lengths, carry, t, h, y[t])
    return h


def _plain(
    mode: str, projected: np.ndarray, recurrent: np.ndarray, h: Array, y: np.ndarray, order: range,
    lengths: Lengths | None, carry: list[np.ndarray], scratch: Scratch,
) -> np.ndarray:  # fmt: skip
    product = scratch(h.shape, y.dtype)
    for t in order:
        np.matmul(h, recurrent, out=product)
        product += projected[t]
        if mode == "rnn_tanh":
            np.tanh(product, out=y[t])
        else:
            np.maximum(product, 0, out=y[t])
        h = y[t] if lengths is None else _settle(lengths, carry, t, h, y[t])
    return h
