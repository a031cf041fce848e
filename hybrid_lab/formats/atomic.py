"""Writing a file so that a crash at any moment leaves either the old file or the new one, whole."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from hybrid_lab import temporary
from hybrid_lab.diagnostics.file_errors import writing
from hybrid_lab.progress import Progress

LARGE = 64 << 20
"""So many bytes keep a disk busy for longer than a few more system calls take."""
_PIECE = 16 << 20
WORTH_A_BAR = 100_000_000
"""So many bytes of arrays may take seconds to write: a bar shows how far the save is."""


def _create(path: str) -> BinaryIO:
    return open(path, "x+b")  # "x": never through a file or link that somebody else put there


def _sync_directory(directory: str) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file that becomes `path` when the block ends without an exception.

    The bytes go to a temporary file in the same folder, are forced to disk, and then renamed over `path`; the folder
    is forced to disk too. When anything raises, `path` is as it was and the temporary file is gone. A symbolic link
    keeps pointing where it did: its target is replaced. Temporary files of `path` that killed processes left are
    removed at the end; those of live ones are not. Errors of the system are raised as FileErrors.
    """
    with writing(path):
        target = os.path.realpath(os.fspath(path))
        if os.path.isdir(target):  # before anything is computed for it
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
        with temporary.replacement(target, _create) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    directory = os.path.dirname(target)
    _sync_directory(directory)
    temporary.remove_stale(directory, target)


@contextlib.contextmanager
def progress_of(title: str, size: int) -> Iterator[Callable[[int], object]]:
    """A function to be told how many of `size` bytes have been written; from 100 MB on it draws a progress bar."""
    if size < WORTH_A_BAR:
        yield int
        return
    progress = Progress(title, size // 1_000_000, "MB")
    try:
        yield lambda written: progress.step(min(written, size) // 1_000_000)
    finally:
        progress.close()


def write_early(file: BinaryIO, chunks: Iterable[bytes | memoryview], size: int) -> Iterator[bytes | memoryview]:
    """Write chunks of `size` bytes in all at the file's position; gives each piece of them once it is written.

    The disk begins with a large file while the rest is still being written, so that the fsync at the end finds little
    to do. Room for all bytes is reserved first, and each piece is sent to the disk without waiting for it. This is done
    on Linux; elsewhere the chunks are written and no more.
    """
    position = sent = file.tell()
    large = size >= LARGE and sys.platform == "linux"
    if large:
        with contextlib.suppress(OSError):  # a full disk is an error of the write that finds it
            os.posix_fallocate(file.fileno(), position, size)
    for chunk in chunks:
        for start in range(0, len(chunk), _PIECE):
            piece = chunk[start : start + _PIECE]
            file.write(piece)
            position += len(piece)
            if large and position - sent >= _PIECE:
                with contextlib.suppress(OSError):
                    # Linux begins to write pages that it is told to drop, and keeps them until they are on the disk.
                    os.posix_fadvise(file.fileno(), sent, position - sent, os.POSIX_FADV_DONTNEED)
                sent = position
            yield piece
