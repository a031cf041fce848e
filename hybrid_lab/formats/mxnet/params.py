"""MXNet's `.params` files: a list or a dictionary of arrays, read and written byte for byte as MXNet does.

Little-endian. The file: u64 0x112, u64 0, u64 count, the arrays, u64 number of names, and per name u64 length and
bytes. An array starts with a u32: a magic (V1, V2 or V3), or in the oldest form the number of dimensions itself.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, BinaryIO

import numpy as np

from hybrid_lab.diagnostics import ArchiveError, DTypeError
from hybrid_lab.ops.framework.dtypes import BFLOAT16, bfloat16

from ..atomic import atomic_write
from ..kinds import other_kind
from ..source import Source
from .sparse_parts import SparseParts

LIST_MAGIC = 0x112
V1, V2, V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
MAX_NDIM = 32
MAX_ELEMENTS = 1 << 59
"""What NumPy makes of an array, dimensions of 0 counted as 1: more than 2**63 bytes have no address."""
DENSE, ROW_SPARSE, CSR = 0, 1, 2
STORAGE = {DENSE: "dense", ROW_SPARSE: "row_sparse", CSR: "csr"}

TYPE_FLAGS: dict[int, np.dtype] = {
    flag: np.dtype(name).newbyteorder("<")
    for flag, name in enumerate(["f4", "f8", "f2", "u1", "i4", "i1", "i8", "?", "i2", "u2", "u4", "u8"])
}
"""MXNet's type_flag -> element type. Flags above 7 are declared by MXNet but not loadable by its releases."""
WRITABLE = {dtype: flag for flag, dtype in TYPE_FLAGS.items() if flag <= 7}
BFLOAT16_FLAG = 12

Arrays = dict[str, np.ndarray | None] | list[np.ndarray | None]
Entry = np.ndarray | SparseParts | None
Stored = dict[str, Entry] | list[Entry]
"""Arrays of which some are sparse."""


_CUT_OFF = "; if the file was cut off, download or copy it again"


class _Cursor:
    """A position in the file; every read is checked against the remaining bytes."""

    def __init__(self, data: Source) -> None:
        self.data = data
        self.offset = 0
        self.item: str | None = None

    def error(self, message: str, offset: int | None = None, advice: str = "") -> ArchiveError:
        at = self.offset if offset is None else offset
        text = f"not a readable .params file: {message} at offset {at}{advice}"
        return ArchiveError(text, path=self.data.path, member=self.item)

    @property
    def left(self) -> int:
        return len(self.data) - self.offset

    def pass_over(self, count: int, what: str) -> int:
        """The offset of the next `count` bytes; the position is after them then."""
        if count < 0 or count > self.left:
            raise self.error(f"{what} needs {count} bytes, {self.left} are left", advice=_CUT_OFF)
        self.offset += count
        return self.offset - count

    def take(self, count: int, what: str) -> bytes:
        start = self.pass_over(count, what)
        return self.data[start : self.offset]

    def u32(self, what: str) -> int:
        return int.from_bytes(self.take(4, what), "little")

    def i32(self, what: str) -> int:
        return int.from_bytes(self.take(4, what), "little", signed=True)

    def u64(self, what: str) -> int:
        return int.from_bytes(self.take(8, what), "little")

    def dims(self, ndim: int, width: int, what: str) -> tuple[int, ...]:
        if not 0 <= ndim <= MAX_NDIM:
            raise self.error(f"{what} of {ndim} dimensions")
        shape = struct.unpack(f"<{ndim}{'q' if width == 8 else 'I'}", self.take(ndim * width, what))
        if any(d < 0 for d in shape):
            raise self.error(f"negative dimension in {what} {shape}")
        if math.prod(max(d, 1) for d in shape) > MAX_ELEMENTS:
            raise self.error(f"{what} {shape} is larger than any memory")
        return shape

    def shape(self, what: str) -> tuple[int, ...]:
        return self.dims(self.i32(what), 8, what)

    def dtype(self, what: str) -> np.dtype:
        flag = self.i32(what)
        if flag == BFLOAT16_FLAG:
            try:
                return bfloat16()
            except DTypeError as error:
                raise self.error(str(error), self.offset - 4) from None
        if flag not in TYPE_FLAGS:
            raise self.error(f"unknown type flag {flag}", self.offset - 4)
        return TYPE_FLAGS[flag]

    def elements(self, shape: tuple[int, ...], dtype: np.dtype, what: str) -> np.ndarray:
        """The elements as an array of their own in native byte order."""
        start = self.pass_over(math.prod(shape) * dtype.itemsize, f"{what} {shape} {dtype}")
        array = self.data.array(start, shape, dtype)
        if dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
            raise self.error(f"{what} has bool elements other than 0 and 1", start)
        return array.astype(dtype.newbyteorder("="), copy=False)


def _flag_of(dtype: np.dtype) -> int | None:
    """The type flag to write, or None if MXNet could not read it."""
    return BFLOAT16_FLAG if dtype.name == BFLOAT16 else WRITABLE.get(dtype.newbyteorder("<"))


