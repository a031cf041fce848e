"""Reading and writing by coordinates: gather_nd, scatter_nd, _scatter_set_nd."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import ArrayIndexError, ShapeError
from hybrid_lab.ops.arrays.index import as_int64
from hybrid_lab.ops.framework import Adjoint, Collect, Element, Entries, Operator, into, ints, sample
from hybrid_lab.ops.framework.attributes import Shape
from hybrid_lab.ops.framework.protocols import Elements, Functions, Gradients, Index, OnnxGraph, Place, Tensor
from hybrid_lab.ops.framework.types import Array


def coordinates(elements: Elements, number: int, i: Place, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """The place that entry i of coordinates, input `number`, names in an array of this shape. For kernels without
    bounds checks: negative coordinates count from the end, and coordinates outside the array are clipped.
    """
    return tuple(elements.number(number, (elements.zero + axis, *i), size, "end") for axis, size in enumerate(shape))


@contextmanager
def inside(op: Operator) -> Iterator[None]:
    """Raise ArrayIndexError if NumPy finds a coordinate outside the array."""
    try:
        yield
    except IndexError as error:
        raise ArrayIndexError(f"{op.name}: {error}") from None


def emit_coordinates(g: OnnxGraph, indices: str) -> str:
    """Coordinates as ONNX has them: int64, an entry's coordinates along the last axis."""
    return g.Transpose(g.cast(indices, "int64"), perm=[*range(1, len(g.shape(indices))), 0])


