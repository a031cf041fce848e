"""The iterator from which libraries derive loaders, over a pool of threads."""

from __future__ import annotations

import pickle
from multiprocessing.pool import ThreadPool

import pytest

from hybrid_lab.gluon.data.worker_iter import _MultiWorkerIter


def test_batches_come_in_order():
    with ThreadPool(2) as pool:
        batches = _MultiWorkerIter(pool, sum, [[0, 1], [2], [3, 4]], prefetch=2, dataset=[1, 2, 3, 4, 5])
        assert len(batches) == 3
        assert list(batches) == [3, 3, 9]


def test_without_a_data_set_workers_return_pickles():
    with ThreadPool(2) as pool:
        worker = lambda numbers, batchify, dataset: pickle.dumps(batchify(numbers))  # noqa: E731
        assert list(_MultiWorkerIter(pool, max, [[0, 1], [5]], worker_fn=worker)) == [1, 5]


def test_an_error_of_a_worker_arrives():
    with ThreadPool(1) as pool:
        batches = _MultiWorkerIter(pool, sum, [[7]], dataset=[1])
        with pytest.raises(IndexError):
            next(batches)
