"""Functions of `mx.np` that arrange elements: shapes, axes, joining, cutting, repeating, choosing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import ShapeError, UnsupportedArgument
from hybrid_lab.ndarray.invoke import note_operator
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.numpy.array import ndarray
from hybrid_lab.numpy.elementwise import operands
from hybrid_lab.numpy.operators import (
    BOOL,
    R,
    alike,
    as_tensor,
    call,
    cast,
    dtype_of,
    is_tensor,
    known_rank,
    rank_of,
    shape_of,
    write,
)
from hybrid_lab.ops.framework.operator import get
from hybrid_lab.ops.framework.run import infer
from hybrid_lab.ops.framework.shapes import axis_of
from hybrid_lab.symbol.symbol import Symbol

FUNCTIONS: dict[str, Callable[..., Any]] = {}


def _export(function: Callable[..., Any]) -> Callable[..., Any]:
    FUNCTIONS[function.__name__] = function
    return function


def _sizes(shape: Any) -> tuple[int, ...]:
    if isinstance(shape, NDArray):
        shape = shape.tolist()
    return (int(shape),) if np.ndim(shape) == 0 else tuple(int(size) for size in shape)


def check_order(function: str, order: str) -> None:
    """Raise AttributeSpecError for another order of elements than C's."""
    if order != "C":
        raise UnsupportedArgument(f"np.{function}: order={order!r} is not supported; elements are in the order 'C'")


FUNCTIONS["_check_order"] = check_order


@_export
def reshape(a: Any, newshape: Any, reverse: bool = False, order: str = "C") -> Any:
    """The elements in another shape; -1 stands for what is left over. Of an array it is a view of the same memory."""
    check_order("reshape", order)
    a = as_tensor(a)
    op = get("_np_reshape").bind(newshape=_sizes(newshape))
    if isinstance(a, Symbol):
        return call(op, (a,))
    view = a.host_view
    result = ndarray.view_of(a.buffer, view.reshape(infer(op, (view.shape,), (view.dtype,))[0][0]))
    note_operator(op, (a,), (result,))
    return result


@_export
def ravel(x: Any, order: str = "C") -> Any:
    """The elements in one axis."""
    check_order("ravel", order)
    return reshape(x, (-1,))


@_export
def _astype(x: Any, dtype: Any, copy: bool = True) -> Any:
    """`x.astype(dtype)`."""
    if isinstance(x, NDArray) and copy:
        from_name = np.dtype(dtype).name if not isinstance(dtype, str) else dtype
        return R.Cast(x, dtype=from_name)
    return cast(x, dtype)


@_export
def transpose(a: Any, axes: Any = None) -> Any:
    """The axes in another order, reversed by default."""
    a = as_tensor(a)
    if isinstance(a, NDArray) and a.ndim < 2 and axes is None:
        return R.identity(a)
    return R.transpose(a, axes=tuple(axes) if axes is not None else ())


@_export
def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    """Two axes exchanged."""
    return R.SwapAxis(as_tensor(a), dim1=axis1, dim2=axis2)


@_export
def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    """Axes moved to other places; the others keep their order."""
    a = as_tensor(a)
    rank = known_rank("moveaxis", a)
    sources = [axis_of("moveaxis", axis, rank) for axis in _sizes(source)]
    targets = [axis_of("moveaxis", axis, rank) for axis in _sizes(destination)]
    if len(sources) != len(targets):
        raise ShapeError("moveaxis: source and destination need the same number of axes")
    order = [axis for axis in range(rank) if axis not in sources]
    for target, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(target, axis)
    return transpose(a, order)


@_export
def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """An axis moved in front of another one."""
    rank = known_rank("rollaxis", a)
    axis = axis_of("rollaxis", axis, rank)
    start = start + rank if start < 0 else start
    return moveaxis(a, axis, start - 1 if axis < start else start)


@_export
def expand_dims(a: Any, axis: Any) -> Any:
    """New axes of size 1 at `axis`, which may be several."""
    a = as_tensor(a)
    if np.ndim(axis) == 0:
        return R.expand_dims(a, axis=int(axis))
    rank = known_rank("expand_dims", a) + len(axis)
    for each in sorted(axis_of("expand_dims", each, rank) for each in axis):
        a = R.expand_dims(a, axis=each)
    return a


