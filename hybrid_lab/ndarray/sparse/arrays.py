"""CSRNDArray and RowSparseNDArray: NDArrays that store only a part of their elements; the remaining elements are 0."""

from __future__ import annotations

from math import prod
from numbers import Number
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab.diagnostics.errors import (
    ArrayIndexError,
    AttributeSpecError,
    DTypeError,
    HybridLabError,
    NotSupportedForSparseNDArray,
    ShapeError,
)
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.context import CPU, Context, resolve
from hybrid_lab.ndarray.invoke import invoke, note_operator
from hybrid_lab.ndarray.ndarray import NDArray, check_dtype
from hybrid_lab.ndarray.sparse.buffer import INDEX, SparseBuffer, compressed, vacant
from hybrid_lab.ops.framework.operator import get

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from hybrid_lab.formats.mxnet.sparse_parts import SparseParts

STYPES = ("default", "row_sparse", "csr")
"""The names of the storage types. Arrays of the type "default" are dense."""


class BaseSparseNDArray(NDArray):
    """The base of sparse arrays. `nd.sparse.csr_matrix`, `nd.sparse.row_sparse_array` and `x.tostype(...)` make them.

    An operator that keeps the storage type computes on the stored values; see `rules`. Every other operator reads a
    dense copy, gives a dense array, and logs a warning once.
    """

    __slots__ = ()

    buffer: SparseBuffer

    @classmethod
    def of(cls, buffer: SparseBuffer, link: tape.Link = None) -> Any:
        """The array of a buffer, of the class for its parts."""
        array = object.__new__(RowSparseNDArray if buffer.indptr is None else CSRNDArray)
        array.buffer, array.tape_link = buffer, link
        return array

    # -- dense memory --------------------------------------------------------------------------------------------

    @property
    def host_view(self) -> np.ndarray:  # type: ignore[override]
        """A dense copy, which cannot be written to. It is kept as long as the array."""
        return self.buffer.host

    def dense(self) -> NDArray:
        """A dense array with the same history: on the dense copy, or on a GPU in memory of its own."""
        if self.context.is_gpu:
            copy = NDArray.from_host(self.asnumpy(), self.context)
            copy.tape_link = self.tape_link
            return copy
        return NDArray.view_of(self.buffer, self.buffer.host, self.tape_link)

    def as_nd_ndarray(self) -> NDArray:
        """The array itself."""
        return self

    def as_np_ndarray(self) -> NoReturn:
        """Raises AttributeSpecError: `mx.np` arrays are dense."""
        raise AttributeSpecError(f"mx.np arrays are dense; use x.tostype('default').as_np_ndarray(), x is {self.stype}")

    def alike(self, other: NDArray) -> Any:
        """`other` itself."""
        return other

    def assign(self, values: np.ndarray) -> None:
        """Overwrite the values with dense values, without the tape."""
        values = np.broadcast_to(np.asarray(values), self.shape)
        self.become(compressed(self.shape, np.ascontiguousarray(values, self.dtype), self.context, self.stype))

    def become(self, source: SparseBuffer) -> None:
        """Overwrite the values with a buffer's of the same storage type, converted to the dtype of the array."""
        self.buffer.replace(source.data.astype(self.buffer.data.dtype, copy=False), source.indices, source.indptr)

    def fill(self, number: float) -> None:
        """Overwrite all elements. For 0 nothing is stored then."""
        if number == 0:
            self.become(vacant(self.shape, self.buffer.data.dtype, self.context, self.stype))
        else:
            values = self.buffer.dense_memory()
            values.fill(number)
            self.assign(values)

    def _take(self, tensor: Any) -> None:
        self.assign(tensor.cpu().numpy())

    def memory_on(self, device: str | None) -> NoReturn:
        """Raises DTypeError: there is no dense memory to write to."""
        raise DTypeError(f"a {self.stype} array has no dense memory to write to")

    # -- attributes ----------------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes along the axes."""
        return self.buffer.shape

    @property
    def dtype(self) -> Any:
        """The NumPy type, `numpy.float32`."""
        return self.buffer.data.dtype.type

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.buffer.shape)

    @property
    def size(self) -> int:
        """Raises NotImplementedError, as in MXNet: it could mean all elements or the stored elements."""
        raise NotSupportedForSparseNDArray("a sparse array has no size; use x.data.size, or x.shape")

    @property
    def data(self) -> NDArray:
        """A copy of the stored values. csr: (n,); row_sparse: the stored rows, (n, ...)."""
        return NDArray.from_host(self.buffer.data.copy(), self.context)

    @data.setter
    def data(self, value: object) -> None:
        raise NotSupportedForSparseNDArray("x.data of a sparse array cannot be set; make a new array")

    @property
    def indices(self) -> NDArray:
        """A copy of the indices, int64. csr: the column of each value; row_sparse: the number of each stored row."""
        return NDArray.from_host(self.buffer.indices.copy(), self.context)

    @indices.setter
    def indices(self, value: object) -> None:
        raise NotSupportedForSparseNDArray("x.indices of a sparse array cannot be set; make a new array")

    @property
    def _num_aux(self) -> int:
        """The number of index arrays: 1 for row_sparse, 2 for csr."""
        return 1 if self.buffer.indptr is None else 2

    @property
    def _aux_types(self) -> list[type]:
        """The types of the index arrays."""
        return [np.int64] * self._num_aux

    def check_format(self, full_check: bool = True) -> None:
        """Raise ShapeError if the shapes of the parts do not fit the array's.

        full_check : also raise ArrayIndexError for indices that are out of range, repeated or do not rise
        """
        self.buffer.check(full_check)

    # -- values out ----------------------------------------------------------------------------------------------

    def asnumpy(self) -> np.ndarray:
        """A dense copy as a NumPy array."""
        return self.buffer.expand(self.buffer.dense_memory())

    def asscalar(self) -> Any:
        """The only element as a NumPy scalar. Raises ShapeError for any other size."""
        if prod(self.shape) != 1:
            raise ShapeError(f"The current array is not a scalar: it has shape {self.shape}")
        return self.asnumpy().reshape(-1)[0]

    def __bool__(self) -> bool:
        if prod(self.shape) == 1:
            return bool(self.asscalar())
        if prod(self.shape) == 0:
            return False
        raise ShapeError(
            "The truth value of an NDArray with multiple elements is ambiguous; use (x != 0).sum() or asscalar()"
        )

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"\n<{type(self).__name__} {'x'.join(map(str, self.shape))} @{self.context}>"

    def _repr_html_(self) -> None:
        """None: notebooks show `repr(x)`."""
        return None

    def __hash__(self) -> int:
        return id(self)

    def __reduce__(self) -> tuple[object, ...]:
        parts = self.buffer
        return _restore, (parts.shape, parts.data, parts.indices, parts.indptr, self.context)

    def __deepcopy__(self, memo: object) -> Any:
        copy = BaseSparseNDArray.of(_copied(self.buffer))
        if type(self.tape_link) is tape.Leaf:
            copy.attach_grad(self.tape_link.req, self.tape_link.grad.stype)
        return copy

    # -- copies and conversions ----------------------------------------------------------------------------------

    def astype(self, dtype: DTypeLike | None, copy: bool = True) -> Any:
        """The array with another dtype and the same storage type. `copy=False` returns the array itself if it has that
        dtype.
        """
        wanted = check_dtype(dtype)
        if not copy and wanted == self.buffer.data.dtype:
            return self
        made = BaseSparseNDArray.of(_copied(self.buffer, dtype=wanted))
        note_operator(get("Cast").bind(dtype=wanted.name), (self,), (made,))
        return made

    def copyto(self, other: NDArray | Context) -> NDArray:
        """Write into another array of the same shape, dense or of the same storage type; or copy to a context.

        Raises DTypeError for an array of the other storage type.
        """
        if isinstance(other, Context):
            copy: NDArray = BaseSparseNDArray.of(_copied(self.buffer, resolve(other)))
            note_operator(get("identity").bind(), (self,), (copy,))
            return copy
        return super().copyto(other)

    def tostype(self, stype: str) -> Any:
        """A copy in another storage type, 'default' or the array's own; recorded.

        Raises ShapeError for csr to row_sparse and the reverse, which MXNet does not have either.
        """
        if stype == "default":
            made = NDArray.from_host(self.asnumpy(), self.context)
        elif stype == self.stype:
            made = BaseSparseNDArray.of(_copied(self.buffer))
        else:
            raise ShapeError(f"cast_storage from {self.stype} to {stype} is not supported; go by tostype('default')")
        note_operator(get("identity").bind(), (self,), (made,))
        return made

    def detach(self) -> Any:
        """The same parts without history: a constant for autograd."""
        return BaseSparseNDArray.of(self.buffer)

    def attach_grad(self, grad_req: str = "write", stype: str | None = None) -> None:
        """Give the array a gradient (zeros at first), of the array's storage type unless stype says another."""
        super().attach_grad(grad_req, self.stype if stype is None else stype)

    def reshape(self, *shape: Any, reverse: bool = False, **keywords: Any) -> NoReturn:
        """Raises NotImplementedError, as in MXNet: a sparse array has no other shape on the same memory."""
        raise NotSupportedForSparseNDArray(
            f"a {self.stype} array cannot be reshaped; use x.tostype('default').reshape(...)"
        )

    # -- elements ------------------------------------------------------------------------------------------------

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(key, slice) or (key.start, key.stop, key.step) != (None, None, None):
            raise ArrayIndexError(f"a {self.stype} array takes x[:] = value only")
        if tape.state.recording:
            tape.refuse_write(self)
        if isinstance(value, NDArray):
            self._receive(value)
        elif isinstance(value, np.ndarray):
            if value.shape != self.shape:
                raise ShapeError(f"values of shape {value.shape} were given to an array of shape {self.shape}")
            self.assign(value)
        elif isinstance(value, Number) and self.stype == "row_sparse":
            values = self.buffer.dense_memory()
            values.fill(value)
            self.assign(values)
        else:
            raise ArrayIndexError(f"a {self.stype} array takes no {type(value).__name__} for x[:] = value")

    def _receive(self, value: NDArray) -> None:
        if value.shape != self.shape:
            raise ShapeError(f"an array of shape {value.shape} was given to one of shape {self.shape}")
        if value.stype == self.stype:
            if value.buffer is not self.buffer:
                self.become(_copied(value.buffer))  # type: ignore[arg-type]
        elif value.stype != "default":
            raise DTypeError(f"a {value.stype} array cannot be written into a {self.stype} array")
        else:
            self.assign(value._data)

    def __iadd__(self, other: Any) -> Any:  # type: ignore[misc]
        return self._updated(self + other)

    def __isub__(self, other: Any) -> Any:  # type: ignore[misc]
        return self._updated(self - other)

    def __imul__(self, other: Any) -> Any:  # type: ignore[misc]
        return self._updated(self * other)

    def __itruediv__(self, other: Any) -> Any:  # type: ignore[misc]
        return self._updated(self / other)

    def _updated(self, result: NDArray) -> Any:
        self[:] = result
        return self


