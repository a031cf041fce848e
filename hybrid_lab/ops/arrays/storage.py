"""Operators for the storage of sparse arrays: their results on dense arrays, and in graphs."""

from __future__ import annotations

from typing import Literal

import numpy as np

from hybrid_lab.ops.framework import Operator, ints, sample
from hybrid_lab.ops.framework.protocols import Functions, Gradients, Tensor
from hybrid_lab.ops.framework.types import Array, Shape

from .creation import Copy
from .index import as_int64

Storage = Literal["default", "row_sparse", "csr"]
"""The names of storage types."""


class CastStorage(Copy, name="cast_storage"):
    """A copy of data in the storage type `stype`. Graphs are dense: there it is a copy."""

    stype: Storage
    samples = [
        sample((2, 3), stype="default"),
        sample((2, 3), dtype="int32", gradient=False, attrs={"stype": "default"}),
    ]

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return dy


class SparseRetain(Operator, name="_sparse_retain"):
    """data with zeros in all rows whose numbers are not among the indices.

    data : (rows, ...); indices : (n,), whole numbers in any dtype; returns : as data
    """

    arrays_only = ("indices",)
    typed_like = 0
    samples = [sample((4, 3), ints((2,), 0, 4)), sample((3, 2, 2), ints((2,), 0, 3, "int64"))]

    def infer_shape(self, data: Shape, indices: Shape) -> Shape:
        return data

    def numpy(self, data: Array, indices: Array, out: Array | None = None) -> Array:
        rows = as_int64(indices)
        rows = rows[(rows >= 0) & (rows < len(data))]
        result = np.zeros_like(data)
        result[rows] = data[rows]
        if out is None:
            return result
        np.copyto(out, result)
        return out

    def grad(self, F: Functions, data: Tensor, indices: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        return F._sparse_retain(dy, indices), None