@_export
def squeeze(x: Any, axis: Any = None, out: Any = None) -> Any:
    """Without axes of size 1: all of them, or those of `axis`."""
    x, axes = as_tensor(x), None if axis is None else _sizes(axis)
    if axes in ((0,), (-1,)) and rank_of(x) == 0:
        return write(out, R.identity(x))
    return write(out, R._drop_axes(x, axis=axes))


@_export
def broadcast_to(array: Any, shape: Any) -> Any:
    """The array repeated to a larger shape."""
    array, wanted = as_tensor(array), _sizes(shape)
    rank = known_rank("broadcast_to", array)
    if rank < len(wanted):
        array = reshape(array, (*(1,) * (len(wanted) - rank), *shape_of("broadcast_to", array)))
    if isinstance(array, NDArray) and array.shape == wanted:
        return R.identity(array)
    for axis, size in enumerate(wanted):
        if size == 0:  # which the record takes for "as it is"
            array = R.slice_axis(array, axis=axis, begin=0, end=0)
    return R.broadcast_to(array, shape=wanted)


@_export
def broadcast_arrays(*args: Any) -> list[Any]:
    """The arrays repeated to the shape that all of them broadcast to."""
    shape = np.broadcast_shapes(*(shape_of("broadcast_arrays", item) for item in args))
    return [broadcast_to(item, shape) for item in args]


@_export
def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """x where the condition holds, else y; with the condition alone the places where it holds, as `nonzero`."""
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


# -- joining and cutting -------------------------------------------------------------------------------------------


def _tensors(arrays: Any) -> list[Any]:
    if is_tensor(arrays):
        arrays = list(arrays)
    return list(alike(*[as_tensor(item) for item in arrays]))


@_export
def concatenate(seq: Any, axis: int | None = 0, out: Any = None) -> Any:
    """Arrays joined along an axis; flattened and joined with axis=None."""
    parts = _tensors(seq)
    if not parts:
        raise ShapeError("concatenate: at least one array is needed")
    if axis is None:
        parts, axis = [ravel(part) for part in parts], 0
    if any(rank_of(part) == 0 for part in parts):
        raise ShapeError("concatenate: arrays without axes cannot be joined")
    return write(out, R.Concat(*parts, dim=axis))


@_export
def stack(arrays: Any, axis: int = 0, out: Any = None) -> Any:
    """Arrays of one shape joined along a new axis."""
    parts = _tensors(arrays)
    return write(out, R.Concat(*(R.expand_dims(part, axis=axis) for part in parts), dim=axis))


def _joined(name: str, least: int, axis: int) -> Callable[..., Any]:
    def function(tup: Any, out: Any = None) -> Any:
        parts = [at_least(as_tensor(part), least) for part in ([*tup] if not is_tensor(tup) else list(tup))]
        where_to = axis
        if name == "hstack" and rank_of(parts[0]) == 1:
            where_to = 0
        return write(out, concatenate(parts, where_to))

    function.__name__ = function.__qualname__ = name
    words = {0: "one above the other", 1: "side by side", 2: "behind one another"}
    function.__doc__ = f"Arrays joined {words[axis]}."
    return function


FUNCTIONS["vstack"] = FUNCTIONS["row_stack"] = _joined("vstack", 2, 0)
FUNCTIONS["hstack"], FUNCTIONS["dstack"] = _joined("hstack", 1, 1), _joined("dstack", 3, 2)


def at_least(item: Any, rank: int) -> Any:
    """The tensor with axes of size 1 added as NumPy's `atleast_<rank>d` adds them."""
    known = known_rank(f"atleast_{rank}d", item)
    if known >= rank:
        return item
    if known == 0:
        return R.Reshape(R.expand_dims(item, axis=0), shape=(1,) * rank)
    if rank == 2:
        return R.expand_dims(item, axis=0)
    item = R.expand_dims(item, axis=0) if known == 1 else item
    return R.expand_dims(item, axis=2)


