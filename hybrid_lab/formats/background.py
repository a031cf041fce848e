"""Work in threads beside the writing of a file: hashing (hashlib and zlib release the interpreter's lock), and forcing
to disk what was written so far.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO

WORTH_THREADS = 8 << 20
"""So many bytes take longer to hash (4 ms) than threads take to start."""
MOST_THREADS = 4
WORTH_FORCING = 64 << 20
"""So many bytes keep a disk busy for longer than a journal entry takes."""
_PAUSE = 0.02
"""Seconds between two orders to the disk."""

Begin = Callable[..., Callable[[], Any]]


@contextlib.contextmanager
def background(size: int) -> Iterator[Begin]:
    """`begin(function, *arguments)` -> a function that waits for the result.

    size : bytes that will be hashed; for few of them everything runs at once, in the caller's thread. When the block
    raises, what has not begun is left out.
    """
    if size < WORTH_THREADS:
        yield _run
        return
    pool = ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1))
    try:
        yield lambda function, *arguments: pool.submit(function, *arguments).result
    finally:
        pool.shutdown(cancel_futures=True)


def _run(function: Callable[..., object], *arguments: object) -> Callable[[], object]:
    result = function(*arguments)
    return lambda: result


@contextlib.contextmanager
def forcing(file: BinaryIO, size: int) -> Iterator[None]:
    """Force the file to disk while the block writes `size` bytes, so that the fsync behind it finds little to do.

    Raises the OSError that the disk gave.
    """
    if size < WORTH_FORCING or not hasattr(os, "fdatasync"):
        yield
        return
    descriptor, done, errors = file.fileno(), threading.Event(), []

    def force() -> None:
        try:
            while not done.wait(_PAUSE):
                os.fdatasync(descriptor)
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=force, name="hybrid_lab-forcing", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    if errors:
        raise errors[0]
