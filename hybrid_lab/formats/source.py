"""The bytes of a file, read in parts into memory of the reader's own.

Files are not mapped into memory: when another process shortens a mapped file, reading it ends this process (SIGBUS).
"""

from __future__ import annotations

import io
import os
import threading
import weakref
from copy import copy
from os import PathLike, fspath
from typing import BinaryIO

import numpy as np

from hybrid_lab.diagnostics import ArchiveError
from hybrid_lab.diagnostics.file_errors import open_regular, reading

_WORTH_A_CALL = 1 << 16
"""So many bytes go from the operating system straight to their array; fewer come through the file's buffer."""


class _File:
    """An open file, or bytes in memory, of which several threads may read."""

    def __init__(self, stream: BinaryIO, path: str | None) -> None:
        self.path, self._stream = path, stream
        weakref.finalize(self, stream.close)
        self._lock = threading.Lock()
        self._on_disk = isinstance(stream, io.BufferedReader)
        self._direct = self._on_disk and hasattr(os, "preadv")
        self.size = stream.seek(0, os.SEEK_END)

    def read_into(self, buffer: memoryview, position: int) -> None:
        start, end = position, position + len(buffer)
        while buffer:
            count = self._read(buffer, position)
            if count == 0:
                break
            buffer, position = buffer[count:], position + count
        # a read during which the file was shortened may return zeros in place of the bytes cut off
        available = max(start, min(position, self._size_now()))
        if available < end:
            raise ArchiveError(
                f"the file became shorter while it was read: {end - available} bytes at offset {available} are missing",
                path=self.path,
            )

    def read(self, position: int, size: int) -> bytes:
        if self._direct:
            content = os.pread(self._stream.fileno(), size, position)
            if len(content) == size and position + size <= self._size_now():
                return content
        buffer = bytearray(size)
        self.read_into(memoryview(buffer), position)
        return bytes(buffer)

    def _size_now(self) -> int:
        return os.fstat(self._stream.fileno()).st_size if self._on_disk else self.size

    def _read(self, buffer: memoryview, position: int) -> int:
        if self._direct and len(buffer) >= _WORTH_A_CALL:
            return os.preadv(self._stream.fileno(), [buffer], position)
        with self._lock:
            self._stream.seek(position)
            return self._stream.readinto(buffer)  # type: ignore[attr-defined]


class Source:
    """A file, bytes in memory, or a part of them: `len(source)` bytes, of which slices are read when asked for.

    path : the name of the file, or None; bytes in memory may have the name of their file

    Reading raises ArchiveError if the file is shorter than when it was opened, and OSError.
    """

    def __init__(self, data: bytes | bytearray | memoryview | io.BufferedReader, path: str | None = None) -> None:
        self._file = _File(data if isinstance(data, io.BufferedReader) else io.BytesIO(data), path)
        self.path, self._start, self._size = path, 0, self._file.size

    @classmethod
    def open(cls, path: str | PathLike[str]) -> Source:
        """The file at `path`, open for as long as a Source of it lives. Raises FileError."""
        file = open_regular(path)
        with reading(path):
            return cls(file, fspath(path))

    def part(self, start: int, stop: int) -> Source:
        """The bytes from `start` to `stop`."""
        part: Source = copy(self)
        part._start, part._size = self._start + start, stop - start
        return part

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: slice) -> bytes:
        start, stop, _ = place.indices(self._size)
        return self._file.read(self._start + start, max(stop - start, 0))

    def read_into(self, buffer: memoryview, start: int) -> None:
        """Fill a buffer with the bytes from `start` on."""
        self._file.read_into(buffer, self._start + start)

    def array(self, start: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """A writable array in C order of the elements that begin at `start`."""
        array = np.empty(shape, dtype)
        self.read_into(array.reshape(-1).view(np.uint8).data, start)
        return array
