"""Cutting and joining: slice, slice_axis, slice_like, Concat, stack, SliceChannel, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import ClassVar

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError, Unmappable
from hybrid_lab.ops.framework import (
    Adjoint,
    Element,
    Operator,
    Signature,
    all_into,
    axis_of,
    forward_shape,
    into,
    sample,
)
from hybrid_lab.ops.framework.attributes import Shape
from hybrid_lab.ops.framework.elements import among_zeros, joined
from hybrid_lab.ops.framework.protocols import Elements, Functions, Gradients, OnnxGraph, Place, Tensor, Wanted
from hybrid_lab.ops.framework.types import Array, Arrays, Outs, PartialShape, PartialShapes, PartialSizes, Shapes

_END = 2**31 - 1
_WHOLE = slice(None)


def cut_shape(shape: tuple[int, ...], cut: tuple[slice, ...]) -> tuple[int, ...]:
    """The shape of `array[cut]`."""
    return tuple(size if part == _WHOLE else _length(part, size) for part, size in zip(cut, shape, strict=True))


def along(axis: int, start: int, stop: int | None, rank: int) -> tuple[slice, ...]:
    """The index of a range along one axis of several."""
    return tuple(slice(start, stop) if index == axis else _WHOLE for index in range(rank))


def _length(part: slice, size: int) -> int:
    """How many elements of an axis a slice takes: `len(range(*part.indices(size)))`, for symbolic sizes too."""
    step = 1 if part.step is None else part.step
    low, high = (0, size) if step > 0 else (-1, size - 1)

    def place(number: int | None, default: int) -> int:
        if number is None:
            return default
        return max(number + size, low) if number < 0 else min(number, high)

    if step > 0:
        start, stop = place(part.start, low), place(part.stop, high)
        return (stop - start - 1) // step + 1 if start < stop else 0
    start, stop = place(part.start, high), place(part.stop, low)
    return (start - stop - 1) // -step + 1 if stop < start else 0


class _Slicing(Operator):
    """Base: a rectangular part of the first input, as `cut` says."""

    typed_like = 0
    view = True

    def cut(self, shape: Shape, *others: Shape) -> tuple[slice, ...]:
        """One slice per dimension of the whole array."""
        raise NotImplementedError

    def infer_shape(self, data: Shape) -> Shape:
        return cut_shape(data, self.cut(data))

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        return into(data[self.cut(data.shape)], out)

    def onnx(self, g: OnnxGraph, data: str) -> str:
        return emit_slice(g, data, self.cut(g.shape(data)), g.shape(data))


def emit_slice(g: OnnxGraph, data: str, cut: tuple[slice, ...], shape: tuple[int, ...]) -> str:
    """ONNX Slice over the axes that are really cut."""
    starts, ends, axes, steps = [], [], [], []
    for axis, (part, size) in enumerate(zip(cut, shape, strict=True)):
        step = 1 if part.step is None else part.step
        first, last = (0, _END) if step > 0 else (_END, -_END)
        start, stop = (first if part.start is None else part.start), (last if part.stop is None else part.stop)
        if step == 1 and start == 0 and (part.stop is None or stop == size):
            continue
        starts.append(start)
        ends.append(stop)
        axes.append(axis)
        steps.append(step)
    if not axes:
        return g.Identity(data)
    return g.Slice(data, starts, ends, axes, steps)


class SliceAdjoint(Adjoint):
    """Base: zeros of the shape of `like` with dy at the place that was cut out."""

    def cut(self, shape: Shape, *others: Shape) -> tuple[slice, ...]:
        raise NotImplementedError

    def numpy(self, dy: Array, like: Array, out: Array | None = None) -> Array:
        out = np.empty(like.shape, dy.dtype) if out is None else out
        out.fill(0)
        out[self.cut(like.shape, dy.shape)] = dy
        return out

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        return among_zeros(elements, self.cut(elements.shape(1), elements.shape(0)), place)

    def onnx(self, g: OnnxGraph, dy: str, like: str) -> str:
        shape = g.shape(like)
        before, after = [], []
        for part, size, kept in zip(self.cut(shape, g.shape(dy)), shape, g.shape(dy), strict=True):
            start, _, step = part.indices(size)
            if step != 1:
                return self._scatter(g, dy, shape)
            before.append(start)
            after.append(size - start - kept)
        return g.Pad(dy, before + after, g.const(0, g.dtype(dy)))

    def _scatter(self, g: OnnxGraph, dy: str, shape: tuple[int, ...]) -> str:
        place = np.arange(int(np.prod(shape))).reshape(shape)[self.cut(shape)].reshape(-1, 1)
        zeros = g.const(np.zeros(int(np.prod(shape))), g.dtype(dy))
        flat = g.ScatterND(zeros, g.const(place, "int64"), g.Reshape(dy, [-1]))
        return g.Reshape(flat, shape)


Bounds = tuple[int | None, ...]


def _ranges(name: str, begin: Bounds, end: Bounds, step: Bounds, shape: Shape) -> tuple[slice, ...]:
    if all(number is None for number in step):
        step = ()
    if len(begin) > len(shape) or len(begin) != len(end) or len(step) > len(begin):
        raise ShapeError(f"{name}: begin={begin}, end={end}, step={step} do not fit the shape {shape}")
    steps = tuple(step) + (None,) * (len(shape) - len(step))
    begins, ends = (tuple(item) + (None,) * (len(shape) - len(item)) for item in (begin, end))
    if any(number == 0 for number in steps):
        raise ShapeError(f"{name}: step={step} must not contain 0")
    return tuple(slice(a, b, c) for a, b, c in zip(begins, ends, steps, strict=True))


class _Ranges(Operator):
    """Base of slice and its gradient."""

    begin: tuple[int | None, ...]
    end: tuple[int | None, ...]
    step: tuple[int | None, ...] = ()

    def cut(self, shape: Shape, *others: Shape) -> tuple[slice, ...]:
        return _ranges("slice", self.begin, self.end, self.step, shape)


class Slice(_Ranges, _Slicing, name="slice", aliases=("crop",)):
    """data[begin[0]:end[0]:step[0], begin[1]:end[1]:step[1], ...]; None leaves a side open."""

    samples = [
        sample((4, 5, 3), begin=(1, None), end=(3, 4)),
        sample((4, 5), begin=(-3, 0), end=(None, None)),
        sample((6, 5), begin=(0, None), end=(6, None), step=(2, -1)),
    ]

    @property
    def identity(self) -> bool:
        """Whether no axis is cut."""
        return all(bound is None for bound in (*self.begin, *self.end, *self.step))

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F._slice_grad(dy, data, begin=self.begin, end=self.end, step=self.step)


class SliceGrad(_Ranges, SliceAdjoint, name="_slice_grad"):
    """The gradient of slice: dy among zeros. like : slice's input, for its shape."""

    adjoint_of = "slice"
    samples = [
        sample((2, 4), (4, 5), begin=(1, None), end=(3, 4)),
        sample((3, 5), (6, 5), begin=(0, None), end=(6, None), step=(2, -1)),
    ]


