"""NumPy kernels of recurrent layers: one input product per layer and direction, one small product per time step.

What a backward needs is written where it is computed: `gates` holds the activated gates, `cells` the LSTM's cell
states. A sigmoid is 1 / (1 + exp(-x)), whose minus is in the weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from hybrid_lab.ops import blas

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
    counts = np.clip(np.asarray(lengths, np.float64), 0, steps).astype(np.int64)
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

    def entrance(self, layer: int, scratch: Any) -> np.ndarray:
        """The input of a layer above the first: the outputs below it after dropout."""
        below = self.lower[layer - 1]
        if self.mask is None:
            return below
        dropped = scratch(below.shape, below.dtype)
        np.multiply(below, self.mask[layer - 1], out=dropped)
        dropped *= below.dtype.type(self.scale)
        return dropped


# -- forward -------------------------------------------------------------------------------------------------------


def forward(
    sizes: Sizes,
    x: np.ndarray,
    weights: list[Weights],
    state: np.ndarray,
    cell: np.ndarray | None,
    lengths: Lengths | None,
    kept: Kept,
    y: np.ndarray,
    final: np.ndarray | None,
    final_cell: np.ndarray | None,
    scratch: Any,
) -> None:
    """All layers. x : (T, N, C), contiguous; state, cell, final, final_cell : (L * D, N, H); y : (T, N, D * H)."""
    hidden, directions = sizes.hidden, sizes.directions
    for layer in range(sizes.layers):
        below = x if layer == 0 else kept.entrance(layer, scratch)
        target = y if layer == sizes.layers - 1 else kept.lower[layer]
        for direction in range(directions):
            place = layer * directions + direction
            h, c = run_direction(
                sizes,
                below,
                weights[place],
                state[place],
                None if cell is None else cell[place],
                target[..., direction * hidden : (direction + 1) * hidden],
                None if kept.gates is None else kept.gates[place],
                None if kept.cells is None else kept.cells[place],
                direction == 1,
                lengths,
                scratch,
            )
            if final is not None:
                final[place] = h
            if final_cell is not None:
                final_cell[place] = c


def run_direction(
    sizes: Sizes,
    x: np.ndarray,
    weights: Weights,
    h0: np.ndarray,
    c0: np.ndarray | None,
    y: np.ndarray,
    gates: np.ndarray | None,
    cells: np.ndarray | None,
    reverse: bool,
    lengths: Lengths | None,
    scratch: Any,
) -> tuple[np.ndarray, np.ndarray | None]:
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
    carry = None if lengths is None else [scratch((batch, sizes.hidden), kind) for _ in range(2)]
    # The exp of a gate that is shut for good overflows to infinity, which is what the sigmoid needs.
    with blas.small_products(batch * sizes.hidden * rows), np.errstate(over="ignore"):
        if mode == "lstm":
            return _lstm(sizes, projected, recurrent, h0, c0, y, cells, order, lengths, carry, scratch)
        if mode == "gru":
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
    sizes: Sizes,
    gates: np.ndarray,
    recurrent: np.ndarray,
    h: Any,
    c: Any,
    y: np.ndarray,
    cells: Any,
    order: range,
    lengths: Lengths | None,
    carry: Any,
    scratch: Any,
) -> tuple[np.ndarray, np.ndarray]:
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
    projected: np.ndarray,
    recurrent: np.ndarray,
    hidden_bias: np.ndarray,
    h: Any,
    y: np.ndarray,
    gates: Any,
    order: range,
    lengths: Lengths | None,
    carry: Any,
    scratch: Any,
) -> np.ndarray:
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
    mode: str,
    projected: np.ndarray,
    recurrent: np.ndarray,
    h: Any,
    y: np.ndarray,
    order: range,
    lengths: Lengths | None,
    carry: Any,
    scratch: Any,
) -> np.ndarray:
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


# -- backward ------------------------------------------------------------------------------------------------------


def backward(
    sizes: Sizes,
    x: np.ndarray,
    weights: list[Weights],
    state: np.ndarray,
    cell: np.ndarray | None,
    lengths: Lengths | None,
    kept: Kept,
    y: np.ndarray,
    dy: np.ndarray,
    dstate: np.ndarray,
    dcell: np.ndarray | None,
    dx: np.ndarray | None,
    dweights: list[Weights] | None,
    scratch: Any,
) -> None:
    """The gradient of `forward`.

    dstate, dcell : gradients of the final states on entry, of the initial states on return
    dx, dweights : filled, or None
    """
    hidden, directions = sizes.hidden, sizes.directions
    for layer in reversed(range(sizes.layers)):
        below = x if layer == 0 else kept.entrance(layer, scratch)
        output = y if layer == sizes.layers - 1 else kept.lower[layer]
        dbelow = dx if layer == 0 else scratch(below.shape, below.dtype)
        for direction in range(directions):
            place = layer * directions + direction
            part = slice(direction * hidden, (direction + 1) * hidden)
            run_direction_backward(
                sizes,
                below,
                weights[place],
                state[place],
                None if cell is None else cell[place],
                output[..., part],
                None if kept.gates is None else kept.gates[place],
                None if kept.cells is None else kept.cells[place],
                dy[..., part],
                dstate[place],
                None if dcell is None else dcell[place],
                dbelow,
                direction > 0,
                None if dweights is None else dweights[place],
                direction == 1,
                lengths,
                scratch,
            )
        if layer and dbelow is not None:
            if kept.mask is not None:
                dbelow *= kept.mask[layer - 1]
                dbelow *= dbelow.dtype.type(kept.scale)
            dy = dbelow


def run_direction_backward(
    sizes: Sizes,
    x: np.ndarray,
    weights: Weights,
    h0: np.ndarray,
    c0: np.ndarray | None,
    y: np.ndarray,
    gates: np.ndarray | None,
    cells: np.ndarray | None,
    dy: np.ndarray,
    dh: np.ndarray,
    dc: np.ndarray | None,
    dx: np.ndarray | None,
    add: bool,
    dweights: Weights | None,
    reverse: bool,
    lengths: Lengths | None,
    scratch: Any,
) -> None:
    """The gradient of `run_direction`.

    dh, dc : gradients of the final states on entry, of the initial states on return
    dx : (T, N, I), filled or (`add`) added to, or None; dweights : filled, or None
    """
    steps, batch, _ = x.shape
    order = range(steps) if reverse else range(steps - 1, -1, -1)
    before = _previous(y, h0, reverse, lengths, scratch)
    if lengths is not None:
        dy = np.where(lengths.valid, dy, 0)
    with blas.small_products(batch * sizes.hidden * weights.wh.shape[0]):
        if sizes.mode == "lstm":
            hidden_part = _lstm_backward(sizes, weights, c0, gates, cells, dy, dh, dc, reverse, order, lengths, scratch)
            input_part = None
        elif sizes.mode == "gru":
            input_part, hidden_part = _gru_backward(weights, before, gates, dy, dh, order, lengths, scratch)
        else:
            hidden_part = _plain_backward(sizes.mode, weights, y, dy, dh, order, lengths, scratch)
            input_part = None
    flat = steps * batch
    hidden_part = hidden_part.reshape(flat, hidden_part.shape[2])
    input_part = hidden_part if input_part is None else input_part.reshape(flat, input_part.shape[2])
    if dx is not None and not add:
        blas.matmul(input_part, weights.wx, out=dx.reshape(flat, x.shape[2]))
    elif dx is not None:
        part = scratch((flat, x.shape[2]), x.dtype)
        blas.matmul(input_part, weights.wx, out=part)
        dx += part.reshape(x.shape)
    if dweights is not None:
        blas.matmul(input_part.T, x.reshape(flat, x.shape[2]), out=dweights.wx)
        blas.matmul(hidden_part.T, before.reshape(flat, sizes.hidden), out=dweights.wh)
        ones = np.ones((1, flat), x.dtype)
        blas.matmul(ones, input_part, out=dweights.bx.reshape(1, -1))
        if hidden_part is input_part:
            dweights.bh[...] = dweights.bx
        else:
            blas.matmul(ones, hidden_part, out=dweights.bh.reshape(1, -1))


def _previous(values: np.ndarray, first: np.ndarray, reverse: bool, lengths: Lengths | None, scratch: Any) -> Any:
    """(T, N, H): what the state was before every step."""
    before = scratch(values.shape, values.dtype)
    if not len(values):
        return before
    if reverse:
        before[:-1], before[-1] = values[1:], first
        if lengths is not None:
            places = np.flatnonzero(lengths.last >= 0)
            before[lengths.last[places], places] = first[places]
    else:
        before[1:], before[0] = values[:-1], first
    return before


def _lstm_backward(
    sizes: Sizes,
    weights: Weights,
    c0: Any,
    gates: Any,
    cells: Any,
    dy: np.ndarray,
    dh: np.ndarray,
    dc: Any,
    reverse: bool,
    order: range,
    lengths: Lengths | None,
    scratch: Any,
) -> np.ndarray:
    """Gradients of the gates' arguments, (T, N, 4 H). Everything that does not depend on dh and dc comes first."""
    steps, batch, hidden = dy.shape
    kind = dy.dtype
    i, f, g, o = np.moveaxis(gates.reshape(steps, batch, 4, hidden), 2, 0)
    factors = scratch((steps, batch, 4, hidden), kind)
    di, df, dg, do = np.moveaxis(factors, 2, 0)
    through = scratch(cells.shape, kind)  # of the cell state into the output: o (1 - tanh(c)^2)
    before = _previous(cells, c0, reverse, None, scratch)
    np.tanh(cells, out=through)
    for target, gate, other in ((di, i, g), (df, f, before), (do, o, through)):
        np.subtract(1, gate, out=target)
        target *= gate
        target *= other
    np.multiply(g, g, out=dg)
    np.subtract(1, dg, out=dg)
    dg *= i
    np.multiply(through, through, out=through)
    np.subtract(1, through, out=through)
    through *= o
    inside = None
    if sizes.clip is not None:
        inside = (cells > sizes.clip[0]) & (cells < sizes.clip[1])
    if lengths is not None:
        np.copyto(factors, 0, where=lengths.invalid[..., None])
        np.copyto(through, 0, where=lengths.invalid)
        f = np.where(lengths.invalid, 1, f).astype(kind)
        inside = None if inside is None else inside | lengths.invalid
    part, product = scratch((batch, hidden), kind), scratch((batch, hidden), kind)
    for t in order:
        step = factors[t]
        if lengths is not None:
            np.multiply(dh, lengths.invalid[t], out=product)
        dh += dy[t]
        np.multiply(dh, through[t], out=part)
        dc += part
        if inside is not None:
            dc *= inside[t]
        step[:, :3] *= dc[:, None]
        step[:, 3] *= dh
        dc *= f[t]
        np.matmul(step.reshape(batch, 4 * hidden), weights.wh, out=dh)
        if lengths is not None:
            dh += product
    return factors.reshape(steps, batch, 4 * hidden)


