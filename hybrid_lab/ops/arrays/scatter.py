"""Writing by index and numbers of places: index_copy, fill_element_0index, batch_take, index_array, ravel_multi_index,
unravel_index.
"""

from __future__ import annotations

from functools import reduce
from math import prod
from operator import add

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, DTypeError, ShapeError
from hybrid_lab.ops.arrays.index import whole
from hybrid_lab.ops.framework import Operator, axis_of, into, ints, sample
from hybrid_lab.ops.framework.attributes import Shape
from hybrid_lab.ops.framework.lowering import emit_lowering, run_lowering
from hybrid_lab.ops.framework.protocols import Functions, Gradients, OnnxGraph, Tensor
from hybrid_lab.ops.framework.types import Array


class BatchTake(Operator, name="batch_take"):
    """One element of each row: y[i] = a[i, indices[i]]; numbers outside are clipped.

    a : (n, m); indices : (n,), whole numbers; returns : (n,)
    """

    typed_like = 0
    numpy = run_lowering
    onnx = emit_lowering
    samples = [sample((4, 3), ints((4,), 0, 3, "int32")), sample((4, 3), ints((4,), -2, 6, "int32"), gradient=False)]

    def infer_shape(self, a: Shape, indices: Shape) -> Shape:
        if len(a) != 2 or prod(indices) != a[0]:
            raise ShapeError(f"batch_take: a {a} and indices {indices}; (n, m) and (n,) are needed")
        return indices

    def grad(self, F: Functions, a: Tensor, indices: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        return F._pick_grad(F.Reshape(dy, shape=(-1,)), a, F.Reshape(indices, shape=(-1,)), axis=1), None

    def lower(self, F: Functions, a: Tensor, indices: Tensor) -> Tensor:
        return F.reshape_like(F.pick(a, F.Reshape(indices, shape=(-1,)), axis=1), indices)


class FillElement(Operator, name="fill_element_0index"):
    """lhs with one element of each row replaced: y[i, rhs[i]] = mhs[i]. lhs : (n, m); mhs, rhs : (n,). No gradient."""

    samples = [sample((4, 3), (4,), ints((4,), 0, 3), gradient=False)]

    def infer_shape(self, lhs: Shape, mhs: Shape, rhs: Shape) -> Shape:
        if len(lhs) != 2 or mhs != lhs[:1] or rhs != lhs[:1]:
            raise ShapeError(f"fill_element_0index: {lhs}, {mhs} and {rhs}; (n, m), (n,) and (n,) are needed")
        return lhs

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        return super().infer_type(*dtypes[:2])

    def numpy(self, lhs: Array, mhs: Array, rhs: Array, out: Array | None = None) -> Array:
        y = lhs.copy()
        y[np.arange(len(lhs)), whole(rhs, lhs.shape[1], "raise", self.name)] = mhs
        return into(y, out)


class IndexCopy(Operator, name="_contrib_index_copy", aliases=("contrib_index_copy",)):
    """old_tensor with rows replaced: y[index_vector[i]] = new_tensor[i]; a row named twice takes the last one.

    old_tensor : (n, ...); index_vector : (k,), whole numbers below n; new_tensor : (k, ...); returns : as old_tensor
    """

    samples = [
        sample((5, 3), np.array([0, 4, 2], "int64"), (3, 3)),
        sample((4, 2, 2), np.array([1], "int32"), (1, 2, 2)),
    ]

    def infer_shape(self, old_tensor: Shape, index_vector: Shape, new_tensor: Shape) -> Shape:
        if len(index_vector) != 1 or new_tensor != (*index_vector, *old_tensor[1:]):
            raise ShapeError(
                f"index_copy: new_tensor has shape {new_tensor}; old_tensor {old_tensor} and index_vector "
                f"{index_vector} need {(*index_vector, *old_tensor[1:])}"
            )
        return old_tensor

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        return super().infer_type(dtypes[0], dtypes[2])

    def numpy(self, old_tensor: Array, index_vector: Array, new_tensor: Array, out: Array | None = None) -> Array:
        y = old_tensor.copy()
        y[whole(index_vector, len(y), "raise", "index_copy")] = new_tensor
        return into(y, out)

    def lower(self, F: Functions, old: Tensor, index: Tensor, new: Tensor) -> Tensor:
        return F._scatter_set_nd(old, new, F.expand_dims(index, axis=0), shape=old.shape)

    def grad(self, F: Functions, old: Tensor, index: Tensor, new: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        return F._contrib_index_copy(dy, index, F.zeros_like(new)), None, F.take(dy, index)


class IndexArray(Operator, name="_contrib_index_array", aliases=("contrib_index_array",)):
    """The coordinates of every element of data, int64: y[i, j] = (i, j). data : read for its shape.

    axes : only these coordinates, in this order; returns : data's shape + (number of axes,)
    """

    axes: Shape | None = None
    shape_only = ("data",)
    samples = [
        sample((2, 3), gradient=False), sample((2, 3, 2), gradient=False, axes=(2, 0)), sample((3,), gradient=False),
    ]  # fmt: skip

    def chosen(self, rank: int) -> list[int]:
        """The axes, counted from the front. Raises ShapeError."""
        return list(range(rank)) if self.axes is None else [axis_of("index_array", axis, rank) for axis in self.axes]

    def infer_shape(self, data: Shape) -> Shape:
        return (*data, len(self.chosen(len(data))))

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        return np.dtype("int64")

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        grid = np.indices(data.shape, dtype=np.int64)[self.chosen(data.ndim)]
        return into(np.ascontiguousarray(np.moveaxis(grid, 0, -1)), out)

    def onnx(self, g: OnnxGraph, data: str) -> str:
        shape = g.shape(data)
        grid = []
        for axis in self.chosen(len(shape)):
            places = g.Reshape(g.arange(shape[axis]), [-1 if other == axis else 1 for other in range(len(shape))])
            grid.append(g.Unsqueeze(g.Expand(places, shape), [-1]))
        return g.Concat(*grid, axis=-1) if grid else g.Identity(g.const(np.zeros((*shape, 0)), "int64"))


class _Numbering(Operator):
    """Base: `shape` is the array whose places are numbered; its first number may be -1, which nothing depends on."""

    dtype_kinds = "fiu"
    shape: Shape

    def check(self) -> None:
        if not self.shape or any(size < 1 for size in self.shape[1:]):
            raise AttributeSpecError(f"{self.name}: shape={self.shape}; positive sizes are needed")

    @property
    def strides(self) -> np.ndarray:
        """How many places lie between neighbours along each axis."""
        return np.array([prod(self.shape[axis + 1 :]) for axis in range(len(self.shape))], np.int64)

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        if dtypes[0].kind == "b":
            raise DTypeError(f"{self.name}: data is bool, numbers are needed")
        return dtypes[0]


class RavelMultiIndex(_Numbering, name="_ravel_multi_index", aliases=("ravel_multi_index",)):
    """Coordinates in an array of `shape` to numbers of its flattened form. data : (axes, ...); returns : (...)."""

    numpy = run_lowering
    onnx = emit_lowering
    samples = [
        sample(np.array([[1, 0, 2], [3, 1, 0]], "float32"), gradient=False, shape=(3, 4)),
        sample(np.array([[1, 0], [2, 1], [0, 3]], "int32"), gradient=False, shape=(-1, 3, 4)),
    ]

    def infer_shape(self, data: Shape) -> Shape:
        if len(data) < 2 or data[0] != len(self.shape):
            raise ShapeError(f"ravel_multi_index: data {data}; ({len(self.shape)}, n) is needed for shape={self.shape}")
        return data[1:]

    def lower(self, F: Functions, data: Tensor) -> Tensor:
        numbers = F.Cast(data, dtype="int64")
        parts = [F.slice_axis(numbers, axis=0, begin=axis, end=axis + 1) for axis in range(len(self.shape))]
        total = reduce(add, (part * int(stride) for part, stride in zip(parts, self.strides, strict=True)))
        return F.Cast(F.Reshape(total, shape=(-3, -2)) if data.shape[1:] else total, dtype=data.dtype.name)


class UnravelIndex(_Numbering, name="_unravel_index", aliases=("unravel_index",)):
    """Numbers of the flattened form of an array of `shape` to coordinates. data : (...); returns : (axes, ...)."""

    numpy = run_lowering
    samples = [
        sample(np.array([0, 7, 11], "float32"), gradient=False, shape=(3, 4)),
        sample(np.array([5, 23, 0, 1], "int32"), gradient=False, shape=(-1, 3, 4)),
    ]

    def infer_shape(self, data: Shape) -> Shape:
        return (len(self.shape), *data)

    def lower(self, F: Functions, data: Tensor) -> Tensor:
        numbers, made = F.Cast(data, dtype="int64"), []
        for axis, (stride, size) in enumerate(zip(self.strides, self.shape, strict=True)):
            place = F.broadcast_div(numbers, int(stride))
            place = place - F.broadcast_lesser(numbers, place * int(stride))  # it was cut towards 0
            made.append(F.broadcast_mod(place, int(size)) if axis else place)
        return F.Cast(F.stack(*made, axis=0), dtype=data.dtype.name)

    def onnx(self, g: OnnxGraph, data: str) -> str:
        numbers, parts = g.cast(data, "int64"), []
        for axis, stride in enumerate(self.strides):
            place = g.Div(numbers, g.const(stride, "int64"))
            place = g.Mod(place, g.const(self.shape[axis], "int64")) if axis else place
            parts.append(g.Unsqueeze(place, [0]))
        return g.cast(g.Concat(*parts, axis=0), g.dtype(data))
