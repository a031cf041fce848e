"""mx.nd.sparse: MXNet's sparse arrays, which are not here. Its operators are those of `nd`, on dense arrays.

Code that only asks `isinstance(x, BaseSparseNDArray)` runs; what would make a sparse array raises AttributeSpecError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from numpy.typing import DTypeLike

from hybrid_lab.diagnostics.errors import AttributeSpecError
from hybrid_lab.diagnostics.unknown_names import unknown_name
from hybrid_lab.ndarray import creation, functions
from hybrid_lab.ndarray.context import Context
from hybrid_lab.ndarray.ndarray import NDArray

__all__ = [
    "BaseSparseNDArray",
    "CSRNDArray",
    "RowSparseNDArray",
    "array",
    "csr_matrix",
    "empty",
    "row_sparse_array",
    "zeros",
]


def _refused(call: str) -> AttributeSpecError:
    return AttributeSpecError(f"{call}: arrays are dense here; use nd.array(values), which takes a NumPy array")


class BaseSparseNDArray:
    """The base of MXNet's sparse arrays. No array is one."""

    def __init__(self, *arguments: object, **keywords: object) -> None:
        raise _refused(type(self).__name__)


class CSRNDArray(BaseSparseNDArray):
    """A matrix of which the elements that are not 0 are stored, row by row. No array is one."""


class RowSparseNDArray(BaseSparseNDArray):
    """An array of which some rows are stored. No array is one."""


def csr_matrix(arg1: object, shape: object = None, ctx: object = None, dtype: object = None) -> NoReturn:
    """Raises AttributeSpecError."""
    raise _refused("sparse.csr_matrix")


def row_sparse_array(arg1: object, shape: object = None, ctx: object = None, dtype: object = None) -> NoReturn:
    """Raises AttributeSpecError."""
    raise _refused("sparse.row_sparse_array")


def array(source_array: object, ctx: object = None, dtype: object = None) -> NoReturn:
    """Raises AttributeSpecError: in MXNet it takes sparse matrices only."""
    raise _refused("sparse.array")


def zeros(stype: str, shape: creation.Shape, ctx: Context | None = None, dtype: DTypeLike | None = None) -> NDArray:
    """`nd.zeros(shape)` for stype 'default'. Raises DTypeError for another storage type."""
    return creation.zeros(shape, ctx, dtype, stype=stype)


def empty(stype: str, shape: creation.Shape, ctx: Context | None = None, dtype: DTypeLike | None = None) -> NDArray:
    """`nd.empty(shape)` for stype 'default'. Raises DTypeError for another storage type."""
    return zeros(stype, shape, ctx, dtype)


def __getattr__(name: str) -> Callable[..., object]:
    function = None if name.startswith("__") else functions.find_function(name)
    if function is None:
        raise unknown_name("nd.sparse", name, __all__)
    return function
