"""`mx.np.linalg`: decompositions, inverses, norms. `qr`, `eig`, `eigvals`, `lstsq`, `pinv`, `cond` and `matrix_rank`
run in NumPy: they have no gradient and are not in graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import InputError, ShapeError
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.numpy.errors import named as _named
from hybrid_lab.numpy.host import on_host, run_on_host
from hybrid_lab.numpy.methods import FUNCTIONS as _FUNCTIONS
from hybrid_lab.numpy.operators import R, alike, as_tensor, known_rank, rank_of, shape_of
from hybrid_lab.numpy.products import dot, matmul
from hybrid_lab.numpy.reduction import reduce
from hybrid_lab.numpy.shaping import ravel, reshape, transpose
from hybrid_lab.numpy.types import ArrayLike, Axis, Tensor
from hybrid_lab.ops.framework.shapes import axis_of

__all__ = [
    "cholesky",
    "cond",
    "det",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "tensorinv",
    "tensorsolve",
]

qr = on_host("linalg.qr", np.linalg.qr)
cond = on_host("linalg.cond", np.linalg.cond)
lstsq = on_host("linalg.lstsq", lambda a, b, rcond="warn": np.linalg.lstsq(a, b, None if rcond == "warn" else rcond))
pinv = on_host("linalg.pinv", np.linalg.pinv)


def svd(a: ArrayLike) -> tuple[Tensor, Tensor, Tensor]:
    """The factors u, s and v of a = u diag(s) v, reduced."""
    u, s, v = R._svd(_floating(a))
    return u, s, v


def _real(values: Any) -> np.ndarray:
    if np.iscomplexobj(values):
        if np.abs(values.imag).max(initial=0.0) > 0:
            raise ValueError("eigenvalues are not real, and arrays hold real numbers only")
        return values.real
    return np.asarray(values)


def eig(a: ArrayLike) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors (columns) of square matrices. Raises ValueError if they are not real."""
    made = run_on_host("linalg.eig", lambda x: tuple(map(_real, np.linalg.eig(x))), (_floating(a),), {})
    return made[0], made[1]


def eigvals(a: ArrayLike) -> Tensor:
    """Eigenvalues of square matrices. Raises ValueError if they are not real."""
    return run_on_host("linalg.eigvals", lambda x: _real(np.linalg.eigvals(x)), (_floating(a),), {})


def eigvalsh(a: ArrayLike, UPLO: str = "L") -> Tensor:  # noqa: N803 - NumPy's name
    """Eigenvalues of symmetric matrices, in rising order."""
    return eigh(a, UPLO)[0]


def eigh(a: ArrayLike, UPLO: str = "L") -> tuple[Tensor, Tensor]:  # noqa: N803 - NumPy's name
    """Eigenvalues in rising order, and eigenvectors (columns), of symmetric matrices."""
    values, vectors = R._eigh(_floating(a), UPLO=UPLO)
    return values, vectors


def matrix_rank(M: ArrayLike, tol: ArrayLike | None = None, hermitian: bool = False) -> Tensor:  # noqa: N803 - NumPy's name
    """The rank of matrices: how many singular values are not 0."""
    return run_on_host("linalg.matrix_rank", np.linalg.matrix_rank, (as_tensor(M), tol, hermitian), {})


def _floating(a: ArrayLike) -> Tensor:
    return alike(as_tensor(a), floating=True)[0]


def _alone(result: Tensor, a: ArrayLike) -> Tensor:
    """The number of one matrix without axes."""
    return R._drop_axes(result, axis=(0,)) if known_rank(a) == 2 else result


def inv(a: ArrayLike) -> Tensor:
    """The inverse of square matrices."""
    return R._linalg_inverse(_floating(a))


def det(a: ArrayLike) -> Tensor:
    """The determinants of square matrices."""
    a = _floating(a)
    return R._np_det(a) if rank_of(a) is None else _alone(R._linalg_det(a), a)


def slogdet(a: ArrayLike) -> tuple[Tensor, Tensor]:
    """Sign and logarithm of the absolute determinants of square matrices."""
    a = _floating(a)
    sign, size = R._linalg_slogdet(a)
    return _alone(sign, a), _alone(size, a)


def cholesky(a: ArrayLike) -> Tensor:
    """The lower triangular factors of symmetric positive definite matrices."""
    return R._linalg_potrf(_floating(a))


def solve(a: ArrayLike, b: ArrayLike) -> Tensor:
    """The solutions x of a x = b."""
    a, b = alike(as_tensor(a), as_tensor(b), floating=True)
    return matmul(R._linalg_inverse(a), b)


