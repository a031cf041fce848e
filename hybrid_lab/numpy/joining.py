"""Functions of `mx.np` that join arrays and cut them into parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import ShapeError
from hybrid_lab.numpy.methods import FUNCTIONS
from hybrid_lab.numpy.operators import (
    R,
    alike,
    as_tensor,
    is_tensor,
    known_rank,
    rank_of,
    shape_of,
    write,
)
from hybrid_lab.numpy.shaping import ravel
from hybrid_lab.numpy.types import ArrayLike, Function, Out, ShapeLike, Tensor
from hybrid_lab.ops.framework.shapes import axis_of


def _tensors(arrays: Any) -> list[Tensor]:
    if is_tensor(arrays):
        arrays = list(arrays)
    if not arrays:
        raise ShapeError("at least one array is needed")
    return list(alike(*[as_tensor(item) for item in arrays]))


@FUNCTIONS.add
def concatenate(seq: ArrayLike, axis: int | None = 0, out: Out = None) -> Tensor:
    """Arrays joined along an axis; flattened and joined with axis=None."""
    parts = _tensors(seq)
    if axis is None:
        parts, axis = [ravel(part) for part in parts], 0
    if any(rank_of(part) == 0 for part in parts):
        raise ShapeError("concatenate: arrays without axes cannot be joined")
    return write(out, R.Concat(*parts, dim=axis))


@FUNCTIONS.add
def stack(arrays: Sequence[ArrayLike], axis: int = 0, out: Out = None) -> Tensor:
    """Arrays of one shape joined along a new axis."""
    parts = _tensors(arrays)
    return write(out, R.Concat(*(R.expand_dims(part, axis=axis) for part in parts), dim=axis))


def _joined(name: str, least: int, axis: int) -> Function:
    def function(tup: Sequence[ArrayLike], out: Out = None) -> Tensor:
        parts = [at_least(as_tensor(part), least) for part in ([*tup] if not is_tensor(tup) else list(tup))]
        where_to = axis
        if name == "hstack" and rank_of(parts[0]) == 1:
            where_to = 0
        return write(out, concatenate(parts, where_to))

    function.__name__ = function.__qualname__ = name
    words = {0: "one above the other", 1: "side by side", 2: "behind one another"}
    function.__doc__ = f"Arrays joined {words[axis]}."
    return function


FUNCTIONS["vstack"], FUNCTIONS["row_stack"] = _joined("vstack", 2, 0), _joined("row_stack", 2, 0)
FUNCTIONS["hstack"], FUNCTIONS["dstack"] = _joined("hstack", 1, 1), _joined("dstack", 3, 2)


def at_least(item: Tensor, rank: int) -> Tensor:
    """The tensor with axes of size 1 added as NumPy's `atleast_<rank>d` adds them."""
    known = known_rank(item)
    if known >= rank:
        return item
    if known == 0:
        return R.Reshape(R.expand_dims(item, axis=0), shape=(1,) * rank)
    if rank == 2:
        return R.expand_dims(item, axis=0)
    item = R.expand_dims(item, axis=0) if known == 1 else item
    return R.expand_dims(item, axis=2)


def _at_least(rank: int) -> Function:
    def function(*arys: ArrayLike) -> Tensor | list[Tensor]:
        made = [at_least(as_tensor(item), rank) for item in arys]
        return made[0] if len(made) == 1 else made

    function.__name__ = function.__qualname__ = f"atleast_{rank}d"
    function.__doc__ = f"The arrays with at least {rank} {'axis' if rank == 1 else 'axes'}."
    return function


for _rank in (1, 2, 3):
    FUNCTIONS[f"atleast_{_rank}d"] = _at_least(_rank)


@FUNCTIONS.add
def column_stack(tup: Sequence[ArrayLike]) -> Tensor:
    """Vectors as the columns of a matrix; matrices side by side."""
    parts = [as_tensor(part) for part in tup]
    return concatenate([R.Reshape(at_least(p, 1), shape=(-1, 1)) if known_rank(p) < 2 else p for p in parts], 1)


@FUNCTIONS.add
def split(ary: ArrayLike, indices_or_sections: ShapeLike, axis: int = 0) -> list[Tensor]:
    """Cut along an axis: into equal parts, or in front of the given places. Raises ShapeError for unequal parts."""
    ary = as_tensor(ary)
    if isinstance(indices_or_sections, (int, np.integer)):
        made = R._split_v2(ary, indices=(), sections=int(indices_or_sections), axis=axis)
    else:
        size = _size_along("split", ary, axis)
        places = [int(place) for place in np.asarray(indices_or_sections).reshape(-1)]
        ends = [0, *places, size]
        cuts = [(_inside(begin, size), _inside(end, size)) for begin, end in zip(ends, ends[1:])]
        return [R.slice_axis(ary, axis=axis, begin=begin, end=max(end, begin)) for begin, end in cuts]
    return list(made) if isinstance(made, list) else [made]


def _size_along(name: str, ary: ArrayLike, axis: int) -> int:
    """The size of an axis. Raises ShapeError for an axis that does not exist."""
    shape = shape_of(ary)
    return shape[axis_of(f"np.{name}", axis, len(shape))]


def _inside(place: int, size: int) -> int:
    return max(0, min(place + size if place < 0 else place, size))


@FUNCTIONS.add
def array_split(ary: ArrayLike, indices_or_sections: ShapeLike, axis: int = 0) -> list[Tensor]:
    """As `split`; if the size does not divide, the first parts are larger by one."""
    if isinstance(indices_or_sections, (int, np.integer)):
        size, count = _size_along("array_split", ary, axis), int(indices_or_sections)
        step, rest = divmod(size, count)
        return split(ary, [part * step + min(part, rest) for part in range(1, count)], axis)
    return split(ary, indices_or_sections, axis)


@FUNCTIONS.add
def hsplit(ary: ArrayLike, indices_or_sections: ShapeLike) -> list[Tensor]:
    """Cut along the second axis, the only one of a vector."""
    rank = known_rank(ary)
    if rank < 1:
        raise ValueError("hsplit only works on arrays of 1 or more dimensions")
    return split(ary, indices_or_sections, 1 if rank > 1 else 0)


@FUNCTIONS.add
def vsplit(ary: ArrayLike, indices_or_sections: ShapeLike) -> list[Tensor]:
    """Cut along the first axis."""
    if known_rank(ary) < 2:
        raise ValueError("vsplit only works on arrays of 2 or more dimensions")
    return split(ary, indices_or_sections, 0)


@FUNCTIONS.add
def dsplit(ary: ArrayLike, indices_or_sections: ShapeLike) -> list[Tensor]:
    """Cut along the third axis."""
    if known_rank(ary) < 3:
        raise ValueError("dsplit only works on arrays of 3 or more dimensions")
    return split(ary, indices_or_sections, 2)


@FUNCTIONS.add
def append(arr: ArrayLike, values: ArrayLike, axis: int | None = None) -> Tensor:
    """The array with values appended along an axis."""
    return concatenate([as_tensor(arr), as_tensor(values)], axis)
