"""Writing a file so that a crash at any moment leaves either the old file or the new one, whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import BinaryIO

from hybrid_lab import temporary


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
    removed at the end; those of live ones are not.
    """
    target = os.path.realpath(os.fspath(path))
    with temporary.replacement(target, _create) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    directory = os.path.dirname(target)
    _sync_directory(directory)
    temporary.remove_stale(directory, target)
