"""Imports of several threads at once.

Modules load at their first use, which may be in several threads at the same time: in a cell and in the thread of a page
that connects, or in the threads of a server. Two threads that import modules of one package may each wait for a module
that the second thread is importing. Python then gives one thread half a module, or raises an error.
"""

from __future__ import annotations

import _imp
import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from hybrid_lab.system import forks

LONGEST_WAIT = 30.0
"""Seconds to wait for the imports of other threads. After them the imports run side by side, as Python's own do."""
_PAUSE = 0.005

_loading = forks.rlock()


def load(name: str) -> ModuleType:
    """Import a module while no other thread imports one of the same package.

    A thread that is in the middle of an import does not wait. Other threads may go on to import torch or another
    package; nothing waits for that.
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        return module
    if _importing(lambda owner: owner == threading.get_ident()):
        return importlib.import_module(name)
    with _loading, alone(package=name.partition(".")[0]):
        return importlib.import_module(name)


@contextmanager
def alone(longest: float = LONGEST_WAIT, package: str = "") -> Iterator[None]:
    """Wait until no other thread is in the middle of an import; then make imports of other threads wait until the end
    of the `with` block.

    It holds Python's own import lock, which each import takes before the lock of its module. Code in the block must not
    wait for a thread that imports.

    longest : seconds to wait at most; package : wait only for imports of this package. If other threads import other
        packages then, their imports and the block's run side by side
    """
    until = time.monotonic() + longest
    while True:
        _imp.acquire_lock()
        try:  # a Ctrl-C must not leave the lock with this thread
            others = _importing(lambda owner: owner != threading.get_ident())
            if not others:
                yield
                return
        finally:
            _imp.release_lock()
        is_waited_for = not package or any(name == package or name.startswith(f"{package}.") for name in others)
        if not is_waited_for or time.monotonic() >= until:
            yield
            return
        time.sleep(_PAUSE)


def _importing(by: Callable[[int | None], bool]) -> list[str]:
    """The modules whose locks threads have, or are about to take, if `by(thread)` is true."""
    locks: dict[str, Any] = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
    found = [(name, reference()) for name, reference in list(locks.items())]
    return [name for name, lock in found if lock is not None and by(getattr(lock, "owner", None))]
