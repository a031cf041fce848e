"""Packing: where blocks of memory lie in one arena, so that those alive at the same step never share a byte.

steps    012345
block a  ==        192 bytes at 0
block b   ===      100 bytes at 192     beside a, which is alive in step 1 too
block c    ===     192 bytes at 0       where a was
block d     ===     64 bytes at 320     arena of 384 bytes: as many as are alive in step 3
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
class Block:
    """A piece of the arena: `nbytes` from `offset`, in use from step `first` to step `last`, both included.

    size : bytes taken, alignment included
    """

    nbytes: int
    first: int
    last: int
    offset: int = -1
    values: list[Value] = field(default_factory=list)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = -(-self.nbytes // ALIGNMENT) * ALIGNMENT


#: In which order blocks look for their place; the first order that comes close to the ideal is taken, else the best.
_ORDERS: tuple[Callable[[Block], Any], ...] = (
    lambda block: (-block.size, block.first),
    lambda block: (-block.size * (block.last - block.first + 1), block.first),
    lambda block: (block.first - block.last, -block.size),
    lambda block: (block.first, -block.size),
)


#: From this many blocks on, NumPy looks for their places.
_MANY = 400


def pack(blocks: Sequence[Block]) -> int:
    """Give every block its offset, so that blocks alive at the same step never overlap; returns the arena's size.

    A block goes into the smallest gap that holds it (best fit), else behind all its contemporaries.
    """
    ideal = peak(blocks)
    best: tuple[int, list[int]] | None = None
    place_block = _place if len(blocks) <= _MANY else _place_many
    for order in _ORDERS:
        total = place_block(sorted(blocks, key=order))
        if best is None or total < best[0]:
            best = total, [block.offset for block in blocks]
        if best[0] <= ideal * 1.03:
            break
    assert best is not None
    for block, offset in zip(blocks, best[1], strict=True):
        block.offset = offset
    return best[0]


def _place(blocks: Sequence[Block]) -> int:
    placed: list[tuple[int, int, int, int]] = []  # from, to, first, last: by offset
    total = 0
    for block in blocks:
        first, last, size = block.first, block.last, block.size
        end, best, smallest = 0, -1, -1
        for begin, stop, born, gone in placed:
            if born <= last and first <= gone:
                gap = begin - end
                if gap >= size and (best < 0 or gap < smallest):
                    best, smallest = end, gap
                if stop > end:
                    end = stop
        block.offset = offset = best if best >= 0 else end
        insort(placed, (offset, offset + size, first, last))
        total = max(total, offset + size)
    return total


def _place_many(blocks: Sequence[Block]) -> int:
    """As `_place`, with all contemporaries of a block looked at in one go."""
    first = np.array([block.first for block in blocks])
    last = np.array([block.last for block in blocks])
    size = np.array([block.size for block in blocks])
    start = np.zeros(len(blocks), np.int64)
    total = 0
    for index, block in enumerate(blocks):
        alive = np.flatnonzero((first[:index] <= block.last) & (last[:index] >= block.first))
        alive = alive[np.argsort(start[alive], kind="stable")]
        begins = start[alive]
        ends = np.maximum.accumulate(np.concatenate(([0], begins + size[alive])))
        gaps = begins - ends[:-1]
        fitting = np.flatnonzero(gaps >= block.size)
        offset = int(ends[fitting[np.argmin(gaps[fitting])]]) if fitting.size else int(ends[-1])
        block.offset = start[index] = offset
        total = max(total, offset + block.size)
    return total


def peak(blocks: Sequence[Block]) -> int:
    """The most bytes alive at one step: no arena can be smaller."""
    change: dict[int, int] = {}
    for block in blocks:
        change[block.first] = change.get(block.first, 0) + block.size
        change[block.last + 1] = change.get(block.last + 1, 0) - block.size
    best = alive = 0
    for step in sorted(change):
        alive += change[step]
        best = max(best, alive)
    return best