def _at_least(rank: int) -> Callable[..., Any]:
    def function(*arys: Any) -> Any:
        made = [at_least(as_tensor(item), rank) for item in arys]
        return made[0] if len(made) == 1 else made

    function.__name__ = function.__qualname__ = f"atleast_{rank}d"
    function.__doc__ = f"The arrays with at least {rank} {'axis' if rank == 1 else 'axes'}."
    return function


for _rank in (1, 2, 3):
    FUNCTIONS[f"atleast_{_rank}d"] = _at_least(_rank)


@_export
def column_stack(tup: Any) -> Any:
    """Vectors as the columns of a matrix; matrices side by side."""
    parts = [as_tensor(part) for part in tup]
    return concatenate([R.Reshape(at_least(p, 1), shape=(-1, 1)) if known_rank("", p) < 2 else p for p in parts], 1)


@_export
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Cut along an axis: into equal parts, or in front of the given places. Raises ShapeError for unequal parts."""
    ary = as_tensor(ary)
    if isinstance(indices_or_sections, (int, np.integer)):
        made = R._split_v2(ary, indices=(), sections=int(indices_or_sections), axis=axis)
    else:
        size = shape_of("split", ary)[axis]
        places = [int(place) for place in np.asarray(indices_or_sections).reshape(-1)]
        ends = [0, *places, size]
        cuts = [(_inside(begin, size), _inside(end, size)) for begin, end in zip(ends, ends[1:])]
        return [R.slice_axis(ary, axis=axis, begin=begin, end=max(end, begin)) for begin, end in cuts]
    return list(made) if isinstance(made, list) else [made]


def _inside(place: int, size: int) -> int:
    return max(0, min(place + size if place < 0 else place, size))


@_export
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """As `split`; where the size does not divide, the first parts are larger by one."""
    if isinstance(indices_or_sections, (int, np.integer)):
        size, count = shape_of("array_split", ary)[axis], int(indices_or_sections)
        step, rest = divmod(size, count)
        return split(ary, [part * step + min(part, rest) for part in range(1, count)], axis)
    return split(ary, indices_or_sections, axis)


@_export
def hsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Cut along the second axis, the only one of a vector."""
    rank = known_rank("hsplit", ary)
    if rank < 1:
        raise ValueError("hsplit only works on arrays of 1 or more dimensions")
    return split(ary, indices_or_sections, 1 if rank > 1 else 0)


@_export
def vsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Cut along the first axis."""
    if known_rank("vsplit", ary) < 2:
        raise ValueError("vsplit only works on arrays of 2 or more dimensions")
    return split(ary, indices_or_sections, 0)


@_export
def dsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Cut along the third axis."""
    if known_rank("dsplit", ary) < 3:
        raise ValueError("dsplit only works on arrays of 3 or more dimensions")
    return split(ary, indices_or_sections, 2)


@_export
def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """The array with values appended along an axis."""
    return concatenate([as_tensor(arr), as_tensor(values)], axis)


# -- repeating and turning -----------------------------------------------------------------------------------------


@_export
def tile(A: Any, reps: Any) -> Any:  # noqa: N803 - NumPy's name
    """The array repeated as a whole, `reps` times along each axis."""
    if not is_tensor(A) and np.ndim(A) == 0:
        return np.tile(A, reps)
    counts, array = _sizes(reps), as_tensor(A)
    if not counts:
        return R.identity(array)
    return R.tile(at_least(array, 1), reps=counts)


@_export
def repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    """Every element repeated, along an axis or of the flattened array. repeats : one number, or one for each element"""
    a = as_tensor(a)
    counts = _sizes(repeats)
    if len(counts) == 1:
        return R.repeat(at_least(a, 1), repeats=counts[0], axis=axis)
    if axis is None:
        a, axis = ravel(a), 0
    return R.take(a, as_tensor(np.repeat(np.arange(len(counts)), counts)), axis=axis)


@_export
def flip(m: Any, axis: Any = None, out: Any = None) -> Any:
    """The order of the elements along axes reversed, along all of them by default."""
    m = as_tensor(m)
    axes = tuple(range(known_rank("flip", m))) if axis is None else _sizes(axis)
    return write(out, R.reverse(m, axis=axes) if axes else R.identity(m))


@_export
def fliplr(m: Any) -> Any:
    """The second axis reversed."""
    if known_rank("fliplr", m) < 2:
        raise ValueError("Input must be >= 2-d.")
    return flip(m, 1)


