"""Work on many bytes in threads beside the caller: hashing, which releases the interpreter's lock, and reading."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import TracebackType
from typing import TypeVar

from hybrid_lab.system.pools import thread_pool

Item = TypeVar("Item")
Result = TypeVar("Result")

WORTH_THREADS = 8 << 20
"""So many bytes in all take longer to hash (4 ms) than threads take to start."""
WORTH_A_TASK = 128 << 10
"""So many bytes of one item take longer to hash (70 µs) than it takes to hand the item to a thread."""
MOST_THREADS = 4
BLOCK = 512 << 10
"""Bytes of one block that is copied, hashed and written."""
_MOST_BLOCKS = 4
"""So many copied blocks wait to be hashed before the caller waits: a save beside slow threads holds 2 MiB more."""


@contextlib.contextmanager
def in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], sizes: Iterable[int]
) -> Iterator[Iterator[Result]]:
    """An iterator over `function(item)` for each item, in order, which threads work through beside the block.

    sizes : bytes of each item. Small items, and all items if their sum is small, are left to the caller's thread, one
    by one when their results are asked for. When the block ends, items that have not begun are left out.
    """
    sizes = list(sizes)
    if sum(sizes) < WORTH_THREADS:
        yield map(function, items)
        return
    pool = thread_pool(min(MOST_THREADS, os.cpu_count() or 1))
    try:
        results = deque(
            pool.submit(function, item).result if size >= WORTH_A_TASK else partial(function, item)
            for item, size in zip(items, sizes, strict=True)
        )
        yield (results.popleft()() for _ in range(len(results)))
    finally:
        pool.shutdown(cancel_futures=True)


class Hashing:
    """Hashes blocks of bytes in threads beside the block of a `with` statement. When it ends without an error, all is
    hashed.
    """

    def __init__(self, size: int) -> None:
        """size : bytes in all; few bytes are hashed in the caller's thread."""
        count = min(MOST_THREADS, os.cpu_count() or 1) if size >= WORTH_THREADS else 0
        self._threads = [thread_pool(1) for _ in range(count)]
        self._room = threading.BoundedSemaphore(_MOST_BLOCKS)

    def __enter__(self) -> Hashing:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for thread in self._threads:
            thread.shutdown(cancel_futures=kind is not None)

    def update(self, number: int, digest: hashlib._Hash, block: bytes) -> None:
        """Add a block to a digest of hashlib; blocks with the same number are hashed in their order."""
        if not self._threads:
            digest.update(block)
            return
        self._room.acquire()
        self._threads[number % len(self._threads)].submit(self._update, digest, block)

    def _update(self, digest: hashlib._Hash, block: bytes) -> None:
        try:
            digest.update(block)
        finally:
            self._room.release()
