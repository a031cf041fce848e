"""Forked processes: a child has its parent's memory, and of its threads only the forking thread.

A lock that another thread held at the fork would stay locked in the child for ever. So locks are made here, and a child
finds them open. Python's own locks of modules that another thread was importing are opened, too: the child imports such
modules anew, into the same module objects: a package gets its modules as attributes at their first import alone.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec

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
    halves: dict[str, ModuleType] = {}
    locks: dict[str, Any] = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
    for name, reference in list(locks.items()):
        owner = getattr(reference(), "owner", None)
        if owner is None or owner == threading.get_ident():
            continue
        del locks[name]
        module = sys.modules.get(name)
        if getattr(getattr(module, "__spec__", None), "_initializing", False):
            halves[name] = sys.modules.pop(name)
            half_imported.add(name)
    if halves:
        finder: Any = _Again(halves)
        sys.meta_path.insert(0, finder)


class _Again:
    """A finder that lets the source of modules run again in the module objects that they had.

    halves : the modules, by name; each is found once
    """

    def __init__(self, halves: dict[str, ModuleType]) -> None:
        self._halves = halves

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module that was imported in half, with its object."""
        module = self._halves.pop(fullname, None)
        if module is None:
            return None
        import importlib.util

        spec = importlib.util.find_spec(fullname)
        source = getattr(sys.modules.get("_frozen_importlib_external"), "SourceFileLoader", None)
        if spec is not None and spec.loader is not None and type(spec.loader) is source:
            loader: Any = _InPlace(module, spec.loader)
            spec.loader = loader
        return spec


class _InPlace:
    """A loader that runs the source of a module in an object that is there already."""

    def __init__(self, module: ModuleType, loader: Loader) -> None:
        self._module, self._loader = module, loader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The object."""
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        """Run the source."""
        assert module.__spec__ is not None
        module.__spec__.loader = self._loader
        self._loader.exec_module(module)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin)