class _AxisRange(Operator):
    """Base of slice_axis and its gradient."""

    axis: int
    begin: int
    end: int | None = None

    def cut(self, shape: Shape, *others: Shape) -> tuple[slice, ...]:
        return along(axis_of("slice_axis", self.axis, len(shape)), self.begin, self.end, len(shape))


class SliceAxis(_AxisRange, _Slicing, name="slice_axis"):
    """data[..., begin:end, ...] along `axis`; end None goes to the end."""

    identity_if_alike = True
    samples = [
        sample((4, 5), axis=1, begin=1, end=3),
        sample((4, 5), axis=0, begin=-2, end=None),
        sample((4, 5), axis=-1, begin=0, end=-1),
    ]

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F._slice_axis_grad(dy, data, axis=self.axis, begin=self.begin, end=self.end)


class SliceAxisGrad(_AxisRange, SliceAdjoint, name="_slice_axis_grad"):
    """The gradient of slice_axis: dy among zeros. like : slice_axis' input, for its shape."""

    adjoint_of = "slice_axis"
    samples = [sample((4, 2), (4, 5), axis=1, begin=1, end=3)]


class SliceLike(_Slicing, name="slice_like"):
    """The leading part of data that has the sizes of shape_like along `axes` (none given: along all).

    axes : negative axes count from the end of data, not of shape_like
    """

    identity_if_alike = True
    axes: Shape = ()
    shape_only = ("shape_like",)
    samples = [sample((4, 5), (2, 3)), sample((4, 5, 6), (2, 3), axes=(0, 1)), sample((4, 5), (9, 3), axes=(-1,))]

    def cut(self, shape: Shape, *others: Shape) -> tuple[slice, ...]:
        like = others[0]
        if not self.axes and len(shape) != len(like):
            raise ShapeError(f"slice_like: {shape} and {like} differ in their number of dimensions; name the axes")
        made = [slice(None)] * len(shape)
        for axis in self.axes or range(len(shape)):
            index = axis_of("slice_like", axis, len(shape))
            if index >= len(like):
                raise ShapeError(f"slice_like: axis {axis} is axis {index} of {shape}, which {like} does not have")
            wanted = like[index]
            if wanted > shape[index]:
                raise ShapeError(f"slice_like: axis {axis} of {shape} is shorter than that of {like}")
            made[index] = slice(0, wanted)
        return tuple(made)

    def infer_shape(self, data: Shape, shape_like: Shape) -> Shape:
        return cut_shape(data, self.cut(data, shape_like))

    def numpy(self, data: Array, shape_like: Array, out: Array | None = None) -> Array:
        return into(data[self.cut(data.shape, shape_like.shape)], out)

    def grad(self, F: Functions, data: Tensor, shape_like: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        return F._pad_like(dy, data), None

    def onnx(self, g: OnnxGraph, data: str, shape_like: str) -> str:
        return emit_slice(g, data, self.cut(g.shape(data), g.shape(shape_like)), g.shape(data))


class PadLike(SliceAdjoint, name="_pad_like"):
    """dy with zeros behind it up to the shape of `like`: the gradient of taking a leading part."""

    samples = [sample((2, 3), (4, 5)), sample((2, 3), (2, 3))]

    def first_shape(self, dy: Shape, like: Shape) -> Shape:
        return forward_shape("slice_like", like, dy)

    def cut(self, shape: Shape, *others: Shape) -> tuple[slice, ...]:
        return tuple(slice(0, size) for size in others[0])

    def grad(self, F: Functions, dy: Tensor, like: Tensor, y: Tensor, ddy: Tensor) -> Gradients:
        return F.slice_like(ddy, dy), None


class Concat(Operator, name="Concat", aliases=("concat",)):
    """The inputs one behind another along `dim`; their remaining dimensions are equal."""

    dim: int = 1
    samples = [
        sample((2, 3), (2, 1), (2, 2)), sample((2, 3), (4, 3), dim=0), sample((2, 3, 1), (2, 3, 2), dim=-1),
        sample((2, 3)),
    ]  # fmt: skip

    def complete(self, *data: PartialShape) -> PartialShapes:
        known = next((shape for shape in data if shape is not None), None)
        if known is None:
            return data
        rank = len(known)
        unknown: tuple[int | None, ...] = (None,) * rank
        shapes = [unknown if shape is None else shape for shape in data]
        columns = zip(*(shape for shape in shapes if len(shape) == rank), strict=True)
        merged = [next((size for size in column if size is not None), None) for column in columns]

        def completed(shape: tuple[int | None, ...]) -> PartialShape:
            own = self.dim % rank
            return tuple(size if axis == own else merged[axis] for axis, size in enumerate(shape))

        return tuple(completed(shape) if len(shape) == rank else shape for shape in shapes)

    def complete_from(self, output: PartialSizes, *data: PartialShape) -> PartialShapes:
        """All inputs have the sizes of the output, but along `dim`; there the only size that is unknown follows."""
        rank = len(output)
        if not rank or any(shape is not None and len(shape) != rank for shape in data):
            return data
        own = self.dim % rank
        shapes = [(None,) * rank if shape is None else shape for shape in data]
        shapes = [(*output[:own], shape[own], *output[own + 1 :]) if None in shape else shape for shape in shapes]
        whole = output[own]
        if whole is not None and [shape[own] for shape in shapes].count(None) == 1:
            rest = whole - sum(shape[own] or 0 for shape in shapes)
            left = None if rest < 0 else rest  # less than 0: the output's shape was supposed, and is another one
            shapes = [(*shape[:own], left if shape[own] is None else shape[own], *shape[own + 1 :]) for shape in shapes]
        return tuple(shapes)

    def infer_shape(self, *data: Shape) -> Shape:
        if not data:
            raise ShapeError("Concat: there is nothing to join")
        first = data[0]
        axis = axis_of("Concat", self.dim, len(first))
        for shape in data[1:]:
            if len(shape) != len(first) or any(
                a != b for i, (a, b) in enumerate(zip(shape, first, strict=True)) if i != axis
            ):
                raise ShapeError(f"Concat: {' and '.join(map(str, data))} differ outside of dim={self.dim}")
        return (*first[:axis], sum(shape[axis] for shape in data), *first[axis + 1 :])

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        axis = self.dim % len(place)
        ends = accumulate(elements.shape(number)[axis] for number in range(elements.count))

        def read(number: int, start: int, guard: str) -> str:
            return str(elements.read(number, (*place[:axis], place[axis] + -start, *place[axis + 1 :]), guard))

        return joined(elements, place[axis], list(ends), read)

    def numpy(self, *data: Array, out: Array | None = None) -> Array:
        return np.concatenate(data, axis=self.dim, out=out)

    def bound(self, sizes: Sequence[float], shapes: Sequence[Shape], filters: Callable[[int], float]) -> float:
        return max(sizes)

    def grad(self, F: Functions, *values: Tensor, wanted: Wanted = None) -> Gradients:
        *data, _, dy = values
        return tuple(
            None if wanted is not None and not wanted[index] else F._concat_part(dy, *data, dim=self.dim, index=index)
            for index in range(len(data))
        )

    def onnx(self, g: OnnxGraph, *data: str) -> str:
        return g.Concat(*data, axis=self.dim)


class ConcatPart(Operator, name="_concat_part"):
    """The part of dy that belongs to input number `index` of a Concat. data : Concat's inputs, for their shapes."""

    arrays_only = ("args",)
    dim: int
    index: int
    typed_like = 0
    mxnet = None
    view = True
    shape_only = ("args",)
    samples = [
        sample((2, 6), (2, 3), (2, 1), (2, 2), dim=1, index=1),
        sample((2, 6), (2, 3), (2, 1), (2, 2), dim=-1, index=2),
    ]

    def infer_shape(self, dy: Shape, *data: Shape) -> Shape:
        return data[self.index]

    def cut(self, shapes: list[tuple[int, ...]]) -> tuple[slice, ...]:
        """The place of the part in dy."""
        axis = self.dim % len(shapes[0])
        start = sum(shape[axis] for shape in shapes[: self.index])
        return along(axis, start, start + shapes[self.index][axis], len(shapes[0]))

    def numpy(self, dy: Array, *data: Array, out: Array | None = None) -> Array:
        return into(dy[self.cut([item.shape for item in data])], out)

    def grad(self, F: Functions, dy: Tensor, *rest: Tensor) -> Gradients:
        *data, _, ddy = rest
        zeros = [F._cast_like(F.zeros_like(item), ddy) for item in data]  # mixed precision converts dy alone
        parts = [ddy if index == self.index else zeros[index] for index in range(len(data))]
        return (F.Concat(*parts, dim=self.dim), *(None for _ in data))

    def onnx(self, g: OnnxGraph, dy: str, *data: str) -> str:
        return emit_slice(g, dy, self.cut([g.shape(item) for item in data]), g.shape(dy))


class Stack(Operator, name="stack"):
    """The inputs, which have one shape, along a new axis."""

    axis: int = 0
    samples = [
        sample((2, 3), (2, 3)), sample((2, 3), (2, 3), (2, 3), axis=1), sample((2, 3), (2, 3), axis=-1),
    ]  # fmt: skip

    def complete(self, *data: PartialShape) -> PartialShapes:
        known = next((shape for shape in data if shape is not None and None not in shape), None)
        if known is None:
            return data
        return tuple(known if shape is None or len(shape) == len(known) else shape for shape in data)

    def infer_shape(self, *data: Shape) -> Shape:
        if not data:
            raise ShapeError("stack: there is nothing to stack")
        if any(shape != data[0] for shape in data):
            raise ShapeError(f"stack: the shapes {' and '.join(map(str, data))} differ")
        axis = axis_of("stack", self.axis, len(data[0]) + 1)
        return (*data[0][:axis], len(data), *data[0][axis:])

    def numpy(self, *data: Array, out: Array | None = None) -> Array:
        return np.stack(data, axis=self.axis, out=out)

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        axis = self.axis % len(place)
        inner = (*place[:axis], *place[axis + 1 :])
        return joined(
            elements,
            place[axis],
            range(1, elements.count + 1),
            lambda number, start, guard: str(elements.read(number, inner, guard)),
        )

    def grad(self, F: Functions, *values: Tensor) -> Gradients:
        *data, _, dy = values
        parts = (F.slice_axis(dy, axis=self.axis, begin=index, end=index + 1) for index in range(len(data)))
        return tuple(F.reshape_like(part, item) for part, item in zip(parts, data, strict=True))

    def onnx(self, g: OnnxGraph, *data: str) -> str:
        axis = self.axis % (len(g.shape(data[0])) + 1)
        return g.Concat(*(g.Unsqueeze(item, [axis]) for item in data), axis=axis)


class _Splitting(Operator):
    """Base: data cut along `axis`; squeeze_axis drops that axis if the parts are 1 thick."""

    axis: int
    squeeze_axis: bool
    title: ClassVar[str]

    def places(self, size: int) -> list[int]:
        """The starts of the parts of an axis, and the end. Raises ShapeError."""
        raise NotImplementedError

    def sizes(self, size: int) -> list[int]:
        """How long the parts are."""
        places = self.places(size)
        return [stop - start for start, stop in zip(places, places[1:], strict=False)]

    def infer_shape(self, data: Shape) -> Shapes:
        axis = axis_of(self.title, self.axis, len(data))
        sizes = self.sizes(data[axis])
        if self.squeeze_axis and any(size != 1 for size in sizes):
            given = sizes[0] if self.title == "SliceChannel" else sizes
            raise ShapeError(
                f"{self.title}: squeeze_axis needs parts of size 1; {data} gives {given} along axis {self.axis}"
            )
        return [(*data[:axis], *(() if self.squeeze_axis else (size,)), *data[axis + 1 :]) for size in sizes]

    def numpy(self, data: Array, out: Array | Outs = None) -> Array | Arrays:
        parts = np.split(data, self.places(data.shape[self.axis])[1:-1], axis=self.axis)
        parts = [part.squeeze(self.axis) for part in parts] if self.squeeze_axis else parts
        return all_into([part.copy() for part in parts] if out is None else parts, out)

    def lower(self, F: Functions, data: Tensor) -> tuple[Tensor, ...]:
        places = self.places(data.shape[self.axis])
        ends = zip(places, places[1:], strict=False)
        parts = tuple(F.slice_axis(data, axis=self.axis, begin=start, end=stop) for start, stop in ends)
        if not self.squeeze_axis:
            return parts
        # Not F.squeeze, which keeps a dimension: a part of a vector is a scalar.
        return tuple(F._drop_axes(part, axis=(self.axis % len(data.shape),)) for part in parts)

    def grad(self, F: Functions, data: Tensor, *rest: Tensor) -> Tensor:
        outputs, douts = rest[: self.signature.outputs], rest[self.signature.outputs :]
        parts = [F.zeros_like(y) if dy is None else dy for y, dy in zip(outputs, douts, strict=True)]
        return F.stack(*parts, axis=self.axis) if self.squeeze_axis else F.Concat(*parts, dim=self.axis)

    def onnx(self, g: OnnxGraph, data: str) -> str | tuple[str, ...]:
        axis = self.axis % len(g.shape(data))
        sizes = self.sizes(g.shape(data)[axis])
        if 0 in sizes:
            raise Unmappable(f"{self.title} into empty parts")
        if len(sizes) == 1:
            return g.Squeeze(data, [axis]) if self.squeeze_axis else g.Identity(data)
        parts = g.Split(data, sizes, axis=axis, outputs=len(sizes))
        return tuple(g.Squeeze(part, [axis]) for part in parts) if self.squeeze_axis else parts


class SliceChannel(_Splitting, name="SliceChannel", aliases=("split",)):
    """data cut into num_outputs equal parts along `axis`; squeeze_axis drops that axis if the parts are 1 thick."""

    title = "SliceChannel"
    num_outputs: int
    axis: int = 1
    squeeze_axis: bool = False
    samples = [
        sample((2, 6), num_outputs=3), sample((4, 3), num_outputs=2, axis=0),
        sample((2, 3, 4), num_outputs=3, squeeze_axis=True), sample((2, 3), num_outputs=1, axis=-1),
    ]  # fmt: skip

    @cached_property
    def signature(self) -> Signature:
        return Signature(self.input_names, self.num_outputs)

    def check(self) -> None:
        if self.num_outputs < 1:
            raise AttributeSpecError(f"SliceChannel: num_outputs={self.num_outputs}; at least 1 is needed")

    def infer_shape(self, data: Shape) -> Shapes:
        axis = axis_of("SliceChannel", self.axis, len(data))
        if data[axis] % self.num_outputs:
            raise ShapeError(
                f"SliceChannel: axis {self.axis} of {data} cannot be cut into {self.num_outputs} equal parts"
            )
        return super().infer_shape(data)

    def places(self, size: int) -> list[int]:
        return [index * (size // self.num_outputs) for index in range(self.num_outputs + 1)]

    def sizes(self, size: int) -> list[int]:
        return [size // self.num_outputs] * self.num_outputs


class SplitV2(_Splitting, name="_split_v2"):
    """data cut along `axis` into `sections` equal parts, or in front of the places in `indices`, of which the first is
    0; squeeze_axis drops that axis if the parts are 1 thick. `split_v2` takes the places without the 0.
    """

    title = "split_v2"
    indices: Shape
    axis: int = 1
    squeeze_axis: bool = False
    sections: int = 0
    samples = [
        sample((2, 6), indices=(), sections=3), sample((6, 2), indices=(0, 2, 3), axis=0),
        sample((2, 3, 4), indices=(), sections=3, squeeze_axis=True), sample((2, 5), indices=(0,), axis=-1),
    ]  # fmt: skip

    def check(self) -> None:
        rising = all(first <= second for first, second in zip(self.indices, self.indices[1:], strict=False))
        if not self.sections and (self.indices[:1] != (0,) or not rising):
            raise AttributeSpecError(f"split_v2: the indices {self.indices} must increase, starting with 0")

    @cached_property
    def signature(self) -> Signature:
        return Signature(self.input_names, self.sections or len(self.indices))

    def places(self, size: int) -> list[int]:
        if self.sections:
            if size % self.sections:
                raise ShapeError(f"split_v2: an axis of {size} cannot be cut into {self.sections} equal parts")
            return [index * (size // self.sections) for index in range(self.sections + 1)]
        return [min(place, size) for place in (*self.indices, size)]


def split_v2_operator(indices_or_sections: int | Sequence[int], axis: int, squeeze_axis: bool) -> Operator:
    """The operator behind the functions and methods `split_v2`, which take the places without the 0."""
    if isinstance(indices_or_sections, (int, np.integer)):
        return SplitV2.bind(indices=(), sections=int(indices_or_sections), axis=axis, squeeze_axis=squeeze_axis)
    return SplitV2.bind(indices=(0, *indices_or_sections), axis=axis, squeeze_axis=squeeze_axis)
