"""Kernel formulas at numbers where the plain formula is wrong: large, tiny, infinite, NaN."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import nd
from hybrid_lab.gluon import nn
from tests.triton_device import ON_GPU, use_triton

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


TINY = [1e-8, -1e-8, 1e-4, -3e-3, 0.1, -0.24, 0.26, 0.5, -0.9]
FAR = [1.5, -7.0, 60.0, -85.0, INF, -INF, NAN]
CURVES = {
    "sinh": [*TINY, *FAR, 89.0, -89.0, 120.0],
    "cosh": [*TINY, *FAR, 89.0, -89.0, 120.0],
    "arcsinh": [*TINY, *FAR, 9e8, 2e9, 1e20, -3e38],
    "arccosh": [1.0, 1.0001, 1.03, 1.04, 2.0, 9e8, 2e9, 1e20, 3e38, INF, NAN, 0.5, -0.5, -1.0, -1e5, -INF],
    "arctanh": [*TINY, 0.999, -0.999, 1.0, -1.0, 1.5, -2.0, INF, NAN],
    "rcbrt": [0.0, -0.0, 8.0, -8.0, 1e-6, INF, -INF, NAN],
}


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("dtype, tolerance", [("float32", 2e-6), ("float64", 1e-13)])
def test_curves_near_zero_and_far_away(name, dtype, tolerance):
    with np.errstate(all="ignore"):
        eager, found = both(lambda F, x: getattr(F, name)(x), CURVES[name], dtype=dtype)
    if ON_GPU and dtype == "float32":
        tolerance = 4e-6  # exp(x) is 2 to the power of a product, which is rounded: docs/limits.md
    np.testing.assert_allclose(found, eager, rtol=tolerance, atol=0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_hypot_of_large_tiny_and_infinite_legs(dtype):
    a = [3e30, 1e-30, 3.0, 0.0, -0.0, INF, NAN, -INF, NAN, 0.0, 1.0, NAN]
    b = [4e30, 1e-30, -4.0, 0.0, -2.0, 1.0, INF, NAN, 1.0, NAN, NAN, 0.0]
    with np.errstate(all="ignore"):
        eager, found = both(lambda F, a, b: F.broadcast_hypot(a, b), a, b, dtype=dtype)
        np.testing.assert_allclose(found, eager, rtol=1e-6, atol=0)
        np.testing.assert_allclose(*both(lambda F, a, b: F.hypot(a, 4.0), a, b, dtype=dtype), rtol=1e-6)


def test_hypot_of_whole_numbers():
    legs = [3, 5, -20000, 100000, 0], [4, 5, 15000, -100000, 0]
    np.testing.assert_array_equal(*both(lambda F, a, b: F.broadcast_hypot(a, b), *legs, dtype="int32"))


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_division_of_whole_numbers(dtype):
    """Towards zero, 0 where the divisor is 0, and exact where float32 is not."""
    a, b = [7, 200, 255, 3, 5, 0], [2, 2, 1, 1, 0, 0]
    if dtype != "uint8":
        a, b = [*a, -7, 7, 2**24 + 1, 2**31 - 1], [*b, 2, -2, 1, 1]
    np.testing.assert_array_equal(*both(lambda F, a, b: F.broadcast_div(a, b), a, b, dtype=dtype))
    np.testing.assert_array_equal(*both(lambda F, a: 7 / a, b, dtype=dtype))
    np.testing.assert_array_equal(*both(lambda F, a: a / 3, a, dtype=dtype))
    np.testing.assert_array_equal(*both(lambda F, a: a / 0, a, dtype=dtype))
