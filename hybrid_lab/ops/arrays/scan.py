"""Sums along an axis and counts: cumsum, histogram; and the diagonal of arrays."""

from __future__ import annotations

from functools import cached_property
from math import prod

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, DTypeError, ShapeError
from hybrid_lab.ops.framework import Adjoint, Element, Operator, Signature, axis_of, gradient_samples, into, sample
from hybrid_lab.ops.framework.attributes import DType
from hybrid_lab.ops.framework.elements import on_diagonal
from hybrid_lab.ops.framework.protocols import Elements, Functions, OnnxGraph, Place, Tensor
from hybrid_lab.ops.framework.types import Array, Arrays, Outs, Shape


class CumSum(Operator, name="cumsum", aliases=("_np_cumsum",)):
    """Running sums along `axis` (None: of the flattened data), in `dtype` or in the dtype of the data.

    a : numbers; returns : as a, or (size,) for axis=None
    """

    dtype_kinds = "fiu"
    precision = "float32"
    axis: int | None = None
    dtype: DType | None = None
    samples = [
        sample((3, 4)), sample((3, 4), axis=0), sample((2, 3, 4), axis=-1),
        sample((2, 3), dtype="int32", low=-5, high=5, gradient=False, axis=1),
        sample((2, 3), gradient=False, attrs={"axis": 1, "dtype": "float64"}),
    ]  # fmt: skip

    def infer_shape(self, a: Shape) -> Shape:
        if self.axis is None:
            return (prod(a),)
        axis_of("cumsum", self.axis, len(a))
        return a

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        return np.dtype(self.dtype) if self.dtype is not None else dtypes[0]

    def numpy(self, a: Array, out: Array | None = None) -> Array:
        dtype = self.infer_type(a.dtype)
        if dtype == np.float16:
            return into(np.cumsum(a, axis=self.axis, dtype=np.float32).astype(dtype), out)
        return np.cumsum(a, axis=self.axis, dtype=dtype, out=out)

    def grad(self, F: Functions, a: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        axis = 0 if self.axis is None else self.axis
        behind = F.reverse(F.cumsum(F.reverse(dy, axis=axis), axis=axis), axis=axis)
        return F._cast_like(F.reshape_like(behind, a), a)

    def onnx(self, g: OnnxGraph, a: str) -> str:
        axis = 0 if self.axis is None else self.axis
        a = g.Reshape(a, [-1]) if self.axis is None else a
        return g.CumSum(g.cast(a, self.dtype) if self.dtype else a, g.const(axis, "int64"))


class Histogram(Operator, name="_histogram"):
    """How many elements of data fall between neighbouring edges, the last edge included; and the edges.

    data : any shape; bins : (n + 1,) rising edges, or with bin_cnt=n equal bins over `range`; elements outside do not
    count. returns : (n,) int64 and (n + 1,) in the dtype of data. No gradient.
    """

    dtype_kinds = "fiu"
    bin_cnt: int | None = None
    range: tuple[float, ...] | None = None
    samples = [
        sample((3, 4), gradient=False, low=-2.0, high=2.0, attrs={"bin_cnt": 5, "range": (-1.5, 1.5)}),
        sample((20,), np.array([-1.0, -0.25, 0.3, 1.0], "float32"), gradient=False),
        sample(np.array([0.0, 1.0, 2.0, 3.0, 3.0], "float32"), gradient=False, attrs={"bin_cnt": 3, "range": (0, 3)}),
    ]

    @cached_property
    def signature(self) -> Signature:
        return Signature(("data", "bins") if self.bin_cnt is None else ("data",), outputs=2)

    def check(self) -> None:
        if self.bin_cnt is not None and (self.bin_cnt < 1 or self.range is None or len(self.range) != 2):
            raise AttributeSpecError(
                f"histogram: bin_cnt={self.bin_cnt}, range={self.range}; a positive number and (low, high) are needed"
            )

    def infer_shape(self, data: Shape, bins: tuple[int, ...] | None = None) -> list[Shape]:
        if bins is not None and (len(bins) != 1 or bins[0] < 2):
            raise ShapeError(f"histogram: bins has shape {bins}; two or more edges are needed")
        count = self.bin_cnt if bins is None else bins[0] - 1
        if count is None:
            raise ShapeError("histogram: bins, the edges, is missing; give it, or bin_cnt and range")
        return [(count,), (count + 1,)]

    def infer_type(self, *dtypes: np.dtype) -> list[np.dtype]:
        if dtypes[0].kind == "b":
            raise DTypeError("_histogram: data is bool, numbers are needed")
        return [np.dtype("int64"), super().infer_type(*dtypes)]

    def numpy(self, data: Array, bins: Array | None = None, out: Outs = None) -> Arrays:
        if bins is None:
            low, high = self.range  # type: ignore[misc]
            edges = np.linspace(low, high, self.bin_cnt + 1).astype(data.dtype)  # type: ignore[operator]
            counts = np.histogram(data, bins=self.bin_cnt, range=(low, high))[0]  # type: ignore[arg-type]
        else:
            edges = bins.astype(data.dtype)
            counts = np.histogram(data, bins=bins)[0]
        return tuple(map(into, (counts.astype(np.int64), edges), out or (None, None)))


class Diag(Operator, name="diag"):
    """A vector as the diagonal k of a square matrix; or the diagonal k of data's axes axis1 and axis2, as last axis."""

    k: int = 0
    axis1: int = 0
    axis2: int = 1
    samples = [
        sample((3,)), sample((3,), k=-1), sample((3, 4)), sample((3, 4), k=1), sample((4, 3), k=-2), sample((2, 3, 4)),
        sample((2, 3, 4), axis1=1, axis2=-1, k=1),
    ]  # fmt: skip

    def axes(self, data: tuple[int, ...]) -> tuple[int, int]:
        """axis1 and axis2, counted from the front. Raises ShapeError."""
        first, second = (axis_of("diag", axis, len(data)) for axis in (self.axis1, self.axis2))
        if first == second:
            raise ShapeError(f"diag: axis1={self.axis1} and axis2={self.axis2} are one axis of {data}")
        return first, second

    def infer_shape(self, data: Shape) -> Shape:
        if len(data) == 1:
            return (data[0] + abs(self.k),) * 2
        if not data:
            raise ShapeError("diag: data has no dimensions")
        first, second = self.axes(data)
        rows, columns = data[first] - max(-self.k, 0), data[second] - max(self.k, 0)
        if min(rows, columns) < 1:
            raise ShapeError(f"diag: {data} has no diagonal k={self.k}")
        return (*(size for axis, size in enumerate(data) if axis not in (first, second)), min(rows, columns))

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        if data.ndim == 1:
            return into(np.diag(data, self.k), out)
        return into(np.diagonal(data, self.k, *self.axes(data.shape)).copy(), out)

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        if len(elements.shape(0)) == 1:
            return on_diagonal(elements, place, 0, 1, self.k, (place[0] if self.k >= 0 else place[1],))
        rest, step = list(place[:-1]), place[-1]
        where = {
            axis: step + max(sign * self.k, 0) for axis, sign in zip(self.axes(elements.shape(0)), (-1, 1), strict=True)
        }
        return str(
            elements.read(
                0, tuple(where[axis] if axis in where else rest.pop(0) for axis in range(len(elements.shape(0))))
            )
        )

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F._diag_grad(dy, data, k=self.k, axis1=self.axis1, axis2=self.axis2)

    def onnx(self, g: OnnxGraph, data: str) -> str:
        shape = g.shape(data)
        places = np.arange(prod(shape)).reshape(shape)
        if len(shape) == 1:
            wanted = np.diag(places + 1, self.k) - 1
            picked = g.Gather(data, g.const(np.maximum(wanted, 0), "int64"), axis=0)
            return g.Where(g.const(wanted >= 0, "bool"), picked, g.const(0, g.dtype(data)))
        flat = g.Reshape(data, [-1])
        return g.Gather(flat, g.const(np.diagonal(places, self.k, *self.axes(shape)), "int64"), axis=0)


class DiagGrad(Adjoint, name="_diag_grad"):
    """The gradient of diag: dy on the diagonal, or the diagonal of dy. like : diag's data, read for its shape."""

    adjoint_of = "diag"
    k: int = 0
    axis1: int = 0
    axis2: int = 1
    samples = gradient_samples(Diag, "dy", "data")

    def numpy(self, dy: Array, like: Array, out: Array | None = None) -> Array:
        if len(like.shape) == 1:
            return into(np.diagonal(dy, self.k).copy(), out)
        result = np.zeros(like.shape, dy.dtype)
        axes = Diag.bind(k=self.k, axis1=self.axis1, axis2=self.axis2).axes(like.shape)  # type: ignore[attr-defined]
        places = np.diagonal(np.arange(result.size).reshape(like.shape), self.k, *axes)
        result.reshape(-1)[places] = dy
        return into(result, out)

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        if len(elements.shape(1)) == 1:
            return str(elements.read(0, (place[0] + max(-self.k, 0), place[0] + max(self.k, 0))))
        diag = Diag.bind(k=self.k, axis1=self.axis1, axis2=self.axis2)
        row, column = diag.axes(elements.shape(1))  # type: ignore[attr-defined]
        rest = [index for axis, index in enumerate(place) if axis not in (row, column)]
        return on_diagonal(elements, place, row, column, self.k, (*rest, place[row] + min(self.k, 0)))