class GatherND(Operator, name="gather_nd"):
    """Parts of data by coordinates: y[i] = data[indices[0, i], indices[1, i], ...].

    data : any; indices : (m, ...) for the first m axes of data; returns : indices' shape without m + data's shape
    without those axes. Coordinates outside are an error; in a GPU's kernels they are clipped.
    """

    typed_like = 0
    samples = [sample((3, 4), ints((2, 5), 0, 3)), sample((3, 4, 2), ints((1, 2), 0, 3))]

    def infer_shape(self, data: Shape, indices: Shape) -> Shape:
        if not indices or indices[0] > len(data):
            raise ShapeError(f"gather_nd: indices {indices} name more axes than data {data} has")
        return (*indices[1:], *data[indices[0] :])

    def numpy(self, data: Array, indices: Array, out: Array | None = None) -> Array:
        with inside(self):
            parts = data[tuple(as_int64(indices))]
        # Without coordinates, m = 0, each part is the whole of data.
        return into(parts if len(indices) else np.broadcast_to(parts, self.infer_shape(data.shape, indices.shape)), out)

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        shape, (count, *axes) = elements.shape(0), elements.shape(1)
        return str(
            elements.read(0, (*coordinates(elements, 1, place[: len(axes)], shape[:count]), *place[len(axes) :]))
        )

    def grad(self, F: Functions, data: Tensor, indices: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        return F._gather_nd_grad(dy, indices, data), None

    def onnx(self, g: OnnxGraph, data: str, indices: str) -> str:
        return g.GatherND(data, emit_coordinates(g, indices))


def by_coordinates(entry: int, number: int, indices: tuple[int, ...], shape: tuple[int, ...], **how: Any) -> Entries:
    """The entries of input `entry` at the coordinates in input `number`, collected in an array of `shape`."""
    named = indices[0]

    def row(elements: Elements, i: Place) -> Index:
        place = coordinates(elements, number, i, shape[:named])
        text = " + ".join(f"({item}) * {prod(shape[axis + 1 : named])}" for axis, item in enumerate(place))
        return elements.computed(text or "0", prod(shape[:named]), *place)

    return Entries(
        shape[:named], shape[named:], indices[1:], row, lambda elements, i, column: elements.read(entry, (*i, *column)),
        lambda row, column: (*row, *column), **how,
    )  # fmt: skip


class GatherNDGrad(Adjoint, name="_gather_nd_grad"):
    """The gradient of gather_nd: dy added up at the coordinates.

    like : gather_nd's data, read for its shape; returns : that shape.
    """

    adjoint_of = "gather_nd"
    shaped_like = 2
    samples = [sample((5,), ints((2, 5), 0, 3), (3, 4))]

    def numpy(self, dy: Array, indices: Array, like: Array, out: Array | None = None) -> Array:
        out = np.empty(like.shape, dy.dtype) if out is None else out
        out.fill(0)
        if not len(indices):  # every place names the whole of `like`
            return into(dy.reshape(-1, *like.shape).sum(0, dtype=dy.dtype), out)
        with inside(self):
            np.add.at(out, tuple(as_int64(indices)), dy)
        return out

    @Collect
    def triton(self, dy: Shape, indices: Shape, like: Shape) -> Entries:
        return by_coordinates(0, 1, indices, like)

    def onnx(self, g: OnnxGraph, dy: str, indices: str, like: str) -> str:
        places = emit_coordinates(g, indices)
        zeros = g.Expand(g.const(0, g.dtype(dy)), g.shape(like))
        return g.ScatterND(zeros, places, dy, reduction="add")


class ScatterND(Operator, name="scatter_nd"):
    """Zeros of `shape` with data written at coordinates: y[indices[0, i], indices[1, i], ...] = data[i]."""

    typed_like = 0
    shape: Shape
    samples = [sample((3,), np.array([[0, 1, 2], [2, 0, 1]], "int32"), shape=(3, 4))]

    def infer_shape(self, data: Shape, indices: Shape) -> Shape:
        if not indices or data != (*indices[1:], *self.shape[indices[0] :]):
            raise ShapeError(f"scatter_nd: data {data} does not fit indices {indices} and shape={self.shape}")
        return self.shape

    def numpy(self, data: Array, indices: Array, out: Array | None = None) -> Array:
        out = np.empty(self.shape, data.dtype) if out is None else out
        out.fill(0)
        with inside(self):
            out[tuple(as_int64(indices))] = data
        return out

    @Collect
    def triton(self, data: Shape, indices: Shape) -> Entries:
        return by_coordinates(0, 1, indices, self.shape, last=True)

    def grad(self, F: Functions, data: Tensor, indices: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        return F.gather_nd(dy, indices), None

    def onnx(self, g: OnnxGraph, data: str, indices: str) -> str:
        places = emit_coordinates(g, indices)
        return g.ScatterND(g.Expand(g.const(0, g.dtype(data)), self.shape), places, data)


class ScatterSetND(Operator, name="_scatter_set_nd"):
    """lhs with rhs written at coordinates: y[indices[0, i], indices[1, i], ...] = rhs[i].

    lhs : of `shape`; rhs : indices' shape without its first axis + the axes of lhs that indices do not name;
    returns : as lhs
    """

    arrays_only = ("indices",)
    shape: Shape
    samples = [
        sample((3, 4), (3,), np.array([[0, 1, 2], [2, 0, 1]], "int32"), shape=(3, 4), gradient=False),
        sample((3, 4), (2, 4), np.array([[2, 0]], "int32"), shape=(3, 4), gradient=False),
    ]

    def targets(self) -> tuple[int, ...]:
        """The input that the output replaces: MXNet only writes in place."""
        return (0,)

    def infer_shape(self, lhs: Shape, rhs: Shape, indices: Shape) -> Shape:
        if lhs != self.shape or rhs != (*indices[1:], *lhs[indices[0] :]):
            raise ShapeError(
                f"_scatter_set_nd: lhs {lhs}, rhs {rhs} and indices {indices} do not fit shape={self.shape}"
            )
        return lhs

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        return super().infer_type(*dtypes[:2])

    def numpy(self, lhs: Array, rhs: Array, indices: Array, out: Array | None = None) -> Array:
        y = lhs.copy()
        with inside(self):
            y[tuple(as_int64(indices))] = rhs
        return into(y, out)

    @Collect
    def triton(self, lhs: Shape, rhs: Shape, indices: Shape) -> Entries:
        return by_coordinates(
            1, 2, indices, self.shape, last=True, start=lambda elements, row, column: elements.read(0, (*row, *column))
        )

    def grad(self, F: Functions, lhs: Tensor, rhs: Tensor, indices: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        return F._scatter_set_nd(dy, F.zeros_like(rhs), indices, shape=self.shape), F.gather_nd(dy, indices), None

    def onnx(self, g: OnnxGraph, lhs: str, rhs: str, indices: str) -> str:
        return g.ScatterND(lhs, emit_coordinates(g, indices), rhs)
