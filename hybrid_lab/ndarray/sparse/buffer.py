"""SparseBuffer: the stored parts of a sparse array, with a dense copy for code that reads dense memory."""

from __future__ import annotations

import os
import sys
from math import prod

import numpy as np

from hybrid_lab.diagnostics.errors import ArrayIndexError, HybridLabError, ShapeError
from hybrid_lab.formats.mxnet.sparse_parts import SparseParts
from hybrid_lab.ndarray.buffer import Buffer
from hybrid_lab.ndarray.context import CPU, Context

INDEX = np.dtype(np.int64)
"""The type of all indices, as in MXNet."""


class DenseMemoryError(HybridLabError, MemoryError):
    """A dense copy of a sparse array does not fit in memory."""


class SparseBuffer(Buffer):
    """The memory of a csr or row_sparse array: its stored values and their indices.

    shape : of the whole array
    data : csr: the stored values, (n,); row_sparse: the stored rows, (n, *shape[1:])
    indices : csr: the column of each value; row_sparse: the number of each row; (n,)
    indptr : csr: row i is data[indptr[i]:indptr[i + 1]], (rows + 1,); None for row_sparse

    `host` is a dense copy that is made when it is first read and filled again after a write; it cannot be written to. A
    write replaces the parts, so that a holder of a part keeps the old values.
    """

    __slots__ = ("_dense", "_stale", "_valid", "_view", "data", "indices", "indptr", "shape")

    stored = True

    def __init__(
        self,
        shape: tuple[int, ...],
        data: np.ndarray,
        indices: np.ndarray,
        indptr: np.ndarray | None,
        context: Context = CPU,
    ) -> None:
        self.shape, self.data, self.indices, self.indptr = shape, data, indices, indptr
        self._dense: np.ndarray | None = None
        self._view: np.ndarray | None = None
        self._stale = self._valid = False
        self.device = self.saved_version = None
        self.device_stale = False
        self.version = 0
        self.exported = self.watched = False
        self.context = context

    @property
    def stype(self) -> str:
        """The name of the storage type."""
        return "row_sparse" if self.indptr is None else "csr"

    @property
    def host(self) -> np.ndarray:  # type: ignore[override]
        """The dense copy, up to date."""
        if self._dense is None or self._view is None:
            self._dense, self._stale = self.dense_memory(), True
            self._view = self._dense.view()
            self._view.flags.writeable = False
        self.pull()
        return self._view

    def dense_memory(self) -> np.ndarray:
        """New memory for a dense copy. Raises DenseMemoryError if it does not fit."""
        size = prod(self.shape) * self.data.dtype.itemsize
        try:
            if size <= _memory():
                return np.empty(self.shape, self.data.dtype)
        except MemoryError:
            pass
        raise DenseMemoryError(
            f"a dense copy of the {self.stype} array of shape {self.shape} takes "
            f"{size / 2**30:,.1f} GiB, which do not fit in memory"
        )

    @property
    def host_stale(self) -> bool:  # type: ignore[override]
        """Whether a dense copy was made and the parts were replaced since."""
        return self._stale

    def pull(self) -> None:
        """Fill the dense copy, if there is one, from the parts."""
        if self._stale and self._dense is not None:
            self.expand(self._dense)
            self._stale = False

    def replace(self, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray | None) -> None:
        """Store other parts."""
        self.data, self.indices, self.indptr = data, indices, indptr
        self._valid = False
        self._stale = self._dense is not None
        self.written()

    def expand(self, target: np.ndarray) -> np.ndarray:
        """Write the array to dense memory, which is returned. Raises ArrayIndexError, ShapeError for invalid parts."""
        self.validate()
        target[...] = 0
        if self.indptr is None:
            target[self.indices] = self.data
        else:
            target[self.rows(), self.indices] = self.data
        return target

    def rows(self) -> np.ndarray:
        """The row of each value of a csr array."""
        self.validate()
        return self.parts().rows()

    def parts(self) -> SparseParts:
        """The parts without the memory of a dense copy."""
        return SparseParts(self.shape, self.data, self.indices, self.indptr)

    def validate(self) -> None:
        """Raise ArrayIndexError or ShapeError if the parts are no array of the shape, or a place is stored twice.

        Indices need not rise. Code that reads the parts calls this first; the answer is kept until the next write.
        """
        if self._valid:
            return
        parts = self.parts()
        for problem, error in (
            (parts.wrong_shapes, ShapeError),
            (parts.wrong_indices, ArrayIndexError),
            (parts.repeated, ArrayIndexError),
        ):
            text = problem()
            if text is not None:
                raise error(f"invalid {self.stype} array of shape {self.shape}: {text}")
        self._valid = True

    def check(self, full: bool = True) -> None:
        """Raise ShapeError if the shapes of the parts do not fit; with `full` also all errors of `validate`, and
        ArrayIndexError if indices do not rise.
        """
        if full:
            self.validate()
            if self.parts().unsorted():
                where = "" if self.indptr is None else " within each row"
                raise ArrayIndexError(f"invalid {self.stype} array of shape {self.shape}: indices must rise{where}")
        elif (text := self.parts().wrong_shapes()) is not None:
            raise ShapeError(f"invalid {self.stype} array of shape {self.shape}: {text}")


def _memory() -> int:
    """The bytes of this machine's memory; if the system does not tell, the addressable bytes."""
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return sys.maxsize


def compressed(shape: tuple[int, ...], values: np.ndarray, context: Context, stype: str) -> SparseBuffer:
    """The parts of dense values: all that are not 0 for csr, all rows with such values for row_sparse."""
    if stype == "csr":
        if len(shape) != 2:
            raise ShapeError(f"csr arrays have two dimensions; the array has shape {shape}")
        rows, columns = np.nonzero(values)
        return SparseBuffer(shape, values[rows, columns], columns.astype(INDEX), pointers(rows, shape[0]), context)
    if not shape:
        raise ShapeError("row_sparse arrays have at least one dimension")
    flat = values.reshape(shape[0], prod(shape[1:]))
    stored = np.flatnonzero((flat != 0).any(axis=1)).astype(INDEX)
    return SparseBuffer(shape, np.ascontiguousarray(values[stored]), stored, None, context)


def pointers(rows: np.ndarray, count: int) -> np.ndarray:
    """indptr for values whose rows are given, in rising order."""
    return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=count))]).astype(INDEX)


def vacant(shape: tuple[int, ...], dtype: np.dtype, context: Context, stype: str) -> SparseBuffer:
    """The parts of an array of zeros: nothing is stored."""
    none = np.zeros(0, INDEX)
    if stype == "csr":
        if len(shape) != 2:
            raise ShapeError(f"csr arrays have two dimensions, not the shape {shape}")
        return SparseBuffer(shape, np.zeros(0, dtype), none, np.zeros(shape[0] + 1, INDEX), context)
    if not shape:
        raise ShapeError("row_sparse arrays have at least one dimension")
    return SparseBuffer(shape, np.zeros((0, *shape[1:]), dtype), none, None, context)
