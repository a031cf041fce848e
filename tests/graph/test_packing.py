"""Blocks in an arena: nothing alive overlaps, and little more than the ideal is used."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab.graph.memory.packing import Allocation, _place, _place_many, pack, peak
from tests.graph.building import program


def overlaps(allocations: list[Allocation]) -> list[tuple[Allocation, Allocation]]:
    """Pairs that are alive at the same step and share bytes: the independent check."""
    return [
        (a, b)
        for index, a in enumerate(allocations)
        for b in allocations[:index]
        if max(a.first, b.first) <= min(a.last, b.last)
        and max(a.offset, b.offset) < min(a.offset + a.nbytes, b.offset + b.nbytes)
    ]


def picture(allocations: list[Allocation]) -> str:
    """One line an allocation: when it is alive, a character a step, and where it lies."""
    return "\n".join(
        f"{' ' * allocation.first}{'=' * (allocation.last - allocation.first + 1):<{6 - allocation.first}}"
        f"{allocation.nbytes:>4} bytes at {allocation.offset}"
        for allocation in allocations
    )


def test_before_and_after():
    allocations = [Allocation(192, 0, 1), Allocation(100, 1, 3), Allocation(192, 2, 4), Allocation(64, 3, 5)]
    assert picture(allocations) == program("""
        ==     192 bytes at -1
         ===   100 bytes at -1
          ===  192 bytes at -1
           ===  64 bytes at -1
    """)
    assert (pack(allocations), peak(allocations)) == (384, 384)
    assert picture(allocations) == program("""
        ==     192 bytes at 0
         ===   100 bytes at 192
          ===  192 bytes at 0
           ===  64 bytes at 320
    """)


@pytest.mark.parametrize("seed", range(30))
def test_random_intervals_are_packed_without_overlap_and_near_the_ideal(seed):
    random = np.random.RandomState(seed)
    steps = 60
    allocations = []
    for _ in range(80):
        first = int(random.randint(steps))
        allocations.append(
            Allocation(int(random.randint(1, 5000)), first, min(steps, first + int(random.geometric(0.2))))
        )
    total = pack(allocations)
    assert not overlaps(allocations)
    assert all(allocation.offset % 64 == 0 for allocation in allocations)
    assert peak(allocations) <= total <= 1.15 * peak(allocations)


@pytest.mark.parametrize("seed", range(10))
def test_many_allocations_are_placed_as_few_are(seed):
    random = np.random.RandomState(seed)
    allocations = []
    for _ in range(120):
        first = int(random.randint(80))
        allocations.append(
            Allocation(int(random.choice([0, 64, 100, 640, 5000])), first, first + int(random.geometric(0.1)))
        )
    allocations.sort(key=lambda allocation: -allocation.size)
    total = _place(allocations)
    offsets = [allocation.offset for allocation in allocations]
    assert _place_many(allocations) == total
    assert [allocation.offset for allocation in allocations] == offsets
