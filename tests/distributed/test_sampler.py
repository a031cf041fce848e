"""DistributedSampler: all workers together take each sample once, in an order that they share."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.gluon.data import ArrayDataset, DataLoader, DistributedSampler


def _shares(length, parts, **options):
    return [list(DistributedSampler(length, num_parts=parts, part_index=part, **options)) for part in range(parts)]


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 100])
@pytest.mark.parametrize("parts", [1, 2, 3, 8])
@pytest.mark.parametrize("shuffle", [False, True])
def test_each_sample_once(length, parts, shuffle):
    kept = _shares(length, parts, shuffle=shuffle, drop_last=True)
    flat = [number for share in kept for number in share]
    assert len(set(flat)) == len(flat) == length // parts * parts
    padded = _shares(length, parts, shuffle=shuffle)
    assert {number for share in padded for number in share} == set(range(length))
    assert {len(share) for share in padded} == {-(-length // parts)}
    assert [len(DistributedSampler(length, num_parts=parts, part_index=0))] == [len(padded[0])]


def test_epochs_have_their_own_order():
    sampler = DistributedSampler(50, num_parts=2, part_index=1)
    first, again = list(sampler), list(sampler)
    sampler.set_epoch(1)
    assert first == again != list(sampler)
    sampler.set_epoch(0)
    assert list(sampler) == first
    assert list(DistributedSampler(50, seed=1, num_parts=2, part_index=1)) != first
    assert list(DistributedSampler(6, shuffle=False, num_parts=2, part_index=1)) == [1, 3, 5]


def test_another_number_of_workers_goes_on():
    taken = [number for share in _shares(24, 2) for number in share[:4]]  # two workers, two batches of 2
    rest = []
    for part in range(4):
        sampler = DistributedSampler(24, num_parts=4, part_index=part)
        sampler.resume(8)
        assert len(sampler) == 4
        rest += list(sampler)
    assert sorted(taken + rest) == list(range(24))


def test_a_loader_goes_on_in_the_middle():
    data = ArrayDataset(np.arange(20.0))
    make = lambda: DataLoader(data, 3, sampler=DistributedSampler(20, num_parts=2, part_index=0))  # noqa: E731
    loader = make()
    loader._batch_sampler.sampler.set_epoch(3)
    batches = iter(loader)
    first = [next(batches).asnumpy().tolist() for _ in range(2)]
    state = loader.get_state()
    rest = [batch.asnumpy().tolist() for batch in batches]
    other = make()
    other.set_state(state)
    assert [batch.asnumpy().tolist() for batch in other] == rest
    assert len(first + rest) == 4


@pytest.mark.parametrize("arguments", [{"length": -1}, {"length": 2.5}, {"length": True}, {"length": "9"}])
def test_wrong_lengths(arguments):
    with pytest.raises(SettingError, match="length is a whole number"):
        DistributedSampler(**arguments)


@pytest.mark.parametrize("part", [-1, 2])
def test_wrong_parts(part):
    with pytest.raises(SettingError, match="part_index"):
        DistributedSampler(8, num_parts=2, part_index=part)
