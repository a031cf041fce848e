"""Hashing in threads beside other work: hashlib and zlib release the interpreter's lock."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

WORTH_THREADS = 8 << 20
"""So many bytes take longer to hash (4 ms) than threads take to start."""
MOST_THREADS = 4

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


def _run(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    result = function(*arguments)
    return lambda: result
