"""Python's garbage collector, kept from looking through everything while a graph is compiled.

Passes make tens of thousands of objects that live until the end and leave no cycles behind; the collector would go
through all of them, and through everything that was there before, again and again: a third of the time.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

from hybrid_lab import forks

_lock = forks.lock()
_waiting = 0
_was_on = False


@contextlib.contextmanager
def without_collecting() -> Iterator[None]:
    """No collections until the end of the block, in all threads; afterwards as before. Blocks may overlap."""
    global _waiting, _was_on
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


def _forked() -> None:
    """Whoever else was compiling is not here to end it."""
    global _waiting
    if _waiting and _was_on:
        gc.enable()
    _waiting = 0


forks.in_child(_forked)
