"""Making sparse arrays: from dense values, from their parts, from SciPy's matrices, and by shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab.diagnostics.errors import DTypeError, ShapeError
from hybrid_lab.ndarray import creation
from hybrid_lab.ndarray.context import Context, resolve
from hybrid_lab.ndarray.ndarray import NDArray, check_dtype
from hybrid_lab.ndarray.sparse.arrays import (
    BaseSparseNDArray,
    CSRNDArray,
    RowSparseNDArray,
    index_array,
    to_sparse,
    zeros_of,
)
from hybrid_lab.ndarray.sparse.buffer import INDEX, SparseBuffer, pointers
from hybrid_lab.system.logger import logger


def csr_matrix(
    arg1: Any, shape: Sequence[int] | None = None, ctx: Context | None = None, dtype: DTypeLike | None = None
) -> CSRNDArray:
    """A csr matrix.

    arg1 : a dense matrix; a csr array; a matrix of SciPy; (rows, columns) for one of zeros; its parts (data, indices,
        indptr); or (data, (row, column)) with the place of each value, where values of one place are added up
    shape : (rows, columns); must agree with what arg1 says
    dtype : by default the dtype of array values, else float32; with places NumPy's: int64 for [1, 2]

    Raises ShapeError for shapes that do not agree, and for a row_sparse array. Parts with wrong indices give an array,
    as in MXNet, and a warning; `check_format` and every call that reads the array raise ArrayIndexError or ShapeError.
    """
    given = None if shape is None else creation._shape(shape)
    if not isinstance(arg1, tuple):
        return _from_array(arg1, given, ctx, dtype, "csr")
    if len(arg1) == 3:
        return _from_parts(*arg1, given, ctx, dtype)
    if len(arg1) != 2:
        raise ShapeError(f"csr_matrix takes a tuple of two or three, not of {len(arg1)}")
    if isinstance(arg1[1], tuple):
        if len(arg1[1]) != 2:
            raise ShapeError(f"csr_matrix takes the places of values as (row, column), not a tuple of {len(arg1[1])}")
        row, column = arg1[1]
        return _from_places(arg1[0], row, column, given, ctx, dtype)
    return _vacant(arg1, given, ctx, dtype, "csr")


def row_sparse_array(
    arg1: Any, shape: Sequence[int] | None = None, ctx: Context | None = None, dtype: DTypeLike | None = None
) -> RowSparseNDArray:
    """A row_sparse array.

    arg1 : a dense array; a row_sparse array; a shape for an array of zeros; or its parts (data, indices), the rows and
        their numbers
    shape : must agree with what arg1 says; with parts, the default has all rows up to the last one stored
    dtype : by default the dtype of array values, else float32
    Raises ShapeError for shapes that do not agree, and for a csr array. Parts with wrong indices give an array, as in
    MXNet, and a warning; `check_format` and every call that reads the array raise ArrayIndexError.
    """
    given = None if shape is None else creation._shape(shape)
    if not isinstance(arg1, tuple):
        return _from_array(arg1, given, ctx, dtype, "row_sparse")
    if len(arg1) < 2:
        raise ShapeError(f"row_sparse_array takes a tuple of two or more, not of {len(arg1)}")
    if len(arg1) > 2 or all(isinstance(size, (int, np.integer)) for size in arg1):
        return _vacant(arg1, given, ctx, dtype, "row_sparse")
    data, indices = _values(arg1[0], dtype), index_array(arg1[1], "indices")
    if given is None:
        if not len(indices):
            raise ShapeError("invalid shape: without a stored row the shape must be given")
        given = (int(indices.max()) + 1, *data.shape[1:])
    if data.ndim != len(given) or data.shape != (len(indices), *given[1:]) or 0 in given[1:]:
        raise ShapeError(
            f"invalid shape: {len(indices)} rows of an array of shape {given} are not values of shape {data.shape}"
        )
    made: RowSparseNDArray = _of_parts(SparseBuffer(given, data, indices, None, resolve(ctx)))
    return made


def array(source_array: Any, ctx: Context | None = None, dtype: DTypeLike | None = None) -> Any:
    """A copy of a sparse array, or of a sparse matrix of SciPy, in its storage type; SciPy's becomes csr.

    Raises ShapeError for anything dense.
    """
    if isinstance(source_array, BaseSparseNDArray):
        made = source_array.detach().astype(source_array.dtype if dtype is None else dtype)
        return made if ctx is None else made.as_in_context(ctx)
    if hasattr(source_array, "tocsr"):
        matrix = source_array.tocsr().copy()
        matrix.sum_duplicates()
        matrix.sort_indices()
        return _from_parts(matrix.data, matrix.indices, matrix.indptr, matrix.shape, ctx, dtype)
    raise ShapeError(
        f"sparse.array takes sparse arrays, not {type(source_array).__name__}; use nd.array(values).tostype(stype)"
    )


def zeros(stype: str, shape: creation.Shape, ctx: Context | None = None, dtype: DTypeLike | None = None) -> NDArray:
    """Zeros in a storage type: 'default', 'row_sparse' or 'csr'; of a sparse one nothing is stored.

    Raises ShapeError for another storage type.
    """
    if stype == "default":
        return creation.zeros(shape, ctx, dtype)
    made: NDArray = zeros_of(stype, creation._shape(shape), dtype or np.float32, resolve(ctx))
    return made


def empty(stype: str, shape: creation.Shape, ctx: Context | None = None, dtype: DTypeLike | None = None) -> NDArray:
    """As `zeros`."""
    return zeros(stype, shape, ctx, dtype)


def _agree(found: tuple[int, ...], given: tuple[int, ...] | None) -> None:
    if given is not None and found != given:
        raise ShapeError(f"the array has shape {found}, shape={given} was given")


def _vacant(
    arg1: tuple[Any, ...], given: tuple[int, ...] | None, ctx: Context | None, dtype: DTypeLike | None, stype: str
) -> Any:
    shape = creation._shape(arg1)
    _agree(shape, given)
    return zeros(stype, shape, ctx, dtype)


def _values(values: Any, dtype: DTypeLike | None) -> np.ndarray:
    """A copy as a NumPy array of the dtype that MXNet takes."""
    if dtype is None:
        dtype = values.dtype if isinstance(values, (NDArray, np.ndarray)) else np.float32
    source = values.asnumpy() if isinstance(values, NDArray) else values
    try:
        return np.array(source, check_dtype(dtype), order="C")
    except ValueError as error:
        raise DTypeError(f"a sparse array takes numbers in lists of equal lengths, or an array ({error})") from None


def _from_array(
    source: Any, given: tuple[int, ...] | None, ctx: Context | None, dtype: DTypeLike | None, stype: str
) -> Any:
    """From a dense or a sparse array."""
    if isinstance(source, BaseSparseNDArray) or hasattr(source, "tocsr"):
        found = source.stype if isinstance(source, BaseSparseNDArray) else "csr"
        if found != stype:
            raise ShapeError(f"a {stype} array cannot be made of a {found} array")
        _agree(tuple(source.shape), given)
        return array(source, ctx, dtype)
    dense = NDArray.from_host(_values(source, dtype), resolve(ctx))
    _agree(dense.shape, given)
    return to_sparse(dense, stype)


def _from_parts(
    data: Any,
    indices: Any,
    indptr: Any,
    given: tuple[int, ...] | None,
    ctx: Context | None,
    dtype: DTypeLike | None,
) -> Any:
    values = _values(data, dtype)
    columns, starts = index_array(indices, "indices"), index_array(indptr, "indptr")
    if given is None:
        if not len(columns):
            raise ShapeError("invalid shape: without a stored value the shape must be given")
        given = (len(starts) - 1, int(columns.max()) + 1)
    if values.ndim != 1 or len(values) != len(columns) or not len(starts) or len(given) != 2:
        raise ShapeError(
            f"invalid shape: data has shape {values.shape}, indices {columns.shape}, indptr {starts.shape}, "
            f"the array {given}"
        )
    return _of_parts(SparseBuffer(tuple(given), values, columns, starts, resolve(ctx)))


def _of_parts(buffer: SparseBuffer) -> Any:
    """The array of a user's parts. Invalid parts are logged here, where the array is made; MXNet makes it, too, so that
    `check_format` can be called. Whatever reads the array raises the error.
    """
    try:
        buffer.validate()
    except ShapeError as error:
        logger.warning(f"{error}; every call that reads this array raises this error")
    return BaseSparseNDArray.of(buffer)


def _from_places(
    data: Any, row: Any, column: Any, given: tuple[int, ...] | None, ctx: Context | None, dtype: DTypeLike | None
) -> Any:
    """From values and their places, in any order; the values of one place are added up. dtype : default NumPy's"""
    try:
        values = _values(data if isinstance(data, NDArray) else np.asarray(data), dtype)
    except ValueError:
        raise DTypeError("the values of a csr matrix must be numbers in one list or array") from None
    rows, columns = index_array(row, "row"), index_array(column, "column")
    if values.ndim != 1:
        raise ShapeError(f"invalid shape: data must have one dimension, not {values.shape}")
    if not len(values) == len(rows) == len(columns):
        raise ShapeError(f"there are {len(values)} values, {len(rows)} rows and {len(columns)} columns")
    if given is None:
        if not len(rows):
            raise ShapeError("invalid shape: without a stored value the shape must be given")
        given = (int(rows.max()) + 1, int(columns.max()) + 1)
    if len(given) != 2:
        raise ShapeError(f"csr arrays have two dimensions, not the shape {given}")
    if len(rows) and (min(rows.min(), columns.min()) < 0 or rows.max() >= given[0] or columns.max() >= given[1]):
        raise ShapeError(f"a row or a column is outside of the shape {given}")
    keys, places = np.unique(rows * given[1] + columns, return_inverse=True)
    total = np.zeros(len(keys), values.dtype)
    np.add.at(total, places, values)
    rows, columns = np.divmod(keys, max(given[1], 1))
    return BaseSparseNDArray.of(
        SparseBuffer(given, total, columns.astype(INDEX), pointers(rows, given[0]), resolve(ctx))
    )
