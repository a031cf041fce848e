"""Kernel formulas at numbers where the plain formula is wrong: large, tiny, infinite, NaN."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import nd
from hybrid_lab.gluon import nn
from tests.triton_device import use_triton

INF, NAN = float("inf"), float("nan")


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    use_triton(monkeypatch)


def both(function, *arrays, dtype="float32"):
    """What a function of arrays gives eagerly and in Triton's kernels."""
    inputs = [nd.array(array, dtype=dtype) for array in arrays]
    net = nn.HybridLambda(lambda F, *args: function(F, *args))
    eager = net(*inputs).asnumpy()
    net.hybridize(engine="triton")
    found = net(*inputs).asnumpy()
    assert not mx.explain(net).fallbacks
    return eager, found


def modulo(F, a, b):
    return F.broadcast_mod(a, b)


DIVIDENDS = [1e9, -1e9, 3e38, -5.0, 5.0, -6.0, 6.0, 5.0, -5.0, 1e-45, 3e38, 0.0, INF, NAN, 3.0, 5.0]
DIVISORS = [7.0, 7.0, 1e-45, 3.0, -3.0, 3.0, -3.0, INF, INF, 3e38, 0.1, INF, 3.0, 2.0, NAN, 0.0]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_modulo_of_large_quotients_and_infinities(dtype):
    with np.errstate(all="ignore"):
        eager, found = both(modulo, DIVIDENDS, DIVISORS, dtype=dtype)
    np.testing.assert_array_equal(found, eager)
    finite = np.isfinite(eager)
    assert np.array_equal(np.signbit(found[finite]), np.signbit(eager[finite]))


def test_modulo_of_float64_and_of_numbers():
    a, b = [1e9, -1e9, 1e15, -7.25, INF], [7.0, 7.0, 3.0, 0.5, 2.0]
    for function in (modulo, lambda F, a, b: a % 7.1, lambda F, a, b: 1e9 % b):
        np.testing.assert_array_equal(*both(function, a, b, dtype="float64"))


def test_modulo_of_whole_numbers():
    a, b = [7, -7, 7, -7, 2**31 - 1, 5], [3, 3, -3, -3, 2, 0]
    np.testing.assert_array_equal(*both(modulo, a, b, dtype="int32"))
    np.testing.assert_array_equal(*both(modulo, [7, 250, 255], [3, 251, 0], dtype="uint8"))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_sign_of_nan_is_nan(dtype):
    np.testing.assert_array_equal(*both(lambda F, x: F.sign(x), [NAN, -INF, -2.0, -0.0, 0.0, 1e-6, INF], dtype=dtype))
