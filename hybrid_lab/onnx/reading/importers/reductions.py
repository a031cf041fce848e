"""ONNX's reductions, softmax, and positions of extremes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybrid_lab.onnx.reading.importers.functions import Functions, Tensor
from hybrid_lab.onnx.reading.importers.table import Function, add, operator
from hybrid_lab.ops.framework.sizes import SymbolicSize

Reduction = Callable[[Functions, Tensor, Sequence[int], bool], Tensor]


def _empty(F: Functions, x: Tensor, axes: Sequence[int]) -> bool:
    return any(
        not isinstance(x.shape[F.axis(axis, x.rank)], SymbolicSize) and x.shape[F.axis(axis, x.rank)] == 0
        for axis in axes
    )


def _extreme(record: str, neutral: Callable[[np.dtype], float]) -> Reduction:
    def reduce(F: Functions, x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
        if _empty(F, x, axes):
            bound = neutral(x.dtype)
            return (
                F.reduced("sum", F.cast(x, "float32"), axes, keepdims) + F.constant(bound, np.float32)
                if x.is_floating
                else F.expand_to(F.constant(bound, x.dtype), F.reduced("sum", x, axes, keepdims).shape)
            )
        if x.dtype == bool:
            made: Tensor = F.cast(F.reduced(record, F.cast(x, "int32"), axes, keepdims), "bool")
            return made
        return F.reduced(record, x, axes, keepdims)

    return reduce


def _least(dtype: np.dtype) -> float:
    return -np.inf if dtype.kind == "f" else 0 if dtype.kind == "b" else int(np.iinfo(dtype).min)


def _most(dtype: np.dtype) -> float:
    return np.inf if dtype.kind == "f" else 1 if dtype.kind == "b" else int(np.iinfo(dtype).max)


def _simple(record: str) -> Reduction:
    return lambda F, x, axes, keepdims: F.reduced(record, x, axes, keepdims)


def _log_sum_exp(F: Functions, x: Tensor, axes: Sequence[int], keepdims: bool) -> Tensor:
    if _empty(F, x, axes):
        return F.log(F.reduced("sum", F.exp(x), axes, keepdims))
    largest = F.reduced("max", x, axes, True)
    finite = F.select(F.truth(F._contrib_isfinite(largest)), largest, F.zeros_like(largest))
    total = F.log(F.reduced("sum", F.exp(x - finite), axes, True)) + finite
    return total if keepdims else F.reduced("sum", total, axes, False)


REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": _simple("sum"),
    "ReduceMean": _simple("mean"),
    "ReduceProd": _simple("prod"),
    "ReduceMax": _extreme("max", _least),
    "ReduceMin": _extreme("min", _most),
    "ReduceL1": lambda F, x, axes, keepdims: F.reduced("sum", F.abs(x), axes, keepdims),
    "ReduceL2": lambda F, x, axes, keepdims: F.sqrt(F.reduced("sum", F.square(x), axes, keepdims)),
    "ReduceSumSquare": lambda F, x, axes, keepdims: F.reduced("sum", F.square(x), axes, keepdims),
    "ReduceLogSum": lambda F, x, axes, keepdims: F.log(F.reduced("sum", x, axes, keepdims)),
    "ReduceLogSumExp": _log_sum_exp,
}


def _by_attribute(reduce: Reduction) -> Function:
    """The operator if axes are an attribute."""

    def function(F: Functions, x: Tensor, *, axes: Sequence[int] | None = None, keepdims: int = 1) -> Tensor:
        return reduce(F, x, range(x.rank) if axes is None else axes, bool(keepdims))

    return function


def _by_input(reduce: Reduction) -> Function:
    """The operator if axes are an input."""

    def function(
        F: Functions, x: Tensor, axes: Tensor | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Tensor:
        chosen = () if axes is None else F.numbers(axes, "axes")
        if not chosen:
            if noop_with_empty_axes:
                return reduce(F, F.reshape_to(x, (*x.shape, 1)), (x.rank,), False)
            chosen = tuple(range(x.rank))
        return reduce(F, x, chosen, bool(keepdims))

    return function


for _name, _rule in REDUCTIONS.items():
    add(_name, _by_attribute(_rule))
    add(_name, _by_input(_rule), 13 if _name == "ReduceSum" else 18)


# -- softmax ---------------------------------------------------------------------------------------------------------


def _over_axis(record: str) -> Function:
    return lambda F, x, *, axis=-1: getattr(F, record)(x, axis=F.axis(axis, x.rank))


def _over_rest(function: Function) -> Function:
    """The form of opsets before 13: all axes from `axis` on are one."""

    def flattened(F: Functions, x: Tensor, *, axis: int = 1) -> Tensor:
        axis = axis % x.rank if x.rank else 0
        if axis == x.rank - 1:
            made: Tensor = function(F, x, axis=axis)
            return made
        flat = F.Reshape(x, shape=(*(0,) * axis, -1))
        return F.reshape_like(function(F, flat, axis=axis), x)

    return flattened


def _hardmax(F: Functions, x: Tensor, *, axis: int = -1) -> Tensor:
    axis = F.axis(axis, x.rank)
    size = F.numbers(F.constant(np.array([x.shape[axis]], object)), "the length of the axis")[0]
    hot = F.one_hot(F.argmax(x, axis=axis), depth=size, dtype=x.dtype.name)
    order = list(range(x.rank - 1))
    order.insert(axis, x.rank - 1)
    return F.transposed(hot, order)


for _name, _function in {
    "Softmax": _over_axis("softmax"),
    "LogSoftmax": _over_axis("log_softmax"),
    "Hardmax": _hardmax,
}.items():
    add(_name, _over_rest(_function))
    add(_name, _function, 13)


# -- positions -------------------------------------------------------------------------------------------------------


def _position(record: str) -> Function:
    def function(F: Functions, x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
        axis = F.axis(axis, x.rank)
        if x.dtype.kind == "b" or x.dtype.name == "bfloat16":
            x = F.cast(x, "float32")
        places = F.topk(
            F.reverse(x, axis=axis) if select_last_index else x, axis=axis, k=1, ret_typ="indices",
            is_ascend=record == "argmin", dtype="int64",
        )  # fmt: skip
        if select_last_index:
            last = F.constant(
                np.array(x.shape[axis] - 1, object if isinstance(x.shape[axis], SymbolicSize) else np.int64)
            )
            places = last - places
        if not keepdims:
            places = F.reshape_to(places, [size for place, size in enumerate(x.shape) if place != axis])
        return places

    return function


add("ArgMax", _position("argmax"))
add("ArgMin", _position("argmin"))


@operator("TopK", 10)
def _top_k(F: Functions, x: Tensor, k: Tensor, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Tensor:
    return F.topk(
        x, axis=F.axis(axis, x.rank), k=F.number(k, "k"), ret_typ="both", is_ascend=not largest, dtype="int64"
    )


@operator("TopK", 1)
def _top_k_of_attribute(F: Functions, x: Tensor, *, k: int, axis: int = -1) -> Tensor:
    return F.topk(x, axis=F.axis(axis, x.rank), k=k, ret_typ="both", dtype="int64")


@operator("CumSum", 11)
def _cumsum(F: Functions, x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    place = F.axis(F.number(axis, "the axis"), x.rank)
    line = F.reverse(x, axis=place) if reverse else x
    total = F.cumsum(line, axis=place)
    if exclusive:
        total = total - line if not x.is_floating else _shifted(F, total, place, 0.0)
    return F.reverse(total, axis=place) if reverse else total


def _shifted(F: Functions, x: Tensor, axis: int, first: float) -> Tensor:
    """x one place further along an axis, with a number in front."""
    head = F.slice_axis(x, axis=axis, begin=0, end=1) * 0 + F.like(first, x)
    return F.Concat(head, F.slice_axis(x, axis=axis, begin=0, end=-1), dim=axis)


@operator("CumProd", 24)
def _cumprod(F: Functions, x: Tensor, axis: Tensor, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    place = F.axis(F.number(axis, "the axis"), x.rank)
    size = F.numbers(F.constant(np.array([x.shape[place]], object)), "the length of the axis")[0]
    order = range(size - 1, -1, -1) if reverse else range(size)
    found: list[Any] = [None] * size
    running: Any = None
    for at in order:
        part = F.slice_axis(x, axis=place, begin=at, end=at + 1)
        before = F.ones_like(part) if running is None else running
        running = before * part
        found[at] = before if exclusive else running
    return F.Concat(*found, dim=place) if size > 1 else found[0]
