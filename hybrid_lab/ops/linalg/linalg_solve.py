"""LAPACK's part of the linalg family: factorizations, triangular systems, determinants, inverses, eigenvectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError, HybridLabError, ShapeError
from hybrid_lab.ops.framework import Operator, Signature, in_c_order, into, sample
from hybrid_lab.ops.framework.lowering import run_lowering
from hybrid_lab.ops.framework.protocols import Functions, Gradient, Gradients, Tensor
from hybrid_lab.ops.framework.types import Array, Arrays, Outs, Shape, Shapes
from hybrid_lab.ops.linalg.linalg_products import TriangularOperand, flip, matrices, square, triangle

_TRIANGULAR = np.array([[2.0, 0.3, -0.2], [0.5, 1.5, 0.1], [-0.4, 0.8, 1.2]], "float32")
_POSITIVE = _TRIANGULAR @ _TRIANGULAR.T
_BATCH = np.stack([_TRIANGULAR, _TRIANGULAR.T * np.float32(0.7)])
_POSITIVES = _BATCH @ flip(_BATCH)


def solved(name: str, function: Callable[..., Any], *arrays: np.ndarray) -> Any:
    """function(*arrays) of np.linalg. Raises HybridLabError if the matrix is singular or not positive definite."""
    try:
        return function(*arrays)
    except np.linalg.LinAlgError as error:
        raise HybridLabError(f"{name.strip('_')}: {str(error).lower()}") from None


class Solver(Operator):
    """Base: float32 and float64."""

    dtype_kinds = "f"
    precision = "float32"

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        dtype = super().infer_type(*dtypes)
        if dtype.name not in ("float32", "float64"):
            raise DTypeError(f"{self.name}: {dtype.name}; float32 or float64 is needed, use F.cast(x, dtype='float32')")
        return dtype


class _SquareSolver(Solver):
    """Base: square matrices give as many of the same size."""

    def infer_shape(self, A: Shape) -> Shape:
        square(self.name.strip("_"), A)
        return A


def per_matrix(lead: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of one number per matrix."""
    return lead or (1,)


def symmetric(F: Functions, x: Tensor) -> Tensor:
    """x + x^T."""
    return x + F.SwapAxis(x, dim1=-2, dim2=-1)


# -- triangular systems and Cholesky's factorization -----------------------------------------------------------


class Trsm(Solver, TriangularOperand, name="_linalg_trsm", aliases=("linalg_trsm",)):
    """X of op(A) X = alpha * B, or with rightside of X op(A) = alpha * B, A triangular: only the side that `lower`
    names is read. A : (..., n, n); B : (..., n, m), or (..., m, n); op transposes A if `transpose`; returns : as B
    """

    samples = [
        sample(_TRIANGULAR, (3, 2)), sample(_TRIANGULAR, (2, 3), rightside=True, alpha=0.5),
        sample(_BATCH, (2, 3, 2), transpose=True, alpha=2.0), sample(_BATCH, (2, 2, 3), transpose=True, rightside=True),
        sample(_TRIANGULAR, (3, 2), lower=False), sample(_TRIANGULAR, (2, 3), lower=False, rightside=True),
    ]  # fmt: skip

    def numpy(self, A: Array, B: Array, out: Array | None = None) -> Array:
        factor = triangle(A, self.lower_)
        factor = flip(factor) if self.transpose else factor
        if self.rightside:
            result = flip(solved(self.name, np.linalg.solve, flip(factor), flip(B)))
        else:
            result = solved(self.name, np.linalg.solve, factor, B)
        return into(in_c_order(result * B.dtype.type(self.alpha)), out)

    def grad(self, F: Functions, A: Tensor, B: Tensor, x: Tensor, dx: Tensor) -> Gradients:
        flags = {"rightside": self.rightside, "lower": self.lower_}
        weights = F._linalg_trsm(A, dx, transpose=not self.transpose, **flags)
        left, right = (x, weights) if self.transpose != self.rightside else (weights, x)
        return self.gradient_of_factor(F, left, right, -1.0), weights * self.alpha


