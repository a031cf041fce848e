"""Counts the changes that the lab shows: of structure, graphs, states and output shapes of any Block."""

from __future__ import annotations

from hybrid_lab.ndarray.buffer import Changes, changes

looks = Changes()
"""A caller that saw the same `looks_count()` before need not look at any Block again."""


def looks_count() -> tuple[int, int]:
    """Differs after every change of a Block's structure, graphs, state or output shapes, or of a Parameter's arrays."""
    return looks.count, changes.count
