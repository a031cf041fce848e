"""Reading by index, and the gradients of it: Embedding, take, pick, one_hot."""

from __future__ import annotations

from math import prod
from typing import Literal

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, HybridLabError, ShapeError, Unmappable
from hybrid_lab.ops.framework import (
    Adjoint,
    Collect,
    Element,
    Entries,
    Operator,
    axis_of,
    contiguous,
    filled,
    forward_shape,
    into,
    ints,
    sample,
)
from hybrid_lab.ops.framework.attributes import DType
from hybrid_lab.ops.framework.memory import like_of
from hybrid_lab.ops.framework.protocols import Elements, Functions, Gradients, OnnxGraph, Place, Tensor
from hybrid_lab.ops.framework.types import Array, PartialShape, Shape

Mode = Literal["clip", "wrap", "raise"]


def as_int64(indices: np.ndarray) -> np.ndarray:
    """Indices as int64. NaN, and what int64 does not hold, becomes the least whole number, which is outside of every
    axis; left to NumPy, it would be another number on another processor, with a warning.
    """
    if (
        indices.dtype.kind == "f"
        and indices.size
        and not (-(2.0**63) <= float(indices.min()) and float(indices.max()) < 2.0**63)
    ):
        wide = indices.astype(np.float64)
        indices = np.where(np.abs(wide) < 2.0**63, wide, -(2.0**63))
    return np.asarray(indices.astype(np.int64), like=like_of(indices))  # NumPy makes a number of a scalar array


def whole(indices: np.ndarray, size: int, mode: str, name: str) -> np.ndarray:
    """Indices as int64 inside [0, size): clipped, wrapped around, or refused with the first index outside."""
    if mode == "clip" and indices.dtype.kind == "f":
        indices = np.minimum(np.fmax(indices, 0), np.float64(size))  # infinity is the last place, NaN the first
        numbers = np.asarray(indices.astype(np.int64), like=like_of(indices))
    else:
        numbers = as_int64(indices)
    if not size and numbers.size:
        raise ShapeError(f"{name}: nothing to choose from; the axis is empty")
    if mode == "wrap":
        return np.mod(numbers, max(size, 1))
    if mode == "clip":
        # Not np.clip, which takes five times as long for a few hundred numbers.
        return np.minimum(np.maximum(numbers, 0, out=numbers), size - 1, out=numbers)
    outside = (numbers < 0) | (numbers >= size)
    if outside.any():
        raise HybridLabError(f"{name}: index {indices[outside][0]} is outside of an axis of {size}")
    return numbers


def emit_whole(g: OnnxGraph, indices: str, size: int, mode: str) -> str:
    """The same in ONNX. Raises Unmappable for mode "raise": an index outside would not be noticed there."""
    if mode == "raise":
        raise Unmappable("take with mode='raise'")
    numbers = g.cast(indices, "int64")
    if mode == "wrap":
        return g.Mod(numbers, g.const(size, "int64"))
    return g.Max(g.Min(numbers, g.const(size - 1, "int64")), g.const(0, "int64"))


