"""Numbers of changes: of structure, graphs, states and output shapes of any Block, as `hybridize.events` tells of them.

A Block gets the number of its last change, so that the lab looks again only at Blocks that changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hybrid_lab.gluon import access
from hybrid_lab.hybridize import events
from hybrid_lab.ndarray import changes
from hybrid_lab.system import forks

if TYPE_CHECKING:
    from hybrid_lab.hybridize.block import Tree

_count = 0
_lock = forks.lock()


def changed(block: Tree) -> None:
    """Record a change of a Block, after it."""
    global _count
    with _lock:
        _count += 1
        access.note_change(block, _count)


events.listen(changed=changed)


def looks_count() -> tuple[int, int]:
    """The number of the last change of a Block's structure, graphs, state or output shapes, and a number that differs
    after every change of a Parameter's arrays: a caller that saw both before need not look at any Block again.
    """
    with _lock:
        return _count, changes.count
