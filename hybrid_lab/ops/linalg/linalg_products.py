"""BLAS's products of the linalg family: gemm, trmm, syrk; khatri_rao; and the products of interleaved attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod

import numpy as np

from hybrid_lab.diagnostics.errors import ShapeError
from hybrid_lab.ops.framework import Element, Operator, forward_shape, into, sample
from hybrid_lab.ops.framework.lowering import differentiate_lowering, emit_lowering, run_lowering
from hybrid_lab.ops.framework.protocols import Elements, Functions, Gradients, OnnxGraph, Place, Tensor
from hybrid_lab.ops.framework.shapes import of_product
from hybrid_lab.ops.framework.types import Array, Shape
from hybrid_lab.ops.linalg.linalg import gradients_of_product, rows_before_columns


def matrices(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common leading dimensions of batches of matrices. Raises ShapeError."""
    if any(len(shape) < 2 or shape[:-2] != shapes[0][:-2] for shape in shapes):
        text = " and ".join(map(str, shapes))
        raise ShapeError(f"{name}: {text}; matrices, or batches of them with the same leading dimensions, are needed")
    return shapes[0][:-2]


def square(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """As `matrices`, for square matrices."""
    lead = matrices(name, *shapes)
    for shape in shapes:
        if shape[-1] != shape[-2]:
            raise ShapeError(f"{name}: {shape} is not a square matrix")
    return lead


def turned(shape: tuple[int, ...], transpose: bool) -> tuple[int, int]:
    """Rows and columns of a matrix, or of its transpose."""
    return (shape[-1], shape[-2]) if transpose else (shape[-2], shape[-1])


def flip(data: np.ndarray) -> np.ndarray:
    """The transpose of every matrix."""
    return data.swapaxes(-1, -2)


class Gemm(Operator, name="_linalg_gemm", aliases=("linalg_gemm",)):
    """alpha * op(A) op(B) + beta * C for matrices or batches of them, op a transposition.

    A : (..., m, k); B : (..., k, n), transposed if the flags say so; C : (..., m, n); returns : as C
    axis : the axis of the matrices' rows, in all four arrays; the columns are always the last axis
    """

    dtype_kinds = "f"
    precision = "float32"
    transpose_a: bool = False
    transpose_b: bool = False
    alpha: float = 1.0
    beta: float = 1.0
    axis: int = -2
    numpy = run_lowering
    onnx = emit_lowering
    samples = [
        sample((3, 4), (4, 5), (3, 5)),
        sample((2, 4, 3), (2, 5, 4), (2, 3, 5), transpose_a=True, transpose_b=True, alpha=0.5, beta=2.0),
        sample((2, 3, 4), (2, 5, 4), (2, 3, 5), transpose_b=True, beta=0.0),
        sample((3, 2, 4), (4, 2, 5), (3, 2, 5), axis=0, alpha=0.5, beta=2.0),
    ]

    def multiply_adds(self, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
        left, right, result = (rows_before_columns(self.name, each, self.axis) for each in (*inputs[:2], outputs[0]))
        return of_product(left, right, result, prod(result[:-2]))

    def infer_shape(self, A: Shape, B: Shape, C: Shape) -> Shape:
        flags = {"transpose_a": self.transpose_a, "transpose_b": self.transpose_b, "axis": self.axis}
        try:
            product = forward_shape("_linalg_gemm2", A, B, **flags)
        except ShapeError:  # it names the other operator
            product = None
        if len(A) != len(C) or product != C:
            raise ShapeError(f"linalg_gemm: {A}, {B} and {C} do not fit {self!r}")
        return C

    def grad(self, F: Functions, A: Tensor, B: Tensor, C: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        flags = self.transpose_a, self.transpose_b
        factors = gradients_of_product(F._linalg_gemm2, A, B, dy, *flags, alpha=self.alpha, axis=self.axis)
        return *factors, dy * self.beta

    def lower(self, F: Functions, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
        flags = {"transpose_a": self.transpose_a, "transpose_b": self.transpose_b}
        return F._linalg_gemm2(A, B, alpha=self.alpha, axis=self.axis, **flags) + C * self.beta


class Syrk(Operator, name="_linalg_syrk", aliases=("linalg_syrk",)):
    """alpha * A A^T, or with transpose alpha * A^T A. A : (..., m, n); returns : (..., m, m), or (..., n, n)."""

    dtype_kinds = "f"
    precision = "float32"
    transpose: bool = False
    alpha: float = 1.0
    numpy = run_lowering
    onnx = emit_lowering
    samples = [sample((3, 4)), sample((2, 3, 4), transpose=True, alpha=0.5)]

    def multiply_adds(self, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
        return of_product(inputs[0], inputs[0], outputs[0], prod(outputs[0][:-2]))

    def infer_shape(self, A: Shape) -> Shape:
        lead, size = matrices("linalg_syrk", A), turned(A, self.transpose)[0]
        return (*lead, size, size)

    def grad(self, F: Functions, A: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        both = dy + F.SwapAxis(dy, dim1=-2, dim2=-1)
        gemm = F._linalg_gemm2
        return gemm(A, both, alpha=self.alpha) if self.transpose else gemm(both, A, alpha=self.alpha)

    def lower(self, F: Functions, A: Tensor) -> Tensor:
        return F._linalg_gemm2(A, A, transpose_a=self.transpose, transpose_b=not self.transpose, alpha=self.alpha)


def triangle(data: np.ndarray, lower: bool = True) -> np.ndarray:
    """Every matrix with zeros on the other side of its diagonal."""
    return np.tril(data) if lower else np.triu(data)


class Triangle(Operator, name="_triangle"):
    """Matrices with zeros above the diagonal, or with lower=False below it; `halved` divides the diagonal by 2."""

    lower_: bool = True
    halved: bool = False
    mxnet = None
    samples = [sample((3, 3)), sample((2, 3, 3), lower=False), sample((3, 3), halved=True)]

    def infer_shape(self, data: Shape) -> Shape:
        matrices(self.name, data)
        return data

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        result = triangle(data, self.lower_)
        if self.halved:
            places = np.arange(min(data.shape[-2:]))
            result[..., places, places] *= data.dtype.type(0.5)
        return into(result, out)

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        *_, row, column = place
        data, kept = elements.read(0, place), f"({column}) {'<' if self.lower_ else '>'} ({row})"
        diagonal = f"{data} * 0.5" if self.halved else data
        return f"tl.where({kept}, {data}, tl.where(({column}) == ({row}), {diagonal}, {elements.literal(0)}))"

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F._triangle(dy, lower=self.lower_, halved=self.halved)

    def onnx(self, g: OnnxGraph, data: str) -> str:
        rows, columns = g.shape(data)[-2:]
        factors = triangle(np.ones((rows, columns)), self.lower_)
        if self.halved:
            factors[np.arange(min(rows, columns)), np.arange(min(rows, columns))] = 0.5
        scaled = g.Mul(data, g.const(factors, g.dtype(data)))
        return g.Where(g.const(factors > 0, "bool"), scaled, g.const(0, g.dtype(data)))


class TriangularOperand(Operator):
    """Base: A is triangular, of which only the side that `lower` names is read, and stands left or right of B."""

    dtype_kinds = "f"
    precision = "float32"
    transpose: bool = False
    rightside: bool = False
    lower_: bool = True
    alpha: float = 1.0

    def infer_shape(self, A: Shape, B: Shape) -> Shape:
        name = self.name.strip("_")
        square(name, A)
        matrices(name, A, B)
        if A[-1] != B[-1 if self.rightside else -2]:
            raise ShapeError(f"{name}: {A} and {B} do not fit with rightside={self.rightside}")
        return B

    def gradient_of_factor(self, F: Functions, left: Tensor, right: Tensor, alpha: float) -> Tensor:
        """A's triangle of left^T right if A stands on the right, else of left right^T."""
        da = F._linalg_gemm2(left, right, transpose_a=self.rightside, transpose_b=not self.rightside, alpha=alpha)
        return F._triangle(da, lower=self.lower_)


class Trmm(TriangularOperand, name="_linalg_trmm", aliases=("linalg_trmm",)):
    """alpha * op(A) B, or with rightside alpha * B op(A), A triangular: only the side that `lower` names is read.

    A : (..., n, n); B : (..., n, m), or (..., m, n); op transposes A if `transpose`; returns : as B
    """

    numpy = run_lowering
    onnx = emit_lowering
    samples = [
        sample((3, 3), (3, 4)),
        sample((3, 3), (4, 3), rightside=True, alpha=0.5),
        sample((2, 3, 3), (2, 3, 2), transpose=True),
        sample((2, 3, 3), (2, 2, 3), transpose=True, rightside=True, alpha=2.0),
    ]

    def multiply_adds(self, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
        return prod(outputs[0]) * inputs[0][-1]

    def grad(self, F: Functions, A: Tensor, B: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        flags = {"rightside": self.rightside, "lower": self.lower_, "alpha": self.alpha}
        db = F._linalg_trmm(A, dy, transpose=not self.transpose, **flags)
        left, right = (B, dy) if self.rightside else (dy, B)
        if self.transpose:
            left, right = right, left
        return self.gradient_of_factor(F, left, right, self.alpha), db

    def lower(self, F: Functions, A: Tensor, B: Tensor) -> Tensor:
        factor = F._triangle(A, lower=self.lower_)
        if self.rightside:
            return F._linalg_gemm2(B, factor, transpose_b=self.transpose, alpha=self.alpha)
        return F._linalg_gemm2(factor, B, transpose_a=self.transpose, alpha=self.alpha)


class KhatriRao(Operator, name="khatri_rao"):
    """The Khatri-Rao product: column i is the Kronecker product of the columns i of the inputs.

    args : (m1, n), (m2, n) ...; returns : (m1 * m2 * ..., n)
    """

    precision = "float32"
    numpy = run_lowering
    onnx = emit_lowering
    grad = differentiate_lowering
    samples = [sample((2, 3), (4, 3)), sample((2, 3), (4, 3), (3, 3)), sample((2, 3))]

    def infer_shape(self, *args: Shape) -> Shape:
        if not args or any(len(shape) != 2 or shape[1] != args[0][1] for shape in args):
            raise ShapeError(
                f"khatri_rao: {' and '.join(map(str, args))}; matrices with the same number of columns are needed"
            )
        return math.prod(shape[0] for shape in args), args[0][1]

    def lower(self, F: Functions, *args: Tensor) -> Tensor:
        product = F.identity(args[0])
        for item in args[1:]:
            product = F.Reshape(F.expand_dims(product, axis=1) * F.expand_dims(item, axis=0), shape=(-3, 0))
        return product