class CSRNDArray(BaseSparseNDArray):
    """A matrix of which only some elements are stored, row by row: compressed sparse rows.

    The columns and values of row i are `indices[indptr[i]:indptr[i + 1]]` and `data[indptr[i]:indptr[i + 1]]`.
    """

    __slots__ = ()

    @property
    def stype(self) -> str:
        """'csr'."""
        return "csr"

    @property
    def indptr(self) -> NDArray:
        """A copy of the positions at which rows begin in `data`, (rows + 1,), int64."""
        assert self.buffer.indptr is not None
        return NDArray.from_host(self.buffer.indptr.copy(), self.context)

    @indptr.setter
    def indptr(self, value: object) -> None:
        raise NotSupportedForSparseNDArray("x.indptr of a csr array cannot be set; make a new array")

    def asscipy(self) -> csr_matrix:
        """A copy as a `scipy.sparse.csr_matrix`. Raises ImportError without SciPy."""
        from scipy.sparse import csr_matrix

        parts = self.buffer
        parts.validate()
        return csr_matrix((parts.data.copy(), parts.indices.copy(), parts.indptr), shape=self.shape, dtype=self.dtype)

    def __getitem__(self, key: Any) -> Any:
        """A copy of row `key` as a matrix (1, columns), or of the rows of a slice without a step."""
        if isinstance(key, (bool, np.bool_)):
            raise ArrayIndexError(f"{key} is not an index of a csr array; use x.tostype('default')[...]")
        if isinstance(key, (int, np.integer)):
            first = int(key) + (self.shape[0] if key < 0 else 0)
            if not 0 <= first < self.shape[0]:
                raise ArrayIndexError(f"there is no row {key} in a csr array of shape {self.shape}")
            return invoke(get("slice").bind(begin=(first,), end=(first + 1,)), (self,))
        if not isinstance(key, slice) or key.step is not None:
            raise ArrayIndexError(f"a csr array takes the number of a row or a slice of rows, not {key!r}")
        if key.start is None and key.stop is None:
            return self
        first, last, _ = key.indices(self.shape[0])
        return invoke(get("slice").bind(begin=(first,), end=(last,)), (self,))


