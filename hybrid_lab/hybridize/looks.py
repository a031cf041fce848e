"""Changes that the lab shows: of structure, graphs, states and output shapes of any Block."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hybrid_lab.ndarray import changes
from hybrid_lab.system import forks

if TYPE_CHECKING:
    from hybrid_lab.hybridize.block import Tree

_count = 0
_lock = forks.lock()


class _Tools(threading.local):
    """Per thread: how many runs of tools are under way."""

    running = 0


_tools = _Tools()


@contextlib.contextmanager
def tool_runs() -> Iterator[None]:
    """Calls in the with-block, of this thread, are a tool's: the lab does not show what they returned."""
    _tools.running += 1
    try:
        yield
    finally:
        _tools.running -= 1


def is_tool_running() -> bool:
    """Whether this thread is inside of `tool_runs`."""
    return _tools.running > 0


def changed(block: Tree) -> None:
    """Record a change of a Block, after it: the Block gets the change's number."""
    global _count
    with _lock:
        _count += 1
        block.__dict__["_last_change"] = _count


def looks_count() -> tuple[int, int]:
    """The number of the last change of a Block's structure, graphs, state or output shapes, and a number that differs
    after every change of a Parameter's arrays: a caller that saw both before need not look at any Block again.
    """
    with _lock:
        return _count, changes.count
