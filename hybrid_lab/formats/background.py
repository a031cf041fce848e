"""Work on many bytes in threads beside the caller: hashing, which releases the interpreter's lock, and reading."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

WORTH_THREADS = 8 << 20
"""So many bytes in all take longer to hash (4 ms) than threads take to start."""
WORTH_A_TASK = 128 << 10
"""So many bytes of one item take longer to hash (70 µs) than it takes to hand the item to a thread."""
MOST_THREADS = 4


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
    pool = ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1))
    try:
        results = deque(
            pool.submit(function, item).result if size >= WORTH_A_TASK else partial(function, item)
            for item, size in zip(items, sizes, strict=True)
        )
        yield (results.popleft()() for _ in range(len(results)))
    finally:
        pool.shutdown(cancel_futures=True)
