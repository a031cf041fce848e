"""Small matrix products stay on one thread, and the number of threads is afterwards what it was."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import numpy as np
import pytest

from hybrid_lab.ops.kernels import blas


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


@pytest.mark.parametrize("way", ["matmul", "share", "small_products"])
def test_the_thread_count_survives_an_interrupt_while_it_is_set(way, monkeypatch):
    counts = [2]

    def write(count):
        counts.append(count)
        if len(counts) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(blas, "thread_control", lambda: (lambda: counts[-1], write))
    square = np.ones((100, 100))
    with pytest.raises(KeyboardInterrupt):
        if way == "matmul":
            blas.matmul(square, square)
        elif way == "share":
            blas.share([1, 2], [lambda item: None] * 2)
        else:
            with blas.small_products(10**6):
                pass
    assert counts == [2, 1, 2]


def test_an_interrupt_is_raised_when_all_workers_have_stopped():
    class Running(Future):
        asked = 0

        def exception(self, timeout=None):
            self.asked += 1
            if self.asked == 1:
                raise KeyboardInterrupt
            return None

    running = Running()
    running.set_running_or_notify_cancel()
    with pytest.raises(KeyboardInterrupt):
        blas._ended([running])
    assert running.asked == 2
