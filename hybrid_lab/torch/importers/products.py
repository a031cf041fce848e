"""ATen's products of matrices and attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab.onnx.reading.importers.products import matmul
from hybrid_lab.ops.framework.sizes import SymbolicSize
from hybrid_lab.torch.importers.functions import Functions, Result, Tensor
from hybrid_lab.torch.importers.table import aten, onnx


@aten("mm", "bmm", "matmul", "mv", "dot")
def _matmul(F: Functions, a: Tensor, b: Tensor) -> Tensor:
    return matmul(F, a, b)


@aten("addmm", "baddbmm")
def _addmm(F: Functions, c: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    made = matmul(F, a, b)
    made = made if alpha == 1 else made * alpha
    return made if beta == 0 else made + (c if beta == 1 else c * beta)


@aten("linear")
def _linear(F: Functions, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if x.rank < 2 or weight.rank < 2:
        made = matmul(F, x, F.transposed(weight, tuple(range(weight.rank))[::-1]))
        return made if bias is None else made + bias
    operands = (x, weight) if bias is None else (x, weight, bias)
    return F.FullyConnected(*operands, num_hidden=weight.shape[0], flatten=False, no_bias=bias is None)


@aten("einsum")
def _einsum(F: Functions, equation: str, tensors: Any, **_: object) -> Tensor:
    return onnx("Einsum")(F, *tensors, equation=equation)


# -- attention -------------------------------------------------------------------------------------------------------


@aten("scaled_dot_product_attention")
def attention(
    F: Functions, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """softmax(query key^T scale + mask) value; dropout of the weights applies in training."""
    if enable_gqa:
        key, value = (_as_many_heads(F, item, query) for item in (key, value))
    width = query.shape[-1]
    scale = float(width) ** -0.5 if scale is None else scale
    order = [*range(key.rank - 2), key.rank - 1, key.rank - 2]
    scores = matmul(F, query * scale, F.transposed(key, order))
    keep = None
    if is_causal:
        scores = F.select(F.with_rank(_causal(F, scores), scores.rank), scores, F.like(-np.inf, scores))
    if attn_mask is not None and attn_mask.dtype == bool:
        low = F.like(float(np.finfo(scores.dtype).min) if scores.dtype.kind == "f" else -1e38, scores)
        scores = F.select(attn_mask, scores, low)
        rows = None if attn_mask.array is None else attn_mask.array.any(axis=-1).all()
        keep = None if rows else attn_mask  # a row without any key gives zeros
    elif attn_mask is not None:
        scores = scores + F.cast(attn_mask, scores.dtype)
    weights = F.softmax(scores, axis=scores.rank - 1)
    if keep is not None:
        weights = F.select(keep, weights, F.like(0.0, weights))
    if dropout_p:
        weights = F.Dropout(weights, p=dropout_p)
    return matmul(F, weights, value)


def _causal(F: Functions, scores: Tensor) -> Tensor:
    """Whether a key is not behind its query: (queries, keys), even if these sizes are open."""
    queries, keys = scores.shape[-2:]
    if not isinstance(queries, SymbolicSize) and not isinstance(keys, SymbolicSize):
        return F.constant(np.tril(np.ones((queries, keys), bool)))
    made: Tensor = F.truth(onnx("Trilu")(F, F.expand_to(F.constant(1.0, np.float32), (queries, keys)), upper=0))
    return made


def _as_many_heads(F: Functions, item: Tensor, query: Tensor) -> Tensor:
    """Heads of keys or values repeated so that there is one for each head of the query."""
    count = query.shape[-3] // item.shape[-3]
    made: Tensor = item if count == 1 else F.repeat(item, repeats=count, axis=item.rank - 3)
    return made


@aten("_scaled_dot_product_flash_attention_for_cpu")
def _flash_attention(
    F: Functions, query: Tensor, key: Tensor, value: Tensor, dropout_p: float = 0.0, is_causal: bool = False, *,
    attn_mask: Tensor | None = None, scale: float | None = None,
) -> Result:  # fmt: skip
    return attention(F, query, key, value, attn_mask, dropout_p, is_causal, scale=scale), None


@aten("_trilinear")
def _trilinear(
    F: Functions, a: Tensor, b: Tensor, c: Tensor, expand1: Sequence[int], expand2: Sequence[int],
    expand3: Sequence[int], sumdim: Sequence[int], unroll_dim: int = 1,
) -> Tensor:  # fmt: skip
    """The sum over some axes of a product of three tensors, each with further axes of 1."""

    def expanded(x: Tensor, axes: Sequence[int]) -> Tensor:
        sizes = list(x.shape)
        for axis in sorted(axes):
            sizes.insert(axis, 1)
        return F.reshape_to(x, sizes)

    product = expanded(a, expand1) * expanded(b, expand2) * expanded(c, expand3)
    return F.reduced("sum", product, sumdim, False)


# -- linear algebra --------------------------------------------------------------------------------------------------


@aten("linalg_inv_ex")
def _inverse(F: Functions, a: Tensor, *, check_errors: bool = False) -> Result:
    return F._linalg_inverse(a), None


@aten("_linalg_solve_ex")
def _solve(F: Functions, a: Tensor, b: Tensor, *, left: bool = True, check_errors: bool = False) -> Result:
    inverse = F._linalg_inverse(a)
    if b.rank == a.rank - 1 or b.rank == 1:  # vectors
        made = matmul(F, inverse, F.reshape_to(b, (*b.shape, 1)))
        return F.reshape_to(made, made.shape[:-1]), None, None, None
    return (matmul(F, inverse, b) if left else matmul(F, b, inverse)), None, None, None


@aten("linalg_cholesky_ex")
def _cholesky(F: Functions, a: Tensor, *, upper: bool = False, check_errors: bool = False) -> Result:
    made = F._linalg_potrf(a)
    return (_flipped(F, made) if upper else made), None


@aten("linalg_solve_triangular")
def _solve_triangular(
    F: Functions, a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    if unitriangular or a.rank != b.rank:
        raise F.unsupported("matrices with a unit diagonal, and broadcast matrices, are not supported")
    return F._linalg_trsm(a, b, rightside=not left, lower=not upper)


@aten("cholesky_solve")
def _cholesky_solve(F: Functions, b: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    if b.rank != factor.rank:
        raise F.unsupported("broadcast matrices are not supported")
    lower = _flipped(F, factor) if upper else factor
    return F._linalg_trsm(lower, F._linalg_trsm(lower, b), transpose=True)


@aten("_cdist_forward", "cdist")
def _distances(F: Functions, a: Tensor, b: Tensor, p: float = 2.0, compute_mode: int | None = None) -> Tensor:
    """The distance of each row of `a` from each row of `b`."""
    difference = F.abs(F.expand_dims(a, axis=-2) - F.expand_dims(b, axis=b.rank - 2))
    if p == 0:
        return F.reduced("sum", F.cast(F.truth(difference), a.dtype), (-1,), False)
    if p == 1:
        return F.reduced("sum", difference, (-1,), False)
    if p == float("inf"):
        return F.reduced("max", difference, (-1,), False)
    if p == 2:
        return F.sqrt(F.reduced("sum", F.square(difference), (-1,), False))
    return F.reduced("sum", difference**p, (-1,), False) ** (1.0 / p)


@aten("_linalg_det")
def _det(F: Functions, a: Tensor) -> Result:
    return F.reshape_to(F._linalg_det(a), a.shape[:-2]), None, None


@aten("_linalg_slogdet")
def _slogdet(F: Functions, a: Tensor) -> Result:
    sign, logarithm = F._linalg_slogdet(a)
    return F.reshape_to(sign, a.shape[:-2]), F.reshape_to(logarithm, a.shape[:-2]), None, None


def _flipped(F: Functions, a: Tensor) -> Tensor:
    return F.transposed(a, (*range(a.rank - 2), a.rank - 1, a.rank - 2))