@_export
def flipud(m: Any) -> Any:
    """The first axis reversed."""
    return flip(m, 0)


@_export
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """The elements moved along an axis, those at the end to its beginning."""
    a = as_tensor(a)
    if axis is None:
        return reshape(roll(ravel(a), shift, 0), shape_of("roll", a))
    axes = _sizes(axis)
    shifts = _sizes(shift)
    shifts = shifts * len(axes) if len(shifts) == 1 else shifts
    axes = axes * len(shifts) if len(axes) == 1 else axes
    for step, each in zip(shifts, axes, strict=True):
        size = shape_of("roll", a)[each]
        cut = size - step % size if size else 0
        if cut not in (0, size):
            a = R.Concat(
                R.slice_axis(a, axis=each, begin=cut, end=None), R.slice_axis(a, axis=each, begin=0, end=cut), dim=each
            )
    return a


@_export
def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    """A plane of the array turned by k quarters of a circle."""
    first, second = axes
    rank = known_rank("rot90", m)
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


@_export
def pad(x: Any, pad_width: Any, mode: str = "constant", **options: Any) -> Any:
    """The array with a border. pad_width : a number, a pair for all axes, or a pair for each
    mode : constant (constant_values=0), edge, reflect, symmetric, maximum or minimum
    """
    x = as_tensor(x)
    rank = known_rank("pad", x)
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
                numbers: Any = np.arange(shape_of("pad", x)[axis])
                border: Any = mode
                places = np.pad(numbers, (before, after), mode=border)
                x = R.take(x, as_tensor(places), axis=axis)
        return x
    raise UnsupportedArgument(f"np.pad: mode {mode!r} is not supported")


def _bordered(x: Any, widths: Any, border: Callable[..., Any]) -> Any:
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


# -- choosing ------------------------------------------------------------------------------------------------------


@_export
def take(a: Any, indices: Any, axis: int | None = None, mode: str = "raise", out: Any = None) -> Any:
    """Elements along an axis by number; of the flattened array by default. mode : clip, wrap or raise"""
    a = as_tensor(a)
    places = as_tensor(np.asarray(indices)) if not is_tensor(indices) else indices
    if axis is None:
        a, axis = ravel(a), 0
    if mode == "raise" and isinstance(places, NDArray):
        size = a.shape[axis] if isinstance(a, NDArray) else shape_of("take", a)[axis]
        values = places._data
        if values.size and (values.min() < -size or values.max() >= size):
            raise IndexError(f"take: an index is out of bounds for axis {axis} with size {size}")
        if values.size and values.min() < 0:
            places, mode = as_tensor(np.where(values < 0, values + size, values)), "clip"
        mode = "clip"
    elif mode == "raise":  # the record counts from the front only
        size = shape_of("take", a)[axis]
        places = R.broadcast_add(places, R.broadcast_mul(R.broadcast_lesser(places, 0), size))
    return write(out, R.take(a, places, axis=axis, mode=mode))


@_export
def delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    """The array without the elements that `obj` (a number, a slice or a list) names along an axis."""
    arr = as_tensor(arr)
    if axis is None:
        arr, axis = ravel(arr), 0
    key = obj._data if isinstance(obj, NDArray) else obj
    key = key.astype(np.int64) if isinstance(key, np.ndarray) and key.dtype.kind == "f" else key
    kept = np.delete(np.arange(shape_of("delete", arr)[axis]), key)
    return R.take(arr, as_tensor(kept), axis=axis)


