"""ONNX's operators that move elements: shapes, transposes, cutting, joining, padding, repeating."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab.onnx.reading.importers.functions import Functions, Tensor
from hybrid_lab.onnx.reading.importers.table import operator
from hybrid_lab.ops.framework.sizes import SymbolicSize

_FAR = 2**62


@operator("Reshape", 5)
def _reshape(F: Functions, x: Tensor, shape: Tensor, *, allowzero: int = 0) -> Tensor:
    wanted = list(F.ints(shape, "the shape"))
    open_places = [place for place, size in enumerate(wanted) if not isinstance(size, SymbolicSize) and size == -1]
    if len(open_places) > 1 or any(not isinstance(size, SymbolicSize) and size < -1 for size in wanted):
        raise F.unsupported(f"the shape {tuple(wanted)} has more than one size to find, or a negative one")
    if not allowzero:
        if any(
            place >= x.rank and not isinstance(size, SymbolicSize) and size == 0 for place, size in enumerate(wanted)
        ):
            raise F.unsupported(f"the shape {tuple(wanted)} keeps a size that the input {x.shape} does not have")
        wanted = [
            x.shape[place] if not isinstance(size, SymbolicSize) and size == 0 else size
            for place, size in enumerate(wanted)
        ]
    if open_places:
        rest: Any = 1
        for place, size in enumerate(wanted):
            if place != open_places[0]:
                rest = rest * size
        total: Any = 1
        for size in x.shape:
            total = total * size
        known = not isinstance(rest, SymbolicSize) and not isinstance(total, SymbolicSize)
        if known and (rest == 0 or total % rest):
            raise F.unsupported(f"the shape {x.shape} cannot become {tuple(wanted)}")
        wanted[open_places[0]] = total // rest
    return F.reshape_to(x, wanted)


@operator("Flatten", 1)
def _flatten(F: Functions, x: Tensor, *, axis: int = 1) -> Tensor:
    axis = axis + x.rank if axis < 0 else axis
    if not 0 <= axis <= x.rank:
        raise F.unsupported(f"axis {axis} does not exist")
    if axis == 1:
        made = F.Flatten(x)
        made.flattened = x
        return made
    sides: list[Any] = [1, 1]
    for place, size in enumerate(x.shape):
        sides[place >= axis] = size * sides[place >= axis]
    return F.reshape_to(x, sides)


@operator("Squeeze", 1)
def _squeeze_by_attribute(F: Functions, x: Tensor, *, axes: Sequence[int] | None = None) -> Tensor:
    if axes is None:
        gone = {place for place, size in enumerate(x.shape) if not isinstance(size, SymbolicSize) and size == 1}
    else:
        gone = {F.axis(axis, x.rank) for axis in axes}
    wrong = [x.shape[place] for place in gone if not isinstance(x.shape[place], SymbolicSize) and x.shape[place] != 1]
    if wrong:
        raise F.unsupported(f"an axis of {wrong[0]} elements cannot be removed")
    return F.reshape_to(x, [size for place, size in enumerate(x.shape) if place not in gone])


@operator("Squeeze", 13)
def _squeeze(F: Functions, x: Tensor, axes: Tensor | None = None) -> Tensor:
    return _squeeze_by_attribute(F, x, axes=None if axes is None else F.numbers(axes, "axes"))


@operator("Unsqueeze", 1)
def _unsqueeze_by_attribute(F: Functions, x: Tensor, *, axes: Sequence[int]) -> Tensor:
    rank = x.rank + len(axes)
    new = {F.axis(axis, rank) for axis in axes}
    if len(new) != len(axes):
        raise F.unsupported(f"axes {tuple(axes)} name one axis twice")
    rest = iter(x.shape)
    return F.reshape_to(x, [1 if place in new else next(rest) for place in range(rank)])


@operator("Unsqueeze", 13)
def _unsqueeze(F: Functions, x: Tensor, axes: Tensor) -> Tensor:
    return _unsqueeze_by_attribute(F, x, axes=F.numbers(axes, "axes"))


@operator("Transpose", 1)
def _transpose(F: Functions, x: Tensor, *, perm: Sequence[int] | None = None) -> Tensor:
    order = tuple(range(x.rank))[::-1] if perm is None else tuple(perm)
    if sorted(order) != list(range(x.rank)):
        raise F.unsupported(f"perm={order} does not order {x.rank} axes")
    return F.transposed(x, order)


@operator("Expand", 8)
def _expand(F: Functions, x: Tensor, shape: Tensor) -> Tensor:
    return F.expand_to(x, F.ints(shape, "the shape"))


@operator("Tile", 6)
def _tile(F: Functions, x: Tensor, repeats: Tensor) -> Tensor:
    counts = F.ints(repeats, "repeats")
    if len(counts) != x.rank:
        raise F.unsupported(f"{len(counts)} repeats for {x.rank} axes")
    if any(isinstance(count, SymbolicSize) for count in counts):
        lined: list[Any] = []
        for count, size in zip(counts, x.shape, strict=True):
            lined += [count, size]
        shape = [size for pair in zip((1,) * x.rank, x.shape, strict=True) for size in pair]
        repeated = F.expand_to(F.reshape_to(x, shape), lined)
        return F.reshape_to(repeated, [count * size for count, size in zip(counts, x.shape, strict=True)])
    return F.tile(x, reps=counts) if x.rank else x


@operator("Concat", 4)
def _concat(F: Functions, *arrays: Tensor, axis: int) -> Tensor:
    axis = F.axis(axis, arrays[0].rank)
    if not arrays[0].rank or any(item.rank != arrays[0].rank for item in arrays):
        raise F.unsupported("arrays with different numbers of axes, or none, cannot be joined")
    filled = [item for item in arrays if isinstance(item.shape[axis], SymbolicSize) or item.shape[axis] != 0] or [
        arrays[0]
    ]
    return F.Concat(*filled, dim=axis) if len(filled) > 1 else filled[0]


def _parts(F: Functions, x: Tensor, lengths: Sequence[Any], axis: int) -> list[Tensor]:
    found, start = [], 0
    for place, length in enumerate(lengths):
        last = place == len(lengths) - 1
        if isinstance(length, SymbolicSize) or isinstance(start, SymbolicSize):
            raise F.unsupported(f"its parts have open sizes; {F.close_sizes}")
        found.append(F.slice_axis(x, axis=axis, begin=start, end=None if last else start + length))
        start += length
    return found


@operator("Split", 2)
def _split_by_attribute(
    F: Functions, x: Tensor, *, axis: int = 0, split: Sequence[int] | None = None, outputs: int = 1
) -> Sequence[Tensor]:
    axis = F.axis(axis, x.rank)
    size = x.shape[axis]
    if split is None:
        if isinstance(size, SymbolicSize):
            return F.SliceChannel(x, num_outputs=outputs, axis=axis) if outputs > 1 else [x]
        length = -(-size // outputs)
        split = [min(length, max(size - place * length, 0)) for place in range(outputs)]
    if not isinstance(size, SymbolicSize) and sum(split) != size:
        raise F.unsupported(f"parts of {tuple(split)} do not make up an axis of {size}")
    return _parts(F, x, split, axis)


@operator("Split", 13)
def _split(
    F: Functions,
    x: Tensor,
    split: Tensor | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    outputs: int = 1,
) -> Tensor:
    lengths = None if split is None else F.numbers(split, "the lengths of the parts")
    return _split_by_attribute(F, x, axis=axis, split=lengths, outputs=num_outputs or outputs)


@operator("Slice", 1)
def _slice_by_attribute(
    F: Functions, x: Tensor, *, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None = None,
    steps: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    chosen = tuple(range(len(starts))) if axes is None else axes
    begin: list[int | None] = [None] * x.rank
    end: list[int | None] = [None] * x.rank
    step: list[int | None] = [None] * x.rank
    for place, axis in enumerate(chosen):
        axis = F.axis(axis, x.rank)
        first: Any = starts[place]
        last: Any = ends[place]
        by = 1 if steps is None else steps[place]
        size = x.shape[axis]
        if by == 0:
            raise F.unsupported("a step is 0")
        if isinstance(last, SymbolicSize) and isinstance(size, SymbolicSize) and last.terms == size.terms:
            last = _FAR
        if isinstance(first, SymbolicSize) or isinstance(last, SymbolicSize):
            raise F.unsupported(f"its bounds depend on open sizes; {F.close_sizes}")
        if not isinstance(size, SymbolicSize):
            first, last, by = slice(first, last, by).indices(size) if by > 0 else _backward(first, last, by, size)
            if by < 0 and last == -1:
                last = None
        else:
            last = None if (last >= 2**31 - 1 if by > 0 else last <= -(2**31)) else last
            first = None if by < 0 and first >= 2**31 - 1 else first
        begin[axis], end[axis], step[axis] = first, last, None if by == 1 else by
    if all(item is None for item in (*end, *step)) and all(item in (None, 0) for item in begin):
        return x
    return F.slice(x, begin=tuple(begin), end=tuple(end), step=tuple(step) if any(step) else ())


def _backward(first: int, last: int, by: int, size: int) -> tuple[int, int, int]:
    """The bounds of a slice backwards, as ONNX clips them."""
    first = min(first + size if first < 0 else first, size - 1)
    last = max(last + size if last < 0 else last, -1)
    return max(first, -1) if first >= 0 else 0, last if first >= 0 else 0, by


@operator("Slice", 10)
def _slice(
    F: Functions, x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None = None, steps: Tensor | None = None
) -> Tensor:
    return _slice_by_attribute(
        F, x, starts=F.ints(starts, "starts"), ends=F.ints(ends, "ends"),
        axes=None if axes is None else F.numbers(axes, "axes"),
        steps=None if steps is None else F.numbers(steps, "steps"),
    )  # fmt: skip


# -- padding ---------------------------------------------------------------------------------------------------------


def padded(F: Functions, x: Tensor, pads: Sequence[int], mode: str = "constant", value: Any = 0.0) -> Tensor:
    """x with pads (before every axis, then after every axis); negative ones cut."""
    rank = x.rank
    if len(pads) != 2 * rank:
        raise F.unsupported(f"{len(pads)} pads for {rank} axes")
    for axis in range(rank):
        before, after = pads[axis], pads[rank + axis]
        if before < 0 or after < 0:
            x = F.slice_axis(x, axis=axis, begin=max(-before, 0), end=after if after < 0 else None)
        before, after = max(before, 0), max(after, 0)
        if before or after:
            x = _padded_axis(F, x, axis, before, after, mode, value)
    return x


def _padded_axis(F: Functions, x: Tensor, axis: int, before: int, after: int, mode: str, value: Any) -> Tensor:
    if mode == "constant":
        number = value if isinstance(value, Tensor) else F.like(value, x)
        ends = [
            F.expand_to(
                F.reshape_to(number, ()), [count if place == axis else size for place, size in enumerate(x.shape)]
            )
            for count in (before, after)
        ]
        parts = [item for item, count in zip((ends[0], x, ends[1]), (before, 1, after), strict=True) if count]
        return F.Concat(*parts, dim=axis) if len(parts) > 1 else parts[0]
    size = x.shape[axis]
    if isinstance(size, SymbolicSize):
        raise F.unsupported(f"mode={mode!r} along an open axis; {F.close_sizes}")
    if size == 0 or before + after > 2**31 or (mode == "reflect" and max(before, after) >= size):
        raise F.unsupported(f"pads of {before} and {after} at an axis of {size}")
    names = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}
    if mode not in names:
        raise F.unsupported(f"mode={mode!r}; the modes are constant, reflect, edge and wrap")
    F.table(size + before + after)
    places = np.pad(np.arange(size), (before, after), mode=names[mode])  # type: ignore[call-overload]
    return F.take(x, F.constant(places, np.int64), axis=axis)


@operator("Pad", 2)
def _pad_by_attribute(
    F: Functions, x: Tensor, *, pads: Sequence[int], mode: str = "constant", value: float = 0.0
) -> Tensor:
    return padded(F, x, pads, mode, value)


@operator("Pad", 11)
def _pad(
    F: Functions,
    x: Tensor,
    pads: Tensor,
    value: Tensor | None = None,
    axes: Tensor | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    given = F.numbers(pads, "pads")
    if axes is not None:
        chosen = [F.axis(axis, x.rank) for axis in F.numbers(axes, "axes")]
        full = [0] * (2 * x.rank)
        for place, axis in enumerate(chosen):
            full[axis], full[x.rank + axis] = given[place], given[len(chosen) + place]
        given = tuple(full)
    return padded(F, x, given, mode, 0 if value is None else value)


@operator("CenterCropPad", 18)
def _center_crop_pad(F: Functions, x: Tensor, shape: Tensor, *, axes: Sequence[int] | None = None) -> Tensor:
    wanted = F.numbers(shape, "the shape")
    for axis, size in zip(range(x.rank) if axes is None else axes, wanted, strict=True):
        axis = F.axis(axis, x.rank)
        own = x.shape[axis]
        if isinstance(own, SymbolicSize):
            raise F.unsupported(f"the axis is open; {F.close_sizes}")
        if size < own:
            first = (own - size) // 2
            x = F.slice_axis(x, axis=axis, begin=first, end=first + size)
        elif size > own:
            before = (size - own) // 2
            x = _padded_axis(F, x, axis, before, size - own - before, "constant", 0)
    return x


# -- blocks of pixels ------------------------------------------------------------------------------------------------


@operator("DepthToSpace", 1)
def _depth_to_space(F: Functions, x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    b = blocksize
    if mode == "DCR":
        return F.depth_to_space(x, block_size=b)
    parts = F.reshape_to(x, (n, c // (b * b), b, b, h, w))
    return F.reshape_to(F.transposed(parts, (0, 1, 4, 2, 5, 3)), (n, c // (b * b), h * b, w * b))


@operator("SpaceToDepth", 1)
def _space_to_depth(F: Functions, x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    b = blocksize
    if mode == "DCR":
        return F.space_to_depth(x, block_size=b)
    parts = F.reshape_to(x, (n, c, h // b, b, w // b, b))
    return F.reshape_to(F.transposed(parts, (0, 1, 3, 5, 2, 4)), (n, c * b * b, h // b, w // b))


@operator("ReverseSequence", 10)
def _reverse_sequence(F: Functions, x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    order = [time_axis, batch_axis, *(axis for axis in range(x.rank) if axis not in (time_axis, batch_axis))]
    back = [order.index(axis) for axis in range(x.rank)]
    moved = F.SequenceReverse(
        F.transposed(x, order), F.cast(lengths, x.dtype if x.is_floating else "float32"), use_sequence_length=True
    )
    return F.transposed(moved, back)


@operator("Trilu", 14)
def _trilu(F: Functions, x: Tensor, k: Tensor | None = None, *, upper: int = 1) -> Tensor:
    offset = 0 if k is None else F.number(k, "k")
    rows, columns = x.shape[-2:]
    if isinstance(rows, SymbolicSize) or isinstance(columns, SymbolicSize):
        down = F.reshape_to(F._contrib_arange_like(F.cast(F.stand_in((rows, 1)), "float32"), axis=0), (rows, 1))
        along = F.reshape_to(F._contrib_arange_like(F.cast(F.stand_in((1, columns)), "float32"), axis=1), (1, columns))
        kept = (
            F.broadcast_greater_equal(along - down, float(offset))
            if upper
            else F.broadcast_lesser_equal(along - down, float(offset))
        )
    else:
        distance = F.line(columns, 1, 2) - F.line(rows, 0, 2)
        kept = F.broadcast_greater_equal(distance, offset) if upper else F.broadcast_lesser_equal(distance, offset)
    zeros = F.zeros_like(x)
    return F.select(F.with_rank(kept, x.rank), x, zeros)
