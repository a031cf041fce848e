"""Non-maximum suppression: the boxes left when each box removes the worse boxes that it covers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

_PAIRS = 1 << 16
"""Of boxes that are compared at once, at most: their numbers stay in a processor's cache."""

#: (indices of boxes, indices of other boxes) -> a bool matrix: whether box i covers box j
Covers = Callable[[np.ndarray, np.ndarray], np.ndarray]


def uncovered(count: int, covers: Covers, wanted: int | None = None, like: np.ndarray | None = None) -> np.ndarray:
    """Indices of the boxes that no better box among the result covers, in order; box 0 is the best of 0 ... count - 1.

    wanted : the number that is enough; None for all; like : an array of the device that computes
    """
    rest, kept, found = np.arange(count, like=like), [np.zeros(0, np.int64, like=like)], 0
    while len(rest) and (wanted is None or found < wanted):
        size = max(1, min(256, _PAIRS // len(rest)))
        block, rest = rest[:size], rest[size:]
        best = block[_left(np.triu(covers(block, block), 1))]
        kept.append(best)
        found += len(best)
        if len(rest):
            rest = rest[~covers(best, rest).any(axis=0)]
    return np.concatenate(kept)[:wanted]


def _left(covered: np.ndarray) -> np.ndarray:
    """Which boxes are left. covered : (n, n), at (i, j) whether the better box i covers box j, where i < j

    Box j is known once all better ones are, so this ends: after as many rounds as the longest chain has boxes.
    """
    left = np.logical_not(covered.any(axis=0))
    while True:
        found = np.logical_not((covered & left[:, None]).any(axis=0))
        if (found == left).all():
            return left
        left = found
