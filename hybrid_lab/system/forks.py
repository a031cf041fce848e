"""Forked processes: a child has its parent's memory, and of its threads only the one that forked.

A lock that another thread held at the fork would stay locked in the child for ever. So locks are made here, and a child
finds them open. Python's own locks of modules that another thread was importing are opened, too: the child imports such
modules anew.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_with_threads: weakref.WeakSet[Any] = weakref.WeakSet()
_never_deleted: list[Any] = []
_actions: list[Callable[[], None]] = []
#: In a forked child: modules that another thread was importing at the fork. They are not in sys.modules any more.
half_imported: set[str] = set()


def lock() -> threading.Lock:
    """A threading.Lock that is open in a forked child."""
    made: Any = threading.Lock()
    _locks.add(made)
    return made


def rlock() -> threading.RLock:
    """A threading.RLock that is open in a forked child, unless the thread that forked holds it."""
    made: Any = threading.RLock()
    _locks.add(made)
    return made


def has_threads(made: object) -> None:
    """The object has threads of its own, for which its destructor waits: a forked child keeps the object for ever."""
    _with_threads.add(made)


def in_child(action: Callable[[], None]) -> None:
    """Call the function in every forked child, before anything else runs there, in the order of registration."""
    _actions.append(action)


def _begin() -> None:
    _never_deleted.extend(_with_threads)
    for made in _locks:
        if not (hasattr(made, "_is_owned") and made._is_owned()):
            made._at_fork_reinit()
    _open_imports()
    for action in _actions:
        action()


def _open_imports() -> None:
    """An import of a module waits for the lock of that module, which Python does not open in a child."""
    half_imported.clear()
    locks: dict[str, Any] = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
    for name, reference in list(locks.items()):
        owner = getattr(reference(), "owner", None)
        if owner is None or owner == threading.get_ident():
            continue
        del locks[name]
        spec = getattr(sys.modules.get(name), "__spec__", None)
        if getattr(spec, "_initializing", False):
            del sys.modules[name]
            half_imported.add(name)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin)
