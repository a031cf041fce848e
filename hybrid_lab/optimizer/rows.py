"""Updates of sparse weights, or with sparse gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.sparse import RowSparseNDArray
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.run import run_kernel


def update_sparse(
    op: Operator, weight: NDArray, grad: NDArray, states: Sequence[NDArray], rates: Sequence[float], lazy: bool
) -> None:
    """Run an update operator. If one of the arrays is sparse it computes on dense copies.

    lazy : of a row_sparse gradient, update the rows that it stores only; the rest of weight and states stays
    """
    written = (weight, *states)
    for array in (weight, grad, *states):
        if isinstance(array, RowSparseNDArray):
            array.buffer.validate()
    dtype = np.dtype(weight.dtype)
    rows = grad.buffer.indices if lazy and isinstance(grad, RowSparseNDArray) else None
    if rows is None:
        values = [array.asnumpy().astype(dtype, copy=False) for array in written]
        gradient = grad.asnumpy()
    else:
        values = [_rows(array, rows).astype(dtype, copy=False) for array in written]
        gradient = grad.buffer.data  # type: ignore[attr-defined]
    run_kernel(op, [values[0], gradient.astype(dtype, copy=False), *values[1:], *rates], tuple(values))
    for array, updated in zip(written, values, strict=True):
        if rows is None:
            array.assign(updated)
        else:
            _write_rows(array, rows, updated)


def _rows(array: NDArray, rows: np.ndarray) -> np.ndarray:
    """A dense copy of some rows, whose numbers rise."""
    if not isinstance(array, RowSparseNDArray):
        return array.raw()[rows]
    parts = array.buffer
    values = np.zeros((len(rows), *parts.shape[1:]), parts.data.dtype)
    _, mine, places = np.intersect1d(parts.indices, rows, True, return_indices=True)
    values[places] = parts.data[mine]
    return values


def _write_rows(array: NDArray, rows: np.ndarray, values: np.ndarray) -> None:
    """Overwrite some rows. A row_sparse array stores all rows then, as weights and states do in MXNet."""
    if not isinstance(array, RowSparseNDArray):
        array.raw()[rows] = values
        array.written()
        return
    parts = array.buffer
    data = parts.expand(np.empty(parts.shape, parts.data.dtype))
    data[rows] = values
    parts.replace(data, np.arange(len(data), dtype=np.int64), None)
