"""Packing: offsets of allocations in one arena. Allocations that are alive at the same step never share a byte.

steps  012345
a      ==        192 bytes at 0
b       ===      100 bytes at 192     beside a: both are alive in step 1
c        ===     192 bytes at 0       in the place of a
d         ===     64 bytes at 320     arena of 384 bytes: as many as are alive in step 3
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hybrid_lab.graph.node import Value

ALIGNMENT = 64
"""Offsets in the arena are multiples of this many bytes: a cache line, and enough for any vector instruction."""


@dataclass
class Allocation:
    """A piece of the arena: `nbytes` from `offset`, in use from step `first` to step `last`, both included.

    size : the bytes that it takes, up to the next offset at which another allocation may begin
    """

    nbytes: int
    first: int
    last: int
    offset: int = -1
    values: list[Value] = field(default_factory=list)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = -(-self.nbytes // ALIGNMENT) * ALIGNMENT


#: Orders in which allocations get their offsets: the first that comes close to the ideal is taken, else the best.
_ORDERS: tuple[Callable[[Allocation], Any], ...] = (
    lambda allocation: (-allocation.size, allocation.first),
    lambda allocation: (-allocation.size * (allocation.last - allocation.first + 1), allocation.first),
    lambda allocation: (allocation.first - allocation.last, -allocation.size),
    lambda allocation: (allocation.first, -allocation.size),
)


#: From this many allocations on, NumPy looks for the gaps.
_MANY = 400


def pack(allocations: Sequence[Allocation]) -> int:
    """Set the offset of each allocation and return the size of the arena. Allocations alive at the same step never
    overlap.

    An allocation goes into the smallest gap that holds it (best fit), else behind all that are alive with it.
    """
    ideal = peak(allocations)
    best: tuple[int, list[int]] | None = None
    place_all = _place if len(allocations) <= _MANY else _place_many
    for order in _ORDERS:
        total = place_all(sorted(allocations, key=order))
        if best is None or total < best[0]:
            best = total, [allocation.offset for allocation in allocations]
        if best[0] <= ideal * 1.03:
            break
    assert best is not None
    for allocation, offset in zip(allocations, best[1], strict=True):
        allocation.offset = offset
    return best[0]


def _place(allocations: Sequence[Allocation]) -> int:
    placed: list[tuple[int, int, int, int]] = []  # from, to, first, last: by offset
    total = 0
    for allocation in allocations:
        first, last, size = allocation.first, allocation.last, allocation.size
        end, best, smallest = 0, -1, -1
        for begin, stop, born, gone in placed:
            if born <= last and first <= gone:
                gap = begin - end
                if gap >= size and (best < 0 or gap < smallest):
                    best, smallest = end, gap
                if stop > end:
                    end = stop
        allocation.offset = offset = best if best >= 0 else end
        insort(placed, (offset, offset + size, first, last))
        total = max(total, offset + size)
    return total


def _place_many(allocations: Sequence[Allocation]) -> int:
    """As `_place`, with NumPy over all allocations that are alive with the one to be placed."""
    first = np.array([allocation.first for allocation in allocations])
    last = np.array([allocation.last for allocation in allocations])
    size = np.array([allocation.size for allocation in allocations])
    start = np.zeros(len(allocations), np.int64)
    total = 0
    for index, allocation in enumerate(allocations):
        alive = np.flatnonzero((first[:index] <= allocation.last) & (last[:index] >= allocation.first))
        alive = alive[np.argsort(start[alive], kind="stable")]
        begins = start[alive]
        ends = np.maximum.accumulate(np.concatenate(([0], begins + size[alive])))
        gaps = begins - ends[:-1]
        fitting = np.flatnonzero(gaps >= allocation.size)
        offset = int(ends[fitting[np.argmin(gaps[fitting])]]) if fitting.size else int(ends[-1])
        allocation.offset = start[index] = offset
        total = max(total, offset + allocation.size)
    return total


def peak(allocations: Sequence[Allocation]) -> int:
    """The most bytes that are alive at one step: no arena can be smaller."""
    change: dict[int, int] = {}
    for allocation in allocations:
        change[allocation.first] = change.get(allocation.first, 0) + allocation.size
        change[allocation.last + 1] = change.get(allocation.last + 1, 0) - allocation.size
    best = alive = 0
    for step in sorted(change):
        alive += change[step]
        best = max(best, alive)
    return best
