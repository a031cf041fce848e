"""Kernels given odd values make of them what eager makes: indices and lengths that are no whole numbers or beyond all
sizes, rows of -inf, conversions to narrower dtypes, bools, empty arrays.
"""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab import autograd, nd
from hybrid_lab.gluon import nn
from tests.ops.cases import close
from tests.triton_device import use_triton

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.fixture(autouse=True)
def device(monkeypatch):
    use_triton(monkeypatch)


def agree(function, *arrays, tolerance=1e-5):
    """Eager and the Triton engine give the same outputs, and gradients of the first input where it has any."""
    found = []
    for engine in (None, "triton"):
        given = [nd.array(array, dtype=str(array.dtype)) for array in arrays]
        net = nn.HybridLambda(function)
        if engine is not None:
            net.hybridize(engine=engine)
        if arrays[0].dtype.kind != "f":
            found.append([net(*given).asnumpy()])
            continue
        given[0].attach_grad()
        with autograd.record():
            y = net(*given)
        y.backward(nd.array(np.linspace(-1, 1, y.size).reshape(y.shape), dtype=y.dtype))
        found.append([y.asnumpy(), given[0].grad.asnumpy()])
    for eager, hybrid in zip(*found, strict=True):
        assert hybrid.dtype == eager.dtype
        close(hybrid, eager, tolerance)


def data(*shape, dtype="float32"):
    return np.random.RandomState(0).randn(*shape).astype(dtype)


INDICES = {
    "fractions": np.array([1.7, -0.5, 2.2], "float32"),
    "halves": np.array([1.5, -0.5, np.nan], "float16"),
    "no numbers": np.array([np.nan, -np.inf, 1], "float32"),
    "beyond int32": np.array([3e9, -3e9, 2], "float32"),
    "beyond int32 in float64": np.array([2.0**32 + 1, -(2.0**32) - 1, 2], "float64"),
    "beyond int32 in int64": np.array([2**32 + 1, -(2**32) - 1, 2], "int64"),
    "least and largest": np.array([2**63 - 1, -(2**63), 1], "int64"),
    "least and largest int32": np.array([2**31 - 1, -(2**31), 1], "int32"),
    "bytes": np.array([200, 3, 255], "uint8"),
}
READERS = {
    "take": lambda F, x, i: F.take(x, i, axis=1),
    "take, wrapped": lambda F, x, i: F.take(x, i, axis=1, mode="wrap"),
    "pick": lambda F, x, i: F.pick(x, i),
    "pick, wrapped": lambda F, x, i: F.pick(x, i, axis=1, mode="wrap"),
    "batch_take": lambda F, x, i: F.batch_take(x, i),
    "Embedding": lambda F, x, i: F.Embedding(i, x, input_dim=3, output_dim=5),
    "SequenceLast": lambda F, x, i: F.SequenceLast(x, i, use_sequence_length=True, axis=1),
    "SequenceMask": lambda F, x, i: F.SequenceMask(x, i, use_sequence_length=True, axis=1, value=7),
    "SequenceReverse": lambda F, x, i: F.SequenceReverse(F.transpose(x), i, use_sequence_length=True),
    "one_hot": lambda F, x, i: F.broadcast_add(x, F.one_hot(i, 5)),
    "softmax of lengths": lambda F, x, i: F.softmax(x, i, use_length=True),
}


@pytest.mark.parametrize("indices", INDICES)
@pytest.mark.parametrize("reader", READERS)
def test_indices_and_lengths(reader, indices):
    agree(READERS[reader], data(3, 5), INDICES[indices])


@pytest.mark.parametrize("indices", ["fractions", "no numbers", "beyond int32 in int64", "least and largest"])
def test_coordinates_of_a_number(indices):
    agree(lambda F, i: F.cast(F.unravel_index(i, shape=(3, 5)), "float64"), INDICES[indices])


def test_lengths_that_float16_does_not_count():
    lengths = np.array([2049, 2051], "int32")
    agree(lambda F, x, n: F.softmax(x, n, use_length=True), data(2, 2100, dtype="float16"), lengths)


@pytest.mark.parametrize("low", [-np.inf, -3e38, -1e31])
def test_masked_rows_of_very_small_scores(low):
    x = data(4, 5)
    x[1], x[2, :2] = low, low
    x[2, 2:] *= 3
    agree(lambda F, x, n: F.softmax(x, n, use_length=True), x, np.array([3, 2, 2, 0], "int32"))


@pytest.mark.parametrize("name", ["softmax", "softmin", "log_softmax"])
@pytest.mark.parametrize("scale, start", [(1, 1e4), (1e30, 0)])
def test_softmax_into_a_narrower_dtype_rounds_once(name, scale, start):
    numbers = data(3, 5) * np.float32(scale) + np.float32(start)
    agree(lambda F, x: getattr(F, name)(x, dtype="float16"), numbers, tolerance=4e-3)


@pytest.mark.parametrize("name", ["mean", "argmax", "argmin", "max", "sum"])
def test_reductions_of_bools(name):
    agree(lambda F, x: getattr(F, name)(x, axis=1), np.array([[True, False, True], [True, True, True]]))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 3)])
@pytest.mark.parametrize(
    "function",
    [
        lambda F, x: F.softmax(x, axis=-1),
        lambda F, x: F.log_softmax(x, axis=0),
        lambda F, x: F.tile(x, reps=(2, 2)),
        lambda F, x: F.repeat(x, repeats=2, axis=0),
        lambda F, x: F.mean(x, axis=0),
    ],
    ids=["softmax", "log_softmax", "tile", "repeat", "mean"],
)
def test_empty_arrays(function, shape):
    agree(function, data(*shape))


@pytest.mark.parametrize("name", ["mean", "sum"])
def test_whole_numbers_beyond_floats(name):
    agree(lambda F, x: getattr(F, name)(x, axis=1), np.array([[2**61 + 1, 2**61 + 3], [-(2**62), -1]], "int64"))


@pytest.mark.parametrize("lengths", [np.array([2**32 + 1, 2, 0], "int64"), np.array([3e9, 0, 1], "float32")])
def test_lengths_of_recurrent_layers(lengths):
    size = 4 * (5 * 2 + 5 * 5 + 10)
    inputs = data(3, 3, 2), data(size) * np.float32(0.3), data(1, 3, 5), data(1, 3, 5), lengths
    agree(lambda F, *a: F.RNN(*a, mode="lstm", state_size=5, num_layers=1, use_sequence_length=True), *inputs)


@pytest.mark.parametrize("value", [-1.5, 300.0])
def test_borders_of_bytes(value):
    widths = (0, 0, 0, 0, 1, 2)
    agree(
        lambda F, x: F.pad(x, mode="constant", pad_width=widths, constant_value=value),
        np.arange(6, dtype="uint8").reshape(1, 2, 3),
    )