class Embedding(Operator, name="Embedding"):
    """Rows of weight by number: y[..., :] = weight[data[...]]; numbers outside are clipped.

    data : any shape, whole numbers in any dtype; weight : (input_dim, output_dim); returns : data's shape +
    (output_dim,)
    """

    arrays_only = ("data",)
    typed_like = 1
    input_dim: int
    output_dim: int
    dtype: DType = DType("float32")
    sparse_grad: bool = False
    samples = [
        sample(ints((2, 3), 0, 5), (5, 4), input_dim=5, output_dim=4),
        sample(ints((4,), -2, 8), (5, 4), input_dim=5, output_dim=4),
        sample(ints((2, 2), 0, 5, "int32"), (5, 4), input_dim=5, output_dim=4),
    ]

    def complete(self, data: PartialShape, weight: PartialShape) -> tuple[PartialShape, PartialShape]:
        return data, filled(weight, (self.input_dim, self.output_dim))

    def infer_shape(self, data: Shape, weight: Shape) -> Shape:
        if weight != (self.input_dim, self.output_dim):
            raise ShapeError(
                f"Embedding: the weight has shape {weight}; "
                f"(input_dim, output_dim) is {(self.input_dim, self.output_dim)}"
            )
        return (*data, self.output_dim)

    def numpy(self, data: Array, weight: Array, out: Array | None = None) -> Array:
        return np.take(weight, whole(data, weight.shape[0], "clip", self.name), axis=0, out=out, mode="clip")

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        return str(elements.read(1, (elements.number(0, place[:-1], self.input_dim), place[-1])))

    def grad(self, F: Functions, data: Tensor, weight: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        return None, F._take_grad(dy, weight, data)

    def onnx(self, g: OnnxGraph, data: str, weight: str) -> str:
        return g.Gather(weight, emit_whole(g, data, self.input_dim, "clip"), axis=0)


class SparseEmbedding(Embedding, name="_contrib_SparseEmbedding", aliases=("contrib_SparseEmbedding",)):
    """Embedding whose weight gets a row_sparse gradient from `simple_bind`.

    deterministic : accepted for MXNet's sake; the gradient is always added up in the same order
    """

    deterministic: bool = False
    sparse_grad: bool = True
    samples = [sample(ints((2, 3), 0, 5), (5, 4), input_dim=5, output_dim=4)]


def add_rows(target: np.ndarray, rows: np.ndarray, values: np.ndarray) -> None:
    """target[rows[i]] += values[i], repeated rows adding up, in a fixed order. values : (len(rows), width)."""
    if not len(rows):
        return
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    target[ordered[starts]] += np.add.reduceat(values[order], starts, axis=0)


class Take(Operator, name="take"):
    """Elements of `a` along `axis` by number; mode says what happens to numbers outside: clip, wrap or raise.

    a : any; indices : whole numbers in any dtype; returns : a's shape with `axis` replaced by the shape of indices
    """

    arrays_only = ("indices",)
    typed_like = 0
    axis: int = 0
    mode: Mode = "clip"
    samples = [
        sample((4, 3), ints((2, 2), 0, 4)), sample((4, 3), ints((5,), -3, 9)),
        sample((4, 3), ints((5,), -3, 9), mode="wrap"), sample((2, 4, 3), ints((2,), 0, 4, "int32"), axis=1),
        sample((4, 3), ints((3,), 0, 3), axis=-1, mode="raise"),
    ]  # fmt: skip

    def infer_shape(self, a: Shape, indices: Shape) -> Shape:
        axis = axis_of("take", self.axis, len(a))
        return (*a[:axis], *indices, *a[axis + 1 :])

    def numpy(self, a: Array, indices: Array, out: Array | None = None) -> Array:
        return np.take(a, whole(indices, a.shape[self.axis], self.mode, "take"), axis=self.axis, out=out, mode="clip")

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        if self.mode == "raise":
            raise Unmappable("take with mode='raise'")
        shape, rank = elements.shape(0), len(elements.shape(1))
        axis = self.axis % len(shape)
        number = elements.number(1, place[axis : axis + rank], shape[axis], self.mode)
        return str(elements.read(0, (*place[:axis], number, *place[axis + rank :])))

    def grad(self, F: Functions, a: Tensor, indices: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        return F._take_grad(dy, a, indices, axis=self.axis, mode=self.mode), None

    def onnx(self, g: OnnxGraph, a: str, indices: str) -> str:
        return g.Gather(a, emit_whole(g, indices, g.shape(a)[self.axis], self.mode), axis=self.axis)


class TakeGrad(Adjoint, name="_take_grad"):
    """The gradient of take: dy added up where indices say.

    like : take's first input, read for its shape; returns : that shape.
    """

    adjoint_of = "take"
    axis: int = 0
    mode: Mode = "clip"
    dtype_kinds = "fiu"
    samples = [
        sample((2, 2, 3), (4, 3), ints((2, 2), 0, 3)),
        sample((2, 5, 3), (2, 4, 3), ints((5,), -3, 9), axis=1, mode="wrap"),
    ]

    def numpy(self, dy: Array, like: Array, indices: Array, out: Array | None = None) -> Array:
        axis = self.axis % len(like.shape)
        out = np.empty(like.shape, dy.dtype) if out is None else out
        out.fill(0)
        rows = whole(indices, like.shape[axis], self.mode, "take").reshape(-1)
        lead, width = like.shape[:axis], prod(like.shape) // max(like.shape[axis], 1)
        spread = np.moveaxis(dy.reshape(*lead, len(rows), *like.shape[axis + 1 :]), axis, 0)
        if out.flags.c_contiguous and axis == 0:
            add_rows(out.reshape(like.shape[0], width), rows, spread.reshape(len(rows), width))
            return out
        total = np.zeros((like.shape[axis], width), dy.dtype)
        add_rows(total, rows, spread.reshape(len(rows), width))
        np.copyto(np.moveaxis(out, axis, 0), total.reshape(np.moveaxis(out, axis, 0).shape))
        return out

    @Collect
    def triton(self, dy: Shape, like: Shape, indices: Shape) -> Entries:
        if self.mode == "raise":
            raise Unmappable("take with mode='raise'")
        axis = self.axis % len(like)
        return Entries(
            like[axis : axis + 1], (*like[:axis], *like[axis + 1 :]), indices,
            lambda elements, i: elements.number(2, i, like[axis], self.mode),
            lambda elements, i, column: elements.read(0, (*column[:axis], *i, *column[axis:])),
            lambda row, column: (*column[:axis], *row, *column[axis:]),
        )  # fmt: skip

    def onnx(self, g: OnnxGraph, dy: str, like: str, indices: str) -> str:
        shape = g.shape(like)
        axis, count = self.axis % len(shape), prod(g.shape(indices))
        rows = g.Reshape(emit_whole(g, indices, shape[axis], self.mode), [-1, 1])
        spread = g.Reshape(dy, [*shape[:axis], count, *shape[axis + 1 :]])
        order = [axis, *(index for index in range(len(shape)) if index != axis)]
        zeros = g.Expand(g.const(0, g.dtype(dy)), [shape[index] for index in order])
        total = g.ScatterND(zeros, rows, g.Transpose(spread, perm=order), reduction="add")
        return g.Transpose(total, perm=[order.index(index) for index in range(len(shape))])


def picked(shape: tuple[int, ...], axis: int, index: np.ndarray, mode: str) -> np.ndarray:
    """Flat positions of pick's elements in a contiguous array of this shape, one for each vector along `axis`."""
    size, inner = shape[axis], prod(shape[axis + 1 :])
    places = whole(index, size, mode, "pick").reshape(-1)
    if not places.size:
        return places
    if inner == 1:
        places += np.arange(0, size * places.size, size)
        return places
    places *= inner
    vectors = places.reshape(prod(shape[:axis]), inner)
    vectors += np.arange(0, vectors.size * size, inner * size)[:, None]
    vectors += np.arange(inner)
    return places


class Pick(Operator, name="pick", aliases=("choose_element_0index",)):
    """One element per vector along `axis`, by number: y[i] = data[i, index[i]].

    data : any; index : data's shape without `axis` (or with it as 1), whole numbers; mode : clip or wrap
    """

    typed_like = 0
    axis: int | None = -1
    keepdims: bool = False
    mode: Literal["clip", "wrap"] = "clip"
    samples = [
        sample((3, 4), ints((3,), 0, 4)), sample((3, 4), ints((4,), -2, 6), axis=0, keepdims=True),
        sample((2, 3, 4), ints((2, 4), -2, 6), axis=1, mode="wrap"), sample((3, 4), ints((3, 1), 0, 4), keepdims=True),
    ]  # fmt: skip

    def check(self) -> None:
        if self.axis is None:
            raise AttributeSpecError("pick: axis=None is not supported; reshape data to one dimension and use axis=0")

    def _axis(self, rank: int) -> int:
        assert self.axis is not None
        return axis_of("pick", self.axis, rank)

    def infer_shape(self, data: Shape, index: Shape) -> Shape:
        axis = self._axis(len(data))
        kept, dropped = (*data[:axis], 1, *data[axis + 1 :]), (*data[:axis], *data[axis + 1 :])
        if index not in (kept, dropped or (1,)):
            raise ShapeError(
                f"pick: the index has shape {index}; data {data} with axis={self.axis} needs {dropped} or {kept}"
            )
        return kept if self.keepdims else dropped or (1,)

    def numpy(self, data: Array, index: Array, out: Array | None = None) -> Array:
        shape = self.infer_shape(data.shape, index.shape) if out is None else out.shape
        axis = self._axis(data.ndim)
        if data.flags.c_contiguous:
            return into(data.reshape(-1)[picked(data.shape, axis, index, self.mode)].reshape(shape), out)
        kept = (*data.shape[:axis], 1, *data.shape[axis + 1 :])
        places = whole(index, data.shape[axis], self.mode, "pick").reshape(kept)
        return into(np.take_along_axis(data, places, axis).reshape(shape), out)

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        shape = elements.shape(0)
        axis = self._axis(len(shape))
        before, after = place[:axis], place[axis + self.keepdims :]
        if len(shape) == 1:
            before = after = ()
        whole = (
            (*before, elements.zero, *after)
            if len(elements.shape(1)) == len(shape)
            else (*before, *after) or (elements.zero,)
        )
        return str(elements.read(0, (*before, elements.number(1, whole, shape[axis], self.mode), *after)))

    def grad(self, F: Functions, data: Tensor, index: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        return F._pick_grad(dy, data, index, axis=self.axis, mode=self.mode), None

    def onnx(self, g: OnnxGraph, data: str, index: str) -> str:
        shape = g.shape(data)
        axis = self._axis(len(shape))
        places = g.Reshape(emit_whole(g, index, shape[axis], self.mode), [*shape[:axis], 1, *shape[axis + 1 :]])
        result = g.GatherElements(data, places, axis=axis)
        return result if self.keepdims or len(shape) == 1 else g.Squeeze(result, [axis])


class PickGrad(Adjoint, name="_pick_grad"):
    """The gradient of pick: dy at the picked places, 0 elsewhere.

    like : pick's data, read for its shape; returns : that shape.
    """

    axis: int = -1
    mode: Literal["clip", "wrap"] = "clip"
    samples = [
        sample((3,), (3, 4), ints((3,), 0, 4)),
        sample((2, 4), (2, 3, 4), ints((2, 4), -2, 6), axis=1, mode="wrap"),
    ]

    def first_shape(self, dy: Shape, like: Shape, index: Shape) -> Shape:
        return forward_shape("pick", like, index, axis=self.axis, keepdims=len(dy) == len(like))

    def numpy(self, dy: Array, like: Array, index: Array, out: Array | None = None) -> Array:
        places = picked(like.shape, axis_of("pick", self.axis, like.ndim), index, self.mode)
        filled = out if out is not None and out.flags.c_contiguous else np.empty(like.shape, dy.dtype)
        filled.fill(0)
        filled.reshape(-1)[places] = dy.reshape(-1)
        return filled if out is None or filled is out else into(filled, out)

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        axis = self.axis % len(place)
        kept, dropped = (
            (*place[:axis], elements.zero, *place[axis + 1 :]),
            (*place[:axis], *place[axis + 1 :]) or (elements.zero,),
        )
        number = elements.number(
            2, kept if len(elements.shape(2)) == len(place) else dropped, elements.shape(1)[axis], self.mode
        )
        dy = elements.read(0, kept if len(elements.shape(0)) == len(place) else dropped)
        return f"tl.where(({number}) == ({place[axis]}), {dy}, {elements.literal(0)})"

    def grad(self, F: Functions, dy: Tensor, like: Tensor, index: Tensor, y: Tensor, d: Tensor) -> Gradients:
        return F.reshape_like(F.pick(d, index, axis=self.axis, mode=self.mode), dy), None, None

    def onnx(self, g: OnnxGraph, dy: str, like: str, index: str) -> str:
        shape = g.shape(like)
        axis = self.axis % len(shape)
        kept = [*shape[:axis], 1, *shape[axis + 1 :]]
        places = g.Reshape(emit_whole(g, index, shape[axis], self.mode), kept)
        zeros = g.Expand(g.const(0, g.dtype(dy)), shape)
        return g.ScatterElements(zeros, places, g.Reshape(dy, kept), axis=axis)


class OneHot(Operator, name="one_hot"):
    """on_value at the place an index names, off_value elsewhere; an index outside gives off_value everywhere.

    indices : any shape, whole numbers in any dtype; returns : their shape + (depth,) in `dtype`
    """

    depth: int
    on_value: float = 1.0
    off_value: float = 0.0
    dtype: DType = DType("float32")
    samples = [
        sample(ints((4,), 0, 5), gradient=False, depth=5),
        sample(ints((2, 3), -2, 8), gradient=False, depth=5, on_value=2.0, off_value=-1.0),
        sample(ints((3,), 0, 4, "int32"), gradient=False, attrs={"depth": 4, "dtype": "int32"}),
    ]

    def infer_shape(self, indices: Shape) -> Shape:
        return (*indices, self.depth)

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        return np.dtype(self.dtype)

    def numpy(self, indices: Array, out: Array | None = None) -> Array:
        dtype = np.dtype(self.dtype)
        on, off = (np.asarray(value).astype(dtype) for value in (self.on_value, self.off_value))
        result = contiguous(out, (*indices.shape, self.depth), dtype)
        result.fill(off)
        rows = as_int64(indices).reshape(-1)
        inside = np.flatnonzero((rows >= 0) & (rows < self.depth))
        result.reshape(rows.size, self.depth)[inside, rows[inside]] = on
        return into(result, out)

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        index = elements.whole(elements.read(0, place[:-1]), 0)
        return (
            f"tl.where({index} == ({place[-1]}), {elements.literal(self.on_value)}, {elements.literal(self.off_value)})"
        )

    def onnx(self, g: OnnxGraph, indices: str) -> str:
        # Compared by hand: ONNX' OneHot counts negative indices from the end.
        column = g.Unsqueeze(g.cast(indices, "int64"), [-1])
        hit = g.Equal(column, g.const(np.arange(self.depth), "int64"))
        return g.Where(hit, g.const(self.on_value, self.dtype), g.const(self.off_value, self.dtype))
