"""ONNX's pooling: by the record Pooling if it fits, else as a reduction over elements taken by number."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from hybrid_lab.onnx.reading.importers.arrays import padded
from hybrid_lab.onnx.reading.importers.functions import Functions, Result, Tensor
from hybrid_lab.onnx.reading.importers.table import operator
from hybrid_lab.onnx.reading.importers.windows import borders
from hybrid_lab.ops.framework.sizes import SymbolicSize

Edges = list[tuple[int, int]]


class _Windows:
    """The places that the windows of a pooling read, axis by axis.

    places : per axis an array (output, kernel) of positions in the input, -1 outside of it
    counts : per axis how many positions of a window lie inside the input and its padding
    """

    def __init__(
        self, F: Functions, spatial: Sequence[int], kernel: Sequence[int], strides: Sequence[int],
        dilations: Sequence[int], edges: Edges, ceil_mode: bool,
    ) -> None:  # fmt: skip
        self.places: list[np.ndarray] = []
        self.counts: list[np.ndarray] = []
        for size, window, step, spread, (before, after) in zip(spatial, kernel, strides, dilations, edges, strict=True):
            reach = spread * (window - 1) + 1
            room = size + before + after - reach
            if room < 0 or step < 1 or size > 1 << 24:
                raise F.unsupported(f"a window of {reach} does not fit an axis of {size}")
            output = (-(-room // step) if ceil_mode else room // step) + 1
            if ceil_mode and (output - 1) * step >= size + before:
                output -= 1
            F.table(output, window)
            at = np.arange(output)[:, None] * step + np.arange(window)[None, :] * spread - before
            self.places.append(np.where((at >= 0) & (at < size), at, -1))
            self.counts.append((at < size + after).sum(axis=1))


def _prepared(
    F: Functions, x: Tensor, kernel: Sequence[int], strides: Sequence[int] | None, dilations: Sequence[int] | None,
    pads: Sequence[int] | None, auto_pad: str,
) -> tuple[tuple[int, ...], tuple[int, ...], Edges]:  # fmt: skip
    rank = len(kernel)
    if x.rank != rank + 2:
        raise F.unsupported(f"a kernel of {rank} axes for data of shape {x.shape}")
    strides, dilations = tuple(strides or (1,) * rank), tuple(dilations or (1,) * rank)
    return strides, dilations, borders(F, x.shape[2:], kernel, strides, dilations, pads, auto_pad)


def _fits_record(x: Tensor, kernel: Sequence[int], dilations: Sequence[int], edges: Edges) -> bool:
    """Whether the record Pooling has this form."""
    return (
        1 <= len(kernel) <= 3 and all(number == 1 for number in dilations)
        and all(before == after < window for (before, after), window in zip(edges, kernel, strict=True))
    )  # fmt: skip


def _ceil_fits(x: Tensor, kernel: Sequence[int], strides: Sequence[int], edges: Edges) -> bool:
    """Whether rounding up adds no window that begins behind the input, or that ends beyond the padding."""
    for size, window, step, (before, after) in zip(x.shape[2:], kernel, strides, edges, strict=True):
        if isinstance(size, SymbolicSize) or (size + before + after - window) % step:
            return False
    return True


def _symmetric(x: Tensor, kernel: Sequence[int], strides: Sequence[int], edges: Edges) -> Edges:
    """The padding, with as much after an axis as before it if no window reaches so far."""
    found = []
    for size, window, step, (before, after) in zip(x.shape[2:], kernel, strides, edges, strict=True):
        known = not isinstance(size, SymbolicSize) and after < before
        if known and (size + 2 * before - window) // step == (size + before + after - window) // step:
            after = before
        found.append((before, after))
    return found


def _rounds_up(
    x: Tensor, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], edges: Edges
) -> bool:
    """Whether windows that reach behind an axis follow the record's convention "full", as exported."""
    if not (1 <= len(kernel) <= 3 and all(number == 1 for number in dilations)):
        return False
    for size, window, step, (before, after) in zip(x.shape[2:], kernel, strides, edges, strict=True):
        if isinstance(size, SymbolicSize) or before >= window or after < before or size + 2 * before < window:
            return False
        last = -(-(size + 2 * before - window) // step)
        if last != (size + before + after - window) // step or last * step >= size + before:
            return False
    return True


@operator("MaxPool", 1)
def _max_pool(
    F: Functions, x: Tensor, *, kernel_shape: Sequence[int], auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Sequence[int] | None = None, pads: Sequence[int] | None = None, storage_order: int = 0,
    strides: Sequence[int] | None = None, outputs: int = 1,
) -> Result:  # fmt: skip
    kernel = tuple(kernel_shape)
    strides, dilations, edges = _prepared(F, x, kernel, strides, dilations, pads, auto_pad)
    exact = not ceil_mode or _ceil_fits(x, kernel, strides, edges)
    edges = _symmetric(x, kernel, strides, edges) if exact else edges
    if outputs == 1 and exact and _fits_record(x, kernel, dilations, edges):
        return F.Pooling(x, kernel=kernel, stride=strides, pad=tuple(edge[0] for edge in edges), pool_type="max")
    if outputs == 1 and exact and _rounds_up(x, kernel, strides, dilations, edges):
        pad = tuple(edge[0] for edge in edges)
        return F.Pooling(x, kernel=kernel, stride=strides, pad=pad, pool_type="max", pooling_convention="full")
    spatial = F.numbers(F.constant(np.array(x.shape[2:], object)), "the size of the image")
    windows = _Windows(F, spatial, kernel, strides, dilations, edges, bool(ceil_mode))
    if outputs == 1:
        return _pooled_by_axis(F, x, windows, "max", F.broadcast_maximum)
    return _max_with_places(F, x, spatial, windows, storage_order)


def max_and_places(
    F: Functions, x: Tensor, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
    pads: Sequence[int], ceil_mode: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The maxima of windows, and where they are in the flattened image. pads : on both sides of each axis"""
    spatial = F.numbers(F.constant(np.array(x.shape[2:], object)), "the size of the image")
    edges = [(border, border) for border in pads]
    windows = _Windows(F, spatial, tuple(kernel), tuple(strides), tuple(dilations), edges, ceil_mode)
    return _max_with_places(F, x, spatial, windows, 0, whole=False)


def _pooled_by_axis(F: Functions, x: Tensor, windows: _Windows, record: str, join: Any) -> Tensor:
    """Maxima or sums over windows, one axis after the other."""
    lowest = -np.inf if x.is_floating else int(np.iinfo(x.dtype).min)
    for number, places in enumerate(windows.places):
        axis = 2 + number
        inside = places >= 0
        if not inside.all():
            x = padded(
                F,
                x,
                [1 if k == x.rank + axis else 0 for k in range(2 * x.rank)],
                value=lowest if record == "max" else 0,
            )
            places = np.where(inside, places, x.shape[axis] - 1)
        total: Any = None
        for column in places.T:
            part = F.take(x, F.constant(column, np.int64), axis=axis)
            total = part if total is None else join(total, part)
        x = total
    return x


def _flat(F: Functions, windows: _Windows, spatial: Sequence[int]) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """Flat indices (windows, elements of a window), a mask of the indices inside the data, and the output's shape."""
    rank = len(spatial)
    F.table(*(at.size for at in windows.places))
    places: Any = np.zeros((1,) * (2 * rank), np.int64)
    inside: Any = np.ones((1,) * (2 * rank), bool)
    for axis, at in enumerate(windows.places):
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = at.shape
        here = at.reshape(shape)
        places = places * spatial[axis] + np.maximum(here, 0)
        inside = inside & (here >= 0)
    output = tuple(at.shape[0] for at in windows.places)
    count = prod(output)
    return places.reshape(count, -1), np.broadcast_to(inside, places.shape).reshape(count, -1), output


def _max_with_places(
    F: Functions, x: Tensor, spatial: Sequence[int], windows: _Windows, storage_order: int, whole: bool = True
) -> tuple[Tensor, ...]:
    """The maxima of windows and where they are. whole : in the flattened array; else in the flattened image"""
    places, inside, output = _flat(F, windows, spatial)
    flat = F.Reshape(x, shape=(0, 0, -1))
    taken = F.take(flat, F.constant(places, np.int64), axis=2)
    lowest = -np.inf if x.is_floating else int(np.iinfo(x.dtype).min)
    taken = F.select(F.with_rank(F.constant(inside), 4), taken, F.zeros_like(taken) + F.like(lowest, x))
    best, position = F.topk(taken, axis=3, k=1, ret_typ="both", dtype="int64")
    if storage_order:
        shaped = np.unravel_index(places, tuple(spatial))
        places = np.ravel_multi_index(shaped[::-1], tuple(spatial)[::-1])
    size = prod(spatial)
    table = F.constant(places.reshape(-1), np.int64)
    row = F.constant(np.arange(len(places))[:, None] * places.shape[1], np.int64)
    within = F.take(table, position + F.with_rank(row, 4))
    shape = (*x.shape[:2], *output)
    if not whole:
        return F.reshape_to(best, shape), F.reshape_to(within, shape)
    F.table(*x.shape[:2])
    first = F.constant(np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[0], x.shape[1], 1, 1) * size, np.int64)
    return F.reshape_to(best, shape), F.reshape_to(within + first, shape)


@operator("AveragePool", 1)
def _average_pool(
    F: Functions, x: Tensor, *, kernel_shape: Sequence[int], auto_pad: str = "NOTSET", ceil_mode: int = 0,
    count_include_pad: int = 0, dilations: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    kernel = tuple(kernel_shape)
    strides, dilations, edges = _prepared(F, x, kernel, strides, dilations, pads, auto_pad)
    exact = not ceil_mode or _ceil_fits(x, kernel, strides, edges)
    if exact and _fits_record(x, kernel, dilations, edges):
        return F.Pooling(
            x, kernel=kernel, stride=strides, pad=tuple(edge[0] for edge in edges), pool_type="avg",
            count_include_pad=bool(count_include_pad),
        )  # fmt: skip
    spatial = F.numbers(F.constant(np.array(x.shape[2:], object)), "the size of the image")
    windows = _Windows(F, spatial, kernel, strides, dilations, edges, bool(ceil_mode))
    total = _pooled_by_axis(F, x, windows, "sum", F.broadcast_add)
    F.table(*(len(at) for at in windows.places))
    counts: Any = np.ones(())
    for at, padded_count in zip(windows.places, windows.counts, strict=True):
        counts = counts[..., None] * (padded_count if count_include_pad else (at >= 0).sum(axis=1))
    return total / F.constant(counts, x.dtype)


@operator("LpPool", 2)
def _lp_pool(
    F: Functions, x: Tensor, *, kernel_shape: Sequence[int], p: int = 2, auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: Sequence[int] | None = None, pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    kernel = tuple(kernel_shape)
    strides, dilations, edges = _prepared(F, x, kernel, strides, dilations, pads, auto_pad)
    spatial = F.numbers(F.constant(np.array(x.shape[2:], object)), "the size of the image")
    windows = _Windows(F, spatial, kernel, strides, dilations, edges, bool(ceil_mode))
    powers = F.broadcast_power(F.abs(x), float(p))
    return F.broadcast_power(_pooled_by_axis(F, powers, windows, "sum", F.broadcast_add), 1.0 / p)


def _global(F: Functions, x: Tensor, kind: str) -> Tensor:
    if 3 <= x.rank <= 5:
        return F.Pooling(x, kernel=(1,) * (x.rank - 2), global_pool=True, pool_type=kind)
    return F.reduced("mean" if kind == "avg" else "max", x, _spatial(x), True)


def _spatial(x: Tensor) -> range:
    return range(2, x.rank)


@operator("GlobalAveragePool", 1)
def _global_average(F: Functions, x: Tensor) -> Tensor:
    return _global(F, x, "avg")


@operator("GlobalMaxPool", 1)
def _global_max(F: Functions, x: Tensor) -> Tensor:
    return _global(F, x, "max")


@operator("GlobalLpPool", 2)
def _global_lp(F: Functions, x: Tensor, *, p: int = 2) -> Tensor:
    return F.broadcast_power(F.reduced("sum", F.broadcast_power(F.abs(x), float(p)), _spatial(x), True), 1.0 / p)


@operator("MaxUnpool", 9)
def _max_unpool(
    F: Functions, x: Tensor, places: Tensor, output_shape: Tensor | None = None, *, kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None, strides: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    rank = len(kernel_shape)
    steps, edges = tuple(strides or (1,) * rank), tuple(pads or (0,) * (2 * rank))
    inferred = [
        (size - 1) * step + window - edges[k] - edges[rank + k]
        for k, (size, step, window) in enumerate(zip(x.shape[2:], steps, kernel_shape, strict=True))
    ]
    shape = F.numbers(F.constant(np.array((*x.shape[:2], *inferred), object)), "the shape")
    if output_shape is not None:
        wanted = F.numbers(output_shape, "the output's shape")
        F.table(*shape)
        small = np.arange(prod(shape)).reshape(shape)
        index = np.unravel_index(small.reshape(-1), shape)
        table = F.constant(np.ravel_multi_index(index, wanted), np.int64)
        places, shape = F.take(table, places), wanted
    flat = F._scatter_set_nd(
        F.expand_to(F.constant(np.zeros(1), x.dtype), (prod(shape),)), F.Reshape(x, shape=(-1,)),
        F.Reshape(places, shape=(1, -1)), shape=(prod(shape),),
    )  # fmt: skip
    return F.reshape_to(flat, shape)