class RowSparseNDArray(BaseSparseNDArray):
    """An array of which only some rows are stored: row `indices[i]` is `data[i]`.

    Gradients of embeddings, and of products with csr matrices, have few such rows.
    """

    __slots__ = ()

    @property
    def stype(self) -> str:
        """'row_sparse'."""
        return "row_sparse"

    def retain(self, indices: NDArray) -> RowSparseNDArray:
        """The array with the rows of these numbers only; see `nd.sparse.retain`."""
        return invoke(get("_sparse_retain").bind(), (self, indices))

    def __getitem__(self, key: Any) -> Any:
        """The array itself, for x[:]. Raises ArrayIndexError for any other key, which MXNet does not have either."""
        if isinstance(key, slice) and (key.start, key.stop, key.step) == (None, None, None):
            return self
        raise ArrayIndexError(f"a row_sparse array takes x[:] only, not {key!r}; use x.tostype('default')[...]")


def _copied(parts: SparseBuffer, context: Context | None = None, dtype: np.dtype | None = None) -> SparseBuffer:
    indptr = None if parts.indptr is None else parts.indptr.copy()
    data = parts.data.astype(parts.data.dtype if dtype is None else dtype)
    return SparseBuffer(parts.shape, data, parts.indices.copy(), indptr, context or parts.context)


