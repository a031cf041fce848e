"""mx.recordio: files of records, with an index if wanted, and image records with labels.

A record is the magic number 0xced7230a, four bytes with its length (29 bits) and which part of a divided record it is
(3 bits), and its bytes, filled up to a multiple of four. A record that contains the magic number at a multiple of four
is divided there. (dmlc-core, `include/dmlc/recordio.h`)
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable
from os import PathLike
from typing import IO, Any, NamedTuple, TypeAlias

import numpy as np

from hybrid_lab.data import image_files
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.diagnostics.file_errors import open_regular, reading, writing
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.formats.atomic import check_writable

__all__ = ["IRHeader", "MXIndexedRecordIO", "MXRecordIO", "RecordError", "pack", "pack_img", "unpack", "unpack_img"]

_MAGIC = struct.pack("<I", 0xCED7230A)
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_LENGTH_BITS = 29
_HEADER = struct.Struct("<IfQQ")

Label: TypeAlias = "float | np.ndarray | list[float] | tuple[float, ...]"


class RecordError(HybridLabError, OSError):
    """A file of records that is damaged, or used in the wrong way."""


class MXRecordIO:
    """A file of records, read or written from its beginning to its end.

        writer = mx.recordio.MXRecordIO("data.rec", "w")
        writer.write(b"first")
        writer.close()
        mx.recordio.MXRecordIO("data.rec", "r").read()

    uri : path; flag : 'r' or 'w'

    It is used in one process. A copy in another process (pickled, or after a fork) opens the file for itself, if it
    reads; writing there is a RecordError.
    """

    def __init__(self, uri: str | PathLike[str], flag: str) -> None:
        self.uri = os.fspath(uri)
        self.flag = flag
        self.is_open = False
        self.writable = False
        self.pid: int | None = None
        self._file: IO[bytes] = io.BytesIO()
        self.open()

    def open(self) -> None:
        """Open the file; for writing, as an empty one. Raises FileError, and ValueError for other flags."""
        if self.flag not in ("r", "w"):
            raise ValueError(f"the flag of a file of records is 'r' or 'w', not {self.flag!r}")
        self.writable = self.flag == "w"
        if self.writable:
            check_writable(self.uri)
        with writing(self.uri) if self.writable else reading(self.uri):
            self._file = open(self.uri, self.flag + "b")
        self.pid = os.getpid()
        self.is_open = True

    def close(self) -> None:
        """Close the file."""
        if self.is_open:
            self._file.close()
            self.is_open, self.pid = False, None

    def __del__(self) -> None:
        if "_file" in vars(self):
            self.close()

    def __enter__(self) -> MXRecordIO:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        state = dict(vars(self))
        del state["_file"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._file = io.BytesIO()
        if state["is_open"]:
            if self.writable:
                raise RecordError(f"{self.uri} is being written; only a file that is read can be copied")
            self.open()

    def reset(self) -> None:
        """Go back to the first record; a file that is written is emptied."""
        self.close()
        self.open()

    def read_at(self, offset: int) -> bytes | None:
        """The record that begins at an offset of the file."""
        self._check(writable=False)
        self._file.seek(offset)
        return self.read()

    def _check(self, writable: bool) -> None:
        if not self.is_open:
            raise RecordError(f"{self.uri} is closed")
        if writable != self.writable:
            wanted, flag = ("written", "w") if writable else ("read", "r")
            raise RecordError(f"{self.uri} is not open to be {wanted}; open it with {flag!r}")
        if self.pid != os.getpid():
            if writable:
                raise RecordError(f"{self.uri} is written by another process")
            self.reset()

    def write(self, buf: bytes) -> None:
        """Append a record."""
        self._check(writable=True)
        if len(buf) >> _LENGTH_BITS:
            raise RecordError(f"a record has less than {1 << _LENGTH_BITS} bytes, not {len(buf)}")
        self._file.write(encode(bytes(buf)))

    def read(self) -> bytes | None:
        """The next record, or None after the last. Raises RecordError for a damaged file."""
        self._check(writable=False)
        parts: list[bytes] = []
        while True:
            head = self._file.read(8)
            if not head and not parts:
                return None
            if len(head) < 8 or head[:4] != _MAGIC:
                raise RecordError(f"{self.uri} is damaged: no record begins at byte {self._file.tell() - len(head)}")
            word = int.from_bytes(head[4:], "little")
            kind, length = word >> _LENGTH_BITS, word & (1 << _LENGTH_BITS) - 1
            padded = self._file.read(length + -length % 4)
            if len(padded) < length:
                raise RecordError(f"{self.uri} is damaged: it ends inside a record")
            if (kind in (_WHOLE, _FIRST)) == bool(parts) or kind > _LAST:
                raise RecordError(f"{self.uri} is damaged: the parts of a record are out of order")
            parts.append(padded[:length])
            if kind in (_WHOLE, _LAST):
                return _MAGIC.join(parts)


def record_offsets(uri: str | PathLike[str]) -> list[int]:
    """The offset of each record of a file; only the heads of the records are read. Raises RecordError."""
    offsets: list[int] = []
    with reading(uri), open_regular(uri) as file:
        size = file.seek(0, os.SEEK_END)
        place = 0
        while place < size:
            file.seek(place)
            head = file.read(8)
            if len(head) < 8 or head[:4] != _MAGIC:
                raise RecordError(f"{os.fspath(uri)} is damaged: no record begins at byte {place}")
            word = int.from_bytes(head[4:], "little")
            kind, length = word >> _LENGTH_BITS, word & (1 << _LENGTH_BITS) - 1
            if kind in (_WHOLE, _FIRST):
                offsets.append(place)
            place += 8 + length + -length % 4
    return offsets


def encode(record: bytes) -> bytes:
    """A record as it stands in a file."""
    parts: list[bytes] = []
    start = place = 0
    while (place := record.find(_MAGIC, place)) >= 0:
        if place % 4:
            place += 1
        else:
            parts.append(record[start:place])
            start = place = place + 4
    parts.append(record[start:])
    written = []
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        kind = _WHOLE if len(parts) == 1 else _LAST if last else _MIDDLE if number else _FIRST
        written += [_MAGIC, (kind << _LENGTH_BITS | len(part)).to_bytes(4, "little"), part, bytes(-len(part) % 4)]
    return b"".join(written)


class MXIndexedRecordIO(MXRecordIO):
    """A file of records with an index: a text file with a line "key TAB offset" for each record.

        writer = mx.recordio.MXIndexedRecordIO("data.idx", "data.rec", "w")
        writer.write_idx(7, b"seven")
        writer.close()
        mx.recordio.MXIndexedRecordIO("data.idx", "data.rec", "r").read_idx(7)

    idx_path, uri : paths of the index and the records; flag : 'r' or 'w'
    key_type : makes a key of its text
    idx : key -> offset; keys : in the order of the file
    """

    def __init__(
        self,
        idx_path: str | PathLike[str],
        uri: str | PathLike[str],
        flag: str,
        key_type: Callable[[Any], Any] = int,
    ) -> None:
        self.idx_path = os.fspath(idx_path)
        self.idx: dict[Any, int] = {}
        self.keys: list[Any] = []
        self.key_type = key_type
        self._index: IO[str] = io.StringIO()
        super().__init__(uri, flag)

    def open(self) -> None:
        """Open both files. Raises RecordError if a line of the index is none."""
        if self.flag == "w":
            check_writable(self.idx_path)  # before the file of records is emptied
        super().open()
        self.idx, self.keys = {}, []
        if self.writable:
            with writing(self.idx_path):
                self._index = open(self.idx_path, "w", encoding="utf-8")
            return
        with reading(self.idx_path), open(self.idx_path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    text, offset = line.strip().split("\t")
                    key, place = self.key_type(text), int(offset)
                except ValueError:
                    raise RecordError(f"{self.idx_path}, line {number} is not a key and an offset") from None
                self.idx[key] = place
                self.keys.append(key)

    def close(self) -> None:
        """Close both files."""
        if self.is_open:
            super().close()
            self._index.close()

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        del state["_index"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._index = io.StringIO()
        super().__setstate__(state)

    def seek(self, idx: object) -> None:
        """Let the next `read` give the record of a key. Raises KeyError."""
        self._check(writable=False)
        if idx not in self.idx:
            raise KeyError(f"{self.idx_path} has no key {idx!r}")
        self._file.seek(self.idx[idx])

    def tell(self) -> int:
        """The offset of the next record that is written."""
        self._check(writable=True)
        return self._file.tell()

    def read_idx(self, idx: object) -> bytes | None:
        """The record of a key. Raises KeyError."""
        self.seek(idx)
        return self.read()

    def write_idx(self, idx: object, buf: bytes) -> None:
        """Append a record under a key."""
        key, offset = self.key_type(idx), self.tell()
        self.write(buf)
        self._index.write(f"{key}\t{offset}\n")
        self.idx[key] = offset
        self.keys.append(key)


class IRHeader(NamedTuple):
    """The header of an image record, before the image.

    flag : how many numbers the label has; 0 for a single one
    label : a number, or an array of them
    id, id2 : of the record, low and high 64 bits
    """

    flag: int
    label: Label
    id: int
    id2: int


def pack(header: IRHeader | tuple[int, Label, int, int], s: bytes) -> bytes:
    """An image record: header, label and the bytes `s`."""
    _, label, number, high = header
    if isinstance(label, (int, float, np.number)):
        return _HEADER.pack(0, label, number, high) + s
    values = np.asarray(label, "<f4")
    return _HEADER.pack(values.size, 0, number, high) + values.tobytes() + s


def unpack(s: bytes) -> tuple[IRHeader, bytes]:
    """The header and the bytes of an image record. Raises RecordError for a record that is too short."""
    if len(s) < _HEADER.size:
        raise RecordError(f"an image record has at least {_HEADER.size} bytes, not {len(s)}")
    flag, label, number, high = _HEADER.unpack_from(s)
    end = _HEADER.size + 4 * flag
    if len(s) < end:
        raise RecordError(f"an image record of {len(s)} bytes cannot have {flag} labels")
    values: Label = np.frombuffer(s, "<f4", flag, _HEADER.size) if flag else label
    return IRHeader(flag, values, number, high), s[end:]


def unpack_img(s: bytes, iscolor: int = -1) -> tuple[IRHeader, np.ndarray]:
    """The header and the decoded image of an image record, as (height, width, 3) in the order blue, green, red.

    iscolor : 1 for color, 0 for gray (height, width), -1 for what the image is
    """
    header, data = unpack(s)
    image = image_files.decode(data, None if iscolor < 0 else bool(iscolor))
    return header, np.ascontiguousarray(image[:, :, ::-1]) if image.shape[2] == 3 else image[:, :, 0]


def pack_img(
    header: IRHeader | tuple[int, Label, int, int], img: np.ndarray, quality: int = 95, img_fmt: str = ".jpg"
) -> bytes:
    """An image record of an image in the order blue, green, red, or in gray.

    quality : of a JPEG, 1 to 100; of a PNG its compression, 0 to 9
    img_fmt : '.jpg' or '.png'
    """
    image = img[:, :, ::-1] if img.ndim == 3 and img.shape[2] == 3 else img
    return pack(header, image_files.encode(image, quality, img_fmt))


_suggest_names(__name__)
