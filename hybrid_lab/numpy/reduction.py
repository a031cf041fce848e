"""Functions of `mx.np` that reduce axes: sums, means, extremes, counts, running sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError
from hybrid_lab.ndarray.ndarray import NDArray, check_dtype
from hybrid_lab.numpy.methods import FUNCTIONS
from hybrid_lab.numpy.operators import (
    BOOL,
    R,
    alike,
    as_tensor,
    cast,
    dtype_of,
    promoted,
    rank_of,
    shape_of,
    write,
)
from hybrid_lab.numpy.types import ArrayLike, Axis, DType, Function, Out, Tensor
from hybrid_lab.ops.framework.shapes import reduced_axes


def reduce(record: str, a: Tensor, axis: Axis, keepdims: bool, **attributes: float) -> Tensor:
    """A record of a reduction with NumPy's axes: none are left if all are reduced."""
    run = getattr(R, record)
    if isinstance(axis, Sequence):
        axis = tuple(int(each) for each in axis)
        if not axis:
            return a
    elif axis is not None:
        axis = int(axis)
    if axis in (0, -1, (0,), (-1,)) and rank_of(a) == 0:
        axis = None  # NumPy lets a number have one axis
    if keepdims:
        return run(a, axis=axis, keepdims=True, **attributes)
    if isinstance(a, NDArray):
        rank = a.ndim
        if axis is not None and rank and (len(axis) if isinstance(axis, tuple) else 1) < rank:
            return run(a, axis=axis, **attributes)
        if not rank and axis is None:
            return R._drop_axes(run(a, **attributes)) if record != "identity" else a
    kept = run(a, axis=axis, keepdims=True, **attributes)
    return R._drop_axes(kept, axis=axis if axis is None or isinstance(axis, tuple) else (axis,))


def _checked_initial(name: str, initial: float | None) -> None:
    if initial is not None and not isinstance(initial, (int, float)):
        raise AttributeSpecError(f"np.{name}: initial={initial!r} must be a number")


def _summable(a: Tensor, dtype: DType) -> Tensor:
    """Bools as int64, other dtypes unchanged; in `dtype` if given."""
    own = dtype_of(a)
    a = cast(a, np.int64) if own == BOOL else a
    if dtype is None or own is None:
        return a if dtype is None else cast(a, dtype)
    return cast(a, promoted(dtype_of(a) or own, check_dtype(dtype)))  # rounded once, at the end


def _in(result: Tensor, dtype: DType) -> Tensor:
    return result if dtype is None else cast(result, dtype)


@FUNCTIONS.add
def sum(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DType = None,
    keepdims: bool = False,
    initial: float | None = None,
    out: Out = None,
) -> Tensor:
    """The sum over `axis`, over all axes by default. initial : a number to add"""
    if isinstance(dtype, NDArray) or isinstance(keepdims, NDArray):
        raise AttributeSpecError("np.sum: out must be given by name")
    _checked_initial("sum", initial)
    result = _in(reduce("sum", _summable(as_tensor(a), dtype), axis, keepdims), dtype)
    return write(out, result if not initial else R.broadcast_add(result, initial))


@FUNCTIONS.add
def prod(
    a: ArrayLike,
    axis: Axis = None,
    dtype: DType = None,
    keepdims: bool = False,
    initial: float | None = None,
    out: Out = None,
) -> Tensor:
    """The product over `axis`, over all axes by default. initial : a factor"""
    _checked_initial("prod", initial)
    result = _in(reduce("prod", _summable(as_tensor(a), dtype), axis, keepdims), dtype)
    return write(out, result if initial is None or initial == 1 else R.broadcast_mul(result, initial))


FUNCTIONS["product"] = prod


@FUNCTIONS.add
def mean(a: ArrayLike, axis: Axis = None, dtype: DType = None, out: Out = None, keepdims: bool = False) -> Tensor:
    """The mean over `axis`, over all axes by default; of whole numbers in float32."""
    (a,) = alike(as_tensor(a), floating=True)
    return write(out, _in(reduce("mean", _summable(a, dtype), axis, keepdims), dtype))


def _extreme(name: str, record: str) -> Function:
    def function(
        a: ArrayLike, axis: Axis = None, out: Out = None, keepdims: bool = False, initial: float | None = None
    ) -> Tensor:
        a = as_tensor(a)
        if dtype_of(a) == BOOL:
            return write(out, cast(function(cast(a, "int8"), axis, None, keepdims), BOOL))
        result = reduce(record, a, axis, keepdims)
        if initial is not None:
            result = getattr(R, f"broadcast_{'maximum' if record == 'max' else 'minimum'}")(result, initial)
        return write(out, result)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The {'largest' if record == 'max' else 'smallest'} number along `axis`; of all by default."
    return function


for _name, _record in {"max": "max", "amax": "max", "min": "min", "amin": "min"}.items():
    FUNCTIONS[_name] = _extreme(_name, _record)


def _place_of(name: str) -> Function:
    def function(a: ArrayLike, axis: int | None = None, out: Out = None, keepdims: bool = False) -> Tensor:
        a = as_tensor(a)
        a = cast(a, "int8") if dtype_of(a) == BOOL else a
        if axis is None:
            a, axis = R._np_reshape(a, newshape=(-1,)), 0
            keepdims = False
        return write(out, cast(reduce(name, a, axis, keepdims), np.int64))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Where the {name[3:]}imum along `axis` is, int64; its place among all elements by default."
    return function


