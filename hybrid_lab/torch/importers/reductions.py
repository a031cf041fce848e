"""ATen's reductions, softmax, and positions of extremes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from hybrid_lab.ops.framework.sizes import SymbolicSize
from hybrid_lab.torch.importers.functions import Axes, Functions, Result, Tensor
from hybrid_lab.torch.importers.table import Function, aten, onnx


def _chosen(x: Tensor, dim: Axes) -> Sequence[int]:
    """The axes that `dim` names; an empty `dim` means all axes."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return range(x.rank)
    return [dim] if isinstance(dim, int) else list(dim)


@aten("sum")
def _sum(F: Functions, x: Tensor, dim: Axes = None, keepdim: bool = False, *, dtype: np.dtype | None = None) -> Tensor:
    return F.reduced("sum", F.cast(x, F.dtype), _chosen(x, dim), keepdim)


@aten("mean")
def _mean(F: Functions, x: Tensor, dim: Axes = None, keepdim: bool = False, *, dtype: np.dtype | None = None) -> Tensor:
    return F.reduced("mean", F.cast(x, F.dtype), _chosen(x, dim), keepdim)


@aten("prod")
def _prod(F: Functions, x: Tensor, dim: Axes = None, keepdim: bool = False, *, dtype: np.dtype | None = None) -> Tensor:
    return F.reduced("prod", F.cast(x, F.dtype), _chosen(x, dim), keepdim)


@aten("amax")
def _amax(F: Functions, x: Tensor, dim: Axes = (), keepdim: bool = False) -> Tensor:
    return F.reduced("max", x, _chosen(x, dim), keepdim)


@aten("amin")
def _amin(F: Functions, x: Tensor, dim: Axes = (), keepdim: bool = False) -> Tensor:
    return F.reduced("min", x, _chosen(x, dim), keepdim)


@aten("any")
def _any(F: Functions, x: Tensor, dim: Axes = None, keepdim: bool = False) -> Tensor:
    return F.truth(F.reduced("max", F.cast(F.truth(x), "int32"), _chosen(x, dim), keepdim))


@aten("all")
def _all(F: Functions, x: Tensor, dim: Axes = None, keepdim: bool = False) -> Tensor:
    return F.truth(F.reduced("min", F.cast(F.truth(x), "int32"), _chosen(x, dim), keepdim))


def _variance(F: Functions, x: Tensor, dim: Axes, correction: float, keepdim: bool) -> tuple[Tensor, Tensor]:
    axes = [F.axis(axis, x.rank) for axis in _chosen(x, dim)]
    mean = F.reduced("mean", x, axes, True)
    spread = F.reduced("mean", F.square(x - mean), axes, True)
    if correction:
        sizes = [x.shape[axis] for axis in axes]
        if any(isinstance(size, SymbolicSize) for size in sizes):
            open_count = F.cast(F.operand(prod(sizes)), x.dtype)
            spread = spread * (open_count / (open_count - float(correction)))
        else:
            count = float(prod(sizes))
            spread = spread * (count / max(count - correction, 0.0) if count > correction else float("nan"))
    if not keepdim:
        shape = [size for axis, size in enumerate(x.shape) if axis not in axes]
        mean, spread = F.reshape_to(mean, shape), F.reshape_to(spread, shape)
    return spread, mean


