"""Python's garbage collector, kept from looking through everything while a graph is compiled.

Passes make tens of thousands of objects that live until the end and leave no cycles behind; the collector would go
through all of them, and through everything that was there before, again and again: a third of the time.

Many new objects make a full collection due soon, which takes 10 to 100 ms. It runs at the end of the compilation, where
nobody notices it. Later it would hold up one training step of thousands. In a process with so many objects that a full
collection takes longer, as with a model of thousands of Blocks, Python alone decides when it is worth it.
"""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

from hybrid_lab.system import forks

_lock = forks.lock()
_waiting = 0
_was_on = False
#: Blocks of memory per new object of a due collection: eight times those that one object takes, with its parts.
_BLOCKS = 32
_MOST_BLOCKS = 1_000_000
"""Blocks of memory that a full collection goes through in about 0.2 s."""


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
    """Whoever else was compiling is not here to end it."""
    global _waiting
    if _waiting and _was_on:
        gc.enable()
    _waiting = 0


forks.in_child(_forked)