def _read_array(cursor: _Cursor, dense_limit: int | None) -> np.ndarray | SparseParts | None:
    start = cursor.offset
    magic = cursor.u32("an array's magic number")
    if magic in (V2, V3):
        storage = cursor.i32("the storage type")
        if magic == V3 and storage != DENSE:
            raise cursor.error(f"storage type {storage} in an np-shape array", start)
        if storage != DENSE:
            if storage not in STORAGE:
                raise cursor.error(f"unknown storage type {storage}", start)
            return _read_sparse(cursor, storage, dense_limit)
        shape = cursor.shape("the shape")
    elif magic == V1:
        shape = cursor.shape("the shape")
    elif magic <= MAX_NDIM:
        shape = cursor.dims(magic, 4, "the shape")
    else:
        raise cursor.error(f"unknown array magic 0x{magic:08X}", start)
    if not shape and magic != V3:
        return None
    cursor.pass_over(8, "the device")  # the device it lived on says nothing about where it is loaded
    dtype = cursor.dtype("the element type")
    return cursor.elements(shape, dtype, "array")


def _read_sparse(cursor: _Cursor, storage: int, dense_limit: int | None) -> np.ndarray | SparseParts | None:
    """row_sparse: values (rows, ...) and one index per row; csr: values, row pointers, column indices."""
    kind = STORAGE[storage]
    start = cursor.offset
    stored = cursor.shape("the stored shape")
    shape = cursor.shape("the shape")
    if not shape:
        return None
    cursor.pass_over(8, "the device")
    dtype = cursor.dtype("the element type")
    aux = [(cursor.dtype("an index type"), cursor.shape("an index shape")) for _ in range(storage)]
    values = cursor.elements(stored, dtype, f"{kind} values")
    indices = [cursor.elements(s, t, f"{kind} indices") for t, s in aux]
    for index in indices:
        if index.ndim != 1 or index.dtype.kind not in "iu":
            raise cursor.error(f"{kind} indices of shape {index.shape} and type {index.dtype}", start)
    parts = SparseParts(shape, values, indices[-1], indices[0] if storage == CSR else None)
    size = math.prod(shape) * dtype.itemsize
    if dense_limit is not None and size > dense_limit:
        raise cursor.error(
            f"a {kind} array of shape {shape} takes {size} bytes when dense, more than the limit of {dense_limit}; "
            "pass dense_limit= to allow it,",
            start,
        )
    problem = parts.problem()
    if problem:
        raise cursor.error(f"{kind} array of shape {shape}: {problem}", start)
    return parts.filled() if dense_limit is None else parts.dense()


def _parse(data: Source, dense_limit: int | None, sparse: bool) -> Stored:
    cursor = _Cursor(data)
    if data.path is not None and not len(data):
        raise ArchiveError("not a readable .params file: it is empty", path=data.path)
    other = other_kind(data, ".params")
    if other is not None:
        raise ArchiveError(f"not a .params file but {other}", path=data.path)
    if cursor.u64("the file's magic number") != LIST_MAGIC:
        raise cursor.error("it does not start with 0x112", 0)
    if cursor.u64("the reserved field") != 0:
        raise cursor.error("the reserved field is not 0", 8)
    count = cursor.u64("the number of arrays")
    if count * 4 > cursor.left:
        raise cursor.error(f"{count} arrays cannot fit in {cursor.left} bytes", 16)
    limit = 2 * len(data) if dense_limit is None else dense_limit
    arrays: list[Entry] = []
    for index in range(count):
        cursor.item = f"array {index}"
        array = _read_array(cursor, None if sparse else limit)
        arrays.append(array)
        if dense_limit is None and isinstance(array, np.ndarray):
            limit -= array.nbytes
    cursor.item = None
    names = _read_names(cursor, count)
    if cursor.left:
        raise cursor.error(f"{cursor.left} bytes follow the end")
    return arrays if names is None else dict(zip(names, arrays, strict=True))


def _read_names(cursor: _Cursor, count: int) -> list[str] | None:
    start = cursor.offset
    named = cursor.u64("the number of names")
    if named not in (0, count):
        raise cursor.error(f"{named} names for {count} arrays", start)
    if named == 0:
        return None
    names: dict[str, None] = {}
    for index in range(named):
        cursor.item = f"name {index}"
        start = cursor.offset
        raw = cursor.take(cursor.u64("the name's length"), "the name")
        try:
            name = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise cursor.error("a name that is not UTF-8", start) from None
        if name in names:
            raise cursor.error(f"the name {name!r} appears twice", start)
        names[name] = None
    cursor.item = None
    return list(names)


