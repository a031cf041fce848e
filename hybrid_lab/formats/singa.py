"""SINGA's file of a model's states: a zip of `tensor_dict.npz` and `states_attr.json`.

`tensor_dict.npz` is NumPy's zip of `.npy` members; `states_attr.json` says of each tensor whether it is a state of the
model or a value of the user's own, and gives its shape and the number of its type in SINGA (python/singa/model.py,
`Model.save_states`). The reader unpacks nothing onto the disk, takes no pickled arrays, and knows the size of each
member before it reads it.
"""

from __future__ import annotations

import io
import math
import re
import zipfile
import zlib
from collections.abc import Mapping
from os import PathLike, fspath
from typing import BinaryIO

import numpy as np

from hybrid_lab.diagnostics import ArchiveError
from hybrid_lab.diagnostics.file_errors import open_regular, reading

from . import strict_json
from .atomic import atomic_write

TENSORS = "tensor_dict.npz"
ATTRIBUTES = "states_attr.json"
MODEL, AUX = 0, 1
"""SINGA's numbers for what a tensor is."""
TYPES = {"float32": 0, "float16": 1, "int32": 2, "int8": 3, "float64": 4, "uint8": 5}
"""SINGA's numbers of element types (core.proto, DataType). An array of another type is written as -1, which SINGA does
not read: its own loader takes the type of the array."""

_RATIO, _ROOM = 2, 60 << 20
"""What a file holds may take so many times its own bytes, and so many bytes besides."""
_DIRECTORY_LIMIT = 32 << 20
_HEADER = re.compile(
    r"\{'descr': '([<>|=][a-z]\d{1,2})', 'fortran_order': (True|False), "
    r"'shape': \(((?:\d{1,15}, ?)*(?:\d{1,15})?)\), \}[ \n]*",
    re.ASCII,
)
_DATE = (1980, 1, 1, 0, 0, 0)


def is_singa(path: str | PathLike[str]) -> bool:
    """Whether a file begins as a zip whose first member is one of the two that SINGA writes."""
    with reading(path), open_regular(path) as file:
        head = file.read(64)
    return head.startswith(b"PK\3\4") and head[30:].startswith((TENSORS.encode(), ATTRIBUTES.encode()))


