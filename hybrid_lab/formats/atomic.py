"""Writing a file so that a crash at any moment leaves either the old file or the new one, whole."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from typing import BinaryIO


def _create(path: str) -> BinaryIO:
    # O_EXCL: never write through a file or link that somebody else put there; 0o666: the umask decides, as for `open`.
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, 0o666), "w+b")


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
    keeps pointing where it did: its target is replaced.
    """
    target = os.path.realpath(os.fspath(path))
    directory, name = os.path.split(target)
    temporary = os.path.join(directory, f".{name[:64]}.{secrets.token_hex(6)}.tmp")
    try:
        file = _create(temporary)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, target) from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            file.close()
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_directory(directory)
