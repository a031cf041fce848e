"""Functions of `mx.np` that choose elements: by condition, by number, by diagonal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from hybrid_lab.diagnostics.errors import ArrayIndexError, UnsupportedArgument
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.numpy.elementwise import operands
from hybrid_lab.numpy.joining import at_least, concatenate
from hybrid_lab.numpy.methods import FUNCTIONS
from hybrid_lab.numpy.operators import (
    BOOL,
    R,
    alike,
    as_tensor,
    cast,
    dtype_of,
    is_tensor,
    known_rank,
    rank_of,
    shape_of,
    write,
)
from hybrid_lab.numpy.shaping import broadcast_arrays, broadcast_to, moveaxis, ravel, reshape, transpose
from hybrid_lab.numpy.types import ArrayLike, Function, Out, Tensor
from hybrid_lab.ops.framework.shapes import axis_of

#: Which elements along an axis `insert` and `delete` mean.
Place: TypeAlias = "int | slice | Sequence[int] | np.ndarray | NDArray"


@FUNCTIONS.add
def where(condition: ArrayLike, x: Any = None, y: Any = None) -> Tensor:
    """x if the condition holds, else y; with the condition alone, the indices at which it holds, as `nonzero`."""
    if x is None and y is None:
        return FUNCTIONS["nonzero"](condition)
    condition = as_tensor(condition)
    x, y = operands(x, y)
    if not is_tensor(x) and not is_tensor(y):
        kind = np.asarray(x).dtype.kind + np.asarray(y).dtype.kind
        x = R.full_like(
            cast(condition, np.float32 if "f" in kind else BOOL if kind == "bb" else np.int64), fill_value=x
        )
    x, y = alike(x, y)
    ranks = [rank_of(item) for item in (x, y) if is_tensor(item)]
    widest = max([rank for rank in ranks if rank is not None], default=0)
    if rank_of(condition) == 1 and widest > 1:  # the record would choose whole rows
        condition = R.Reshape(condition, shape=(*(1,) * (widest - 1), -1))
    if (dtype_of(x) if is_tensor(x) else dtype_of(y)) == BOOL:
        x, y = (cast(item, "int8") if is_tensor(item) else int(item) for item in (x, y))
        return cast(R.where(condition, x, y), BOOL)
    return R.where(condition, x, y)


@FUNCTIONS.add
def take(a: ArrayLike, indices: ArrayLike, axis: int | None = None, mode: str = "raise", out: Out = None) -> Tensor:
    """Elements along an axis by number; of the flattened array by default. mode : clip, wrap or raise"""
    a = as_tensor(a)
    places = as_tensor(np.asarray(indices)) if not is_tensor(indices) else indices
    if axis is None:
        a, axis = ravel(a), 0
    if mode == "raise" and isinstance(places, NDArray):
        shape, values = shape_of(a), places._data
        size = shape[axis_of("take", axis, len(shape))]
        if values.size and (values.min() < -size or values.max() >= size):
            raise ArrayIndexError(f"take: an index is out of bounds for axis {axis} with size {size}")
        if values.size and values.min() < 0:
            places, mode = as_tensor(np.where(values < 0, values + size, values)), "clip"
        mode = "clip"
    elif mode == "raise":  # the record counts from the front only
        size = shape_of(a)[axis]
        places = R.broadcast_add(places, R.broadcast_mul(R.broadcast_lesser(places, 0), size))
    return write(out, R.take(a, places, axis=axis, mode=mode))


@FUNCTIONS.add
def delete(arr: ArrayLike, obj: Place, axis: int | None = None) -> Tensor:
    """The array without the elements that `obj` (a number, a slice or a list) names along an axis."""
    arr = as_tensor(arr)
    if axis is None:
        arr, axis = ravel(arr), 0
    key = obj._data if isinstance(obj, NDArray) else obj
    key = key.astype(np.int64) if isinstance(key, np.ndarray) and key.dtype.kind == "f" else key
    kept = np.delete(np.arange(shape_of(arr)[axis]), key)
    return R.take(arr, as_tensor(kept), axis=axis)


@FUNCTIONS.add
def insert(arr: ArrayLike, obj: Place, values: ArrayLike, axis: int | None = None) -> Tensor:
    """The array with `values` in front of the places that `obj` (a number, a slice or a list) names along an axis."""
    arr = as_tensor(arr)
    if axis is None:
        arr, axis = ravel(arr), 0
    shape = shape_of(arr)
    axis = axis_of("insert", axis, len(shape))
    key = obj._data if isinstance(obj, NDArray) else obj
    key = key.astype(np.int64) if isinstance(key, np.ndarray) and key.dtype.kind == "f" else key
    size, single = shape[axis], not isinstance(key, slice) and np.ndim(key) == 0
    values = cast(as_tensor(values), dtype_of(arr) or np.float32)
    rank = known_rank(values)
    if rank < len(shape):
        values = reshape(values, (*(1,) * (len(shape) - rank), *shape_of(values)))
    if single and rank:  # NumPy lets the first axis of the values be the inserted one
        values = moveaxis(values, 0, axis)
    places = np.arange(size)[key] if isinstance(key, slice) else np.asarray(key)
    count = shape_of(values)[axis] if single else len(np.atleast_1d(places))
    values = broadcast_to(values, (*shape[:axis], count, *shape[axis + 1 :]))
    fronts = [places.item()] * count if single else places
    marks = np.insert(np.arange(size), fronts, size + np.arange(count))
    return R.take(R.Concat(arr, values, dim=axis), as_tensor(marks), axis=axis)


@FUNCTIONS.add
def diag(v: ArrayLike, k: int = 0) -> Tensor:
    """The diagonal of a matrix, empty if it has no diagonal k, or a matrix with a vector as its diagonal."""
    v = as_tensor(v)
    rank = known_rank(v)
    if rank not in (1, 2):
        raise ValueError("Input must be 1-d or 2-d.")
    if rank == 2 and k:
        rows, columns = shape_of(v)
        if not -rows < k < columns:  # the operator refuses it, as MXNet's does
            return diagonal(v, k)
    return R.diag(v, k=k)


@FUNCTIONS.add
def diagflat(v: ArrayLike, k: int = 0) -> Tensor:
    """A matrix with the flattened array as its diagonal."""
    return diag(ravel(as_tensor(v)), k)


@FUNCTIONS.add
def diagonal(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The diagonals of two axes, as the last axis."""
    a = as_tensor(a)
    rank = known_rank(a)
    first, second = axis_of("diagonal", axis1, rank), axis_of("diagonal", axis2, rank)
    if first == second:
        raise ValueError("axis1 and axis2 cannot be the same")
    rest = [axis for axis in range(rank) if axis not in (first, second)]
    *lead, rows, columns = shape_of(a := transpose(a, [*rest, first, second]))
    count = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    start = offset if offset >= 0 else -offset * columns
    places = as_tensor(start + np.arange(count) * (columns + 1))
    return R.take(reshape(a, (*lead, rows * columns)), places, axis=-1)