def _restore(
    shape: tuple[int, ...], data: np.ndarray, indices: np.ndarray, indptr: np.ndarray | None, context: Context
) -> Any:
    """Unpickle: the parts, on the CPU if the context cannot be used here."""
    try:
        context = resolve(context)
    except HybridLabError:
        context = CPU
    return BaseSparseNDArray.of(SparseBuffer(shape, data, indices, indptr, context))


def to_sparse(array: NDArray, stype: str) -> Any:
    """A copy of a dense array in a sparse storage type; recorded. Raises ShapeError for csr without two dimensions."""
    if stype not in STYPES:
        raise ShapeError(f"unknown storage type {stype!r}; there are {', '.join(STYPES)}")
    made = BaseSparseNDArray.of(compressed(array.shape, array._data, array.context, stype))
    note_operator(get("identity").bind(), (array,), (made,))
    return made


def zeros_of(stype: str, shape: tuple[int, ...], dtype: DTypeLike, context: Context) -> Any:
    """A sparse array of zeros, of which nothing is stored."""
    if stype not in STYPES[1:]:
        raise ShapeError(f"unknown storage type {stype!r}; there are {', '.join(STYPES)}")
    return BaseSparseNDArray.of(vacant(shape, check_dtype(dtype), context, stype))


def index_array(values: Any, what: str) -> np.ndarray:
    """Whole numbers in one dimension, as int64. Raises ShapeError, DTypeError."""
    try:
        numbers = values.asnumpy() if isinstance(values, NDArray) else np.asarray(values)
    except ValueError:
        raise DTypeError(f"{what} must be whole numbers in one list or array") from None
    if numbers.ndim != 1:
        raise ShapeError(f"invalid shape: {what} must have one dimension, not {numbers.shape}")
    if numbers.size and (numbers.dtype.kind not in "iuf" or np.any(numbers != np.floor(numbers))):
        raise DTypeError(f"{what} must hold whole numbers")
    return np.array(numbers, INDEX)


def parts_of(array: NDArray) -> SparseParts:
    """The parts of a sparse array, as for a file. Raises ArrayIndexError or ShapeError if invalid."""
    assert isinstance(array, BaseSparseNDArray)
    array.buffer.validate()
    return array.buffer.parts()


def array_of(parts: SparseParts) -> NDArray:
    """The sparse array that a file holds."""
    made: NDArray = BaseSparseNDArray.of(SparseBuffer(parts.shape, parts.data, parts.indices, parts.indptr, CPU))
    return made
