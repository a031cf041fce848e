"""Random sparse arrays for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab.diagnostics import ShapeError
from hybrid_lab.ndarray import NDArray, sparse
from hybrid_lab.ndarray.context import Context, current_context

Modifier = Callable[[float], float]


def rand_sparse_ndarray(
    shape: Sequence[int],
    stype: str,
    density: float | None = None,
    dtype: DTypeLike | None = None,
    distribution: str | None = None,
    data_init: float | None = None,
    rsp_indices: Sequence[int] | np.ndarray | None = None,
    modifier_func: Modifier | None = None,
    shuffle_csr_indices: bool = False,
    ctx: Context | None = None,
) -> tuple[Any, tuple[Any, ...]]:
    """A random sparse array, and its parts: (values, row numbers) as NumPy arrays for row_sparse, (indptr, indices,
    data) for csr.

    density : the share of elements that are stored (csr), the probability of each row (row_sparse); default random
    distribution : 'uniform'; for csr also 'powerlaw', where each row stores twice as many values as the one before
    data_init : every value, in place of random values from [0, 1)
    rsp_indices : the numbers of the stored rows
    modifier_func : applied to every value of a row_sparse array
    shuffle_csr_indices : put the columns of each row of a csr array into a random order
    Raises ShapeError for a storage type or a distribution that there is not.
    """
    wanted = np.dtype(np.float32 if dtype is None else dtype)
    share = np.random.rand() if density is None else density
    context = current_context() if ctx is None else ctx
    if stype == "row_sparse" and distribution in (None, "uniform"):
        rows = np.flatnonzero(np.random.rand(shape[0]) < share) if rsp_indices is None else np.asarray(rsp_indices)
        rows = rows.astype(np.int64)
        values = (
            np.random.rand(len(rows), *shape[1:]) if data_init is None else np.full((len(rows), *shape[1:]), data_init)
        )
        if modifier_func is not None and values.size:
            values = np.vectorize(modifier_func, otypes=[wanted])(values)
        values = values.astype(wanted)
        return sparse.row_sparse_array((values, rows), shape, context, wanted), (values, rows)
    if stype != "csr" or len(shape) != 2 or distribution not in (None, "uniform", "powerlaw"):
        raise ShapeError(f"there are no random {stype} arrays of shape {tuple(shape)} with distribution={distribution}")
    if distribution == "powerlaw":
        counts = _doubling_counts(int(shape[0]), int(shape[1]), share)
        columns = np.concatenate([np.arange(count) for count in counts])
        indptr = np.concatenate([[0], np.cumsum(counts)])
        values = 1 + np.random.uniform(0.001, 2, len(columns))
    else:
        total = int(shape[0]) * int(shape[1])
        places = np.sort(np.random.permutation(total)[: int(round(share * total))])
        rows, columns = np.divmod(places, shape[1])
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=shape[0]))])
        values = np.random.rand(len(places))
    if data_init is not None:
        values[:] = data_init
    if shuffle_csr_indices:
        _shuffle(columns, indptr)
    made = sparse.csr_matrix((values.astype(wanted), columns, indptr), shape, context, wanted)
    return made, (made.indptr, made.indices, made.data)


def _doubling_counts(rows: int, columns: int, share: float) -> list[int]:
    """How many values each row stores: 1, and then up to 2, 4, 8 ... until the share of all is used up."""
    left = int(rows * columns * share)
    counts = [1] * min(rows, max(left, 1)) + [0] * (rows - max(left, 1))
    left -= rows
    for row in range(rows):
        if left <= 0:
            return counts
        more = min(min(columns, 2 ** (row + 1)) - 1, left)
        counts[row] += more
        left -= more
    if left > 0:
        raise ShapeError(f"a powerlaw matrix of shape {(rows, columns)} cannot have the density {share}")
    return counts


def _shuffle(columns: np.ndarray, indptr: np.ndarray) -> None:
    for first, last in zip(indptr[:-1], indptr[1:], strict=True):
        np.random.shuffle(columns[first:last])


def shuffle_csr_column_indices(csr: Any) -> None:
    """Put the columns of each row of a matrix of SciPy into a random order, in place; its values stay."""
    _shuffle(csr.indices, csr.indptr)


def create_sparse_array(
    shape: Sequence[int],
    stype: str,
    data_init: float | None = None,
    rsp_indices: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    modifier_func: Modifier | None = None,
    density: float = 0.5,
    shuffle_csr_indices: bool = False,
) -> NDArray:
    """As `rand_sparse_ndarray`, the array alone; `rsp_indices` may be in any order."""
    rows = None if rsp_indices is None else np.sort(np.asarray(rsp_indices))
    made: NDArray = rand_sparse_ndarray(
        shape, stype, density, dtype, None, data_init, rows, modifier_func, shuffle_csr_indices
    )[0]
    return made


def create_sparse_array_zd(
    shape: Sequence[int],
    stype: str,
    density: float,
    data_init: float | None = None,
    rsp_indices: Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    modifier_func: Modifier | None = None,
    shuffle_csr_indices: bool = False,
) -> NDArray:
    """As `create_sparse_array`; a row_sparse array stores the rows of `rsp_indices` only, without them none."""
    share = 0.0 if stype == "row_sparse" else density
    return create_sparse_array(shape, stype, data_init, rsp_indices, dtype, modifier_func, share, shuffle_csr_indices)
