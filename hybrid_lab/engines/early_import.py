"""The import of torch, begun in a thread as soon as a training is likely, so that its first step waits less.

A training is expected if a Block was hybridized without an engine, and a Trainer was made for parameters so large or of
such kinds that the policy may choose torch. Which engine runs which call does not depend on it: a call that torch runs
waits for the end of the import, and no other call looks at whether torch is imported.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import os
import sys
import threading
from collections.abc import Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from types import ModuleType

from hybrid_lab.engines import libraries
from hybrid_lab.system import forks
from hybrid_lab.system.threads import thread_count

#: A Trainer of this many numbers may belong to a recorded call that torch runs. Convolutions may with fewer.
PARAMETERS = 400_000
_UNKNOWN = 128
"""Taken for a size that is not known yet."""

_lock = forks.lock()
_hybridized = _trains = False


def hybridized() -> None:
    """A Block was hybridized, and the policy chooses the engines of its calls."""
    global _hybridized
    if not _hybridized:
        _hybridized = True
        _begin_if_expected()


def trains(shapes: Iterable[Sequence[int | None] | None]) -> None:
    """A Trainer was made for parameters of these shapes, as far as known."""
    global _trains
    if not _trains and _may_need_torch(shapes):
        _trains = True
        _begin_if_expected()


def _may_need_torch(shapes: Iterable[Sequence[int | None] | None]) -> bool:
    total = 0
    for shape in shapes:
        if shape is None:
            continue
        if len(shape) > 2:  # of a convolution
            return True
        size = 1
        for each in shape:
            size *= each if each is not None and each > 0 else _UNKNOWN
        total += size
    return total >= PARAMETERS


def _begin_if_expected() -> None:
    if not (_hybridized and _trains) or "torch" in sys.modules or not _may_be_chosen():
        return
    with _lock:
        if not libraries.is_begun("torch"):
            libraries.begin_import("torch", _import_torch)


def _may_be_chosen() -> bool:
    """Whether the policy may choose torch in this process."""
    from hybrid_lab.engines import registry
    from hybrid_lab.engines.triton.run import availability

    asked = os.environ.get("HYBRID_LAB_CPU", "auto") not in ("", "auto") or availability.setting()
    if asked or registry.left_behind or libraries.driver_seen():
        return False
    with contextlib.suppress(ValueError):  # a module that has no spec stands in for torch
        return importlib.util.find_spec("torch") is not None
    return False


def _import_torch() -> ModuleType:
    """Import torch as `libraries` does; it gets its number of threads before anybody else sees it."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        return libraries.load("torch")
    finally:
        sys.meta_path.remove(finder)


class _Finder(MetaPathFinder):
    """Ends the import of this thread when the process ends, and has torch's number of threads set."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if threading.get_ident() != self.thread:
            return None
        if not threading.main_thread().is_alive():
            raise SystemExit("the process ends")
        if fullname != "torch":
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    """torch's loader, with one step more."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        module.set_num_threads(thread_count())