def _correction(dim: Axes, unbiased: bool | None, correction: float | None) -> tuple[Axes, float]:
    """The axes and the correction, of `var(x, dim, unbiased)` and `var(x, unbiased)` too."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None:
        return dim, float(unbiased)
    return dim, 1.0 if correction is None else float(correction)


@aten("var")
def _var(
    F: Functions, x: Tensor, dim: Axes = None, unbiased: bool | None = None, keepdim: bool = False, *,
    correction: float | None = None,
) -> Tensor:  # fmt: skip
    dim, correction = _correction(dim, unbiased, correction)
    return _variance(F, x, dim, correction, keepdim)[0]


@aten("std")
def _std(
    F: Functions, x: Tensor, dim: Axes = None, unbiased: bool | None = None, keepdim: bool = False, *,
    correction: float | None = None,
) -> Tensor:  # fmt: skip
    return F.sqrt(_var(F, x, dim, unbiased, keepdim, correction=correction))


@aten("var_mean")
def _var_mean(
    F: Functions, x: Tensor, dim: Axes = None, unbiased: bool | None = None, keepdim: bool = False, *,
    correction: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    dim, correction = _correction(dim, unbiased, correction)
    return _variance(F, x, dim, correction, keepdim)


@aten("logsumexp")
def _logsumexp(F: Functions, x: Tensor, dim: Axes, keepdim: bool = False) -> Tensor:
    axes = F.constant([F.axis(axis, x.rank) for axis in _chosen(x, dim)], np.int64)
    return onnx("ReduceLogSumExp")(F, x, axes, keepdims=int(keepdim))


@aten("linalg_vector_norm")
def _vector_norm(
    F: Functions, x: Tensor, ord: float = 2, dim: Axes = None, keepdim: bool = False, **_: object
) -> Tensor:
    axes = _chosen(x, dim)
    if ord == 2:
        return F.sqrt(F.reduced("sum", F.square(x), axes, keepdim))
    if ord == 1:
        return F.reduced("sum", F.abs(x), axes, keepdim)
    if ord in (float("inf"), float("-inf")):
        return F.reduced("max" if ord > 0 else "min", F.abs(x), axes, keepdim)
    return F.broadcast_power(F.reduced("sum", F.broadcast_power(F.abs(x), float(ord)), axes, keepdim), 1.0 / ord)


# -- softmax ---------------------------------------------------------------------------------------------------------


@aten("_softmax", "softmax")
def _softmax(F: Functions, x: Tensor, dim: int, *_: object, **__: object) -> Tensor:
    (x,) = F.promoted(x)
    return F.softmax(x, axis=F.axis(dim, x.rank)) if x.rank else F.ones_like(x)


@aten("_log_softmax", "log_softmax")
def _log_softmax(F: Functions, x: Tensor, dim: int, *_: object, **__: object) -> Tensor:
    (x,) = F.promoted(x)
    return F.log_softmax(x, axis=F.axis(dim, x.rank))


@aten("_safe_softmax")
def _safe_softmax(F: Functions, x: Tensor, dim: int, dtype: np.dtype | None = None) -> Tensor:
    """As softmax; if all are -infinity, zeros."""
    axis = F.axis(dim, x.rank)
    some = F.truth(F.broadcast_greater(F.reduced("max", x, (axis,), True), F.like(-np.inf, x)))
    return F.select(some, F.softmax(F.select(some, x, F.zeros_like(x)), axis=axis), F.like(0.0, x))


# -- positions and order ---------------------------------------------------------------------------------------------


def _extreme(record: str, position: str) -> Function:
    def function(F: Functions, x: Tensor, dim: int | Tensor | None = None, keepdim: bool = False) -> Result:
        if isinstance(dim, Tensor):
            return getattr(F, f"broadcast_{record}imum")(x, dim)
        if dim is None:
            return F.reduced(record, x, range(x.rank), False)
        values = F.reduced(record, x, (dim,), keepdim)
        places = onnx(position)(F, x, axis=dim, keepdims=int(keepdim)) if 1 in F.used else None
        return values, places

    return function


aten("max")(_extreme("max", "ArgMax"))
aten("min")(_extreme("min", "ArgMin"))


def _place(position: str) -> Function:
    def function(F: Functions, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        if dim is None:
            found = onnx(position)(F, F.Reshape(x, shape=(-1,)), axis=0, keepdims=0)
            return F.reshape_to(found, (1,) * x.rank) if keepdim else found
        return onnx(position)(F, x, axis=dim, keepdims=int(keepdim))

    return function


aten("argmax")(_place("ArgMax"))
aten("argmin")(_place("ArgMin"))


@aten("topk")
def _topk(F: Functions, x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Result:
    return onnx("TopK")(F, x, F.constant(k, np.int64), axis=dim, largest=int(largest))


@aten("sort")
def _sort(F: Functions, x: Tensor, dim: int = -1, descending: bool = False, **_: object) -> Result:
    axis = F.axis(dim, x.rank)
    values = F.sort(x, axis=axis, is_ascend=not descending)
    places = F.argsort(x, axis=axis, is_ascend=not descending, dtype="int64") if 1 in F.used else None
    return values, places


def _ranked(F: Functions, x: Tensor, place: int, dim: int, keepdim: bool) -> tuple[Tensor, Tensor | None]:
    """The value at a place of the sorted ones along an axis, and where it stands."""
    axis = F.axis(dim, x.rank)

    def chosen(values: Tensor) -> Tensor:
        part = F.slice_axis(values, axis=axis, begin=place, end=place + 1)
        return part if keepdim else F.reshape_to(part, x.shape[:axis] + x.shape[axis + 1 :])

    places = chosen(F.argsort(x, axis=axis, is_ascend=True, dtype="int64")) if 1 in F.used else None
    return chosen(F.sort(x, axis=axis, is_ascend=True)), places


@aten("median")
def _median(F: Functions, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Result:
    """The lower one of two in the middle; NaN if there is one."""
    if dim is None:
        x, dim, keepdim, with_places = F.Reshape(x, shape=(-1,)), 0, False, False
    else:
        with_places = True
    if isinstance(x.shape[dim], SymbolicSize):
        raise F.unsupported("the median along an axis whose size is open is not supported")
    values, places = _ranked(F, x, (x.shape[dim] - 1) // 2, dim, keepdim)
    if x.is_floating:
        has_nan = F.truth(F.reduced("max", F._contrib_isnan(x), (dim,), keepdim))
        values = F.select(has_nan, F.like(float("nan"), values), values)
    return (values, places) if with_places else values


@aten("kthvalue")
def _kth_value(F: Functions, x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Result:
    return _ranked(F, x, k - 1, dim, keepdim)


@aten("argsort")
def _argsort(F: Functions, x: Tensor, dim: int = -1, descending: bool = False, **_: object) -> Tensor:
    return F.argsort(x, axis=F.axis(dim, x.rank), is_ascend=not descending, dtype="int64")


@aten("cumsum")
def _cumsum(F: Functions, x: Tensor, dim: int, *, dtype: np.dtype | None = None) -> Tensor:
    (x,) = (F.cast(x, F.dtype),)
    return F.cumsum(x, axis=F.axis(dim, x.rank)) if x.rank else x


@aten("cumprod")
def _cumprod(F: Functions, x: Tensor, dim: int, *, dtype: np.dtype | None = None) -> Tensor:
    return onnx("CumProd")(F, F.cast(x, F.dtype), F.constant(dim, np.int64))
