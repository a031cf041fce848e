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
        """Why the parts are no array of the shape; None if they are."""
        return self.wrong_shapes() or self.wrong_indices() or self.repeated()

    def wrong_shapes(self) -> str | None:
        """Why the shapes of the parts do not fit the shape of the array, or None."""
        count, columns = len(self.indices), self.shape[1:]
        if self.indptr is None:
            if count == 0 and math.prod(self.data.shape) == 0:
                return None  # MXNet writes a stored shape of its own choice when nothing is stored
            fits = self.data.shape == (count, *columns)
            return None if fits else f"values of shape {self.data.shape} for {count} rows of {columns}"
        if len(self.shape) != 2:
            return "csr must have two dimensions"
        if self.data.shape != self.indices.shape:
            return f"{self.data.size} values for {count} column indices"
        if len(self.indptr) != self.shape[0] + 1:
            return f"indptr has {len(self.indptr)} numbers, {self.shape[0]} rows need {self.shape[0] + 1}"
        return None

    def wrong_indices(self) -> str | None:
        """A message about the first index that is out of range, or None. The shapes must be right."""
        count, indices, pointers = len(self.indices), self.indices, self.indptr
        if pointers is not None and (pointers[0] != 0 or pointers[-1] != count or np.any(pointers[1:] < pointers[:-1])):
            return f"indptr must rise from 0 to {count}, the number of stored values"
        limit = self.shape[0] if pointers is None else self.shape[1]
        wrong = indices[(indices < 0) | (indices >= limit)]
        if not wrong.size:
            return None
        what, every = ("row", "rows") if pointers is None else ("column", "columns")
        return f"{what} index {wrong[0]} is out of range for {limit} {every}"

    def unsorted(self) -> bool:
        """Whether indices do not rise; in a csr array, within a row. The shapes and the indices must be right."""
        rising = self.indices[1:] > self.indices[:-1]
        if self.indptr is not None:
            starts = self.indptr[1:-1].astype(np.int64)
            inside = (starts > 0) & (starts < len(self.indices))
            rising[starts[inside] - 1] = True  # from the end of a row to the start of the next
        return not rising.all()

    def repeated(self) -> str | None:
        """A message about the first element that is stored twice, or None. The shapes and the indices must be right."""
        if not self.unsorted():
            return None
        if self.indptr is None:
            rows = np.sort(self.indices)
            again = rows[1:][rows[1:] == rows[:-1]]
            return f"row {again[0]} is stored twice" if again.size else None
        keys = np.sort(self.rows() * self.shape[1] + self.indices)
        again = keys[1:][keys[1:] == keys[:-1]]
        if not again.size:
            return None
        row, column = divmod(int(again[0]), self.shape[1])
        return f"column {column} of row {row} is stored twice"

    def rows(self) -> np.ndarray:
        """The row of each value of a csr array."""
        assert self.indptr is not None
        ends = self.indptr.astype(np.int64)
        return np.repeat(np.arange(self.shape[0], dtype=np.int64), ends[1:] - ends[:-1])

    def dense(self) -> np.ndarray:
        """The whole array."""
        dense = np.zeros(self.shape, self.data.dtype.newbyteorder("="))
        if self.indptr is None:
            dense[self.indices] = self.data
        else:
            dense[self.rows(), self.indices] = self.data
        return dense

    def filled(self) -> SparseParts:
        """The same with int64 indices, and with rows of the array's shape where no row is stored."""
        empty = self.indptr is None and not self.indices.size
        data = np.zeros((0, *self.shape[1:]), self.data.dtype) if empty else self.data
        indptr = None if self.indptr is None else self.indptr.astype(np.int64)
        return SparseParts(self.shape, data, self.indices.astype(np.int64), indptr)
