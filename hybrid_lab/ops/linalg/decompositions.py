"""The decompositions of `mx.np.linalg`: svd and eigh.

The gradients follow Townsend, Differentiating the Singular Value Decomposition (2016), and Giles, An extended
collection of matrix derivative results (2008). They hold if the singular values or eigenvalues differ.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from hybrid_lab.ops.framework import Signature, in_c_order, into, sample
from hybrid_lab.ops.framework.protocols import Functions, Tensor
from hybrid_lab.ops.framework.types import Array, Arrays, Outs, Shape
from hybrid_lab.ops.linalg.linalg_products import flip, matrices, square
from hybrid_lab.ops.linalg.linalg_solve import Solver, solved, symmetric

_SYMMETRIC = np.array([[2.0, 0.5, -0.3], [0.5, 1.0, 0.2], [-0.3, 0.2, -1.5]], "float32")


def _over_differences(F: Functions, values: Tensor) -> Tensor:
    """1 / (values[j] - values[i]) at (i, j), 0 on the diagonal and if two are equal."""
    apart = F.broadcast_sub(F.expand_dims(values, axis=-2), F.expand_dims(values, axis=-1))
    same = F.broadcast_equal(apart, 0.0)
    return F.where(same, 0.0, 1.0 / (apart + same))


def _signs(rows: Array) -> Array:
    """1 or -1 for each row, which make its first element that is nearly the largest positive: LAPACK and libraries
    of GPUs leave the signs of singular vectors and eigenvectors open. rows : (..., k, n); returns : (..., k, 1)
    """
    if not rows.size:
        return np.ones((*rows.shape[:-1], 1), rows.dtype, like=rows)
    sizes = np.abs(rows)
    place = np.argmax(sizes > sizes.max(axis=-1, keepdims=True) * rows.dtype.type(0.99), axis=-1)[..., None]
    return np.where(np.take_along_axis(rows, place, -1) < 0, rows.dtype.type(-1), rows.dtype.type(1))


def _antisymmetric(F: Functions, x: Tensor) -> Tensor:
    return x - F.SwapAxis(x, dim1=-2, dim2=-1)


class SVD(Solver, name="_svd"):
    """The factors of a = u diag(s) v. a : (..., m, n), floating; returns : u (..., m, k), its columns orthonormal; s
    (..., k), falling; and v (..., k, n), its rows orthonormal; k is the smaller of m and n. In each row of v, the first
    of the nearly largest elements is positive.
    """

    mxnet = None
    signature = Signature(outputs=3)
    samples = [sample((2, 3)), sample((3, 2)), sample((2, 3, 3))]

    def infer_shape(self, a: Shape) -> list[Shape]:
        lead = matrices("svd", a)
        rank = min(a[-2], a[-1])
        return [(*lead, a[-2], rank), (*lead, rank), (*lead, rank, a[-1])]

    def numpy(self, a: Array, out: Outs = None) -> Arrays:
        factors = solved("svd", lambda matrix: np.linalg.svd(matrix, full_matrices=False), a)
        u, s, v = factors
        signs = _signs(v)
        made = (u * flip(signs), s, v * signs)
        return tuple(map(into, map(in_c_order, made), out or (None, None, None)))

    def grad(
        self, F: Functions, a: Tensor, u: Tensor, s: Tensor, v: Tensor,
        du: Tensor | None, ds: Tensor | None, dv: Tensor | None,
    ) -> Tensor:  # fmt: skip
        gemm, along_rows = F._linalg_gemm2, F.expand_dims(s, axis=-1)
        apart, along_columns = _over_differences(F, F.square(s)), F.expand_dims(s, axis=-2)
        zero = F.broadcast_equal(s, 0.0)
        inverse = F.where(zero, 0.0, 1.0 / (s + zero))
        inner = None if ds is None else F._linalg_makediag(ds)  # u^T da v^T, and the part outside of both spaces
        outside = None
        if du is not None:
            turned = gemm(u, du, transpose_a=True)
            part = F.broadcast_mul(_antisymmetric(F, turned) * apart, along_columns)
            inner = part if inner is None else inner + part
            rest = F.broadcast_mul(du - gemm(u, turned), F.expand_dims(inverse, axis=-2))
            outside = gemm(rest, v)
        if dv is not None:
            turned = gemm(v, dv, transpose_b=True)
            part = F.broadcast_mul(_antisymmetric(F, turned) * apart, along_rows)
            inner = part if inner is None else inner + part
            rest = F.broadcast_mul(dv - gemm(turned, v, transpose_a=True), F.expand_dims(inverse, axis=-1))
            outside = gemm(u, rest) if outside is None else outside + gemm(u, rest)
        inside = gemm(gemm(u, inner), v)
        return inside if outside is None else inside + outside


class Eigh(Solver, name="_eigh"):
    """Eigenvalues w and eigenvectors v of symmetric matrices. a : (..., n, n), floating; returns : w (..., n), rising,
    and v (..., n, n), columns: of each the first element that is nearly the largest is positive. The gradient is
    symmetric.

    UPLO : the side of a that is read, "L" (lower) or "U"
    """

    mxnet = None
    signature = Signature(outputs=2)
    UPLO: Literal["L", "U"] = "L"
    samples = [
        sample(_SYMMETRIC, smooth=False), sample(np.stack([_SYMMETRIC, -2 * _SYMMETRIC]), smooth=False, UPLO="U"),
    ]  # fmt: skip

    def infer_shape(self, a: Shape) -> list[Shape]:
        square("eigh", a)
        return [a[:-1], a]

    def numpy(self, a: Array, out: Outs = None) -> Arrays:
        whole = np.tril(a) + flip(np.tril(a, -1)) if self.UPLO == "L" else np.triu(a) + flip(np.triu(a, 1))
        values, vectors = solved("eigh", np.linalg.eigh, whole)
        made = vectors * flip(_signs(flip(vectors)))
        return tuple(map(into, (values, in_c_order(made)), out or (None, None)))

    def grad(self, F: Functions, a: Tensor, w: Tensor, v: Tensor, dw: Tensor | None, dv: Tensor | None) -> Tensor:
        gemm = F._linalg_gemm2
        inner = None if dw is None else F._linalg_makediag(dw)
        if dv is not None:
            part = gemm(v, dv, transpose_a=True) * _over_differences(F, w)
            inner = part if inner is None else inner + part
        return symmetric(F, gemm(gemm(v, inner), v, transpose_b=True)) * 0.5