class Potrf(_SquareSolver, name="_linalg_potrf", aliases=("linalg_potrf",)):
    """Cholesky's factorization: the lower triangular L of A = L L^T, or with lower=False the upper one, L^T.

    A : (..., n, n), symmetric and positive definite; returns : as A. The gradient is symmetric.
    """

    lower_: bool = True
    samples = [sample(_POSITIVE), sample(_POSITIVES), sample(_POSITIVES, lower=False)]

    def numpy(self, A: Array, out: Array | None = None) -> Array:
        factor = solved(self.name, np.linalg.cholesky, (A + flip(A)) * A.dtype.type(0.5))
        return into(factor if self.lower_ else in_c_order(flip(factor)), out)

    def grad(self, F: Functions, A: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        y, dy = (item if self.lower_ else F.SwapAxis(item, dim1=-2, dim2=-1) for item in (y, dy))
        inner = symmetric(F, F._triangle(F._linalg_gemm2(y, dy, transpose_a=True), halved=True))
        left = F._linalg_trsm(y, inner, transpose=True)
        return F._linalg_trsm(y, left, rightside=True, alpha=0.5)


class Potri(_SquareSolver, name="_linalg_potri", aliases=("linalg_potri",)):
    """The inverse of L L^T from its factor. A : L, or with lower=False L^T, (..., n, n); returns : as A."""

    lower_: bool = True
    samples = [
        sample(triangle(_TRIANGULAR)), sample(triangle(_BATCH)),
        sample(np.ascontiguousarray(flip(triangle(_BATCH))), lower=False),
    ]  # fmt: skip

    def numpy(self, A: Array, out: Array | None = None) -> Array:
        inverse = solved(self.name, np.linalg.inv, triangle(A if self.lower_ else flip(A)))
        return into(flip(inverse) @ inverse, out)

    def grad(self, F: Functions, A: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        if self.lower_:
            product = F._linalg_gemm2(y, symmetric(F, dy), alpha=-1.0)
            return F._triangle(F._linalg_trsm(A, product, rightside=True, transpose=True))
        product = F._linalg_gemm2(symmetric(F, dy), y, alpha=-1.0)
        return F._triangle(F._linalg_trsm(A, product, lower=False, transpose=True), lower=False)


# -- determinants and inverses ---------------------------------------------------------------------------------


class Inverse(_SquareSolver, name="_linalg_inverse", aliases=("linalg_inverse",)):
    """The inverse of square matrices. A : (..., n, n); returns : as A."""

    samples = [sample(_TRIANGULAR), sample(_BATCH)]

    def numpy(self, A: Array, out: Array | None = None) -> Array:
        return into(solved(self.name, np.linalg.inv, A), out)

    def grad(self, F: Functions, A: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        gemm = F._linalg_gemm2
        return gemm(gemm(y, dy, transpose_a=True), y, transpose_b=True, alpha=-1.0)


class Det(Solver, name="_linalg_det", aliases=("linalg_det",)):
    """Determinants. A : (..., n, n); returns : (...), or (1,) for one matrix. A singular matrix has no gradient."""

    samples = [sample(_TRIANGULAR), sample(_BATCH)]

    def infer_shape(self, A: Shape) -> Shape:
        return per_matrix(square("linalg_det", A))

    def numpy(self, A: Array, out: Array | None = None) -> Array:
        return into(np.asarray(np.linalg.det(A), A.dtype, like=A).reshape(per_matrix(A.shape[:-2])), out)

    def grad(self, F: Functions, A: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        inverse = F.SwapAxis(F._linalg_inverse(A), dim1=-2, dim2=-1)
        return inverse * F._restore_axes(dy * y, A, axis=(-2, -1))


class SLogDet(Solver, name="_linalg_slogdet", aliases=("linalg_slogdet",)):
    """Sign and logarithm of the absolute determinant. A : (..., n, n); returns : two of (...), or (1,)."""

    signature = Signature(outputs=2)
    samples = [sample(_TRIANGULAR), sample(-_BATCH)]

    def infer_shape(self, A: Shape) -> Shapes:
        return [per_matrix(square("linalg_slogdet", A))] * 2

    def numpy(self, A: Array, out: Outs = None) -> Arrays:
        shape = per_matrix(A.shape[:-2])
        made = (np.asarray(item, A.dtype, like=A).reshape(shape) for item in np.linalg.slogdet(A))
        return tuple(map(into, made, out or (None, None)))

    def grad(
        self, F: Functions, A: Tensor, sign: Tensor, logarithm: Tensor, dsign: Tensor, dlogarithm: Tensor | None
    ) -> Gradient:
        if dlogarithm is None:
            return None
        inverse = F.SwapAxis(F._linalg_inverse(A), dim1=-2, dim2=-1)
        return inverse * F._restore_axes(dlogarithm, A, axis=(-2, -1))


class SumLogDiag(Operator, name="_linalg_sumlogdiag", aliases=("linalg_sumlogdiag",)):
    """The sum of the logarithms of the diagonal. A : (..., n, n); returns : (...), or (1,) for one matrix."""

    dtype_kinds = "f"
    precision = "float32"
    numpy = run_lowering
    samples = [sample(_TRIANGULAR), sample(_BATCH)]

    def infer_shape(self, A: Shape) -> Shape:
        return per_matrix(square("linalg_sumlogdiag", A))

    def lower(self, F: Functions, A: Tensor) -> Tensor:
        return F.sum(F.log(F._linalg_extractdiag(A)), axis=-1)

    def grad(self, F: Functions, A: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        diagonal = F._linalg_extractdiag(A)
        return F._linalg_makediag(F._restore_axes(dy, diagonal, axis=-1) / diagonal)


# -- orthogonal factors ----------------------------------------------------------------------------------------


class Syevd(Solver, name="_linalg_syevd", aliases=("linalg_syevd",)):
    """Eigenvectors and eigenvalues of symmetric matrices: A = U^T diag(L) U. A : (..., n, n); returns : U, its rows are
    the eigenvectors, with the largest element of each positive; and L, (..., n), rising. The gradient is symmetric.
    """

    signature = Signature(outputs=2)
    samples = [sample(_POSITIVE), sample(_POSITIVES)]

    def infer_shape(self, A: Shape) -> list[Shape]:
        square("linalg_syevd", A)
        return [A, A[:-1]]

    def numpy(self, A: Array, out: Outs = None) -> Arrays:
        values, vectors = solved(self.name, np.linalg.eigh, (A + flip(A)) * A.dtype.type(0.5))
        rows = in_c_order(flip(vectors))
        if rows.size:
            places = np.argmax(np.abs(rows), axis=-1)[..., None]
            rows *= np.sign(np.take_along_axis(rows, places, -1))
        return tuple(map(into, (rows, values), out or (None, None)))

    def grad(
        self, F: Functions, A: Tensor, vectors: Tensor, values: Tensor, dvectors: Tensor | None, dvalues: Tensor | None
    ) -> Tensor:
        gemm, inner = F._linalg_gemm2, None
        if dvectors is not None:
            gaps = F.broadcast_sub(F.expand_dims(values, axis=-2), F.expand_dims(values, axis=-1))
            same = F.broadcast_equal(gaps, 0.0)
            weights = F.where(same, 0.0, 1.0 / (gaps + same))
            inner = symmetric(F, gemm(vectors, dvectors, transpose_b=True) * weights) * 0.5
        if dvalues is not None:
            diagonal = F._linalg_makediag(dvalues)
            inner = diagonal if inner is None else inner + diagonal
        return gemm(gemm(vectors, inner, transpose_a=True), vectors)


class Gelqf(Solver, name="_linalg_gelqf", aliases=("linalg_gelqf",)):
    """The factors of A = L Q with Q Q^T = 1 and L lower triangular. A : (..., m, n), m <= n; returns : Q as A, and L of
    (..., m, m)
    """

    signature = Signature(outputs=2)
    samples = [sample((2, 4)), sample(_BATCH), sample((2, 2, 3))]

    def infer_shape(self, A: Shape) -> list[Shape]:
        matrices("linalg_gelqf", A)
        if A[-2] > A[-1]:
            raise ShapeError(f"linalg_gelqf: {A} has more rows than columns")
        return [A, (*A[:-1], A[-2])]

    def numpy(self, A: Array, out: Outs = None) -> Arrays:
        turned, upper = np.linalg.qr(flip(A))
        made = (in_c_order(flip(turned)), in_c_order(flip(upper)))
        return tuple(map(into, made, out or (None, None)))

    def grad(self, F: Functions, A: Tensor, Q: Tensor, L: Tensor, dQ: Tensor | None, dL: Tensor | None) -> Tensor:
        gemm, inner = F._linalg_gemm2, None
        if dL is not None:
            inner = gemm(L, F._triangle(dL), transpose_a=True)
        if dQ is not None:
            product = gemm(dQ, Q, transpose_b=True)
            inner = -product if inner is None else inner - product
        total = gemm(symmetric(F, F._triangle(inner, halved=True)), Q)
        return F._linalg_trsm(L, total if dQ is None else dQ + total, transpose=True)
