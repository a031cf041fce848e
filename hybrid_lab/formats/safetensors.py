"""The safetensors format, read strictly and lazily and written deterministically.

A file is u64 header length, a JSON header {name: {"dtype", "shape", "data_offsets"}, "__metadata__": {str: str}}, and
the tensors' bytes without gaps. The reader refuses what the format forbids, and also files that other readers accept (a
name twice, holes, lone surrogates), because two readers must never see two different models in one file. The package
`safetensors` reads a name that occurs twice, and can neither write at an aligned position of a zip file nor digest.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from os import PathLike
from typing import NamedTuple

import numpy as np

from hybrid_lab.diagnostics import ArchiveError, DTypeError
from hybrid_lab.ops.framework.dtypes import BFLOAT16, bfloat16

from . import strict_json
from .atomic import atomic_write
from .source import Source

HEADER_LIMIT = 100_000_000
"""Largest header in bytes, the format's own cap."""
TENSOR_LIMIT = 250_000
"""Most tensors in one file that are read or written."""
_FIRST_PIECE, _PIECE = 1 << 12, 1 << 20
"""Bytes of a tensor that are compared at once; nearly all that differ do so in the first piece."""
ALIGNMENT = 64
METADATA = "__metadata__"

DTYPES: dict[str, np.dtype] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("<i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("<u1"),
    "BOOL": np.dtype("?"),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
BF16 = "BF16"
"""bfloat16, which NumPy has with ml_dtypes only."""
_FIELDS = {"dtype", "shape", "data_offsets"}
FOREIGN = {"F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "C64"}


@cache
def tag_of(dtype: np.dtype) -> str | None:
    """The format's name of an element type, in any byte order; None if it has none."""
    return NAMES.get(dtype.newbyteorder("<")) or (BF16 if dtype.name == BFLOAT16 else None)


class TensorInfo(NamedTuple):
    """Where one tensor lies: `start` and `stop` count from the first byte after the header."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    start: int
    stop: int


class SafetensorsFile:
    """A safetensors file whose header was read; tensors are read when asked for, and then compared with their digests.

    infos : dict of name -> TensorInfo, in the file's order. metadata : dict of str -> str. header : the bytes before
    the tensors. digests : name -> SHA-256 of the tensor, if it is known
    """

    def __init__(
        self,
        data: bytes | Source,
        *,
        member: str | None = None,
        digests: Mapping[str, str] | None = None,
    ) -> None:
        self._source = data if isinstance(data, Source) else Source(data)
        self.path, self.member, self.digests = self._source.path, member, digests
        self.header = self._read_header()
        self.infos, self.metadata = self._parse()

    @classmethod
    def open(cls, path: str | PathLike[str]) -> SafetensorsFile:
        """Read the header of the file at `path`. Raises ArchiveError for what is not a strict safetensors file."""
        source = Source.open(path)
        if not len(source):
            raise ArchiveError("not a safetensors file: it is empty", path=path)
        return cls(source)

    def __iter__(self) -> Iterator[str]:
        return iter(self.infos)

    def __len__(self) -> int:
        return len(self.infos)

    def __contains__(self, name: object) -> bool:
        return name in self.infos

    def __getitem__(self, name: str) -> np.ndarray:
        """The tensor as an array of its own in native byte order; KeyError for an unknown name."""
        return self.read(name)[0]

    def read(self, name: str) -> tuple[np.ndarray, memoryview]:
        """The tensor and its bytes in the file. Raises ArchiveError if they do not match their digest."""
        info = self.infos[name]
        array = np.empty(info.shape, info.dtype)
        raw = _bytes(array)
        self._source.read_into(raw, len(self.header) + info.start)
        if info.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
            raise self._error(f"tensor {name!r} has bool elements other than 0 and 1")
        if self.digests is not None and tensor_digest(info.dtype, info.shape, raw) != self.digests[name]:
            message = f"damaged archive: tensor {name!r} does not match its digest"
            raise ArchiveError(message, path=self.path, member=self.member)
        return array if info.dtype.isnative else array.astype(info.dtype.newbyteorder("=")), raw

    def holds(self, name: str, array: np.ndarray) -> bool:
        """Whether a tensor of the file is this array, bit for bit. Pieces are read until one differs, and are not
        compared with the tensor's digest. KeyError for an unknown name.
        """
        info = self.infos[name]
        if (tag_of(array.dtype), array.shape) != (tag_of(info.dtype), info.shape):
            return False
        raw = little_bytes(array)
        start, step = len(self.header) + info.start, _FIRST_PIECE
        place = 0
        while place < len(raw):
            stop = min(place + step, len(raw))
            if self._source[start + place : start + stop] != raw[place:stop]:
                return False
            place, step = stop, _PIECE
        return True

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return len(self._source)

    def _error(self, message: str) -> ArchiveError:
        return ArchiveError(f"not a readable safetensors file: {message}", path=self.path, member=self.member)

    def _read_header(self) -> bytes:
        size = len(self._source)
        if size < 10:
            raise self._error(f"{size} bytes are too few")
        length = int.from_bytes(self._source[:8], "little")
        if length > HEADER_LIMIT:
            raise self._error(f"a header of {length} bytes, the limit is {HEADER_LIMIT}")
        if length > size - 8:
            raise self._error(f"the header of {length} bytes ends after the file")
        return self._source[: 8 + length]

    def _parse(self) -> tuple[dict[str, TensorInfo], dict[str, str]]:
        header = self.header[8:]
        if not header.startswith(b"{"):
            raise self._error("the header does not start with '{'")
        if header.count(b"{") > TENSOR_LIMIT + 2:
            raise self._error(f"more than {TENSOR_LIMIT} tensors")
        fields = strict_json.parse(header, path=self.path, member=self.member)
        metadata = fields.pop(METADATA, {})
        if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
            raise self._error(f"{METADATA} must map strings to strings")
        infos = [self._info(name, field) for name, field in fields.items()]
        infos.sort(key=attrgetter("start", "stop"))
        expected = 0
        for info in infos:
            if info.start != expected:
                kind = "overlaps the one before" if info.start < expected else "leaves a hole before it"
                raise self._error(f"tensor {info.name!r} at {info.start} {kind} (which ends at {expected})")
            expected = info.stop
        stored = self.size - len(self.header)
        if expected != stored:
            raise self._error(f"the tensors take {expected} bytes, the file holds {stored}")
        return {info.name: info for info in infos}, metadata

    def _info(self, name: str, field: object) -> TensorInfo:
        if not isinstance(field, dict) or field.keys() != _FIELDS:
            raise self._error(f"tensor {name!r} must have exactly dtype, shape and data_offsets")
        tag, shape, offsets = field["dtype"], field["shape"], field["data_offsets"]
        if not isinstance(tag, str) or (tag not in DTYPES and tag != BF16):
            known = isinstance(tag, str) and tag in FOREIGN
            raise self._error(f"tensor {name!r} has dtype {tag!r}" + (", which NumPy does not have" if known else ""))
        try:
            dtype = bfloat16() if tag == BF16 else DTYPES[tag]
        except DTypeError as error:
            raise self._error(f"tensor {name!r}: {error}") from None
        if not _counts(shape) or len(shape) > 32:
            raise self._error(f"tensor {name!r} has shape {str(shape)[:80]}")
        if not _counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
            raise self._error(f"tensor {name!r} has data_offsets {str(offsets)[:80]}")
        size = dtype.itemsize * math.prod(shape)
        if size == 0 and math.prod(max(dim, 1) for dim in shape) > 1 << 59:
            raise self._error(f"tensor {name!r} of shape {str(shape)[:80]} is larger than any memory")
        if size != offsets[1] - offsets[0]:
            stored = offsets[1] - offsets[0]
            raise self._error(f"tensor {name!r} of {tag} {shape} takes {size} bytes, its data_offsets {stored}")
        return TensorInfo(name, dtype, tuple(shape), *offsets)


def _counts(value: object) -> bool:
    """Whether it is a list of integers from 0 on; a bool is none."""
    return isinstance(value, list) and set(map(type, value)) <= {int} and min(value, default=0) >= 0


def tensor_digest(dtype: np.dtype, shape: tuple[int, ...], raw: memoryview) -> str:
    """SHA-256 over dtype, shape and bytes, so that equal bytes of another form are another tensor."""
    digest = begun_digest(dtype, shape)
    digest.update(raw)
    return digest.hexdigest()


def begun_digest(dtype: np.dtype, shape: tuple[int, ...]) -> hashlib._Hash:
    """The digest of a tensor (see `tensor_digest`) whose bytes are still to be added."""
    return hashlib.sha256(f"{tag_of(dtype)}{list(shape)}\n".encode())


def _little(array: np.ndarray) -> np.ndarray:
    if sys.byteorder == "little" and array.dtype.isnative and array.flags.c_contiguous:
        return array
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(array.shape)


def little_bytes(array: np.ndarray) -> memoryview:
    """The bytes of an array as a file has them; not copied if it is contiguous and little-endian."""
    return _bytes(_little(array))


def _bytes(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


@dataclass(frozen=True, slots=True)
class Encoded:
    """A safetensors file ready to be written: its exact size and its bytes piece by piece."""

    size: int
    header: bytes
    tensors: dict[str, np.ndarray]

    def chunks(self) -> Iterator[bytes | memoryview]:
        """The file's bytes; tensors are not copied if they are contiguous and little-endian."""
        yield self.header
        for array in self.tensors.values():
            yield little_bytes(array)


def digest_of(array: np.ndarray) -> str:
    """SHA-256 of a tensor (see `tensor_digest`)."""
    return tensor_digest(array.dtype, array.shape, little_bytes(array))


def encode(
    arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None, *, position: int = 0
) -> Encoded:
    """Lay out a safetensors file: wide element types first, then by name, so that equal content gives equal bytes.

    position : where in the containing file it will start; the header is padded so that the tensors start at a
    multiple of 64 there. Raises ArchiveError for element types the format does not have.
    """
    if len(arrays) > TENSOR_LIMIT:
        raise ArchiveError(f"{len(arrays)} tensors, at most {TENSOR_LIMIT} fit in one safetensors file")
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or tag_of(array.dtype) is None:
            kind = getattr(array, "dtype", type(array).__name__)
            raise ArchiveError(f"tensor {name!r} has dtype {kind}, which safetensors does not support")
        if name == METADATA:
            raise ArchiveError(f"a tensor cannot be named {METADATA}")
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, object] = {METADATA: dict(sorted(metadata.items()))} if metadata else {}
    offset = 0
    for name in order:
        array = arrays[name]
        tag = tag_of(array.dtype)
        header[name] = {"dtype": tag, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    try:
        text = strict_json.render(header, lines=0)
    except UnicodeEncodeError:
        raise ArchiveError("a tensor name that cannot be written as UTF-8") from None
    text += b" " * (-(position + 8 + len(text)) % ALIGNMENT)
    if len(text) > HEADER_LIMIT:
        raise ArchiveError(f"the names and shapes take {len(text)} bytes, safetensors allows {HEADER_LIMIT}")
    head = len(text).to_bytes(8, "little") + text
    return Encoded(len(head) + offset, head, {name: arrays[name] for name in order})


def read_safetensors(path: str | PathLike[str], names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """Tensors of a safetensors file as writable arrays; all tensors, or only `names`. Raises ArchiveError, KeyError."""
    file = SafetensorsFile.open(path)
    return {name: file[name] for name in (file if names is None else names)}


def write_safetensors(
    path: str | PathLike[str], arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> None:
    """Write arrays to `path` (atomically; equal arrays and metadata give equal bytes). Raises ArchiveError."""
    encoded = encode(arrays, metadata)
    with atomic_write(path) as file:
        file.writelines(encoded.chunks())
