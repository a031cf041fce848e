"""Imports in a thread beside that of a cell, which imports, too.

Two threads that import modules of one package may each wait for a module that the other is at. Python finds that out
and gives one of them half a module: an ImportError in the user's cell.
"""

from __future__ import annotations

import _imp
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

LONGEST_WAIT = 30.0
"""Seconds to wait for the imports of other threads. Then they go on side by side, as Python has it."""
_PAUSE = 0.005


@contextmanager
def alone(longest: float = LONGEST_WAIT) -> Iterator[None]:
    """Wait until no other thread is in the middle of an import; then make imports of other threads wait until the end
    of the `with` block.

    It holds Python's own import lock, which each import takes before the lock of its module. Code in the block must not
    wait for a thread that imports.
    """
    until = time.monotonic() + longest
    while True:
        _imp.acquire_lock()
        if not _others_import():
            try:
                yield
            finally:
                _imp.release_lock()
            return
        _imp.release_lock()
        if time.monotonic() >= until:
            yield
            return
        time.sleep(_PAUSE)


def _others_import() -> bool:
    """Whether another thread has, or is about to take, the lock of a module; asked while imports wait."""
    locks: dict[str, Any] = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
    me = threading.get_ident()
    found = [reference() for reference in list(locks.values())]
    return any(lock is not None and getattr(lock, "owner", None) != me for lock in found)
