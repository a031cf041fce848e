"""Non-maximum suppression: the boxes left when each box removes the worse boxes that it covers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

_PAIRS = 1 << 16
"""Of boxes that are compared at once, at most: their numbers stay in a processor's cache."""

#: (indices of boxes, indices of others) -> a bool matrix: whether box i covers other j
Covers = Callable[[np.ndarray, np.ndarray], np.ndarray]


def uncovered(count: int, covers: Covers, wanted: int | None = None) -> np.ndarray:
    """Indices of the boxes that no better box covers, in order; box 0 is the best of 0 ... count - 1.

    wanted : the number that is enough; None for all
    """
    rest, kept, found = np.arange(count), [np.zeros(0, np.int64)], 0
    while len(rest) and (wanted is None or found < wanted):
        size = max(1, min(256, _PAIRS // len(rest)))
        block, rest = rest[:size], rest[size:]
        inside, left = covers(block, block), np.ones(len(block), np.bool_)
        for index in range(len(block) - 1):
            if left[index]:
                left[index + 1 :] &= ~inside[index, index + 1 :]
        best = block[left]
        kept.append(best)
        found += len(best)
        if len(rest):
            rest = rest[~covers(best, rest).any(axis=0)]
    return np.concatenate(kept)[:wanted]
