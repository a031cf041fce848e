"""mx.nd.sparse: arrays that store only their values other than 0. Every operator of `nd` is a function here too."""

from __future__ import annotations

from collections.abc import Callable

from hybrid_lab.diagnostics.unknown_names import unknown_name
from hybrid_lab.ndarray import namespace
from hybrid_lab.ndarray.sparse.arrays import BaseSparseNDArray, CSRNDArray, RowSparseNDArray
from hybrid_lab.ndarray.sparse.creation import array, csr_matrix, empty, row_sparse_array, zeros
from hybrid_lab.ops.framework.operator import registered_names

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


def __getattr__(name: str) -> Callable[..., object]:
    names = () if name.startswith("__") else (name, f"_sparse_{name}")
    function = next(filter(None, map(namespace.find_function, names)), None)
    if function is None:
        raise unknown_name("nd.sparse", name, __all__)
    return function


def __dir__() -> list[str]:
    sparse = (name.removeprefix("_sparse_") for name in registered_names() if name.startswith("_sparse_"))
    return sorted({*globals(), *namespace.function_names(), *sparse})
