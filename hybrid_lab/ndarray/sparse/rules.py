"""The operators that keep the storage type of sparse arrays, or compute from their stored parts: operator -> rule.

A rule is called as rule(op, inputs), after the operator's own checks of numbers, shapes and dtypes have passed. It
returns the result, or NotImplemented if it does not cover these inputs; the operator then runs on dense copies. Results
have the storage types of MXNet 1.9.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.sparse.arrays import BaseSparseNDArray, CSRNDArray, RowSparseNDArray, index_array
from hybrid_lab.ndarray.sparse.buffer import INDEX, SparseBuffer, pointers, vacant
from hybrid_lab.ndarray.sparse.products import product
from hybrid_lab.ops.arrays.index import whole
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.run import run_kernel

Rule = Callable[[Any, Sequence[Any]], Any]


def _kernel(op: Operator, *values: Any) -> np.ndarray:
    """The operator's kernel on stored values."""
    return np.asarray(run_kernel(op, list(values))[0])


def _with_data(array: BaseSparseNDArray, data: np.ndarray) -> Any:
    """An array that stores other values in the same places."""
    parts = array.buffer
    return BaseSparseNDArray.of(SparseBuffer(parts.shape, data, parts.indices, parts.indptr, parts.context))


def _on_stored(op: Operator, inputs: Sequence[Any]) -> Any:
    """An operator that maps 0 to 0: computed on the stored values."""
    return _with_data(inputs[0], _kernel(op, inputs[0].buffer.data))


def _clip(op: Any, inputs: Sequence[Any]) -> Any:
    """Clipping keeps 0 if 0 is between the limits."""
    return _on_stored(op, inputs) if op.a_min <= 0 <= op.a_max else NotImplemented


def _quadratic(op: Any, inputs: Sequence[Any]) -> Any:
    """a x^2 + b x + c is 0 for 0 if c is; MXNet has this for csr."""
    return _on_stored(op, inputs) if op.c == 0 and inputs[0].stype == "csr" else NotImplemented


def _zeros_like(op: Operator, inputs: Sequence[Any]) -> Any:
    array = inputs[0]
    return BaseSparseNDArray.of(vacant(array.shape, array.buffer.data.dtype, array.context, array.stype))


# -- two operands ----------------------------------------------------------------------------------------------------


def _with_number(op: Operator, inputs: Sequence[Any]) -> Any:
    """An array and a number, if the operator gives 0 for 0 and the number (`x * 2`, `x > 1`); division keeps the stored
    entries.
    """
    array = next(item for item in inputs if isinstance(item, BaseSparseNDArray))
    if op.name != "broadcast_mul" and not (op.name == "broadcast_div" and inputs[0] is array):
        zero = np.zeros(1, array.dtype)
        with np.errstate(all="ignore"):
            if _kernel(op, *(zero if item is array else item for item in inputs))[0] != 0:
                return NotImplemented
    return _with_data(array, _kernel(op, *(array.buffer.data if item is array else item for item in inputs)))


def _sum(op: Operator, inputs: Sequence[Any]) -> Any:
    """x + y, x - y of one storage type and shape: stored is what either stores. MXNet keeps it for this pair only."""
    if any(not isinstance(item, NDArray) for item in inputs):
        return _with_number(op, inputs)
    left, right = inputs
    if left.stype != right.stype or left.shape != right.shape or left.dtype is not right.dtype:
        return NotImplemented
    keys, mine, others = _united(left.buffer, right.buffer)
    shape = (len(keys), *left.buffer.data.shape[1:])
    first, second = np.zeros(shape, left.dtype), np.zeros(shape, left.dtype)
    first[mine], second[others] = left.buffer.data, right.buffer.data
    values = _kernel(op, first, second)
    stays = values != 0 if left.stype == "csr" else slice(None)  # MXNet drops zeros of csr arrays here, and keeps rows
    return _at(keys[stays], values[stays], left)


