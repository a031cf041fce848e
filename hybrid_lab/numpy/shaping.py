"""Functions of `mx.np` that change shapes and axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hybrid_lab.diagnostics.errors import SettingError, ShapeError, UnsupportedArgument
from hybrid_lab.ndarray.invoke import note_operator
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.numpy.array import ndarray
from hybrid_lab.numpy.methods import FUNCTIONS
from hybrid_lab.numpy.operators import (
    R,
    as_tensor,
    call,
    cast,
    known_rank,
    rank_of,
    shape_of,
    write,
)
from hybrid_lab.numpy.types import ArrayLike, Axis, DType, Out, ShapeLike, Tensor
from hybrid_lab.ops.framework.operator import get
from hybrid_lab.ops.framework.run import infer
from hybrid_lab.ops.framework.shapes import axis_of
from hybrid_lab.symbol.symbol import Symbol


def sizes_of(shape: ShapeLike) -> tuple[int, ...]:
    """The sizes of a shape, or other whole numbers; one number counts as a sequence of one. Raises SettingError."""
    values = np.asarray(shape.tolist() if isinstance(shape, NDArray) else shape)
    if values.dtype.kind not in "biuf":
        raise SettingError(f"a whole number, or a sequence of whole numbers, is needed, not {shape!r}")
    return tuple(int(size) for size in values.reshape(-1))


def check_order(function: str, order: str) -> None:
    """Raise AttributeSpecError for another order of elements than C's."""
    if order != "C":
        raise UnsupportedArgument(f"np.{function}: order={order!r} is not supported; elements are in the order 'C'")


FUNCTIONS["_check_order"] = check_order


@FUNCTIONS.add
def reshape(a: ArrayLike, newshape: ShapeLike, reverse: bool = False, order: str = "C") -> Tensor:
    """The elements in another shape; -1 stands for the remaining size. For an array it is a view of the same memory."""
    check_order("reshape", order)
    a = as_tensor(a)
    op = get("_np_reshape").bind(newshape=sizes_of(newshape))
    if isinstance(a, Symbol):
        return call(op, (a,))
    view = a.host_view
    result = ndarray.view_of(a.buffer, view.reshape(infer(op, (view.shape,), (view.dtype,))[0][0]))
    note_operator(op, (a,), (result,))
    return result


@FUNCTIONS.add
def ravel(x: ArrayLike, order: str = "C") -> Tensor:
    """The elements in one axis."""
    check_order("ravel", order)
    return reshape(x, (-1,))


@FUNCTIONS.add
def _astype(x: Tensor, dtype: DType, copy: bool = True) -> Tensor:
    """`x.astype(dtype)`; None is float32, as in MXNet."""
    dtype = "float32" if dtype is None else dtype
    if isinstance(x, NDArray) and copy:
        from_name = np.dtype(dtype).name if not isinstance(dtype, str) else dtype
        return R.Cast(x, dtype=from_name)
    return cast(x, dtype)


@FUNCTIONS.add
def transpose(a: ArrayLike, axes: Sequence[int] | None = None) -> Tensor:
    """The axes in another order, reversed by default."""
    a = as_tensor(a)
    if isinstance(a, NDArray) and a.ndim < 2 and axes is None:
        return R.identity(a)
    return R.transpose(a, axes=tuple(axes) if axes is not None else ())


@FUNCTIONS.add
def swapaxes(a: ArrayLike, axis1: int, axis2: int) -> Tensor:
    """Two axes exchanged."""
    return R.SwapAxis(as_tensor(a), dim1=axis1, dim2=axis2)


@FUNCTIONS.add
def moveaxis(a: ArrayLike, source: ShapeLike, destination: ShapeLike) -> Tensor:
    """Axes moved to other places; the others keep their order."""
    a = as_tensor(a)
    rank = known_rank(a)
    sources = [axis_of("moveaxis", axis, rank) for axis in sizes_of(source)]
    targets = [axis_of("moveaxis", axis, rank) for axis in sizes_of(destination)]
    if len(sources) != len(targets):
        raise ShapeError("moveaxis: source and destination need the same number of axes")
    order = [axis for axis in range(rank) if axis not in sources]
    for target, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(target, axis)
    return transpose(a, order)


@FUNCTIONS.add
def rollaxis(a: ArrayLike, axis: int, start: int = 0) -> Tensor:
    """An axis moved in front of another one."""
    rank = known_rank(a)
    axis = axis_of("rollaxis", axis, rank)
    start = start + rank if start < 0 else start
    return moveaxis(a, axis, start - 1 if axis < start else start)


@FUNCTIONS.add
def expand_dims(a: ArrayLike, axis: int | Sequence[int]) -> Tensor:
    """New axes of size 1 at `axis`, which may be several."""
    a = as_tensor(a)
    axes = sizes_of(axis)
    if len(axes) == 1:
        return R.expand_dims(a, axis=axes[0])
    rank = known_rank(a) + len(axes)
    for each in sorted(axis_of("expand_dims", each, rank) for each in axes):
        a = R.expand_dims(a, axis=each)
    return a


@FUNCTIONS.add
def squeeze(x: ArrayLike, axis: Axis = None, out: Out = None) -> Tensor:
    """x without axes of size 1: without all such axes, or without the axes in `axis`."""
    x, axes = as_tensor(x), None if axis is None else sizes_of(axis)
    if axes in ((0,), (-1,)) and rank_of(x) == 0:
        return write(out, R.identity(x))
    return write(out, R._drop_axes(x, axis=axes))


@FUNCTIONS.add
def broadcast_to(array: ArrayLike, shape: ShapeLike) -> Tensor:
    """The array repeated to a larger shape, in which -2 stands for the array's own size of that axis."""
    array, wanted = as_tensor(array), sizes_of(shape)
    more = len(wanted) - known_rank(array)
    if -2 in wanted[: max(more, 0)]:
        raise ShapeError(f"broadcast_to: -2 in {wanted} stands for an axis that the array does not have")
    if more > 0:
        array = expand_dims(array, range(more))
    if isinstance(array, NDArray) and array.shape == wanted:
        return R.identity(array)
    for axis, size in enumerate(wanted):
        if size == 0:  # which the record takes for "as it is"
            array = R.slice_axis(array, axis=axis, begin=0, end=0)
    return R.broadcast_to(array, shape=tuple(0 if size == -2 else size for size in wanted))


@FUNCTIONS.add
def broadcast_arrays(*args: ArrayLike) -> list[Tensor]:
    """The arrays repeated to their common broadcast shape."""
    shape = np.broadcast_shapes(*(shape_of(item) for item in args))
    return [broadcast_to(item, shape) for item in args]