def write_states(
    path: str | PathLike[str], states: Mapping[str, np.ndarray], aux: Mapping[str, np.ndarray] | None = None
) -> None:
    """Write a model's states and the user's own arrays, atomically; equal arrays give equal bytes.

    Raises ArchiveError for a name that stands for a state and for a value of the user's own, and for an element type
    that NumPy's format cannot hold without pickling.
    """
    aux = aux or {}
    both = states.keys() & aux.keys()
    if both:
        message = f"{min(both)!r} is a state of the model; give your own value another name"
        raise ArchiveError(message, path=fspath(path))
    attributes, arrays = {}, {**states, **aux}
    for name, array in arrays.items():
        if array.dtype.hasobject or array.dtype.kind not in "?biufc":
            raise ArchiveError(f"{name!r} has dtype {array.dtype}, which this format cannot hold", path=fspath(path))
        kind = AUX if name in aux else MODEL
        number = TYPES.get(array.dtype.name, -1)
        attributes[name] = {"state_type": kind, "shape": list(array.shape), "dtype": number}
    with atomic_write(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as outer:
        with outer.open(_entry(TENSORS), "w", force_zip64=True) as stream, zipfile.ZipFile(stream, "w") as inner:
            for name, array in arrays.items():
                with inner.open(_entry(name + ".npy"), "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.ascontiguousarray(array).reshape(array.shape), (1, 0), False)
        outer.writestr(_entry(ATTRIBUTES), strict_json.render(attributes))


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _DATE)
    if name in (TENSORS, ATTRIBUTES):
        entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def read_states(path: str | PathLike[str]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The states of the model, and the user's own arrays, of a file that `write_states` or SINGA wrote.

    Raises ArchiveError naming the member for anything else, FileError.
    """
    reader = _Reader(fspath(path))
    with reading(path), open_regular(path) as file:
        size = file.seek(0, io.SEEK_END)
        reader.room = _RATIO * size + _ROOM
        members = reader.members(file, None)
        for name in (TENSORS, ATTRIBUTES):
            if name not in members:
                raise reader.error("not a file of SINGA's states: the member is missing", name)
        if len(members) != 2:
            other = next(name for name in members if name not in (TENSORS, ATTRIBUTES))
            raise reader.error("not a file of SINGA's states: it has a further member", other)
        attributes = strict_json.parse(reader.read(file, members[ATTRIBUTES]), path=path, member=ATTRIBUTES)
        content = io.BytesIO(reader.read(file, members[TENSORS]))
    arrays = {}
    for name, info in reader.members(content, TENSORS).items():
        if not name.endswith(".npy"):
            raise reader.error(f"damaged file: {name[:80]!r} is no array", TENSORS)
        arrays[name[:-4]] = reader.array(reader.read(content, info), name)
    kinds = reader.kinds(attributes, arrays)
    states = {name: array for name, array in arrays.items() if kinds[name] == MODEL}
    return states, {name: array for name, array in arrays.items() if kinds[name] == AUX}


class _Reader:
    """One read. room : bytes that members may still take"""

    room: int

    def __init__(self, path: str) -> None:
        self.path = path

    def error(self, message: str, member: str | None = None) -> ArchiveError:
        return ArchiveError(message, path=self.path, member=member)

    def members(self, file: BinaryIO, member: str | None) -> dict[str, zipfile.ZipInfo]:
        """The members of a zip by name: plain files, unencrypted, stored or deflated."""
        self._check_directory(file, member)
        try:
            with zipfile.ZipFile(file) as archive:
                infos = archive.infolist()
        except (zipfile.BadZipFile, ValueError, EOFError, RuntimeError, OSError) as error:
            raise self.error(f"damaged file: not a readable zip: {error}", member) from None
        found: dict[str, zipfile.ZipInfo] = {}
        for info in infos:
            name = info.filename
            if info.flag_bits & 0x41 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise self.error(f"damaged file: {name[:80]!r} is encrypted or compressed in an unknown way", member)
            if name in found:
                raise self.error(f"damaged file: {name[:80]!r} is there twice", member)
            found[name] = info
        return found

    def _check_directory(self, file: BinaryIO, member: str | None) -> None:
        """Refuse a directory that would take long to read."""
        size = file.seek(0, io.SEEK_END)
        file.seek(max(0, size - (1 << 16) - 22))
        tail = file.read()
        place = tail.rfind(b"PK\5\6")
        if place < 0 or len(tail) < place + 22:
            raise self.error("damaged file: not a readable zip", member)
        length = int.from_bytes(tail[place + 12 : place + 16], "little")
        if length > (_DIRECTORY_LIMIT if member else 1 << 12):
            raise self.error(f"damaged file: a zip directory of {length} bytes", member)

    def read(self, file: BinaryIO, info: zipfile.ZipInfo) -> bytes:
        """The bytes of a member, no more than it announces and than there is room for."""
        name = info.filename
        if info.file_size > self.room:
            raise self.error(f"refused: {info.file_size} bytes are far more than a file of this size should hold", name)
        self.room -= info.file_size
        try:
            with zipfile.ZipFile(file) as archive, archive.open(info) as stream:
                content = stream.read(info.file_size + 1)
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError, RuntimeError) as error:
            raise self.error(f"damaged file: {error}", name) from None
        if len(content) != info.file_size:
            raise self.error(f"damaged file: {len(content)} bytes instead of {info.file_size}", name)
        return content

    def array(self, content: bytes, name: str) -> np.ndarray:
        """The array of an `.npy` member, which keeps the member's bytes."""
        if content[:6] != b"\x93NUMPY" or content[6:8] not in (b"\1\0", b"\2\0"):
            raise self.error("damaged file: not NumPy's .npy format", name)
        start = 10 if content[6] == 1 else 12
        stop = start + int.from_bytes(content[8:start], "little")
        header = _HEADER.fullmatch(content[start:stop].decode("latin-1")) if stop - start <= 10_000 else None
        if header is None:
            raise self.error("refused: the header of the array is not a plain one", name)
        try:
            dtype = np.dtype(header[1])
        except TypeError:
            raise self.error(f"refused: element type {header[1]!r}", name) from None
        shape = tuple(int(size) for size in header[3].replace(" ", "").split(",") if size)
        if dtype.kind not in "biufc" or len(shape) > 32:
            raise self.error(f"refused: an array of {dtype} with {len(shape)} axes", name)
        count = math.prod(shape)
        if count * dtype.itemsize != len(content) - stop or math.prod(max(size, 1) for size in shape) > 1 << 59:
            raise self.error(f"damaged file: {len(content) - stop} bytes for {dtype} {list(shape)}", name)
        flat = np.frombuffer(content, dtype, count, stop)
        if dtype == np.bool_ and flat.view(np.uint8).max(initial=0) > 1:
            raise self.error("damaged file: bool elements other than 0 and 1", name)
        array = flat.reshape(shape[::-1]).T if header[2] == "True" else flat.reshape(shape)
        return array if dtype.isnative else array.astype(dtype.newbyteorder("="))

    def kinds(self, attributes: object, arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
        """Name -> MODEL or AUX. Raises ArchiveError if the two members disagree."""
        if not isinstance(attributes, dict) or attributes.keys() != arrays.keys():
            raise self.error("damaged file: the two members list different tensors", ATTRIBUTES)
        kinds = {}
        for name, entry in attributes.items():
            if not isinstance(entry, dict) or entry.get("state_type") not in (MODEL, AUX):
                raise self.error(f"damaged file: {name[:80]!r} is neither a state nor a value of the user", ATTRIBUTES)
            if entry.get("shape") != list(arrays[name].shape):
                raise self.error(f"damaged file: the shape of {name[:80]!r} is another one in its array", ATTRIBUTES)
            kinds[name] = entry["state_type"]
        return kinds
