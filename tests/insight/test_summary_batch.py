"""Summaries of many arrays read together: the numbers of `summarize` to the last bit, with few calls of NumPy."""

from dataclasses import replace

import numpy as np
import pytest

from hybrid_lab import nd
from hybrid_lab.insight import summary_batch
from hybrid_lab.insight.summary import CHUNK, summarize
from hybrid_lab.insight.summary_batch import SMALL, SummaryBatch

DTYPES = ["float16", "float32", "float64", "int8", "int32", "uint8", "bool"]
SIZES = [0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 127, 128, 129, 1000, SMALL - 1, SMALL, SMALL + 1]


def arrays_of(kind, random, count=6):
    """Some arrays of each size."""
    for size in SIZES:
        for _ in range(count):
            values = random.normal(size=size) * 10 ** random.uniform(-4, 4)
            if kind == "constant":
                values[:] = values[:1]
            elif kind == "zeros":
                values *= random.choice([0.0, -0.0, 1.0], size)
            elif kind == "largest":
                values = random.choice([1.7e308, -1.7e308, 0.0], size)
            elif kind == "smallest":
                values = random.randint(0, 3, size) * 5e-324
            elif kind == "not finite":
                values[random.uniform(size=size) > 0.7] = random.choice([np.nan, np.inf, -np.inf])
            elif kind in DTYPES:
                whole = np.dtype(kind).kind != "f"
                values = np.clip(values, *((-9, 90) if whole else (-6e4, 6e4))).astype(kind)
            yield values


@pytest.mark.parametrize("kind", [*DTYPES, "constant", "zeros", "largest", "smallest", "not finite"])
def test_each_summary_is_that_of_the_array_alone(kind):
    random = np.random.RandomState(1)
    arrays = list(arrays_of(kind, random))
    random.shuffle(arrays)
    batch = SummaryBatch()
    for array in arrays:
        batch.add(array)
    for array, found in zip(arrays, batch.summaries(), strict=True):
        wanted = replace(summarize(array), bins=())
        assert found == wanted
        assert str(found) == str(wanted)


def test_shapes_types_and_strides_are_those_of_the_array():
    arrays = [np.arange(24.0).reshape(2, 3, 4).T, np.zeros((3, 8), "f4")[:, ::2], np.float32(3), nd.ones((2, 12))]
    arrays += [nd.array([[1, 2], [3, 4]], dtype="bfloat16"), nd.arange(24, dtype="int32")]
    batch = SummaryBatch()
    for array in arrays:
        batch.add(array)
    assert batch.summaries() == [replace(summarize(array), bins=()) for array in arrays]


def test_an_array_may_change_after_it_was_added():
    batch, array = SummaryBatch(), np.ones(4)
    batch.add(array)
    array[:] = 7
    batch.add(array)
    assert [each.maximum for each in batch.summaries()] == [1, 7]


def test_small_arrays_are_read_in_batches(monkeypatch):
    """1,000 arrays of a size are one batch, and never more values than are read of a large array at a time."""
    read = []
    original = SummaryBatch._read
    monkeypatch.setattr(SummaryBatch, "_read", lambda self, size: (read.append(size), original(self, size)))
    monkeypatch.setattr(summary_batch, "summary_of", None)  # of an array alone
    batch = SummaryBatch()
    for number in range(1000):
        batch.add(np.full(16, number))
        batch.add(np.full(SMALL // 2, number))
    assert len(batch.summaries()) == 2000
    assert sorted(set(read)) == [16, SMALL // 2]
    assert read.count(16) == 1
    assert read.count(SMALL // 2) == -(-1000 // (2 * CHUNK // SMALL))
