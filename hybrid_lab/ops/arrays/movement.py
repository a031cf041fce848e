"""Moving without computing: transpose, broadcasting, repetition, reversal."""

from __future__ import annotations

from math import prod

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError
from hybrid_lab.diagnostics.formatting import dimensions
from hybrid_lab.ops.framework import Element, Operator, axis_of, broadcast_shapes, into, sample
from hybrid_lab.ops.framework.attributes import Shape
from hybrid_lab.ops.framework.lowering import emit_lowering
from hybrid_lab.ops.framework.protocols import Elements, Functions, Gradients, OnnxGraph, Place, Tensor
from hybrid_lab.ops.framework.types import Array


class Permutation(Operator):
    """Base: the axes of data in another order."""

    view = True
    permutes = True

    def order(self, rank: int) -> tuple[int, ...]:
        """The permutation, non-negative. Raises ShapeError."""
        raise NotImplementedError

    def infer_shape(self, data: Shape) -> Shape:
        return tuple(data[axis] for axis in self.order(len(data)))

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        return into(data.transpose(self.order(data.ndim)), out)

    def onnx(self, g: OnnxGraph, data: str) -> str:
        return g.Transpose(data, perm=list(self.order(len(g.shape(data)))))


class Transpose(Permutation, name="transpose"):
    """data with its axes in the order `axes`; () reverses them."""

    axes: Shape = ()
    samples = [
        sample((2, 3, 4)), sample((2, 3, 4), axes=(1, 2, 0)), sample((2, 3, 4), axes=(0, -1, 1)),
        sample((3, 4), dtype="int32", gradient=False),
    ]  # fmt: skip

    def order(self, rank: int) -> tuple[int, ...]:
        if not self.axes:
            return tuple(reversed(range(rank)))
        order = tuple(axis % rank if -rank <= axis < rank else axis for axis in self.axes)
        if sorted(order) != list(range(rank)):
            raise ShapeError(
                f"transpose: axes={self.axes} is no permutation of the axes of the input, which has {dimensions(rank)}"
            )
        return order

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        order = self.order(len(self.axes))
        return F.transpose(dy, axes=tuple(order.index(axis) for axis in range(len(order))))


class SwapAxis(Permutation, name="SwapAxis", aliases=("swapaxes", "SwapAxes")):
    """data with the axes dim1 and dim2 exchanged."""

    dim1: int = 0
    dim2: int = 0
    samples = [sample((2, 3, 4), dim1=0, dim2=2), sample((2, 3, 4), dim1=1, dim2=2)]

    def order(self, rank: int) -> tuple[int, ...]:
        first, second = (axis_of("SwapAxis", axis, rank) for axis in (self.dim1, self.dim2))
        order = list(range(rank))
        order[first], order[second] = second, first
        return tuple(order)

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F.SwapAxis(dy, dim1=self.dim1, dim2=self.dim2)


class Roll(Operator, name="_np_roll"):
    """data with its elements moved by `shift` along `axis`, those at the end to the beginning; several steps, one after
    the other if `shift` has several. axis : None moves the elements in their order
    """

    mxnet = None
    shift: Shape
    axis: Shape | None = None
    onnx = emit_lowering
    samples = [
        sample((2, 3), shift=(1,)), sample((3, 4), shift=(-1,), axis=(1,)), sample((3, 4), shift=(1, 2), axis=(0, -1)),
        sample((5,), shift=(7,), axis=(0,)), sample((3, 4), shift=(5,), axis=(0, 1)),
    ]  # fmt: skip

    def check(self) -> None:
        if self.axis is not None and len(self.shift) != len(self.axis) and 1 not in (len(self.shift), len(self.axis)):
            raise AttributeSpecError(f"roll: shift={self.shift} and axis={self.axis} differ in length")

    def steps(self, rank: int) -> list[tuple[int, int]]:
        """The moves, each by a number of elements along an axis. Raises ShapeError."""
        axes = (0,) if self.axis is None else tuple(axis_of("roll", axis, rank) for axis in self.axis)
        count = max(len(self.shift), len(axes))
        shifts = self.shift * (count if len(self.shift) == 1 else 1)
        return list(zip(shifts, axes * (count if len(axes) == 1 else 1), strict=True))

    def infer_shape(self, data: Shape) -> Shape:
        self.steps(len(data))
        return data

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        moves = self.steps(data.ndim)
        if self.axis is None:
            return into(np.roll(data, sum(self.shift)), out)
        return into(np.roll(data, [shift for shift, _ in moves], [axis for _, axis in moves]), out)

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F._np_roll(dy, shift=tuple(-each for each in self.shift), axis=self.axis)

    def lower(self, F: Functions, data: Tensor) -> Tensor:
        moves = self.steps(len(data.shape))
        result = F.Reshape(data, shape=(-1,)) if self.axis is None else F.identity(data)
        for shift, axis in moves:
            size = prod(data.shape) if self.axis is None else data.shape[axis]
            cut = size - shift % size if size else 0
            if cut not in (0, size):
                end = F.slice_axis(result, axis=axis, begin=cut, end=None)
                result = F.Concat(end, F.slice_axis(result, axis=axis, begin=0, end=cut), dim=axis)
        return F.reshape_like(result, data) if self.axis is None else result


