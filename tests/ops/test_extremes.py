"""Numbers at the ends of dtypes, eagerly: what MXNet 1.9.1 answers, where it answers anything."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab import autograd, nd, ops
from hybrid_lab.diagnostics.errors import DTypeError
from hybrid_lab.ops.framework.run import run_kernel
from tests.ops.onnx_model import run_model

INF, NAN = float("inf"), float("nan")
INT32 = [-5, -1, 0, 1, 3, 16777217, 2147483647]


@pytest.mark.parametrize(
    "dtype, data, low, high, expected",
    [
        ("uint8", [0, 2, 3, 4, 255], -3, 3, [0, 2, 3, 3, 3]),
        ("uint8", [0, 2, 3, 4, 255], -3.7, 1000, [0, 2, 3, 4, 255]),
        ("int32", INT32, -0.5, 2.5, [0, 0, 0, 1, 2, 2, 2]),
        ("int32", INT32, 0.5, INF, [0, 0, 0, 1, 3, 16777217, 2147483647]),
        ("int32", INT32, -INF, INF, INT32),
        ("int32", INT32, 0, 3e9, [0, 0, 0, 1, 3, 16777217, 2147483647]),
        ("int32", INT32, NAN, 1, [-5, -1, 0, 1, 1, 1, 1]),
    ],
)
def test_limits_of_whole_numbers_need_not_be_numbers_of_the_dtype(dtype, data, low, high, expected):
    found = nd.clip(nd.array(data, dtype=dtype), low, high).asnumpy()
    np.testing.assert_array_equal(found, expected)


ODD = [0.49999997, 8388609.0, -8388609.0, 4194305.5, 0.5, 2.5, -0.5, -0.3, -0.0, 0.3, INF, -INF, NAN]
ROUNDED = [0.0, 8388609.0, -8388609.0, 4194306.0, 1.0, 3.0, -1.0, -0.0, -0.0, 0.0, INF, -INF, NAN]
HALVES_DOWN = [0.0, 8388609.0, -8388609.0, 4194305.0, 0.0, 2.0, -1.0, -0.0, -0.0, 0.0, INF, -INF, NAN]


@pytest.mark.parametrize("name, expected", [("round", ROUNDED), ("rint", HALVES_DOWN)])
def test_rounding_where_adding_a_half_rounds_too(name, expected):
    op, data = ops.get(name).bind(), np.array(ODD, "float32")
    (found,) = run_kernel(op, [data])
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found[:-1]), np.signbit(expected[:-1]))
    np.testing.assert_array_equal(run_model(op, [data])[0], expected)
    data = np.array([1025.0, -1027.0], "float16")
    np.testing.assert_array_equal(run_kernel(op, [data])[0], data)


def test_division_of_64_bits_is_exact():
    a = [2**63 - 1, -(2**63), 2**53 + 1, -7, 7, -7, 5]
    b = [1, 3, 1, 2, -2, -2, 0]
    found = nd.array(a, dtype="int64") / nd.array(b, dtype="int64")
    np.testing.assert_array_equal(found.asnumpy(), [2**63 - 1, -3074457345618258602, 2**53 + 1, -3, -3, 3, 0])


def test_a_number_that_a_dtype_rounds_to_0_is_0():
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal((nd.array([NAN, 1, 2]) % 1e-46).asnumpy(), [0, 0, 0])
    half = nd.array([0.1, 1], dtype="float16")
    np.testing.assert_array_equal(nd.logical_and(half, 1e-8).asnumpy(), [0, 0])
    np.testing.assert_array_equal(nd.logical_or(half, 1e-8).asnumpy(), [1, 1])


def test_smooth_l1_without_a_border():
    with np.errstate(all="ignore"):
        found = nd.smooth_l1(nd.array([0, 1, -2, INF, NAN]), scalar=0.0).asnumpy()
    np.testing.assert_array_equal(found, [0, 0, 0, NAN, NAN])


@pytest.mark.parametrize("number", [1e20, INF, NAN])
def test_whole_numbers_take_no_number_beyond_64_bits(number):
    with pytest.raises(DTypeError, match="does not fit int32"):
        nd.array([1, 2], dtype="int32") + number


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gamma_at_its_poles_and_for_large_numbers(dtype):
    """Values and gradients of MXNet; in float64 its infinite slopes are the largest number."""
    x = nd.array([0.0, -0.0, -1, -100, INF, -INF, 500, 1e4, -200.5, -1000.5], dtype=dtype)
    x.attach_grad()
    with np.errstate(all="ignore"):
        with autograd.record():
            values, logarithms = nd.gamma(x), nd.gammaln(x)
        logarithms.backward()
        again = nd.array([-1, 0.0], dtype=dtype)
        again.attach_grad()
        with autograd.record():
            slope = autograd.grad(nd.gammaln(again), again, create_graph=True, retain_graph=True)[0]
        slope.backward()
    np.testing.assert_array_equal(values.asnumpy(), [INF, -INF, NAN, NAN, INF, NAN, INF, INF, 0, 0])
    np.testing.assert_array_equal(logarithms.asnumpy()[:6], [INF] * 6)
    np.testing.assert_array_equal(x.grad.asnumpy()[:6], [INF] * 6)
    np.testing.assert_array_equal(again.grad.asnumpy(), [INF, INF])


def test_gamma_has_all_digits_near_its_poles():
    x = np.array([-1e-20, 1e-20, -1e-10, -3 + 2.0**-40, -2 - 2.0**-40])
    slopes = np.array([1.0, 1.0, 1.0, -6.0, 2.0])  # gamma(-n + d) is about 1 / (slope d)
    apart = np.array([-1e-20, 1e-20, -1e-10, 2.0**-40, -(2.0**-40)])
    np.testing.assert_allclose(nd.gamma(nd.array(x, dtype="float64")).asnumpy(), 1 / (slopes * apart), rtol=1e-9)
    made = nd.gammaln(nd.array(x, dtype="float64")).asnumpy()
    np.testing.assert_allclose(made, -np.log(np.abs(slopes * apart)), rtol=1e-9)


@pytest.mark.parametrize("first", [0, 0.0, False, "0"])
def test_a_zero_below_0_is_not_taken_for_an_equal_attribute_of_an_earlier_call(first):
    x = nd.array([-1.0])
    nd.clip(x, first, 1.0)
    assert np.signbit(nd.clip(x, -0.0, 1.0).asnumpy()).all()
    assert not np.signbit(nd.clip(x, first, 1.0).asnumpy()).any()