def read_params(
    source: str | PathLike[str] | bytes | bytearray | memoryview | Source, *, dense_limit: int | None = None
) -> Arrays:
    """The arrays of a `.params` file (a path) or of its bytes.

    Returns a dict of name -> array for named saves (names as written: `arg:...`, `aux:...`, or attribute paths), a list
    for unnamed saves; an entry is None if MXNet saved an empty array. Arrays are writable and in C order; row_sparse
    and csr become dense, as long as all arrays together stay under `dense_limit` bytes (default: twice the file).
    Raises ArchiveError naming the file, the array and the offset.
    """
    arrays: Any = _parse(_opened(source), dense_limit, sparse=False)
    return arrays


def read_stored(source: str | PathLike[str] | bytes | bytearray | memoryview | Source) -> Stored:
    """As `read_params`, with sparse arrays as SparseParts."""
    return _parse(_opened(source), None, sparse=True)


def _opened(source: str | PathLike[str] | bytes | bytearray | memoryview | Source) -> Source:
    if isinstance(source, (str, PathLike)):
        return Source.open(source)
    return source if isinstance(source, Source) else Source(source)


def _chunks(arrays: Sequence[tuple[str | None, Entry]], np_shape: bool) -> Iterator[bytes | memoryview]:
    yield struct.pack("<QQQ", LIST_MAGIC, 0, len(arrays))
    for _, array in arrays:
        if array is None:
            yield struct.pack("<Iii", V2, DENSE, 0)
            continue
        shape = array.shape
        if isinstance(array, SparseParts):
            yield from _sparse_chunks(array)
            continue
        flag = _flag_of(array.dtype)
        yield struct.pack(
            f"<Iii{len(shape)}qiii", V3 if np_shape else V2, DENSE, len(shape), *shape, 1, 0, flag
        )  # device: cpu(0), as MXNet writes arrays from any device
        yield _bytes(array)
    names = [name.encode("utf-8") for name, _ in arrays if name is not None]
    yield struct.pack("<Q", len(names))
    for name in names:
        yield struct.pack("<Q", len(name)) + name


def _bytes(array: np.ndarray) -> bytes | memoryview:
    contiguous = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return contiguous.reshape(-1).view(np.uint8).data if contiguous.size else b""


def _sparse_chunks(parts: SparseParts) -> Iterator[bytes | memoryview]:
    data, shape = parts.data, parts.shape
    indices = [parts.indices] if parts.indptr is None else [parts.indptr, parts.indices]
    storage = ROW_SPARSE if parts.indptr is None else CSR
    yield struct.pack(f"<Iii{data.ndim}q", V2, storage, data.ndim, *data.shape)
    yield struct.pack(f"<i{len(shape)}qiii", len(shape), *shape, 1, 0, _flag_of(data.dtype))
    for index in indices:
        yield struct.pack("<iiq", _flag_of(index.dtype), 1, len(index))
    for array in (data, *indices):
        yield _bytes(array)


def _unstorable(array: Entry, np_shape: bool) -> str | None:
    """Why an array has no form in a file; None if it has one."""
    if isinstance(array, SparseParts):
        if np_shape:
            return "the np-shape form cannot store a sparse array; save it in a file of its own"
        return _unstorable(array.data, False)
    if array is None:
        return "the np-shape form cannot store an empty entry" if np_shape else None
    if not isinstance(array, np.ndarray) or _flag_of(array.dtype) is None:
        kind = getattr(array, "dtype", type(array).__name__)
        return f".params files cannot store {kind} elements; cast the array first"
    if array.ndim == 0 and not np_shape:
        return "the default .params form has no shape (); reshape to (1,) or pass np_shape=True"
    if array.ndim > MAX_NDIM:
        return f"the array has {array.ndim} dimensions, MXNet supports at most {MAX_NDIM}"
    return None


def write_params(
    path: str | PathLike[str] | BinaryIO,
    arrays: Mapping[str, Entry] | Mapping[str, np.ndarray] | Sequence[Entry] | Sequence[np.ndarray],
    *,
    np_shape: bool | None = False,
) -> None:
    """Write arrays as MXNet's `nd.save` does, byte for byte: a mapping with its names, a sequence without.

    path : a file name (replaced atomically) or an open binary file. Elements: float16/32/64, bfloat16,
    uint8, int8/32/64, bool.
    np_shape : write the np-shape form, which has the shape () but loads in MXNet only under `npx.set_np()`. None writes
        it if one of the arrays has the shape ().
    Raises ArchiveError for an element type or shape the format does not have; nothing is written then.
    """
    pairs: list[tuple[str | None, Entry]] = (
        list(arrays.items()) if isinstance(arrays, Mapping) else [(None, array) for array in arrays]
    )
    if np_shape is None:
        np_shape = any(array is not None and array.shape == () for _, array in pairs)
    where = fspath(path) if isinstance(path, (str, PathLike)) else None
    for index, (name, array) in enumerate(pairs):
        problem = _unstorable(array, np_shape)
        if problem:
            raise ArchiveError(problem, path=where, member=f"array {index}" if name is None else name)
    if isinstance(path, (str, PathLike)):
        with atomic_write(path) as file:
            file.writelines(_chunks(pairs, np_shape))
    else:
        path.writelines(_chunks(pairs, np_shape))