class _Broadcasting(Operator):
    """Base: dimensions of 1 of the first input repeated, the gradient sums over them; of other inputs the shape is
    read.
    """

    typed_like = 0
    identity_if_alike = True

    def numpy(self, data: Array, *like: Array, out: Array | None = None) -> Array:
        if out is None:
            out = np.empty(self.infer_shape(data.shape, *[item.shape for item in like]), data.dtype)
        return into(data, out)

    def grad(self, F: Functions, data: Tensor, *rest: Tensor) -> Gradients:
        return (F._sum_like(rest[-1], data), *(None for _ in rest[:-2]))

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        shape = elements.shape(0)
        last = place[len(place) - len(shape) :]
        return str(
            elements.read(0, [elements.zero if size == 1 else index for index, size in zip(last, shape, strict=True)])
        )

    def onnx(self, g: OnnxGraph, data: str, *like: str) -> str:
        return g.Expand(data, self.infer_shape(g.shape(data), *map(g.shape, like)))


class BroadcastTo(_Broadcasting, name="broadcast_to"):
    """data with its dimensions of 1 repeated to `shape`, where 0 keeps a dimension."""

    shape: Shape
    samples = [sample((1, 3), shape=(4, 3)), sample((2, 1, 1), shape=(0, 3, 4))]

    def check(self) -> None:
        if min(self.shape, default=0) < 0:
            raise AttributeSpecError(f"broadcast_to: shape={self.shape} has a negative size; 0 keeps a dimension")

    def infer_shape(self, data: Shape) -> Shape:
        if len(data) != len(self.shape):
            raise ShapeError(f"broadcast_to: {data} and shape={self.shape} must have the same number of dimensions")
        for size, wanted in zip(data, self.shape, strict=True):
            if size != 1 and wanted not in (0, size):
                raise ShapeError(
                    f"broadcast_to: a dimension of {size} in {data} cannot become {wanted}; only 1 can be repeated"
                )
        return tuple(wanted or size for size, wanted in zip(data, self.shape, strict=True))


class BroadcastAxis(_Broadcasting, name="broadcast_axis", aliases=("broadcast_axes",)):
    """data with the dimensions `axis`, which are 1, repeated `size` times."""

    axis: Shape = ()
    size: Shape = ()
    samples = [sample((2, 1, 1), axis=(1, 2), size=(3, 4)), sample((1, 3), axis=0, size=4)]

    def infer_shape(self, data: Shape) -> Shape:
        if len(self.axis) != len(self.size):
            raise ShapeError(f"broadcast_axis: axis={self.axis} and size={self.size} differ in length")
        made = list(data)
        for axis, size in zip(self.axis, self.size, strict=True):
            if not -len(data) <= axis < len(data) or data[axis] != 1:
                raise ShapeError(f"broadcast_axis: axis {axis} of {data} is not 1")
            made[axis] = size
        return tuple(made)


class BroadcastLike(_Broadcasting, name="broadcast_like"):
    """lhs with its dimensions of 1 repeated to the shape of rhs, of which only the shape is read.

    lhs_axes, rhs_axes : only these axes of lhs take the sizes of those axes of rhs
    """

    lhs_axes: Shape | None = None
    rhs_axes: Shape | None = None
    shape_only = ("rhs",)
    samples = [sample((1, 3), (4, 3)), sample((2, 1, 1), (5, 4), lhs_axes=(1,), rhs_axes=(0,)), sample((3, 4), (3, 4))]

    def infer_shape(self, lhs: Shape, rhs: Shape) -> Shape:
        if self.lhs_axes is None or self.rhs_axes is None:
            if broadcast_shapes("broadcast_like", lhs, rhs) != rhs:
                raise ShapeError(f"broadcast_like: {lhs} does not broadcast to {rhs}")
            return rhs
        if len(self.lhs_axes) != len(self.rhs_axes):
            raise ShapeError(
                f"broadcast_like: lhs_axes={self.lhs_axes} and rhs_axes={self.rhs_axes} differ in their number of axes"
            )
        made = list(lhs)
        for name, axes, shape in (("lhs", self.lhs_axes, lhs), ("rhs", self.rhs_axes, rhs)):
            if not all(-len(shape) <= axis < len(shape) for axis in axes):
                raise ShapeError(f"broadcast_like: {name}_axes={axes}, and {name} has the shape {shape}")
        for axis, size in ((left, rhs[right]) for left, right in zip(self.lhs_axes, self.rhs_axes, strict=True)):
            if lhs[axis] not in (1, size):
                raise ShapeError(
                    f"broadcast_like: {lhs} cannot take the shape of {rhs}: {lhs[axis]} cannot become {size}"
                )
            made[axis] = size
        return tuple(made)


