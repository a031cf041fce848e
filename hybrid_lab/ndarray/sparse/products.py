"""dot of sparse matrices, from the stored values."""

from __future__ import annotations

from typing import Any

import numpy as np

from hybrid_lab.ndarray.invoke import invoke
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.sparse.arrays import BaseSparseNDArray, CSRNDArray, RowSparseNDArray, to_sparse
from hybrid_lab.ndarray.sparse.buffer import INDEX, SparseBuffer, compressed
from hybrid_lab.ops.framework.operator import get

CHUNK = 1 << 20
"""How many products are held at a time."""


def product(left: Any, right: Any, transpose_a: bool, transpose_b: bool, stype: str | None) -> Any:
    """dot(left, right), or NotImplemented for a pair that is computed from dense copies.

    stype : the storage type of the result; None takes MXNet's: csr x dense and csr x row_sparse give a dense array,
        csr.T x either a row_sparse array, dense x csr a csr array, all other products a dense array
    """
    made = _from_stored(left, right, transpose_a, transpose_b)
    if made is NotImplemented:
        if stype in (None, "default"):
            return NotImplemented
        dense = [item.dense() if isinstance(item, BaseSparseNDArray) else item for item in (left, right)]
        made = invoke(get("dot").bind(transpose_a=transpose_a, transpose_b=transpose_b), dense)
    if stype in (None, made.stype):
        return made
    made = NDArray.from_host(made.asnumpy(), made.context)
    return made if stype == "default" else to_sparse(made, stype or "")


def _from_stored(left: Any, right: Any, transpose_a: bool, transpose_b: bool) -> Any:
    if left.ndim != 2 or right.ndim != 2 or left.dtype is not right.dtype or not np.issubdtype(left.dtype, np.floating):
        return NotImplemented
    if isinstance(left, CSRNDArray) and not isinstance(right, CSRNDArray) and not transpose_b:
        if left.shape[0 if transpose_a else 1] != right.shape[0]:
            return NotImplemented  # the operator's own message
        rows, sums = _row_sums(left.buffer, right, transpose_a)
        shape = (left.shape[1 if transpose_a else 0], right.shape[1])
        if transpose_a:
            return BaseSparseNDArray.of(SparseBuffer(shape, sums, rows, None, left.context))
        result = np.zeros(shape, left.dtype)
        result[rows] = sums
        return NDArray.from_host(result, left.context)
    if left.stype == "default" and isinstance(right, CSRNDArray) and not transpose_a and not transpose_b:
        if left.shape[1] != right.shape[0]:
            return NotImplemented
        rows, sums = _row_sums(right.buffer, NDArray.wrap(np.ascontiguousarray(left._data.T)), True)
        result = np.zeros((left.shape[0], right.shape[1]), left.dtype)
        result[:, rows] = sums.T
        return BaseSparseNDArray.of(compressed(result.shape, result, left.context, "csr"))
    return NotImplemented


def _row_sums(parts: SparseBuffer, right: Any, transpose: bool) -> tuple[np.ndarray, np.ndarray]:
    """The rows of parts x right, or of parts.T x right, that get a product, in rising order, and their values."""
    targets, sources, data = parts.rows(), parts.indices, parts.data
    if transpose:
        order = np.argsort(sources, kind="stable")
        targets, sources, data = sources[order], targets[order], data[order]
    if isinstance(right, RowSparseNDArray):
        values, places, stored = _stored_rows(right.buffer, sources)
        targets, sources, data = targets[stored], places, data[stored]
    else:
        values = right._data
    rows, starts = np.unique(targets, return_index=True)
    ends = np.append(starts[1:], len(targets))
    sums = np.empty((len(rows), values.shape[1]), values.dtype)
    step = max(1, CHUNK // max(1, values.shape[1]))
    first = 0
    while first < len(rows):
        last = max(first + 1, int(np.searchsorted(ends, starts[first] + step, "right")))
        part = slice(starts[first], ends[last - 1])
        products = data[part, None] * values[sources[part]]
        sums[first:last] = np.add.reduceat(products, starts[first:last] - starts[first], axis=0)
        first = last
    return rows.astype(INDEX), sums


def _stored_rows(parts: SparseBuffer, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows of a row_sparse array, the positions of the stored `wanted` rows among them, and a mask of the stored
    rows in `wanted`.
    """
    order = np.argsort(parts.indices, kind="stable")
    known = parts.indices[order]
    places = np.searchsorted(known, wanted)
    stored = np.zeros(len(wanted), bool)
    inside = places < len(known)
    stored[inside] = known[places[inside]] == wanted[inside]
    return parts.data, order[places[stored]], stored
