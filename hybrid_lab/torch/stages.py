"""The current stage of an import of a module: torch takes from seconds to minutes for each stage, and says nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hybrid_lab.system.progress import PATIENCE, Progress

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.nn import Module

_LARGE = 20
"""A module of more parts takes torch seconds: what it does is shown from the beginning."""
_STAGES = 6
"""Stages of most imports."""


class _Running(threading.local):
    """Per thread: the bar of the import, and the number of stages that began."""

    bar: Progress | None = None
    begun = 0


_running = _Running()


@contextmanager
def shown(source: Module | ExportedProgram) -> Iterator[None]:
    """Show the stages of an import; an import inside another shows its stages as the outer import's."""
    if _running.bar is not None:
        yield
        return
    module: Any = getattr(source, "graph_module", None) or source
    is_large = sum(1 for _ in module.modules()) > _LARGE
    patience = 0.0 if is_large else PATIENCE
    _running.bar, _running.begun = Progress(f"importing {type(source).__name__}", _STAGES, "stages", patience), 0
    try:
        yield
    finally:
        _running.bar.close()
        _running.bar = None


def stage(words: str) -> None:
    """A stage begins."""
    if _running.bar is not None:
        _running.bar.step(min(_running.begun, _STAGES - 1), words)
        _running.begun += 1