def _aligned(shape: tuple[int, ...], reps: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and repetitions with leading ones so that both are equally long."""
    rank = max(len(shape), len(reps))
    return (1,) * (rank - len(shape)) + shape, (1,) * (rank - len(reps)) + reps


class Tile(Operator, name="tile"):
    """data as a whole repeated `reps` times along each axis."""

    identity_if_alike = True
    reps: Shape
    samples = [sample((2, 3), reps=(2,)), sample((2, 3), reps=(2, 1, 3)), sample((2, 3, 4), reps=(2, 2))]

    def infer_shape(self, data: Shape) -> Shape:
        shape, reps = _aligned(data, self.reps)
        return tuple(size * count for size, count in zip(shape, reps, strict=True))

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        shape, reps = _aligned(data.shape, self.reps)
        if out is None or not out.flags.c_contiguous:
            return into(np.tile(data, self.reps), out)
        pairs = tuple(number for pair in zip(reps, shape, strict=True) for number in pair)
        ones = tuple(number for size in shape for number in (1, size))
        np.copyto(out.reshape(pairs), data.reshape(ones))
        return out

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        shape, reps = _aligned(elements.shape(0), self.reps)
        sizes = zip(place, reps, shape, strict=True)
        inner = [elements.unravel((index,), (count * size,), (count, size))[1] for index, count, size in sizes]
        return str(elements.read(0, inner[len(inner) - len(elements.shape(0)) :]))

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        if 0 in self.reps:
            return F.zeros_like(data)
        # Read from the right, each axis becomes the repetitions and one copy of the axis; axes in front are kept.
        codes = (-2, *(code for count in self.reps for code in (count, -1, -4)))
        apart = F.Reshape(dy, shape=codes, reverse=True)
        total = F.sum(apart, axis=tuple(range(-2 * len(self.reps), 0, 2))) if self.reps else apart
        return F.reshape_like(total, data)

    def onnx(self, g: OnnxGraph, data: str) -> str:
        shape, reps = _aligned(g.shape(data), self.reps)
        if len(shape) > len(g.shape(data)):
            data = g.Reshape(data, shape)
        return g.Tile(data, reps)


class Repeat(Operator, name="repeat"):
    """Every element repeated `repeats` times along `axis` (None: of the flattened data)."""

    identity_if_alike = True
    repeats: int
    axis: int | None = None
    samples = [sample((2, 3), repeats=2), sample((2, 3), repeats=2, axis=1), sample((2, 3), repeats=3, axis=-2)]

    def infer_shape(self, data: Shape) -> Shape:
        if self.axis is None:
            return (prod(data) * self.repeats,)
        axis = axis_of("repeat", self.axis, len(data))
        return (*data[:axis], data[axis] * self.repeats, *data[axis + 1 :])

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        return into(np.repeat(data, self.repeats, axis=self.axis), out)

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        shape = elements.shape(0)
        if self.axis is None:
            return str(
                elements.read(0, elements.unravel(place, (prod(shape) * self.repeats,), (*shape, self.repeats))[:-1])
            )
        axis = self.axis % len(shape)
        return str(elements.read(0, (*place[:axis], elements.quotient(place[axis], self.repeats), *place[axis + 1 :])))

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        if not self.repeats:
            return F.zeros_like(data)
        axis = -1 if self.axis is None else self.axis
        if axis < 0:
            apart = F.Reshape(dy, shape=(-2, -1, self.repeats, -4, *(0,) * (-1 - axis)), reverse=True)
        else:
            apart = F.Reshape(dy, shape=(*(0,) * axis, -4, -1, self.repeats, -2))
        return F.reshape_like(F.sum(apart, axis=axis if axis < 0 else axis + 1), data)

    def onnx(self, g: OnnxGraph, data: str) -> str:
        shape = g.shape(data)
        axis = len(shape) - 1 if self.axis is None else self.axis % len(shape)
        wide = g.Unsqueeze(data, [axis + 1])
        reps = [1] * (len(shape) + 1)
        reps[axis + 1] = self.repeats
        return g.Reshape(g.Tile(wide, reps), self.infer_shape(shape))


class Reverse(Operator, name="reverse", aliases=("flip",)):
    """data with the order of elements along `axis` (one or several) reversed."""

    axis: Shape
    samples = [sample((2, 3), axis=0), sample((2, 3, 4), axis=(1, 2))]

    def infer_shape(self, data: Shape) -> Shape:
        axes = {axis_of("reverse", axis, len(data)) for axis in self.axis}
        if len(axes) < len(self.axis):
            raise ShapeError(f"reverse: axis={self.axis} names an axis of {data} twice")
        return data

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        flipped = np.flip(data, self.axis)
        return flipped.copy() if out is None else into(flipped, out)

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        inner = list(place)
        for axis in {axis % len(place) for axis in self.axis}:
            inner[axis] = inner[axis] * -1 + (elements.shape(0)[axis] - 1)
        return str(elements.read(0, inner))

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F.reverse(dy, axis=self.axis)

    def onnx(self, g: OnnxGraph, data: str) -> str:
        count = len(self.axis)
        return g.Slice(data, [-1] * count, [-(2**31)] * count, self.axis, [-1] * count)
