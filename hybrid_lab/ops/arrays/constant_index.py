"""Reading by a constant key, with NumPy's meaning: `x[::2, ..., ::-1]`, `x[:, [0, 2]]`, `x[mask]`."""

from __future__ import annotations

import json
from functools import cached_property
from types import EllipsisType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from hybrid_lab.diagnostics.errors import ArrayIndexError, AttributeSpecError
from hybrid_lab.ops.arrays.slicing import cut_shape
from hybrid_lab.ops.framework import Operator, sample
from hybrid_lab.ops.framework.lowering import emit_lowering, run_lowering
from hybrid_lab.ops.framework.protocols import Functions, Tensor
from hybrid_lab.ops.framework.types import Shape

_WHOLE = slice(None)

#: One part of a key: None, an Ellipsis, a number, a range, or an array of positions (integers) or a mask (booleans).
Part: TypeAlias = "None | EllipsisType | int | slice | np.ndarray"


def key_text(key: tuple[Any, ...]) -> str:
    """A key as the attribute of `_index`, in JSON: None is null, `...` and ranges are strings such as "::2", positions
    and masks are lists. Arrays of positions or of booleans stand for lists.
    """
    return json.dumps([_written(part) for part in key])


def _written(part: Part) -> object:
    if part is None or isinstance(part, int):
        return part
    if isinstance(part, slice):
        bounds = [part.start, part.stop, part.step]
        texts = ["" if bound is None else str(int(bound)) for bound in bounds]
        return ":".join(texts if texts[2] else texts[:2])
    if not isinstance(part, np.ndarray):
        return "..."
    if part.dtype != bool and part.ndim == 0:
        return int(part)
    if part.size == 0:
        return {"empty": list(part.shape), "mask": part.dtype == bool}
    return part.tolist()


def read_key(text: str) -> tuple[Part, ...]:
    """The key that `key_text` wrote. Raises AttributeSpecError."""
    try:
        parts = json.loads(text)
        if not isinstance(parts, list):
            raise TypeError
        key = tuple(_read(part) for part in parts)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, MemoryError):
        shown = text if len(text) < 80 else f"{text[:77]}..."
        raise AttributeSpecError(f"_index: {shown!r} is not a key") from None
    if sum(part is Ellipsis for part in key) > 1:
        raise ArrayIndexError("an index can have only one ellipsis ('...')")
    if any(isinstance(part, slice) and part.step == 0 for part in key):
        raise ArrayIndexError("the step of a slice cannot be 0")
    return key


def _read(part: object) -> Part:
    if part is None or isinstance(part, bool):
        return part
    if isinstance(part, int) and abs(part) < 2**63:
        return part
    if isinstance(part, str):
        if part == "...":
            return Ellipsis
        bounds = [int(bound) if bound else None for bound in part.split(":")]
        if not 2 <= len(bounds) <= 3:
            raise ValueError
        return slice(*bounds)
    if isinstance(part, dict):
        shape = tuple(int(size) for size in part["empty"])
        if 0 not in shape or min(shape) < 0:
            raise ValueError
        return np.empty(shape, bool if part["mask"] else np.int64)
    array = np.array(part)
    if array.dtype == bool or (array.dtype.kind == "i" and array.ndim):
        return array
    raise ValueError


class _Plan(NamedTuple):
    """The effect of a key on an array of one shape.

    added : the axes of size 1 that the key adds, numbered among all axes; the other fields count added axes, too
    cut : one range for each axis; dropped : the axes of which it takes one place
    arrays : axis -> the positions taken along the axis, all arrays of one shape, without negative positions
    place : the number of axes of the result before the axes of the positions
    """

    added: tuple[int, ...]
    cut: tuple[slice, ...]
    dropped: tuple[int, ...]
    arrays: dict[int, np.ndarray]
    place: int