@FUNCTIONS.add
def trace(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1, out: Out = None) -> Tensor:
    """The sums of the diagonals of two axes."""
    return write(out, FUNCTIONS["sum"](diagonal(a, offset, axis1, axis2), axis=-1))


def _triangle_of(name: str) -> Function:
    def function(m: ArrayLike, k: int = 0) -> Tensor:
        m = as_tensor(m)
        rows, columns = shape_of(m)[-2:] if known_rank(m) > 1 else shape_of(m) * 2
        kept = as_tensor(getattr(np, name)(np.ones((rows, columns), np.int8), k))
        like = cast(kept, dtype_of(m) or np.float32)
        return where(R.broadcast_mul(R.ones_like(m), like) if rank_of(m) != 1 else like, m, 0)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The {'lower' if name == 'tril' else 'upper'} triangle of the last two axes; zeros elsewhere."
    return function


FUNCTIONS["tril"], FUNCTIONS["triu"] = _triangle_of("tril"), _triangle_of("triu")


@FUNCTIONS.add
def diff(
    a: ArrayLike, n: int = 1, axis: int = -1, prepend: ArrayLike | None = None, append: ArrayLike | None = None
) -> Tensor:
    """The differences of neighbours along an axis, n times."""
    if prepend is not None or append is not None:
        raise UnsupportedArgument("np.diff: prepend and append are not supported")
    a = as_tensor(a)
    for _ in range(n):
        a = R.broadcast_sub(
            R.slice_axis(a, axis=axis, begin=1, end=None),
            R.slice_axis(a, axis=axis, begin=0, end=max(shape_of(a)[axis] - 1, 0)),
        )
    return a


@FUNCTIONS.add
def ediff1d(ary: ArrayLike, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None) -> Tensor:
    """The differences of neighbours of the flattened array, between `to_begin` and `to_end`."""
    line = ravel(ary)
    parts = [ravel(item) for item in (to_begin, diff(line), to_end) if item is not None]
    return concatenate([cast(part, dtype_of(line) or "float32") for part in parts])


@FUNCTIONS.add
def meshgrid(*xi: ArrayLike, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list[Tensor]:
    """Matrices of coordinates from vectors of coordinates."""
    vectors = [at_least(as_tensor(each), 1) for each in xi]
    rank = len(vectors)
    grids = []
    for axis, vector in enumerate(vectors):
        place = 1 - axis if indexing == "xy" and axis < 2 and rank > 1 else axis
        grids.append(R.Reshape(vector, shape=tuple(-1 if each == place else 1 for each in range(rank))))
    return grids if sparse else broadcast_arrays(*grids)
