"""Small matrix products stay on one thread, and the number of threads is afterwards what it was."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from hybrid_lab.ops import blas


@pytest.fixture
def two_threads():
    control = blas.thread_control()
    if control is None:
        pytest.skip("NumPy's BLAS has no thread control")
    read, write = control
    before = read()
    write(2)
    if read() != 2:
        pytest.skip("one core")
    yield read
    write(before)


SIZES = [(4, 5, 6), (64, 120, 84), (300, 300, 300), (700, 300, 200), (90, 600, 801)]


@pytest.mark.parametrize("size", SIZES)
def test_products_and_the_thread_count(size, two_threads, monkeypatch):
    rows, inner, columns = size
    generator = np.random.RandomState(0)
    left, right = generator.rand(rows, inner), generator.rand(inner, columns)
    out = np.empty((rows, columns))
    assert blas.matmul(left, right, out=out) is out
    np.testing.assert_allclose(out, left @ right)
    assert two_threads() == 2


def test_the_thread_count_survives_an_error(two_threads):
    with pytest.raises(ValueError, match="mismatch"):
        blas.matmul(np.ones((200, 100)), np.ones((90, 200)))
    assert two_threads() == 2


def test_the_thread_count_survives_threads(two_threads):
    left = np.ones((100, 100), np.float32)
    workers = [threading.Thread(target=lambda: [blas.matmul(left, left) for _ in range(200)]) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert two_threads() == 2


def test_batches_of_large_products(two_threads):
    left, right = np.random.RandomState(0).rand(2, 3, 400, 300), np.random.RandomState(1).rand(3, 300, 350)
    np.testing.assert_allclose(blas.matmul(left, right), left @ right)
    assert two_threads() == 2