def matrix_power(a: ArrayLike, n: int) -> Tensor:
    """A square matrix multiplied with itself; with n < 0 its inverse."""
    a = _floating(a)
    if n == 0:
        return R.broadcast_mul(R.ones_like(a), as_tensor(np.eye(shape_of(a)[-1], dtype="float32")))
    base, n = (inv(a), -n) if n < 0 else (a, n)
    while not n & 1:
        base, n = matmul(base, base), n >> 1
    result = base
    while n := n >> 1:
        base = matmul(base, base)
        result = matmul(result, base) if n & 1 else result
    return result


def multi_dot(arrays: Sequence[ArrayLike]) -> Tensor:
    """The product of several matrices, from the left."""
    first, *rest = arrays
    result = as_tensor(first)
    for each in rest:
        result = dot(result, each)
    return result


def tensorinv(a: ArrayLike, ind: int = 2) -> Tensor:
    """The inverse of `tensordot` with a: the first `ind` axes are the rows."""
    shape = shape_of(a)
    rows, columns = shape[:ind], shape[ind:]
    matrix = reshape(_floating(a), (int(np.prod(rows)), int(np.prod(columns))))
    return reshape(inv(matrix), (*columns, *rows))


def tensorsolve(a: ArrayLike, b: ArrayLike, axes: Axis = None) -> Tensor:
    """The solution x of tensordot(a, x, axes=x.ndim) = b. axes : axes of a that are moved to its end first"""
    a, b = alike(as_tensor(a), as_tensor(b), floating=True)
    if axes is not None:
        rank = known_rank(a)
        moved = [axes] if isinstance(axes, int) else list(axes)
        a = transpose(a, [each for each in range(rank) if each not in moved] + moved)
    shape = shape_of(a)[known_rank(b) - known_rank(a) :]
    size = int(np.prod(shape))
    return reshape(dot(inv(reshape(a, (-1, size))), ravel(b)), shape)


def norm(x: ArrayLike, ord: float | str | None = None, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The norm of vectors (one axis) or matrices (two axes). ord : None, a number, inf, -inf, 'fro' or 'nuc'"""
    if ord in ("inf", "-inf"):  # MXNet's words
        ord = float(ord)
    x = _floating(x)
    rank = known_rank(x)
    if axis is None and (ord is None or (rank == 2 and ord in ("fro", "f")) or (rank == 1 and ord == 2)):
        return R.sqrt(reduce("sum", R.square(x), None, keepdims))
    axes = tuple(range(rank)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    total, absolute = _FUNCTIONS["sum"], R.abs(x)
    if len(axes) == 1:
        (each,) = axes
        if ord is None or ord == 2:
            return R.sqrt(total(R.square(x), axis=each, keepdims=keepdims))
        if ord in (np.inf, -np.inf):
            return _FUNCTIONS["max" if ord > 0 else "min"](absolute, axis=each, keepdims=keepdims)
        if ord == 0:
            return total(R.broadcast_not_equal(x, 0.0), axis=each, keepdims=keepdims)
        if not isinstance(ord, (int, float)):
            raise InputError(f"norm: ord={ord!r} is not a norm of vectors")
        return R.broadcast_power(
            total(R.broadcast_power(absolute, float(ord)), axis=each, keepdims=keepdims), 1.0 / ord
        )
    if len(axes) != 2:
        raise ShapeError("norm: one or two axes are needed")
    rows, columns = (axis_of("norm", each, rank) for each in axes)
    if rows == columns:
        raise ShapeError(f"norm: axis={axis} names one axis twice")
    if ord is None or ord in ("fro", "f"):
        return R.sqrt(total(R.square(x), axis=(rows, columns), keepdims=keepdims))
    if ord in (1, -1, np.inf, -np.inf):
        inner, outer = (rows, columns) if abs(ord) == 1 else (columns, rows)
        sums = total(absolute, axis=inner, keepdims=True)
        extreme = _FUNCTIONS["max" if ord > 0 else "min"](sums, axis=outer, keepdims=True)
        return extreme if keepdims else R._drop_axes(extreme, axis=(rows, columns))
    if ord in (2, -2, "nuc"):
        rest = [axis for axis in range(rank) if axis not in (rows, columns)]
        values = svd(transpose(x, [*rest, rows, columns]))[1]  # of each matrix, the largest first
        chosen = total(values, axis=-1) if ord == "nuc" else _FUNCTIONS["min" if ord == -2 else "max"](values, axis=-1)
        return _FUNCTIONS["expand_dims"](chosen, tuple(sorted((rows, columns)))) if keepdims else chosen
    raise InputError(f"norm: ord={ord!r} is not a norm of matrices")


globals().update({name: _named(f"np.linalg.{name}", globals()[name]) for name in __all__})
_suggest_names(__name__)
