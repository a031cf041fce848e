"""Sparse arrays in `.params` files."""

from __future__ import annotations

from hybrid_lab.formats.mxnet.sparse_parts import SparseParts
from hybrid_lab.ndarray.context import CPU
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.sparse.arrays import BaseSparseNDArray
from hybrid_lab.ndarray.sparse.buffer import SparseBuffer


def parts_of(array: NDArray) -> SparseParts:
    """The parts of a sparse array, as for a file. Raises ArrayIndexError or ShapeError if invalid."""
    assert isinstance(array, BaseSparseNDArray)
    array.buffer.validate()
    return array.buffer.parts()


def array_of(parts: SparseParts) -> NDArray:
    """The sparse array that a file holds."""
    made: NDArray = BaseSparseNDArray.of(SparseBuffer(parts.shape, parts.data, parts.indices, parts.indptr, CPU))
    return made
