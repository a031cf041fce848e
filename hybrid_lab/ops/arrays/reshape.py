"""The same elements in another shape: Reshape with MXNet's codes, Flatten, expand_dims, squeeze, reshape_like."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import ArrayIndexError, ShapeError
from hybrid_lab.diagnostics.formatting import dimensions
from hybrid_lab.ops.framework import Operator, into, kept_shape, reduced_axes, sample
from hybrid_lab.ops.framework.attributes import Axis, Shape
from hybrid_lab.ops.framework.protocols import Functions, Gradients, OnnxGraph, Tensor
from hybrid_lab.ops.framework.types import Array


def reshaped(name: str, shape: tuple[int, ...], codes: tuple[int, ...], reverse: bool) -> tuple[int, ...]:
    """The shape that MXNet's codes make of `shape`.

    0 keeps a dimension, -1 takes the rest, -2 keeps all further dimensions, -3 joins two, -4 splits one into the two
    numbers that follow (one may be -1). `reverse` reads both from the right. Raises ShapeError.

    -1 is the product of the dimensions left over by the other codes, so that (0, -1) flattens an empty batch.
    """
    result = codes if codes and min(codes) > 0 else _coded(name, shape, codes, reverse)
    if prod(result) != prod(shape):
        raise ShapeError(f"{name}: {shape} has {prod(shape)} elements, {result} (from {codes}) has {prod(result)}")
    return result


def _coded(name: str, shape: tuple[int, ...], codes: tuple[int, ...], reverse: bool) -> tuple[int, ...]:
    source, wanted = (shape[::-1], codes[::-1]) if reverse else (shape, codes)
    made: list[int] = []
    given: list[int] = []
    left = list(source)
    position = index = 0
    inferred: int | None = None

    def take(code: int) -> int:
        nonlocal position
        if position >= len(source):
            raise ShapeError(f"{name}: the code {code} in {codes} finds no dimension left in the input's shape {shape}")
        position += 1
        left[position - 1] = 1
        return source[position - 1]

    while index < len(wanted):
        code = wanted[index]
        if code == 0:
            made.append(take(0))
        elif code == -1:
            if inferred is not None:
                raise ShapeError(f"{name}: {codes} has more than one -1")
            inferred = len(made)
            made.append(1)
            position += 1
        elif code == -2:
            made.extend(source[position:])
            left[position:] = []
            position = len(source)
        elif code == -3:
            made.append(take(-3) * take(-3))
        elif code == -4:
            if index + 2 >= len(wanted):
                raise ShapeError(f"{name}: -4 in {codes} needs two numbers after it")
            whole, first, second = take(-4), wanted[index + 1], wanted[index + 2]
            index += 2
            if first == -1 and second == -1:
                raise ShapeError(f"{name}: only one number after -4 in {codes} may be -1")
            if first == 0 or second == 0:
                raise ShapeError(f"{name}: the numbers after -4 in {codes} must be at least 1, or -1")
            first = whole // second if first == -1 else first
            second = whole // first if second == -1 else second
            if first * second != whole:
                raise ShapeError(f"{name}: -4 in {codes} cannot split a dimension of {whole} into {first} and {second}")
            made.extend((first, second))
        elif code > 0:
            made.append(code)
            given.append(code)
            position += 1
        else:
            raise ShapeError(f"{name}: {code} in {codes} is not a code; the codes are 0, -1, -2, -3 and -4")
        index += 1
    if inferred is not None:
        over, size = prod(left), prod(given)
        if over % size:
            raise ShapeError(f"{name}: {shape} has {prod(shape)} elements, which {codes} cannot hold")
        made[inferred] = over // size
    return tuple(made[::-1] if reverse else made)


class _Reshaping(Operator):
    """Base: the elements of the first input in their order, in another shape; of other inputs the shape is read."""

    in_order = True
    typed_like = 0
    identity_if_alike = True
    view = True

    def numpy(self, data: Array, *like: Array, out: Array | None = None) -> Array:
        if out is not None and out.flags.c_contiguous:
            np.copyto(out.reshape(data.shape), data)  # once, even if the axes of data are turned
            return out
        return into(data.reshape(self.infer_shape(data.shape, *[item.shape for item in like])), out)

    def grad(self, F: Functions, data: Tensor, *rest: Tensor) -> Gradients:
        return (F.reshape_like(rest[-1], data), *(None for _ in rest[:-2]))

    def onnx(self, g: OnnxGraph, data: str, *like: str) -> str:
        return g.reshape_batched(data, self.infer_shape(g.shape(data), *map(g.shape, like)))


class Reshape(_Reshaping, name="Reshape", aliases=("reshape",)):
    """The elements of data in another shape. data : any; returns : the shape that MXNet's codes give.

    0 keeps a dimension, -1 takes the rest, -2 keeps all further dimensions, -3 joins two, -4 splits one into the two
    numbers that follow (one may be -1); with reverse=True the codes are read from the right.
    MXNet's older attributes are converted: `target_shape`, in which 0 takes the rest, and `keep_highest`, which keeps
    the first dimension.
    """

    shape: Shape
    reverse: bool = False
    target_shape: Shape | None = None
    keep_highest: bool = False
    samples = [
        sample((2, 3, 4), shape=(6, 4)), sample((2, 3, 4), shape=(0, -1)), sample((2, 3, 4), shape=(-1, 2)),
        sample((2, 3, 4), shape=(0, -3)), sample((2, 3, 4), shape=(-3, -2)), sample((2, 3, 4), shape=(-4, 1, -1, -2)),
        sample((2, 3, 4), shape=(0, 0, -4, 2, -1)), sample((8, 3, 2), shape=(-1, 0), reverse=True),
        sample((2, 3), shape=(-1,)),
    ]  # fmt: skip

    @classmethod
    def bind(cls, **attributes: Any) -> Operator:
        """The operator with these attributes; `target_shape` and `keep_highest` are written as `shape`."""
        names = [name for name in ("target_shape", "keep_highest") if name in attributes]
        older = {name: cls.fields[name].read(cls.name, attributes.pop(name)) for name in names}
        target = older.get("target_shape")
        if target is not None and "shape" not in attributes:
            rest = tuple(size or -1 for size in target)
            attributes["shape"] = (0, *rest[1:]) if rest and older.get("keep_highest") else rest
        return super().bind(**attributes)

    def infer_shape(self, data: Shape) -> Shape:
        return reshaped("reshape", data, self.shape, self.reverse)


class NumpyReshape(_Reshaping, name="_np_reshape"):
    """The elements of data in another shape, with NumPy's meaning of sizes: 0 is a size, -1 takes the rest."""

    mxnet = None
    newshape: Shape
    samples = [sample((2, 3, 4), newshape=(6, -1)), sample((1, 1), newshape=()), sample((2, 3), newshape=(-1,))]

    def infer_shape(self, data: Shape) -> Shape:
        if self.newshape and 0 not in self.newshape:
            return reshaped("reshape", data, self.newshape, False)
        rest = prod(size for size in self.newshape if size != -1)
        sizes = tuple(prod(data) // rest if size == -1 and rest else size for size in self.newshape)
        if -1 in sizes or prod(sizes) != prod(data):
            raise ShapeError(f"reshape: an array of shape {data} cannot take the shape {self.newshape}")
        return sizes


class Flatten(_Reshaping, name="Flatten", aliases=("flatten",)):
    """(n, a, b, ...) -> (n, a*b*...)."""

    samples = [sample((2, 3, 4)), sample((2, 3)), sample((4,))]

    def infer_shape(self, data: Shape) -> Shape:
        if not data:
            raise ShapeError("Flatten: the input has no dimensions")
        return data[0], prod(data[1:])


class ExpandDims(_Reshaping, name="expand_dims"):
    """data with a new dimension of 1 at `axis`."""

    axis: int
    samples = [sample((2, 3), axis=0), sample((2, 3), axis=1), sample((2, 3), axis=-1)]

    def infer_shape(self, data: Shape) -> Shape:
        rank = len(data)
        if not -rank - 1 <= self.axis <= rank:
            raise ShapeError(f"expand_dims: axis {self.axis} is out of range; the input has {dimensions(rank)}")
        axis = self.axis % (rank + 1)
        return (*data[:axis], 1, *data[axis:])

    def onnx(self, g: OnnxGraph, data: str) -> str:
        return g.Unsqueeze(data, [self.axis])


class Squeeze(_Reshaping, name="squeeze"):
    """data without dimensions of 1: without all such dimensions, or without the dimensions in `axis`. At least one
    dimension stays.
    """

    axis: Shape | None = None
    samples = [sample((1, 3, 1)), sample((1, 3, 1), axis=0), sample((1, 3, 1), axis=(0, 2)), sample((1, 1))]

    def infer_shape(self, data: Shape) -> Shape:
        rank = len(data)
        if self.axis is None:
            return tuple(size for size in data if size != 1) or (1,)
        dropped = set()
        for axis in self.axis:
            if not -rank <= axis < rank or data[axis] != 1:
                # In graphs x[:, i] is a slice and a squeeze; an index past the end leaves nothing to squeeze.
                empty = -rank <= axis < rank and data[axis] == 0
                raise (ArrayIndexError if empty else ShapeError)(f"squeeze: axis {axis} of the shape {data} is not 1")
            dropped.add(axis % rank)
        if len(dropped) < len(self.axis):
            raise ShapeError(f"squeeze: axis={self.axis} names an axis of {data} twice")
        return tuple(size for index, size in enumerate(data) if index not in dropped) or (1,)


class DropAxes(Squeeze, name="_drop_axes", aliases=("_np_squeeze",)):
    """As `squeeze`, but nothing has to stay: data with one element may become an array of shape ()."""

    mxnet = None
    samples = [sample((1, 3, 1)), sample((1, 3, 1), axis=0), sample((1, 1)), sample((1,), axis=0)]

    def infer_shape(self, data: Shape) -> Shape:
        shape = super().infer_shape(data)
        gone = len(data) if self.axis is None else len({axis % len(data) for axis in self.axis})
        return () if gone == len(data) and prod(data) == 1 else shape


class ReshapeLike(_Reshaping, name="reshape_like"):
    """The elements of lhs in the shape of rhs, of which only the shape is read.

    lhs_begin, lhs_end, rhs_begin, rhs_end choose the range of dimensions that is exchanged.
    """

    lhs_begin: int | None = None
    lhs_end: int | None = None
    rhs_begin: int | None = None
    rhs_end: int | None = None
    shape_only = ("rhs",)
    samples = [sample((6, 2), (3, 4)), sample((2, 3, 4), (6, 5), lhs_begin=0, lhs_end=2, rhs_begin=0, rhs_end=1)]

    def infer_shape(self, lhs: Shape, rhs: Shape) -> Shape:
        left, right = slice(self.lhs_begin, self.lhs_end), slice(self.rhs_begin, self.rhs_end)
        for side, shape, chosen in (("lhs", lhs, left), ("rhs", rhs, right)):
            places = [place for place in (chosen.start, chosen.stop) if place is not None]
            start, stop, _ = chosen.indices(len(shape))
            if places and (start >= stop or not all(-len(shape) <= place <= len(shape) for place in places)):
                given = f"{side}_begin={chosen.start}, {side}_end={chosen.stop}"
                raise ShapeError(f"reshape_like: {given} is no range of the dimensions of {shape}")
        start, stop, _ = left.indices(len(lhs))
        result = (*lhs[:start], *rhs[right], *lhs[stop:])
        if prod(result) != prod(lhs):
            raise ShapeError(f"reshape_like: {lhs} does not have the number of elements of {result}")
        return result


class ChannelLike(_Reshaping, name="_channel_like"):
    """A vector of one number per channel shaped to broadcast against `like`: (c,) or (1,) -> (1, c, 1, 1).

    data of more dimensions has the shape of `like`, one number per element, and is not changed; or it has one number
    per sample and channel: (n, c) -> (n, c, 1, 1).
    axis : the channels of `like`, of which only the shape is read
    """

    arrays_only = ("data", "like")
    identity_if_alike = False
    axis: int = 1
    mxnet = None
    shape_only = ("like",)
    samples = [
        sample((3,), (2, 3, 4)), sample((4,), (2, 3, 4), axis=-1), sample((1,), (2, 3)), sample((2, 3), (2, 3, 4)),
    ]  # fmt: skip

    def infer_shape(self, data: Shape, like: Shape) -> Shape:
        rank = len(like)
        if len(data) > 1 and data == like:  # one number for each element
            return data
        if len(data) == 2 and rank > 2 and self.axis == 1:
            return (*data, *(1,) * (rank - 2))
        axis = self.axis % rank if -rank <= self.axis < rank else rank - 1
        return tuple(prod(data) if index == axis else 1 for index in range(rank))


class RestoreAxes(_Reshaping, name="_restore_axes"):
    """data, the result of a reduction of `like`, with the reduced axes back as 1: it then broadcasts against like."""

    identity_if_alike = False
    axis: Axis = None
    exclude: bool = False
    mxnet = None
    shape_only = ("like",)
    samples = [sample((2, 4), (2, 3, 4), axis=1), sample((1,), (2, 3)), sample((3,), (2, 3, 4), axis=1, exclude=True)]

    def infer_shape(self, data: Shape, like: Shape) -> Shape:
        return kept_shape(like, reduced_axes(self.name, self.axis, len(like), self.exclude))
