"""The parts of a sparse array, as `.params` files hold them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class SparseParts:
    """The stored parts of a row_sparse or csr array.

    shape : of the whole array
    data : row_sparse: the stored rows, (n, *shape[1:]); csr: the stored values, (n,)
    indices : row_sparse: the numbers of the rows; csr: the column of each value; (n,)
    indptr : csr: where each row begins in `data`, (rows + 1,); None for row_sparse
    """

    shape: tuple[int, ...]
    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray | None

    def problem(self) -> str | None:
        """Why the parts are no array of the shape; None where they are."""
        return _row_sparse_problem(self) if self.indptr is None else _csr_problem(self, self.indptr)

    def dense(self) -> np.ndarray:
        """The whole array."""
        dense = np.zeros(self.shape, self.data.dtype.newbyteorder("="))
        if self.indptr is None:
            dense[self.indices] = self.data
        else:
            ends = self.indptr.astype(np.int64)
            rows = np.repeat(np.arange(self.shape[0]), ends[1:] - ends[:-1])
            dense[rows, self.indices] = self.data
        return dense

    def filled(self) -> SparseParts:
        """The same with int64 indices, and with rows of the array's shape where no row is stored."""
        empty = self.indptr is None and not self.indices.size
        data = np.zeros((0, *self.shape[1:]), self.data.dtype) if empty else self.data
        indptr = None if self.indptr is None else self.indptr.astype(np.int64)
        return SparseParts(self.shape, data, self.indices.astype(np.int64), indptr)


def _row_sparse_problem(parts: SparseParts) -> str | None:
    shape, values, rows = parts.shape, parts.data, parts.indices
    if rows.size == 0 and math.prod(values.shape) == 0:
        return None  # MXNet writes a stored shape of its own choice when nothing is stored
    if values.shape != (rows.size, *shape[1:]):
        return f"values of shape {values.shape} for {rows.size} rows"
    if rows.min() < 0 or rows.max() >= shape[0]:
        return f"row index out of range 0..{shape[0] - 1}"
    if np.any(rows[1:] <= rows[:-1]):
        return "row indices that do not increase"
    return None


def _csr_problem(parts: SparseParts, pointers: np.ndarray) -> str | None:
    shape, values, columns = parts.shape, parts.data, parts.indices
    if len(shape) != 2:
        return "csr must have two dimensions"
    if values.shape != columns.shape:
        return f"{values.size} values for {columns.size} column indices"
    if pointers.size != shape[0] + 1:
        return f"{pointers.size} row pointers for {shape[0]} rows"
    if pointers[0] != 0 or pointers[-1] != columns.size or np.any(pointers[1:] < pointers[:-1]):
        return "row pointers that do not rise from 0 to the number of values"
    if columns.size and (columns.min() < 0 or columns.max() >= shape[1]):
        return f"column index out of range 0..{shape[1] - 1}"
    return None