FUNCTIONS["argmax"], FUNCTIONS["argmin"] = _place_of("argmax"), _place_of("argmin")


@FUNCTIONS.add
def all(a: ArrayLike, axis: Axis = None, out: Out = None, keepdims: bool = False) -> Tensor:
    """True if no element along `axis` is 0."""
    zeros = R.Cast(R.broadcast_equal(_counted(as_tensor(a)), 0), dtype="int64")
    return write(out, cast(R.broadcast_equal(reduce("sum", zeros, axis, keepdims), 0), BOOL))


@FUNCTIONS.add
def any(a: ArrayLike, axis: Axis = None, out: Out = None, keepdims: bool = False) -> Tensor:
    """True if some element along `axis` is not 0."""
    others = R.Cast(R.broadcast_not_equal(_counted(as_tensor(a)), 0), dtype="int64")
    return write(out, cast(R.broadcast_not_equal(reduce("sum", others, axis, keepdims), 0), BOOL))


FUNCTIONS["alltrue"], FUNCTIONS["sometrue"] = all, any


def _counted(a: Tensor) -> Tensor:
    return cast(a, "int8") if dtype_of(a) == BOOL else a


@FUNCTIONS.add
def var(
    a: ArrayLike, axis: Axis = None, dtype: DType = None, out: Out = None, ddof: int = 0, keepdims: bool = False
) -> Tensor:
    """The variance: the mean squared distance from the mean; ddof is subtracted from the number of elements."""
    a = as_tensor(a)
    a = _summable(alike(a, floating=True)[0], dtype)
    if rank_of(a) == 0 and axis is not None:
        reduced_axes("np.var", axis if isinstance(axis, int) else tuple(axis), 1)  # a number may have one axis
    if axis == () or rank_of(a) == 0:  # the mean of a number is the number
        result = R.square(R.broadcast_sub(a, a))
    else:
        distance = R.broadcast_sub(a, reduce("mean", a, axis, True))
        result = reduce("mean", R.square(distance), axis, keepdims)
    if ddof:
        shape = shape_of(a)
        axes = range(len(shape)) if axis is None else (axis,) if isinstance(axis, int) else axis
        count = int(np.prod([shape[each] for each in axes]))
        result = R.broadcast_mul(result, count / (count - ddof) if count > ddof else float("nan"))
    return write(out, _in(result, dtype))


@FUNCTIONS.add
def std(
    a: ArrayLike, axis: Axis = None, dtype: DType = None, out: Out = None, ddof: int = 0, keepdims: bool = False
) -> Tensor:
    """The standard deviation, the square root of `var`."""
    return write(out, R.sqrt(var(a, axis, dtype, None, ddof, keepdims)))


@FUNCTIONS.add
def average(
    a: ArrayLike, axis: Any = None, weights: ArrayLike | None = None, returned: bool = False, out: Out = None
) -> Any:
    """The mean weighted by `weights`, which has the shape of a or is a vector along `axis`."""
    a = as_tensor(a)
    if weights is None:
        result = mean(a, axis)
        if not returned:
            return write(out, result)
        total = R.broadcast_div(sum(R.ones_like(a), axis), 1)
        return result, cast(total, dtype_of(result) or "float32")
    weights = as_tensor(weights)
    a, weights = alike(a, weights, floating=True)
    if rank_of(weights) != rank_of(a):
        shape = [1] * (rank_of(a) or 0)
        shape[axis] = -1
        weights = R.Reshape(weights, shape=tuple(shape))
        weights = R.broadcast_mul(R.ones_like(a), weights)
    total = sum(weights, axis)
    result = R.broadcast_div(sum(R.broadcast_mul(a, weights), axis), total)
    return (result, total) if returned else write(out, result)


@FUNCTIONS.add
def cumsum(a: ArrayLike, axis: int | None = None, dtype: DType = None, out: Out = None) -> Tensor:
    """The sums of the elements up to each one, along `axis`; of the flattened array by default."""
    a = _summable(as_tensor(a), dtype)
    kind = dtype_of(a)
    if axis is None:
        a, axis = R._np_reshape(a, newshape=(-1,)), 0
    if kind == np.float16:  # added up in float32
        return write(out, cast(R.cumsum(cast(a, np.float32), axis=axis), kind if dtype is None else dtype))
    return write(out, _in(R.cumsum(a, axis=axis), dtype))


@FUNCTIONS.add
def count_nonzero(a: ArrayLike, axis: Axis = None) -> Tensor:
    """How many elements along `axis` are not 0."""
    return sum(R.Cast(R.broadcast_not_equal(_counted(as_tensor(a)), 0), dtype="int64"), axis)


@FUNCTIONS.add
def nansum(a: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The sum with NaN counted as 0."""
    return reduce("nansum", as_tensor(a), axis, keepdims)


@FUNCTIONS.add
def nanprod(a: ArrayLike, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The product with NaN counted as 1."""
    return reduce("nanprod", as_tensor(a), axis, keepdims)
