"""ONNX's operators that read and write by index."""

from __future__ import annotations

from typing import Any

import numpy as np

from hybrid_lab.onnx.reading.importers import sizes
from hybrid_lab.onnx.reading.importers.functions import Functions, Size, Tensor
from hybrid_lab.onnx.reading.importers.table import operator
from hybrid_lab.ops.framework.sizes import SymbolicSize


def from_front(F: Functions, indices: Tensor, size: Any) -> Tensor:
    """Indices of which negative ones count from the end, counted from the front."""
    if (
        indices.is_constant
        and indices.array is not None
        and indices.array.dtype != object
        and (indices.array >= 0).all()
    ):
        return indices
    numbers = F.cast(indices, "int64")
    if not isinstance(size, SymbolicSize):
        return F.broadcast_mod(numbers, F.constant(max(size, 1), np.int64))
    return F.broadcast_mod(numbers, size_in_graph(F, size))


def size_in_graph(F: Functions, size: Size) -> Tensor:
    """A size as a whole number without axes; an open size is computed in the graph."""
    if not isinstance(size, SymbolicSize):
        return F.constant(size, np.int64)
    return F.reshape_to(F.constant(sizes.shape_of((size,))), ())


@operator("Gather", 1)
def _gather(F: Functions, data: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    axis = F.axis(axis, data.rank)
    return F.take(data, from_front(F, indices, data.shape[axis]), axis=axis)


@operator("GatherElements", 11)
def _gather_elements(F: Functions, data: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    axis = F.axis(axis, data.rank)
    places = from_front(F, indices, data.shape[axis])
    if all(a is b or a == b for k, (a, b) in enumerate(zip(data.shape, places.shape, strict=True)) if k != axis):
        return F._gather_along(data, places, axis=axis)
    return F.gather_nd(data, _coordinates(F, places, axis))


def _coordinates(F: Functions, places: Tensor, axis: int) -> Tensor:
    """The places that indices along one axis mean, one row per axis."""
    rows = [F.cast(places, "int64") if k == axis else positions(F, places, k) for k in range(places.rank)]
    return F.stack(*rows, axis=0)


def positions(F: Functions, like: Tensor, axis: int, rank: int | None = None) -> Tensor:
    """The position along an axis of each element. rank : of the leading axes of `like` that count, all by default"""
    shape = like.shape[:rank]
    if not any(isinstance(size, SymbolicSize) for size in shape):
        return F.positions(shape, axis)
    line = F.cast(F._contrib_arange_like(like, axis=axis), "int64")
    return F.expand_to(F.reshape_to(line, [size if k == axis else 1 for k, size in enumerate(shape)]), shape)


@operator("GatherND", 11)
def _gather_nd(F: Functions, data: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    indices = F.cast(indices, "int64")
    rows = [F.slice_axis(indices, axis=indices.rank - 1, begin=k, end=k + 1) for k in range(indices.shape[-1])]
    rows = [
        from_front(F, F.reshape_to(row, indices.shape[:-1]), data.shape[batch_dims + k]) for k, row in enumerate(rows)
    ]
    if batch_dims:
        rows = [*(positions(F, indices, k, indices.rank - 1) for k in range(batch_dims)), *rows]
    return F.gather_nd(data, F.stack(*rows, axis=0))


# -- writing ---------------------------------------------------------------------------------------------------------


def written(F: Functions, data: Tensor, places: Tensor, updates: Tensor, reduction: str) -> Tensor:
    """data with updates written at flat places (one of several at the same place wins), or reduced with them."""
    flat = F.Reshape(data, shape=(-1,))
    at = F.Reshape(places, shape=(1, -1))
    new = F.Reshape(updates, shape=(-1,))
    if reduction == "none" and any(isinstance(size, SymbolicSize) for size in flat.shape):
        return F.reshape_to(F._contrib_index_copy(flat, F.Reshape(places, shape=(-1,)), new), data.shape)
    if reduction == "none":
        size = flat.shape
        marks = F._scatter_set_nd(
            F.cast(F.zeros_like(flat), "float32"), F.cast(F.ones_like(new), "float32"), at, shape=size
        )
        set_ = F._scatter_set_nd(F.zeros_like(flat), new, at, shape=size)
        return F.reshape_to(F.select(F.truth(marks), set_, flat), data.shape)
    if reduction == "add":
        return F.reshape_to(flat + F._gather_nd_grad(new, at, flat), data.shape)  # repeated places add up
    return F.reshape_to(_reduced_one_by_one(F, flat, F.Reshape(places, shape=(-1,)), new, reduction), data.shape)


def _reduced_one_by_one(F: Functions, flat: Tensor, at: Tensor, new: Tensor, reduction: str) -> Tensor:
    """The same for mul, max and min: one update after the other."""
    rule = {"mul": F.broadcast_mul, "max": F.broadcast_maximum, "min": F.broadcast_minimum}.get(reduction)
    if rule is None:
        raise F.unsupported(f"reduction={reduction!r}; there are none, add, mul, max and min")
    (count,) = F.numbers(F.constant(sizes.shape_of(new.shape)), "the number of updates")
    if count > 4096:
        raise F.unsupported(f"reduction={reduction!r} of {count} updates; up to 4,096 are taken")
    (size,) = F.numbers(F.constant(sizes.shape_of(flat.shape)), "the size of the data")
    line = F.line(size)
    for step in range(count):
        here = F.truth(F.broadcast_equal(line, F.slice_axis(at, axis=0, begin=step, end=step + 1)))
        part = F.slice_axis(new, axis=0, begin=step, end=step + 1)
        flat = F.select(here, rule(flat, part), flat)
    return flat


def _flat_places(F: Functions, rows: list[Tensor], shape: tuple[Size, ...]) -> Tensor:
    """Rows of coordinates as places in the flattened array."""
    total: Any = None
    for row, size in zip(rows, shape, strict=True):
        number = size_in_graph(F, size)
        total = row if total is None else total * number + row
    return total


@operator("Scatter", 9)
@operator("ScatterElements", 11)
def _scatter_elements(
    F: Functions, data: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    axis = F.axis(axis, data.rank)
    if any(not isinstance(size, SymbolicSize) and size == 0 for size in indices.shape):
        return data
    places = F.cast(from_front(F, indices, data.shape[axis]), "int64")
    rows = [places if k == axis else positions(F, indices, k) for k in range(data.rank)]
    return written(F, data, _flat_places(F, rows, data.shape), updates, reduction)


@operator("ScatterND", 11)
def _scatter_nd(F: Functions, data: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    shape = F.numbers(F.constant(sizes.shape_of(data.shape)), "the shape of the data")
    indices = F.cast(indices, "int64")
    named = indices.shape[-1]
    rest = shape[named:]
    rows = []
    for k in range(named):
        row = F.reshape_to(F.slice_axis(indices, axis=indices.rank - 1, begin=k, end=k + 1), indices.shape[:-1])
        rows.append(F.reshape_to(from_front(F, row, shape[k]), (*indices.shape[:-1], *(1,) * len(rest))))
    if 0 in F.numbers(F.constant(sizes.shape_of(updates.shape)), "the shape of the updates"):
        return data
    for number, size in enumerate(rest):
        before = indices.rank - 1
        rows.append(F.line(size, before + number, before + len(rest)))
    places = F.expand_to(_flat_places(F, rows, shape), updates.shape)
    return written(F, data, places, updates, reduction)


@operator("OneHot", 9)
def _one_hot(F: Functions, indices: Tensor, depth: Tensor, values: Tensor, *, axis: int = -1) -> Tensor:
    count = int(F.number(depth, "depth"))
    rank = indices.rank + 1
    place = F.axis(axis, rank)
    whole = F.cast(indices, "int64")
    hot = F.one_hot(F.broadcast_mod(whole, F.constant(max(count, 1), np.int64)), depth=count, dtype="float32")
    inside = F.broadcast_lesser(whole, count) * F.broadcast_greater_equal(whole, -count)
    hot = hot * F.cast(F.reshape_to(inside, (*indices.shape, 1)), "float32")
    order = list(range(rank - 1))
    order.insert(place, rank - 1)
    hot = F.transposed(hot, order)
    off, on = (F.reshape_to(F.slice_axis(values, axis=0, begin=k, end=k + 1), ()) for k in (0, 1))
    zeros = F.cast(F.zeros_like(hot), values.dtype)
    return F.select(F.truth(hot), zeros + on, zeros + off) if values.dtype != bool else F.truth(hot)


@operator("Compress", 9)
def _compress(F: Functions, data: Tensor, condition: Tensor, *, axis: int | None = None) -> Tensor:
    places = np.flatnonzero(F.known(condition, "the condition"))
    if axis is None:
        data, axis = F.Reshape(data, shape=(-1,)), 0
    return F.take(data, F.constant(places, np.int64), axis=F.axis(axis, data.rank))


@operator("ArrayFeatureExtractor", 1, "ai.onnx.ml")
def _features(F: Functions, data: Tensor, indices: Tensor) -> Tensor:
    return F.take(data, F.Reshape(indices, shape=(-1,)), axis=data.rank - 1)


@operator("TensorScatter", 24)
def _tensor_scatter(
    F: Functions, past: Tensor, update: Tensor, places: Tensor | None = None, *, axis: int = -2, mode: str = "linear"
) -> Tensor:
    axis = F.axis(axis, past.rank)
    size = F.numbers(F.constant(np.array([past.shape[axis]], object)), "the length of the axis")[0]
    length = F.numbers(F.constant(np.array([update.shape[axis]], object)), "the length of the update")[0]
    start = F.constant(np.zeros(1, np.int64)) if places is None else F.cast(places, "int64")
    start = F.reshape_to(start, (*start.shape, *(1,) * (past.rank - 1)))
    offset = F.line(size, axis, past.rank) - start
    offset = F.broadcast_mod(offset, F.constant(size, np.int64)) if mode == "circular" else offset
    inside = F.broadcast_greater_equal(offset, 0) * F.broadcast_lesser(offset, length)
    clipped = F.broadcast_minimum(F.broadcast_maximum(offset, 0), length - 1)
    clipped = F.expand_to(clipped, past.shape)
    return F.select(F.truth(F.expand_to(inside, past.shape)), F._gather_along(update, clipped, axis=axis), past)
