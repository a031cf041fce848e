"""Functions of `mx.np` that repeat and turn elements, and add borders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import UnsupportedArgument
from hybrid_lab.numpy.joining import at_least, concatenate
from hybrid_lab.numpy.methods import FUNCTIONS
from hybrid_lab.numpy.operators import (
    R,
    as_tensor,
    is_tensor,
    known_rank,
    shape_of,
    write,
)
from hybrid_lab.numpy.shaping import ravel, sizes_of, transpose
from hybrid_lab.numpy.types import ArrayLike, Axis, Out, ShapeLike, Tensor


@FUNCTIONS.add
def tile(A: Any, reps: ShapeLike) -> Tensor | np.ndarray:  # noqa: N803 - NumPy's name
    """The array repeated as a whole, `reps` times along each axis."""
    counts = sizes_of(reps)
    if not is_tensor(A) and np.ndim(A) == 0:
        return np.tile(A, counts)
    array = as_tensor(A)
    if not counts:
        return R.identity(array)
    return R.tile(at_least(array, 1), reps=counts)


@FUNCTIONS.add
def repeat(a: ArrayLike, repeats: ShapeLike, axis: int | None = None) -> Tensor:
    """Every element repeated, along an axis or of the flattened array. repeats : one number, or one for each element"""
    a = as_tensor(a)
    counts = sizes_of(repeats)
    if len(counts) == 1:
        return R.repeat(at_least(a, 1), repeats=counts[0], axis=axis)
    if axis is None:
        a, axis = ravel(a), 0
    return R.take(a, as_tensor(np.repeat(np.arange(len(counts)), counts)), axis=axis)


@FUNCTIONS.add
def flip(m: ArrayLike, axis: Axis = None, out: Out = None) -> Tensor:
    """The order of the elements along axes reversed, along all axes by default."""
    m = as_tensor(m)
    axes = tuple(range(known_rank(m))) if axis is None else sizes_of(axis)
    return write(out, R.reverse(m, axis=axes) if axes else R.identity(m))


@FUNCTIONS.add
def fliplr(m: ArrayLike) -> Tensor:
    """The second axis reversed."""
    if known_rank(m) < 2:
        raise ValueError("Input must be >= 2-d.")
    return flip(m, 1)


@FUNCTIONS.add
def flipud(m: ArrayLike) -> Tensor:
    """The first axis reversed."""
    return flip(m, 0)


@FUNCTIONS.add
def roll(a: ArrayLike, shift: ShapeLike, axis: Axis = None) -> Tensor:
    """The elements moved along an axis, those at the end to its beginning."""
    return R._np_roll(as_tensor(a), shift=sizes_of(shift), axis=None if axis is None else sizes_of(axis))


@FUNCTIONS.add
def rot90(m: ArrayLike, k: int = 1, axes: Sequence[int] = (0, 1)) -> Tensor:
    """A plane of the array turned by k quarters of a circle."""
    first, second = axes
    rank = known_rank(m)
    if len(axes) != 2 or first == second or abs(first - second) == rank:
        raise ValueError("Axes must be different.")
    k %= 4
    if k == 0:
        return R.identity(as_tensor(m))
    if k == 2:
        return flip(flip(m, first), second)
    order = list(range(rank))
    order[first], order[second] = order[second], order[first]
    return transpose(flip(m, second), order) if k == 1 else flip(transpose(m, order), second)


@FUNCTIONS.add
def pad(x: ArrayLike, pad_width: ShapeLike | Sequence[Sequence[int]], mode: str = "constant", **options: Any) -> Tensor:
    """The array with a border. pad_width : a number, a pair for all axes, or a pair for each
    mode : constant (constant_values=0), edge, reflect, symmetric, maximum or minimum
    """
    x = as_tensor(x)
    rank = known_rank(x)
    widths = np.broadcast_to(np.asarray(pad_width), (rank, 2)).tolist()
    if mode == "constant":
        value = options.pop("constant_values", 0)
        if options:
            raise UnsupportedArgument(f"np.pad: {next(iter(options))} is not an argument of mode 'constant'")
        return _bordered(x, widths, lambda part, count, front: R.full_like(part, fill_value=float(value)))
    if mode in ("maximum", "minimum"):
        if options.get("stat_length") is not None:
            raise UnsupportedArgument("np.pad: stat_length is not supported")
        record = R.max if mode == "maximum" else R.min
        for axis, (before, after) in enumerate(widths):
            extreme = record(x, axis=axis, keepdims=True)
            parts = [R.repeat(extreme, repeats=count, axis=axis) for count in (before, after)]
            x = concatenate([part for part, n in ((parts[0], before), (x, 1), (parts[1], after)) if n], axis)
        return x
    if mode in ("edge", "reflect", "symmetric"):
        if options.get("reflect_type", "even") != "even":
            raise UnsupportedArgument("np.pad: reflect_type is not supported")
        for axis, (before, after) in enumerate(widths):
            if before or after:
                numbers: Any = np.arange(shape_of(x)[axis])
                border: Any = mode
                places = np.pad(numbers, (before, after), mode=border)
                x = R.take(x, as_tensor(places), axis=axis)
        return x
    raise UnsupportedArgument(f"np.pad: mode {mode!r} is not supported")


def _bordered(x: Tensor, widths: Sequence[Sequence[int]], border: Callable[[Tensor, int, bool], Tensor]) -> Tensor:
    for axis, counts in enumerate(widths):
        if not any(counts):
            continue
        edge = R.slice_axis(x, axis=axis, begin=0, end=1)
        before, after = (
            border(R.repeat(edge, repeats=count, axis=axis), count, front) if count else None
            for count, front in zip(counts, (True, False), strict=True)
        )
        x = R.Concat(*(part for part in (before, x, after) if part is not None), dim=axis)
    return x
