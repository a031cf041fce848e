"""Compilations run without the garbage collector, and leave no full collection behind for a training step."""

import gc
import sys

import pytest

from hybrid_lab.system import memory as collector
from hybrid_lab.system.memory import without_collecting


@pytest.fixture(autouse=True)
def few_objects(monkeypatch):
    """Every process counts as one with few objects, whatever other tests have left in this one."""
    monkeypatch.setattr(collector, "_MOST_BLOCKS", 1 << 40)


def number_of_objects():
    """About as many as there are in this process, those included that tests/conftest.py keeps out of collections."""
    return sys.getallocatedblocks() // 4


def full_collections():
    return gc.get_stats()[2]["collections"]


@pytest.mark.parametrize("share, collections", [(1.0, 1), (0.01, 0)])
def test_a_block_that_makes_many_objects_ends_with_a_full_collection(share, collections):
    gc.collect()
    count = int(share * number_of_objects())
    before = full_collections()
    with without_collecting():
        objects = [[] for _ in range(count)]
        assert full_collections() == before
    assert full_collections() == before + collections and len(objects) == count


def test_a_collector_that_the_user_has_switched_off_stays_off():
    before = full_collections()
    gc.disable()
    try:
        with without_collecting():
            objects = [[] for _ in range(number_of_objects())]
        assert not gc.isenabled() and full_collections() == before and objects
    finally:
        gc.enable()


def test_only_the_last_of_overlapping_blocks_collects():
    gc.collect()
    before = full_collections()
    with without_collecting():
        with without_collecting():
            objects = [[] for _ in range(number_of_objects())]
        assert not gc.isenabled() and full_collections() == before
    assert gc.isenabled() and full_collections() == before + 1 and objects


def test_where_a_full_collection_takes_long_python_decides(monkeypatch):
    monkeypatch.setattr(collector, "_MOST_BLOCKS", 1000)
    gc.collect()
    before = full_collections()
    with without_collecting():
        objects = [[] for _ in range(number_of_objects())]
    assert full_collections() == before and objects
