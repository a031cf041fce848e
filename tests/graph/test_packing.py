"""Blocks in an arena: nothing alive overlaps, and little more than the ideal is used."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab.graph.memory.packing import Block, _place, _place_many, pack, peak
from tests.graph.building import program


def overlaps(blocks: list[Block]) -> list[tuple[Block, Block]]:
    """Pairs that are alive at the same step and share bytes: the independent check."""
    return [
        (a, b)
        for index, a in enumerate(blocks)
        for b in blocks[:index]
        if max(a.first, b.first) <= min(a.last, b.last)
        and max(a.offset, b.offset) < min(a.offset + a.nbytes, b.offset + b.nbytes)
    ]


def picture(blocks: list[Block]) -> str:
    """One line a block: when it is alive, a character a step, and where it lies."""
    return "\n".join(
        f"{' ' * block.first}{'=' * (block.last - block.first + 1):<{6 - block.first}}"
        f"{block.nbytes:>4} bytes at {block.offset}"
        for block in blocks
    )


def test_before_and_after():
    blocks = [Block(192, 0, 1), Block(100, 1, 3), Block(192, 2, 4), Block(64, 3, 5)]
    assert picture(blocks) == program("""
        ==     192 bytes at -1
         ===   100 bytes at -1
          ===  192 bytes at -1
           ===  64 bytes at -1
    """)
    assert (pack(blocks), peak(blocks)) == (384, 384)
    assert picture(blocks) == program("""
        ==     192 bytes at 0
         ===   100 bytes at 192
          ===  192 bytes at 0
           ===  64 bytes at 320
    """)


@pytest.mark.parametrize("seed", range(30))
def test_random_intervals_are_packed_without_overlap_and_near_the_ideal(seed):
    random = np.random.RandomState(seed)
    steps = 60
    blocks = []
    for _ in range(80):
        first = int(random.randint(steps))
        blocks.append(Block(int(random.randint(1, 5000)), first, min(steps, first + int(random.geometric(0.2)))))
    total = pack(blocks)
    assert not overlaps(blocks)
    assert all(block.offset % 64 == 0 for block in blocks)
    assert peak(blocks) <= total <= 1.15 * peak(blocks)


@pytest.mark.parametrize("seed", range(10))
def test_many_blocks_are_placed_as_few_are(seed):
    random = np.random.RandomState(seed)
    blocks = []
    for _ in range(120):
        first = int(random.randint(80))
        blocks.append(Block(int(random.choice([0, 64, 100, 640, 5000])), first, first + int(random.geometric(0.1))))
    blocks.sort(key=lambda block: -block.size)
    total = _place(blocks)
    offsets = [block.offset for block in blocks]
    assert _place_many(blocks) == total
    assert [block.offset for block in blocks] == offsets
