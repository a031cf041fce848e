"""Matrix products through NumPy, small ones on one thread; and work cut into parts of our own, one thread each.

OpenBLAS, which NumPy's wheels bring, shares a product of 64 x 120 x 84 among all cores and waits for every core,
several times within one product. On an idle machine that gains microseconds; on one where a browser or another kernel
is busy it costs milliseconds per product. NumPy has no setting for it, the library has a function. With another BLAS
library, products go to NumPy unchanged.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hybrid_lab.ops.framework.types import Array

#: Products of up to this many multiply-adds (under a millisecond on one core) run on one thread. Larger work is cut
#: into parts: a thread takes a twentieth of that time to wake up.
SMALL = 1 << 25
#: Up to here OpenBLAS itself stays on one thread.
TINY = 1 << 18


@cache
def thread_control() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """OpenBLAS' functions that read and set its number of threads, or None."""
    try:
        import ctypes
    except ImportError:  # Python in a browser, whose NumPy has no OpenBLAS either
        return None
    package = Path(np.__file__).parent
    for folder in (package.parent / "numpy.libs", package / ".libs", package / ".dylibs"):
        for file in sorted(folder.glob("*openblas*")) if folder.is_dir() else ():
            try:
                library = ctypes.PyDLL(str(file))
            except OSError:
                continue
            for prefix in ("scipy_openblas", "openblas"):
                for suffix in ("64_", ""):
                    read = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
                    write = getattr(library, f"{prefix}_set_num_threads{suffix}", None)
                    if read is not None and write is not None:
                        read.argtypes, read.restype = (), ctypes.c_int
                        write.argtypes, write.restype = (ctypes.c_int,), None
                        return read, write
    return None


def workers(products: int) -> int:
    """Into how many parts work of that many multiply-adds is worth cutting: as many as OpenBLAS may use threads."""
    control = thread_control()
    return 1 if products <= SMALL or control is None else max(1, control[0]())


def share(items: Sequence[Any], workers: Sequence[Callable[[Any], None]]) -> None:
    """Give every item to one of the workers, which run on a thread each and take the next item when they are done.

    A thread that the machine does not let run takes nothing, and is not waited for. Products of workers stay on their
    threads. Raises the error of the first failing worker, when all have stopped.
    """
    queue = deque(items)

    def work(worker: Callable[[Any], None]) -> None:
        try:
            while queue:
                try:
                    item = queue.popleft()
                except IndexError:  # another thread took the last one
                    return
                worker(item)
        except BaseException:
            queue.clear()
            raise

    control = thread_control()
    if len(workers) == 1 or len(items) == 1 or control is None or (count := control[0]()) <= 1:
        work(workers[0])
        return
    try:
        control[1](1)
        others: list[Future[None]] = []
        try:
            for worker in workers[1:]:
                others.append(_pool(count - 1).submit(work, worker))
            work(workers[0])
        finally:
            problems = _ended(others)
        for problem in problems:
            if problem is not None:
                raise problem
    finally:
        control[1](count)


def _ended(others: Sequence[Future[None]]) -> list[BaseException | None]:
    """The error of each future, or None, once no future runs: the memory they use is the caller's again. Futures that
    have not begun are cancelled. An interrupt during the wait is raised when all have stopped.
    """
    interrupt = None
    while True:
        try:
            problems = [other.exception() for other in others if not other.cancel()]
            break
        except KeyboardInterrupt as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt
    return problems


def cuts(size: int, parts: int) -> list[slice]:
    """range(size) in pieces of about the same length: a few per part, so that no part waits long for the last piece."""
    count = max(1, min(1 if parts == 1 else 4 * parts, size // 4 or size))
    bounds = [size * number // count for number in range(count + 1)]
    return [slice(first, last) for first, last in zip(bounds[:-1], bounds[1:], strict=True)]


@cache
def _pool(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="hybrid-lab-product")


if hasattr(os, "register_at_fork"):
    # A child process has none of its parent's threads.
    os.register_at_fork(after_in_child=_pool.cache_clear)


def matmul(left: np.ndarray, right: np.ndarray, out: np.ndarray | None = None) -> Array:
    """np.matmul of matrices or batches of them."""
    products = left.shape[-2] * left.shape[-1] * right.shape[-1]
    if products > SMALL and (parts := workers(products)) > 1:
        return _matmul_in_parts(left, right, out, parts)
    if products <= TINY or products > SMALL or (control := thread_control()) is None:
        return np.matmul(left, right, out=out)
    read, write = control
    # A count of 1 is the user's setting, or another Python thread is inside this function: leave it alone.
    if (count := read()) <= 1:
        return np.matmul(left, right, out=out)
    try:
        write(1)
        return np.matmul(left, right, out=out)
    finally:
        write(count)


def _matmul_in_parts(left: np.ndarray, right: np.ndarray, out: np.ndarray | None, parts: int) -> np.ndarray:
    """The product, its rows or columns shared out."""
    rows, columns = left.shape[-2], right.shape[-1]
    if out is None:
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        out = np.empty((*batch, rows, columns), np.result_type(left, right))
    result = out

    def some_rows(cut: slice) -> None:
        np.matmul(left[..., cut, :], right, out=result[..., cut, :])

    def some_columns(cut: slice) -> None:
        np.matmul(left, right[..., cut], out=result[..., cut])

    if rows >= columns:
        share(cuts(rows, parts), [some_rows] * parts)
    else:
        share(cuts(columns, parts), [some_columns] * parts)
    return result


@contextmanager
def small_products(products: int) -> Iterator[None]:
    """Inside, products run on one thread if `products` multiply-adds each are few: for loops of them."""
    control = thread_control() if TINY < products <= SMALL else None
    count = control[0]() if control is not None else 1
    if control is None or count <= 1:
        yield
        return
    try:
        control[1](1)
        yield
    finally:
        control[1](count)
