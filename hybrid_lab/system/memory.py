"""Memory of the process: when Python's garbage collector runs, and how much freed memory glibc keeps.

The collector is kept from looking through everything while a graph is compiled. Passes make tens of thousands of
objects that live until the end and leave no cycles behind; the collector would go through all new and older objects
again and again: a third of the time.

Many new objects make a full collection due soon, which takes 10 to 100 ms. At the end of the compilation it is hardly
noticed. Later it would hold up one training step of thousands. In a process with so many objects that a full collection
takes longer, as with a model of thousands of Blocks, Python alone decides when it is worth it.

By default glibc gives freed memory at the end of its heap back to the system, and the next large array touches new
pages, which the system clears first: 150 MB of them in a training step of ResNet-18 with 8 images. With 256 MiB kept,
this step takes 345 ms instead of 380, and a step of GELU, LayerNorm and softmax over 4 million elements 12 ms instead
of 18.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator, Mapping

from hybrid_lab.system import forks

_lock = forks.lock()
_waiting = 0
_was_on = False
#: Blocks of memory per new object of a due collection: eight times the blocks of one object with its parts.
_BLOCKS = 32
_MOST_BLOCKS = 1_000_000
"""Blocks of memory that a full collection goes through in about 0.2 s."""

#: Bytes that the process keeps at most, and the size from which an array is mapped by itself and given back at once.
#: glibc allows no larger size.
KEPT, MAPPED = 256 << 20, 32 << 20
#: glibc's numbers of the two settings.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
#: If these variables are set, the user has decided.
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")


@contextlib.contextmanager
def without_collecting(collect: bool = True) -> Iterator[None]:
    """No collections until the end of the block, in all threads; afterwards as before. Blocks may overlap.

    collect : if this is the last block that ends, let it run a full collection if more than about an eighth of all
        objects are new, and not too many objects are there
    """
    global _waiting, _was_on
    due = False
    with _lock:
        if not _waiting:
            _was_on = gc.isenabled()
            gc.disable()
        _waiting += 1
    try:
        yield
    finally:
        with _lock:
            _waiting = max(0, _waiting - 1)
            if not _waiting and _was_on:
                gc.enable()
                blocks = sys.getallocatedblocks()
                due = collect and blocks < _MOST_BLOCKS and gc.get_count()[0] > blocks / _BLOCKS
        if due:
            gc.collect()


def _forked() -> None:
    """Compiling threads of the parent are not here to end it."""
    global _waiting
    if _waiting and _was_on:
        gc.enable()
    _waiting = 0


forks.in_child(_forked)


def keep_freed_memory(environment: Mapping[str, str] = os.environ) -> bool:
    """Let this process keep up to 256 MiB of freed memory. False, and nothing changes, if the C library is another one
    or the environment sets it.
    """
    if os.name != "posix" or sys.platform == "emscripten" or any(name in environment for name in _VARIABLES):
        return False
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(_MMAP_THRESHOLD, MAPPED)) and bool(mallopt(_TRIM_THRESHOLD, KEPT))