def _times(op: Operator, inputs: Sequence[Any]) -> Any:
    """x * y. The result stores, for a dense operand, the entries of the sparse operand; for two csr arrays, the entries
    that both store; for two row_sparse arrays, the rows that either stores.
    """
    if any(not isinstance(item, NDArray) for item in inputs):
        return _with_number(op, inputs)
    left, right = inputs
    if left.dtype is not right.dtype:
        return NotImplemented
    if left.stype == right.stype == "row_sparse":
        return _sum(op, inputs)
    if left.stype == right.stype and left.shape == right.shape:
        _, mine, others = np.intersect1d(_keys(left.buffer), _keys(right.buffer), True, return_indices=True)
        values = _kernel(op, left.buffer.data[mine], right.buffer.data[others])
        return _at(_keys(left.buffer)[mine], values, left)
    sparse = left if isinstance(left, BaseSparseNDArray) else right
    other = right if sparse is left else left
    if other.stype != "default" or not _fits(other.shape, sparse):
        return NotImplemented
    part = _stored_part(sparse, other)
    pair = (sparse.buffer.data, part) if sparse is left else (part, sparse.buffer.data)
    return _with_data(sparse, _kernel(op, *pair))


def _over(op: Operator, inputs: Sequence[Any]) -> Any:
    """x / y. MXNet keeps csr if a dense y of another shape is broadcast to x."""
    if any(not isinstance(item, NDArray) for item in inputs):
        return _with_number(op, inputs) if isinstance(inputs[0], NDArray) else NotImplemented
    left, right = inputs
    csr = isinstance(left, CSRNDArray) and right.stype == "default" and left.shape != right.shape
    if not csr or left.dtype is not right.dtype or not _fits(right.shape, left):
        return NotImplemented
    return _with_data(left, _kernel(op, left.buffer.data, _stored_part(left, right)))


def _comparison(op: Operator, inputs: Sequence[Any]) -> Any:
    """With a number only; two arrays give a dense array in MXNet."""
    return NotImplemented if all(isinstance(item, NDArray) for item in inputs) else _with_number(op, inputs)


def _fits(shape: tuple[int, ...], sparse: BaseSparseNDArray) -> bool:
    """Whether a dense array of this shape is of the sparse array's shape, or is broadcast to a csr array."""
    if shape == sparse.shape:
        return True
    padded = (1,) * (2 - len(shape)) + shape
    return (
        sparse.stype == "csr"
        and len(padded) == 2
        and all(a in (1, b) for a, b in zip(padded, sparse.shape, strict=True))
    )


def _stored_part(sparse: BaseSparseNDArray, dense: NDArray) -> np.ndarray:
    """The elements of a dense array at the places that the sparse array stores."""
    parts = sparse.buffer
    values = np.broadcast_to(dense._data, parts.shape)
    return np.ascontiguousarray(values[parts.indices] if parts.indptr is None else values[parts.rows(), parts.indices])


def _keys(parts: SparseBuffer) -> np.ndarray:
    """A number for each stored place: the row, for csr row * columns + column."""
    return parts.indices if parts.indptr is None else parts.rows() * parts.shape[1] + parts.indices


def _united(*buffers: SparseBuffer) -> list[np.ndarray]:
    """The places that any of the buffers stores, and for each buffer the positions of its own among them."""
    every = [_keys(parts) for parts in buffers]
    keys, positions = np.unique(np.concatenate(every), return_inverse=True)
    return [keys, *np.split(positions, np.cumsum([len(each) for each in every])[:-1])]


def _at(keys: np.ndarray, values: np.ndarray, like: BaseSparseNDArray, shape: tuple[int, ...] | None = None) -> Any:
    """An array of the storage type of `like` with values at these places, which rise. shape : by default the shape of
    `like`
    """
    shape, context = like.shape if shape is None else shape, like.context
    if like.buffer.indptr is None:
        return BaseSparseNDArray.of(SparseBuffer(shape, values, keys.astype(INDEX), None, context))
    rows, columns = np.divmod(keys, max(shape[1], 1))
    return BaseSparseNDArray.of(SparseBuffer(shape, values, columns, pointers(rows, shape[0]), context))


