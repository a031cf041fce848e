"""Buffers with a host side and a device side, synchronized when read. More CPU memory stands in for a GPU's."""

from __future__ import annotations

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import nd
from hybrid_lab.ndarray.buffer import Buffer, copies

torch = pytest.importorskip("torch")
DEVICE = torch.device("cpu")


@pytest.fixture
def copied():
    """How many copies the test made so far: copied() -> (to the host, to the device)."""
    before = copies.snapshot()
    return lambda: (copies.to_host - before["to_host"], copies.to_device - before["to_device"])


def test_a_push_copies_once_and_again_after_a_write(copied):
    x = nd.array([1, 2, 3])
    first = x.raw(DEVICE)
    assert x.raw(DEVICE).data_ptr() == first.data_ptr() and copied() == (0, 1)
    x += 1
    again = x.raw(DEVICE)
    assert again.tolist() == [2, 3, 4] and again.data_ptr() == first.data_ptr() and copied() == (0, 2)


def test_arrays_born_on_a_device_come_to_the_host_when_read(copied):
    x = nd.NDArray.wrap_device(torch.arange(6.0).reshape(2, 3), mx.cpu(1))
    assert (x.shape, x.dtype, x.ctx, x.size) == ((2, 3), np.float32, mx.cpu(1), 6) and copied() == (0, 0)
    assert x[1].tolist() == [3, 4, 5] and copied() == (1, 0)
    assert (x + x).tolist() == [[0, 2, 4], [6, 8, 10]] and copied() == (1, 0)


def test_a_view_shows_what_was_written_on_the_device(copied):
    x = nd.zeros((2, 3))
    row = x[1]
    x.buffer.push(DEVICE)
    version = x.version
    x.buffer.device.fill_(7)
    x.buffer.written_on_device()
    assert row.raw(DEVICE).tolist() == [7, 7, 7] and copied() == (0, 1)
    assert row.tolist() == [7, 7, 7] and copied() == (1, 1)
    assert row.version == version + 1


def test_a_column_copy_reads_fresh_values():
    x = nd.NDArray.wrap_device(torch.arange(6.0).reshape(2, 3), mx.cpu())
    assert x[:, 1].tolist() == [1, 4]


def test_dtypes_cross_over():
    for dtype in ("float32", "float64", "float16", "uint8", "int8", "int32", "int64", "bool"):
        x = nd.ones((3,), dtype=dtype)
        made = Buffer.on_device(x.raw(DEVICE), mx.cpu())
        made.pull()
        assert made.host.dtype == np.dtype(dtype) and made.host.tolist() == x.tolist()