@_export
def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """The array with `values` in front of the places that `obj` (a number, a slice or a list) names along an axis."""
    arr = as_tensor(arr)
    if axis is None:
        arr, axis = ravel(arr), 0
    shape = shape_of("insert", arr)
    axis = axis_of("insert", axis, len(shape))
    key = obj._data if isinstance(obj, NDArray) else obj
    key = key.astype(np.int64) if isinstance(key, np.ndarray) and key.dtype.kind == "f" else key
    size, single = shape[axis], not isinstance(key, slice) and np.ndim(key) == 0
    values = cast(as_tensor(values), dtype_of(arr) or np.float32)
    rank = known_rank("insert", values)
    if rank < len(shape):
        values = reshape(values, (*(1,) * (len(shape) - rank), *shape_of("insert", values)))
    if single and rank:  # NumPy lets the first axis of the values be the inserted one
        values = moveaxis(values, 0, axis)
    places = np.arange(size)[key] if isinstance(key, slice) else np.asarray(key)
    count = shape_of("insert", values)[axis] if single else len(np.atleast_1d(places))
    values = broadcast_to(values, (*shape[:axis], count, *shape[axis + 1 :]))
    fronts: Any = [places.item()] * count if single else places
    marks = np.insert(np.arange(size), fronts, size + np.arange(count))
    return R.take(R.Concat(arr, values, dim=axis), as_tensor(marks), axis=axis)


@_export
def diag(v: Any, k: int = 0) -> Any:
    """The diagonal of a matrix, or a matrix with a vector as its diagonal."""
    v = as_tensor(v)
    if known_rank("diag", v) not in (1, 2):
        raise ValueError("Input must be 1-d or 2-d.")
    return R.diag(v, k=k)


@_export
def diagflat(v: Any, k: int = 0) -> Any:
    """A matrix with the flattened array as its diagonal."""
    return diag(ravel(as_tensor(v)), k)


@_export
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The diagonals of two axes, as the last axis."""
    a = as_tensor(a)
    rank = known_rank("diagonal", a)
    first, second = axis_of("diagonal", axis1, rank), axis_of("diagonal", axis2, rank)
    if first == second:
        raise ValueError("axis1 and axis2 cannot be the same")
    rest = [axis for axis in range(rank) if axis not in (first, second)]
    *lead, rows, columns = shape_of("diagonal", a := transpose(a, [*rest, first, second]))
    count = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    start = offset if offset >= 0 else -offset * columns
    places = as_tensor(start + np.arange(count) * (columns + 1))
    return R.take(reshape(a, (*lead, rows * columns)), places, axis=-1)


@_export
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, out: Any = None) -> Any:
    """The sums of the diagonals of two axes."""
    return write(out, FUNCTIONS["sum"](diagonal(a, offset, axis1, axis2), axis=-1))


def _triangle_of(name: str) -> Callable[..., Any]:
    def function(m: Any, k: int = 0) -> Any:
        m = as_tensor(m)
        rows, columns = shape_of(name, m)[-2:] if known_rank(name, m) > 1 else shape_of(name, m) * 2
        kept = as_tensor(getattr(np, name)(np.ones((rows, columns), np.int8), k))
        like = cast(kept, dtype_of(m) or np.float32)
        return where(R.broadcast_mul(R.ones_like(m), like) if rank_of(m) != 1 else like, m, 0)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The {'lower' if name == 'tril' else 'upper'} triangle of the last two axes; zeros elsewhere."
    return function


FUNCTIONS["tril"], FUNCTIONS["triu"] = _triangle_of("tril"), _triangle_of("triu")


@_export
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """The differences of neighbours along an axis, n times."""
    if prepend is not None or append is not None:
        raise UnsupportedArgument("np.diff: prepend and append are not supported")
    a = as_tensor(a)
    for _ in range(n):
        a = R.broadcast_sub(
            R.slice_axis(a, axis=axis, begin=1, end=None),
            R.slice_axis(a, axis=axis, begin=0, end=max(shape_of("diff", a)[axis] - 1, 0)),
        )
    return a


@_export
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """The differences of neighbours of the flattened array, between `to_begin` and `to_end`."""
    parts = [ravel(as_tensor(item)) for item in (to_begin, diff(ravel(as_tensor(ary))), to_end) if item is not None]
    return concatenate([cast(part, dtype_of(ary) or "float32") for part in parts])


@_export
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list[Any]:
    """Matrices of coordinates from vectors of coordinates."""
    vectors = [at_least(as_tensor(each), 1) for each in xi]
    rank = len(vectors)
    grids = []
    for axis, vector in enumerate(vectors):
        place = 1 - axis if indexing == "xy" and axis < 2 and rank > 1 else axis
        grids.append(R.Reshape(vector, shape=tuple(-1 if each == place else 1 for each in range(rank))))
    return grids if sparse else broadcast_arrays(*grids)