def _add_n(op: Operator, inputs: Sequence[Any]) -> Any:
    """The sum of row_sparse arrays."""
    if not all(isinstance(item, RowSparseNDArray) and item.dtype is inputs[0].dtype for item in inputs):
        return NotImplemented
    keys, *positions = _united(*(item.buffer for item in inputs))
    total = np.zeros((len(keys), *inputs[0].shape[1:]), inputs[0].dtype)
    for item, places in zip(inputs, positions, strict=True):
        total[places] += item.buffer.data
    return _at(keys, total, inputs[0])


# -- parts and products ----------------------------------------------------------------------------------------------


def _slice(op: Any, inputs: Sequence[Any]) -> Any:
    """A block of a csr array, without steps."""
    array = inputs[0]
    if not isinstance(array, CSRNDArray) or any(step not in (None, 1) for step in op.step or ()):
        return NotImplemented
    limits = [
        slice(begin, end).indices(size)[:2] for begin, end, size in zip(op.begin, op.end, array.shape, strict=False)
    ]
    limits += [(0, size) for size in array.shape[len(limits) :]]
    (top, bottom), (left, right) = limits
    if bottom <= top or right <= left:
        return NotImplemented  # the operator has its own message for an empty result
    parts, rows = array.buffer, array.buffer.rows()
    inside = (rows >= top) & (rows < bottom) & (parts.indices >= left) & (parts.indices < right)
    indptr = pointers(rows[inside] - top, bottom - top)
    shape = (bottom - top, right - left)
    made = SparseBuffer(shape, parts.data[inside], parts.indices[inside] - left, indptr, parts.context)
    return BaseSparseNDArray.of(made)


def _take(op: Any, inputs: Sequence[Any]) -> Any:
    """Rows of a csr array."""
    array, wanted = inputs
    if not isinstance(array, CSRNDArray) or not isinstance(wanted, NDArray):
        return NotImplemented
    if op.axis != 0 or wanted.stype != "default" or wanted.ndim != 1:
        return NotImplemented
    numbers = whole(wanted._data, array.shape[0], op.mode, op.name)
    parts = array.buffer
    assert parts.indptr is not None
    sizes = np.diff(parts.indptr)[numbers]
    starts = parts.indptr[:-1][numbers]
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(INDEX)
    places = np.repeat(starts - indptr[:-1], sizes) + np.arange(indptr[-1])
    shape = (len(numbers), array.shape[1])
    made = SparseBuffer(shape, parts.data[places], parts.indices[places], indptr, parts.context)
    return BaseSparseNDArray.of(made)


def _reduced(op: Any, inputs: Sequence[Any]) -> Any:
    """The sum or mean of a csr array along one axis, and the norm of any: from the stored values."""
    array = inputs[0]
    axis = op.axis[0] if isinstance(op.axis, tuple) and len(op.axis) == 1 else op.axis
    if op.name == "norm":
        if op.axis not in (None, ()) or op.ord != 2 or op.keepdims:
            return NotImplemented
        return NDArray.from_host(_kernel(op, array.buffer.data.reshape(-1)).reshape(1), array.context)
    if not isinstance(array, CSRNDArray) or axis not in (0, 1) or getattr(op, "exclude", False):
        return NotImplemented
    parts, size = array.buffer, array.shape[1 - axis]
    if parts.data.dtype.kind != "f":
        return NotImplemented
    places = parts.indices if axis == 0 else parts.rows()
    total: np.ndarray = np.bincount(places, parts.data, minlength=size)
    if op.name == "mean":
        total = total / array.shape[axis]
    shape = ((1, size) if axis == 0 else (size, 1)) if op.keepdims else (size,)
    return NDArray.from_host(total.astype(parts.data.dtype).reshape(shape), array.context)