def _gru_backward(
    weights: Weights,
    before: np.ndarray,
    gates: Any,
    dy: np.ndarray,
    dh: np.ndarray,
    order: range,
    lengths: Lengths | None,
    scratch: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of the arguments on the input's side and on the hidden side, (T, N, 3 H) each."""
    steps, batch, hidden = dy.shape
    kind = dy.dtype
    r, z, n, inner = np.moveaxis(gates.reshape(steps, batch, 4, hidden), 2, 0)
    # On the input's side n, r, z; on the hidden side r, z, and n's hidden half: the middle is shared.
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
    apart = scratch(n.shape, kind)
    np.subtract(before, n, out=apart)
    dz *= z
    dz *= apart
    keep = z
    if lengths is not None:
        np.copyto(factors, 0, where=lengths.invalid[..., None])
        keep = np.where(lengths.invalid, 1, z).astype(kind)
    product = scratch((batch, hidden), kind)
    for t in order:
        step = factors[t]
        dh += dy[t]
        step *= dh[:, None]
        np.matmul(step[:, 1:].reshape(batch, 3 * hidden), weights.wh, out=product)
        dh *= keep[t]
        dh += product
    flat = factors.reshape(steps, batch, 4 * hidden)
    entering = np.concatenate([flat[..., hidden : 3 * hidden], flat[..., :hidden]], axis=-1)
    return entering, np.ascontiguousarray(flat[..., hidden:])


def _plain_backward(
    mode: str,
    weights: Weights,
    y: np.ndarray,
    dy: np.ndarray,
    dh: np.ndarray,
    order: range,
    lengths: Lengths | None,
    scratch: Any,
) -> np.ndarray:
    factors = scratch(dy.shape, dy.dtype)
    if mode == "rnn_tanh":
        np.multiply(y, y, out=factors)
        np.subtract(1, factors, out=factors)
    else:
        np.greater(y, 0, out=factors)
    if lengths is not None:
        np.copyto(factors, 0, where=lengths.invalid)
    product = scratch(dh.shape, dh.dtype)
    for t in order:
        if lengths is not None:
            np.multiply(dh, lengths.invalid[t], out=product)
        dh += dy[t]
        factors[t] *= dh
        np.matmul(factors[t], weights.wh, out=dh)
        if lengths is not None:
            dh += product
    return factors
