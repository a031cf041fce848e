"""NumPy kernels of the gradients of recurrent layers.

Everything that does not depend on later steps is computed first, for all steps at once; then one small product per
step, from the last to the first; then the products that make the gradients of weights and inputs.
"""

from __future__ import annotations

import numpy as np

from hybrid_lab.ops.framework.protocols import Scratch
from hybrid_lab.ops.framework.types import Array
from hybrid_lab.ops.kernels import blas
from hybrid_lab.ops.rnn.kernels import Kept, Lengths, Sizes, Weights


def backward(
    sizes: Sizes, x: np.ndarray, weights: list[Weights], state: np.ndarray, cell: np.ndarray | None,
    lengths: Lengths | None, kept: Kept, y: np.ndarray, dy: np.ndarray, dstate: np.ndarray, dcell: np.ndarray | None,
    dx: np.ndarray | None, dweights: list[Weights] | None, scratch: Scratch,
) -> None:  # fmt: skip
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
                sizes, below, weights[place], state[place], None if cell is None else cell[place], output[..., part],
                None if kept.gates is None else kept.gates[place], None if kept.cells is None else kept.cells[place],
                dy[..., part], dstate[place], None if dcell is None else dcell[place], dbelow, direction > 0,
                None if dweights is None else dweights[place], direction == 1, lengths, scratch,
            )  # fmt: skip
        if layer and dbelow is not None:
            if kept.mask is not None:
                dbelow *= kept.mask[layer - 1]
                dbelow *= dbelow.dtype.type(kept.scale)
            dy = dbelow


def run_direction_backward(
    sizes: Sizes, x: np.ndarray, weights: Weights, h0: np.ndarray, c0: np.ndarray | None, y: np.ndarray,
    gates: np.ndarray | None, cells: np.ndarray | None, dy: np.ndarray, dh: np.ndarray, dc: np.ndarray | None,
    dx: np.ndarray | None, add: bool, dweights: Weights | None, reverse: bool, lengths: Lengths | None,
    scratch: Scratch,
) -> None:  # fmt: skip
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
            assert c0 is not None and gates is not None and cells is not None and dc is not None
            hidden_part = _lstm_backward(sizes, weights, c0, gates, cells, dy, dh, dc, reverse, order, lengths, scratch)
            input_part = None
        elif sizes.mode == "gru":
            assert gates is not None
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


def _previous(values: np.ndarray, first: np.ndarray, reverse: bool, lengths: Lengths | None, scratch: Scratch) -> Array:
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
    sizes: Sizes, weights: Weights, c0: Array, gates: Array, cells: Array, dy: np.ndarray, dh: np.ndarray, dc: Array,
    reverse: bool, order: range, lengths: Lengths | None, scratch: Scratch,
) -> np.ndarray:  # fmt: skip
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
    weights: Weights, before: np.ndarray, gates: Array, dy: np.ndarray, dh: np.ndarray, order: range,
    lengths: Lengths | None, scratch: Scratch,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
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
    mode: str, weights: Weights, y: np.ndarray, dy: np.ndarray, dh: np.ndarray, order: range, lengths: Lengths | None,
    scratch: Scratch,
) -> np.ndarray:  # fmt: skip
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
