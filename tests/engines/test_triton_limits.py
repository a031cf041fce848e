"""Where dtypes end: numbers that are none, counts and scalars that a dtype cannot hold, bounds that are infinite."""

from __future__ import annotations

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, nd
from hybrid_lab.gluon import nn
from tests.triton_device import use_triton


@pytest.fixture(autouse=True)
def device(monkeypatch):
    use_triton(monkeypatch)


def both(function, *arrays):
    """What eager and the Triton engine make of it."""
    net = nn.HybridLambda(function)
    eager = net(*arrays).asnumpy()
    net.hybridize(engine="triton")
    return eager, net(*arrays).asnumpy()


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
@pytest.mark.parametrize("shape, axis", [((2, 5000), 1), ((1, 4097), 1), ((9000, 3), 0), ((3, 300), 1)])
def test_not_a_number_is_found_in_rows_of_any_length(name, shape, axis):
    data = np.zeros(shape, "float32")
    data.ravel()[[3, 250]] = 5, np.nan
    eager, hybrid = both(lambda F, x: getattr(F, name)(x, axis=axis), nd.array(data))
    np.testing.assert_array_equal(hybrid, eager)


def test_a_mean_of_more_elements_than_float16_can_count():
    data = np.random.RandomState(0).rand(1, 1, 256, 256)
    eager, hybrid = both(lambda F, x: F.mean(x, axis=(2, 3)), nd.array(data, dtype="float16"))
    np.testing.assert_allclose(hybrid, eager, rtol=1e-3)
    assert 0.4 < hybrid.item() < 0.6


@pytest.mark.parametrize("dtype, count", [("uint8", 256), ("int8", 128), ("int8", 100)])
def test_a_mean_of_more_elements_than_whole_numbers_count(dtype, count):
    eager, hybrid = both(lambda F, x: F.mean(x), nd.array(np.arange(count) % 50, dtype=dtype))
    np.testing.assert_array_equal(hybrid, eager)


@pytest.mark.parametrize(
    "function, dtype",
    [(lambda F, x: x + 200, "int8"), (lambda F, x: x > 200, "int8"), (lambda F, x: x + 2**31, "int32")],
)
def test_scalars_beyond_a_dtype_wrap(function, dtype):
    eager, hybrid = both(function, nd.array([1, 2, -3], dtype=dtype))
    np.testing.assert_array_equal(hybrid, eager)


def test_a_bound_of_clip_may_be_infinite():
    x = nd.array(np.random.RandomState(0).randn(3, 4))
    x.attach_grad()
    net, found = nn.HybridLambda(lambda F, x: F.clip(x, 0, float("inf"))), []
    for engine in (None, "triton"):
        if engine is not None:
            net.hybridize(engine=engine)
        with autograd.record():
            y = net(x)
        y.backward()
        found.append(x.grad.asnumpy())
    np.testing.assert_array_equal(*found)
    assert not mx.explain(net).fallbacks
