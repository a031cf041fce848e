"""Changes that the lab shows: of structure, graphs, states and output shapes of any Block."""

from __future__ import annotations

import itertools

from hybrid_lab.ndarray import changes

_numbers = itertools.count(1)
_count = 0


def changed() -> None:
    """Record a change, after it."""
    global _count
    _count = next(_numbers)


def looks_count() -> tuple[int, int]:
    """Differs after every change of a Block's structure, graphs, state or output shapes, or of a Parameter's arrays: a
    caller that saw the same one before need not look at any Block again.
    """
    return _count, changes.count