def _square_sum(op: Any, inputs: Sequence[Any]) -> Any:
    """The sums of a row_sparse matrix; 0 for rows that are not stored."""
    array = inputs[0]
    axis = op.axis[0] if isinstance(op.axis, tuple) and len(op.axis) == 1 else op.axis
    if not isinstance(array, RowSparseNDArray) or array.ndim != 2 or axis not in (0, 1) or op.exclude:
        return NotImplemented
    parts = array.buffer
    sums = np.square(parts.data).sum(axis=axis, keepdims=op.keepdims).astype(parts.data.dtype, copy=False)
    if axis == 0:
        return NDArray.from_host(sums, array.context)
    if op.keepdims:
        return _at(parts.indices, sums, array, (len(array), 1))
    total = np.zeros(len(array), parts.data.dtype)
    total[parts.indices] = sums
    return NDArray.from_host(total, array.context)


def _concat(op: Any, inputs: Sequence[Any]) -> Any:
    """csr arrays, one below the other."""
    if not all(isinstance(item, NDArray) for item in inputs):
        return NotImplemented
    kinds = {(item.stype, item.dtype, item.shape[1:]) for item in inputs}
    if op.dim != 0 or len(kinds) > 1 or inputs[0].stype != "csr":
        return NotImplemented
    parts = [item.buffer for item in inputs]
    ends = np.cumsum([0, *(len(item.data) for item in parts)])
    indptr = np.concatenate([[0], *(item.indptr[1:] + end for item, end in zip(parts, ends, strict=False))])
    data, indices = (np.concatenate([getattr(item, name) for item in parts]) for name in ("data", "indices"))
    shape = (len(indptr) - 1, inputs[0].shape[1])
    return BaseSparseNDArray.of(SparseBuffer(shape, data, indices, indptr.astype(INDEX), inputs[0].context))


def _dot(op: Any, inputs: Sequence[Any]) -> Any:
    left, right = inputs
    if not (isinstance(left, NDArray) and isinstance(right, NDArray)):
        return NotImplemented
    return product(left, right, op.transpose_a, op.transpose_b, op.forward_stype)


def _cast_storage(op: Any, inputs: Sequence[Any]) -> Any:
    return inputs[0].detach().tostype(op.stype)


def _retain(op: Operator, inputs: Sequence[Any]) -> Any:
    """The rows whose numbers are asked for. All rows are stored then, as in MXNet."""
    data, indices = inputs
    if not isinstance(indices, NDArray):
        raise DTypeError(f"sparse.retain takes the numbers of rows as an NDArray, not {type(indices).__name__}")
    if not isinstance(data, RowSparseNDArray):
        raise DTypeError(f"sparse.retain takes a row_sparse array, not a {data.stype} one")
    wanted, parts = np.unique(index_array(indices, "indices")), data.buffer
    _, mine, places = np.intersect1d(parts.indices, wanted, True, return_indices=True)
    values = np.zeros((len(wanted), *parts.shape[1:]), parts.data.dtype)
    values[places] = parts.data[mine]
    return BaseSparseNDArray.of(SparseBuffer(parts.shape, values, wanted, None, parts.context))


KEEP_ZERO = (
    "abs sign round rint ceil floor trunc fix square sqrt cbrt log1p expm1 sin tan arcsin arctan sinh tanh arcsinh "
    "arctanh degrees radians relu negative identity BlockGrad make_loss"
).split()
"""Operators of one input that map 0 to 0 and keep the storage type."""
COMPARISONS = ("equal", "not_equal", "greater", "greater_equal", "lesser", "lesser_equal")

RULES: dict[str, Rule] = {
    **dict.fromkeys(KEEP_ZERO, _on_stored),
    **dict.fromkeys([f"broadcast_{name}" for name in COMPARISONS], _comparison),
    "clip": _clip,
    "_contrib_quadratic": _quadratic,
    "zeros_like": _zeros_like,
    "broadcast_add": _sum,
    "broadcast_sub": _sum,
    "broadcast_mul": _times,
    "broadcast_div": _over,
    "add_n": _add_n,
    "slice": _slice,
    "take": _take,
    "sum": _reduced,
    "mean": _reduced,
    "norm": _reduced,
    "_square_sum": _square_sum,
    "Concat": _concat,
    "dot": _dot,
    "cast_storage": _cast_storage,
    "_sparse_retain": _retain,
}
"""By the name of the operator's record."""
