"""Eager operators where dtypes end: sums that are wider than their result, whole numbers that floats do not hold."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab import autograd, nd
from hybrid_lab.diagnostics.errors import HybridLabError


@pytest.mark.parametrize("shape, axis", [((3,), 0), ((1, 3), 1), ((3, 2), 0), ((200, 3), 1)])
def test_a_mean_of_float16_whose_sum_overflows(shape, axis):
    data = np.full(shape, 60000, "float16")
    np.testing.assert_array_equal(nd.mean(nd.array(data, dtype="float16"), axis=axis).asnumpy(), data.max(axis=axis))


@pytest.mark.parametrize(
    "dtype, numbers, mean",
    [
        ("int64", [2**63 - 1], 2**63 - 1),
        ("int64", [2**61 + 1, 2**61 + 3], 2**61 + 2),
        ("int64", [-7, -6, -2], -5),
        ("int32", [-7, 0], -3),
        ("int8", [100, 100, 100], 14),
        ("uint8", [255, 255, 255], 84),
    ],
)
def test_a_mean_of_whole_numbers_is_divided_as_whole_numbers(dtype, numbers, mean):
    """The numbers are MXNet 1.9.1's."""
    data = nd.array(np.array(numbers, dtype), dtype=dtype)
    assert nd.mean(data, axis=0).asscalar() == mean
    pooled = nd.Pooling(data.reshape((1, 1, -1)), global_pool=True, pool_type="avg", kernel=1)
    assert pooled.asscalar() == mean


def test_batch_norm_of_float16_has_statistics_of_float32():
    data = np.random.RandomState(0).randn(4, 3, 5).astype("float16") * np.float16(200)
    vectors = [nd.array(numbers, dtype="float16") for numbers in (np.ones(3), np.zeros(3), np.zeros(3), np.ones(3))]
    with autograd.record():
        y = nd.BatchNorm(nd.array(data, dtype="float16"), *vectors, fix_gamma=False)
    np.testing.assert_allclose(y.asnumpy().astype("float64").std(axis=(0, 2)), 1, rtol=1e-2)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("label", [-1.0, 3.0, np.nan])
def test_labels_outside_are_refused(label):
    with pytest.raises(HybridLabError, match="softmax_cross_entropy"):
        nd.softmax_cross_entropy(nd.ones((2, 3)), nd.array([0, label]))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_an_infinite_index_is_the_first_or_the_last(dtype):
    indices = nd.array([np.inf, -np.inf, np.nan, 1.7], dtype=dtype)
    np.testing.assert_array_equal(nd.take(nd.arange(5), indices).asnumpy(), [4, 0, 0, 1])


def test_a_length_that_is_no_number_has_no_steps():
    parameters = nd.ones(2 * 4 * (2 * 3 + 3 * 3 + 6))
    states = nd.ones((2, 3, 3)), nd.ones((2, 3, 3))
    y = nd.RNN(
        nd.ones((4, 3, 2)), parameters, *states, nd.array([np.nan, np.inf, 2]), mode="lstm", state_size=3,
        num_layers=1, bidirectional=True, use_sequence_length=True,
    )  # fmt: skip
    np.testing.assert_array_equal((y.asnumpy() != 0).any(axis=2).sum(axis=0), [0, 4, 2])
