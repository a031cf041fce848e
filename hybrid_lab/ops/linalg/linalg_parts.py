"""Parts of matrices in the linalg family: diagonals and packed triangles, taken out and put back."""

from __future__ import annotations

import math

import numpy as np

from hybrid_lab.diagnostics.errors import ShapeError
from hybrid_lab.ops.framework import Element, Operator, into, sample
from hybrid_lab.ops.framework.elements import on_diagonal
from hybrid_lab.ops.framework.protocols import Elements, Functions, OnnxGraph, Place, Tensor
from hybrid_lab.ops.framework.types import Array, Shape
from hybrid_lab.ops.linalg.linalg_products import square


class _Parts(Operator):
    """Base: chosen elements of n x n matrices along a last axis."""

    dtype_kinds = "f"
    precision = "float32"

    def places(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the chosen elements of a matrix of that size."""
        raise NotImplementedError

    def size(self, count: int) -> int:
        """The size of the matrix that has `count` chosen elements. Raises ShapeError."""
        raise NotImplementedError


class _Taking(_Parts):
    """Base of the operators that take them out. Nothing is taken only from an empty matrix, at offset 0."""

    def infer_shape(self, A: Shape) -> Shape:
        name = self.name.strip("_")
        lead, count = square(name, A), len(self.places(A[-1])[0])
        if not count and (A[-1] or self.attributes["offset"]):
            raise ShapeError(f"{name}: {A} has nothing at offset={self.attributes['offset']}")
        return (*lead, count)

    def numpy(self, A: Array, out: Array | None = None) -> Array:
        return into(A[(..., *self.places(A.shape[-1]))], out)

    def onnx(self, g: OnnxGraph, A: str) -> str:
        shape = g.shape(A)
        rows, columns = self.places(shape[-1])
        flat = g.Reshape(A, [*shape[:-2], shape[-1] ** 2])
        return g.Gather(flat, g.const(rows * shape[-1] + columns, "int64"), axis=len(shape) - 2)


class _Putting(_Parts):
    """Base of the operators that put them back among zeros."""

    def infer_shape(self, A: Shape) -> Shape:
        if not A:
            raise ShapeError(f"{self.name.strip('_')}: A has no dimensions")
        if not A[-1] and self.attributes["offset"]:
            raise ShapeError(f"{self.name.strip('_')}: {A} has nothing for offset={self.attributes['offset']}")
        return (*A[:-1], *(self.size(A[-1]),) * 2)

    def numpy(self, A: Array, out: Array | None = None) -> Array:
        result = np.zeros(self.infer_shape(A.shape), A.dtype, like=A)
        result[(..., *self.places(result.shape[-1]))] = A
        return into(result, out)

    def onnx(self, g: OnnxGraph, A: str) -> str:
        shape = self.infer_shape(g.shape(A))
        size = shape[-1]
        rows, columns = self.places(size)
        source = np.full(size * size, -1)
        source[rows * size + columns] = np.arange(len(rows))
        spread = g.Gather(A, g.const(np.maximum(source, 0), "int64"), axis=len(shape) - 2)
        kept = g.Where(g.const(source >= 0, "bool"), spread, g.const(0, g.dtype(A)))
        return g.Reshape(kept, shape)


class _Diagonal(_Parts):
    offset: int = 0

    def places(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        steps = np.arange(max(size - abs(self.offset), 0))
        return steps + max(-self.offset, 0), steps + max(self.offset, 0)

    def size(self, count: int) -> int:
        return count + abs(self.offset)


class ExtractDiag(_Diagonal, _Taking, name="_linalg_extractdiag", aliases=("linalg_extractdiag",)):
    """A diagonal of square matrices, `offset` above the main one. A : (..., n, n); returns : (..., n - |offset|)."""

    samples = [sample((3, 3)), sample((2, 4, 4), offset=1), sample((4, 4), offset=-2)]

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        return str(elements.read(0, (*place[:-1], place[-1] + max(-self.offset, 0), place[-1] + max(self.offset, 0))))

    def grad(self, F: Functions, A: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F._linalg_makediag(dy, offset=self.offset)


class MakeDiag(_Diagonal, _Putting, name="_linalg_makediag", aliases=("linalg_makediag",)):
    """Square matrices with the given diagonal, `offset` above the main one, and zeros elsewhere. A : (..., n)."""

    samples = [sample((3,)), sample((2, 3), offset=1), sample((2,), offset=-2)]

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        source = (*place[:-2], place[-2] + min(self.offset, 0))
        return on_diagonal(elements, place, len(place) - 2, len(place) - 1, self.offset, source)

    def grad(self, F: Functions, A: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F._linalg_extractdiag(dy, offset=self.offset)


class _Triangle(_Parts):
    offset: int = 0
    lower_: bool = True

    def places(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        below = self.offset < 0 or (self.offset == 0 and self.lower_)
        if below:
            return np.tril_indices(size, self.offset)
        columns, rows = np.tril_indices(size, -self.offset)
        return rows, columns

    def size(self, count: int) -> int:
        rows = (math.isqrt(8 * count + 1) - 1) // 2
        if rows * (rows + 1) // 2 != count:
            raise ShapeError(f"{self.name.strip('_')}: {count} elements do not form a triangle; 1, 3, 6, 10 ... do")
        return rows + abs(self.offset)


class ExtractTriangle(_Triangle, _Taking, name="_linalg_extracttrian", aliases=("linalg_extracttrian",)):
    """A triangle of square matrices: the lower one row by row, the upper one column by column. offset 0 : the lower one
    with the diagonal, or with lower=False the upper one; above 0 the upper one from that diagonal on, below 0 the
    lower one. A : (..., n, n); returns : (..., k)
    """

    samples = [
        sample((3, 3)), sample((3, 3), lower=False), sample((2, 4, 4), offset=1), sample((4, 4), offset=-2),
        sample((4, 4), offset=1, lower=False),
    ]  # fmt: skip

    def grad(self, F: Functions, A: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F._linalg_maketrian(dy, offset=self.offset, lower=self.lower_)


class MakeTriangle(_Triangle, _Putting, name="_linalg_maketrian", aliases=("linalg_maketrian",)):
    """Square matrices with the given triangle and zeros elsewhere; see linalg_extracttrian. A : (..., k)."""

    samples = [
        sample((6,)), sample((6,), lower=False), sample((2, 6), offset=1), sample((3,), offset=-2),
    ]  # fmt: skip

    def grad(self, F: Functions, A: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F._linalg_extracttrian(dy, offset=self.offset, lower=self.lower_)
