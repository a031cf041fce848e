"""Matrix products through NumPy, small ones on one thread.

OpenBLAS, which NumPy's wheels bring, shares a product of 64 x 120 x 84 among all cores and waits for each of them. On
an idle machine
that gains microseconds; on one where a browser or another kernel is busy it costs milliseconds per product. NumPy has
no setting for it,
the library has a function. Where the library is another one, products go to NumPy as they are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

#: Products of up to this many multiply-adds (under a millisecond on one core) run on one thread.
SMALL = 1 << 24
#: Up to here OpenBLAS itself stays on one thread.
TINY = 1 << 18


@cache
def thread_control() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """OpenBLAS' functions that read and set its number of threads, or None."""
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


def matmul(left: np.ndarray, right: np.ndarray, out: np.ndarray | None = None) -> Any:
    """np.matmul of matrices or batches of them."""
    products = left.shape[-2] * left.shape[-1] * right.shape[-1]
    if products <= TINY or products > SMALL or (control := thread_control()) is None:
        return np.matmul(left, right, out=out)
    read, write = control
    # A count of 1 is what the user wants, or another Python thread is inside this function: leave it alone.
    if (count := read()) <= 1:
        return np.matmul(left, right, out=out)
    write(1)
    try:
        return np.matmul(left, right, out=out)
    finally:
        write(count)


@contextmanager
def small_products(products: int) -> Iterator[None]:
    """Inside, products run on one thread if `products` multiply-adds each are few: for loops of them."""
    control = thread_control() if TINY < products <= SMALL else None
    count = control[0]() if control is not None else 1
    if control is None or count <= 1:
        yield
        return
    control[1](1)
    try:
        yield
    finally:
        control[1](count)
