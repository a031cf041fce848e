"""Writing a file so that a crash at any moment leaves either the old file or the new one, whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import BinaryIO

from hybrid_lab import temporary


def _create(path: str) -> BinaryIO:
    # O_EXCL: never write through a file or link that somebody else put there; 0o666: the umask decides, as for `open`.
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o666), "w+b")


def _create_beside(target: str) -> tuple[BinaryIO, str]:
    """A new, locked temporary file and its path."""
    while True:
        path = temporary.temporary_path(target)
        try:
            file = _create(path)
        except OSError as error:
            raise type(error)(error.errno, error.strerror, target) from None
        if temporary.lock(file.fileno()):
            return file, path
        file.close()


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
    removed at the end; those of live ones are not.
    """
    target = os.path.realpath(os.fspath(path))
    file, partial = _create_beside(target)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if os.name != "posix":
                file.close()  # Windows renames no open file
            os.replace(partial, target)  # before the lock goes, with the file's descriptor
    except BaseException:
        with contextlib.suppress(OSError):
            file.close()
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise
    directory = os.path.dirname(target)
    _sync_directory(directory)
    temporary.remove_stale(directory, target)