class ConstantIndex(Operator, name="_index"):
    """data[key] for a key of numbers, ranges, None, `...`, positions and masks, with NumPy's meaning.

    key : JSON, `["::2", "...", null, 3, [0, 2], [true, false]]`
    vectors : a result without axes gets one of size 1, as in `mx.nd`
    Raises ArrayIndexError for positions outside of data, for a mask of another shape, and for more axes than data has.
    """

    mxnet = None
    by_shapes = True
    refuses_gradient = True
    typed_like = 0
    numpy = run_lowering
    onnx = emit_lowering
    key: str
    vectors: bool = False
    samples = [
        sample((4, 3, 5), key='["::2", "...", "::-1"]'),
        sample((3, 4), key='["...", null, ":"]'),
        sample((3, 4), key='[":", [0, -1, 0]]'),
        sample((3, 4), key='[[[0, 1], [2, -1]], [0, 1]]'),
        sample((2, 3, 4), key='[0, "1:", [1, 3]]'),
        sample((3, 4), key='[[true, false, true]]'),
        sample((3,), key='[1]', vectors=True),
    ]  # fmt: skip

    def check(self) -> None:
        self._key  # noqa: B018  (raises where it cannot be read)

    @cached_property
    def _key(self) -> tuple[Part, ...]:
        return read_key(self.key)

    def infer_shape(self, data: Shape) -> Shape:
        plan = self._plan(data)
        whole = cut_shape(_with_added(data, plan.added), plan.cut)
        kept = [size for axis, size in enumerate(whole) if axis not in plan.dropped and axis not in plan.arrays]
        if plan.arrays:
            kept[plan.place : plan.place] = next(iter(plan.arrays.values())).shape
        return tuple(kept) or ((1,) if self.vectors else ())

    def lower(self, F: Functions, data: Tensor) -> Tensor:
        plan = self._plan(data.shape)
        y = data
        for axis in plan.added:
            y = F.expand_dims(y, axis=axis)
        if any(part != _WHOLE for part in plan.cut):
            begin, end, step = zip(*((part.start, part.stop, part.step) for part in plan.cut), strict=True)
            y = F.slice(y, begin=begin, end=end, step=step)
        if plan.dropped:
            y = F._drop_axes(y, axis=plan.dropped)
        if plan.arrays:
            y = _gathered(F, y, plan)
        if y is data:
            y = F.identity(data)
        return F.expand_dims(y, axis=0) if self.vectors and not len(y.shape) else y

    def _plan(self, shape: Shape) -> _Plan:
        parts = _axis_parts(self._key, shape)
        advanced = [number for number, part in enumerate(parts) if part.positions is not None]
        if advanced:  # NumPy reads a number beside arrays as an array
            advanced = [n for n, part in enumerate(parts) if part.positions is not None or part.number is not None]
        added, cut, dropped, positions = [], [], [], {}
        axis = -1
        for number, part in enumerate(parts):
            if part.size is None:  # an ellipsis of no axes
                continue
            axis += 1
            if part.added:
                added.append(axis)
            if part.number is not None:
                _check_inside(np.asarray(part.number), part.size, shape)
            if number in advanced:
                found = np.asarray(part.number) if part.positions is None else part.positions
                positions[axis] = _check_inside(found, part.size, shape)
                cut.append(_WHOLE)
            elif part.number is not None:
                cut.append(slice(part.number, part.number + 1 if part.number != -1 else None))
                dropped.append(axis)
            else:
                cut.append(part.range)
        try:
            arrays = dict(zip(positions, np.broadcast_arrays(*positions.values()), strict=True))
        except ValueError:
            shapes = " and ".join(str(item.shape) for item in positions.values())
            raise ArrayIndexError(
                f"the arrays of an index cannot be broadcast: they have the shapes {shapes}"
            ) from None
        together = bool(advanced) and advanced[-1] - advanced[0] == len(advanced) - 1
        return _Plan(tuple(added), tuple(cut), tuple(dropped), arrays, min(positions) if together else 0)


class _Axis(NamedTuple):
    """The part of a key for one axis of the data, or for an added axis. size : None for an ellipsis of no axes"""

    size: Any
    range: slice = _WHOLE
    number: int | None = None
    positions: np.ndarray | None = None
    added: bool = False


def _axis_parts(key: tuple[Part, ...], shape: Shape) -> list[_Axis]:
    """The key axis by axis. Raises ArrayIndexError."""
    taken = sum(_axes_of(part) for part in key)
    if taken > len(shape):
        raise ArrayIndexError(f"too many indices: the array has the shape {shape}, but {taken} axes were indexed")
    if not any(part is Ellipsis for part in key):
        key = (*key, Ellipsis)
    parts: list[_Axis] = []
    axis = 0
    for part in key:
        if part is Ellipsis:
            count = len(shape) - taken
            parts += [_Axis(size) for size in shape[axis : axis + count]] or [_Axis(None)]
            axis += count
        elif part is None:
            parts.append(_Axis(1, added=True))
        elif isinstance(part, bool):
            parts.append(_Axis(1, positions=np.flatnonzero(part), added=True))
        elif isinstance(part, int):
            parts.append(_Axis(shape[axis], number=part))
            axis += 1
        elif isinstance(part, slice):
            parts.append(_Axis(shape[axis], range=part))
            axis += 1
        elif part.dtype != bool:
            parts.append(_Axis(shape[axis], positions=part))
            axis += 1
        else:
            sizes = shape[axis : axis + part.ndim]
            if any(size != wanted for size, wanted in zip(sizes, part.shape, strict=True)):
                raise ArrayIndexError(f"a mask of shape {part.shape} does not fit axes of the sizes {sizes}")
            parts += [_Axis(size, positions=found) for size, found in zip(sizes, part.nonzero(), strict=True)]
            axis += part.ndim
    return parts


def _axes_of(part: Part) -> int:
    """How many axes of the data a part of a key is about."""
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    return part.ndim if isinstance(part, np.ndarray) and part.dtype == bool else 1


def _check_inside(positions: np.ndarray, size: int, shape: Shape) -> np.ndarray:
    """The positions counted from the front. Raises ArrayIndexError for one outside of an axis of `size`."""
    if not positions.size:
        return positions
    low, high = int(positions.min()), int(positions.max())
    if high >= size or -low > size:
        wrong = high if high >= size else low
        raise ArrayIndexError(f"index {wrong} is outside of an axis of size {size} (the array has shape {shape})")
    return np.where(positions < 0, positions + int(size), positions) if low < 0 else positions


def _with_added(shape: Shape, added: tuple[int, ...]) -> Shape:
    sizes = list(shape)
    for axis in added:
        sizes.insert(axis, 1)
    return tuple(sizes)


def _gathered(F: Functions, y: Tensor, plan: _Plan) -> Tensor:
    """The elements of y at the positions of a plan, whose ranges are cut already."""
    (first, *_), rank = plan.arrays, len(y.shape)
    if len(plan.arrays) == 1:
        return F.take(y, np.ascontiguousarray(plan.arrays[first]), axis=first, mode="clip")
    others = [axis for axis in range(rank) if axis not in plan.arrays]
    front = (*plan.arrays, *others)
    if front != tuple(range(rank)):
        y = F.transpose(y, axes=front)
    y = F.gather_nd(y, np.stack(list(plan.arrays.values())))
    if plan.place:
        count = plan.arrays[first].ndim
        before, after = (range(count, count + plan.place), range(count + plan.place, count + len(others)))
        y = F.transpose(y, axes=(*before, *range(count), *after))
    return y
