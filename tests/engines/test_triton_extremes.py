"""Pointwise kernels at the ends of dtypes: zeros of two signs, infinities, NaN, the largest and smallest numbers, and
scalars that a dtype does not have. Outputs and gradients are those of eager calls.
"""

from __future__ import annotations

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, nd
from hybrid_lab.diagnostics.errors import DTypeError
from hybrid_lab.gluon import HybridBlock, nn
from tests.triton_device import use_triton

INF, NAN = float("inf"), float("nan")
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 0.3, -0.3, 2.5, -2.5, 3.0, -7.0, 20.0, -20.0, 100.0, INF, -INF, NAN]
#: The tolerance beside eager results, and numbers that only this dtype has.
DTYPES = {
    "float16": (2e-3, [1025.0, -1027.0, 65504.0, 6e-8, 0.1, 1.001]),
    "float32": (2e-6, [8388609.0, -16777217.0, 0.49999997, 3.4e38, -1e30, 1e-45, 1.1754944e-38, 1.0000001, 1e-10]),
    "float64": (1e-7, [2.0**53 + 1, 1e300, -1e300, 5e-324, 1.0000000000000002, 1e-10]),
}
WHOLE = {
    "int8": [0, 1, -1, 3, 127, -127, -128],
    "uint8": [0, 1, 3, 128, 255],
    "int32": [0, 1, -1, 3, 2**24 + 1, 2**31 - 1, -(2**31) + 1, -(2**31)],
    "int64": [0, 1, -1, 3, 2**24 + 1, 2**53 + 1, 2**63 - 1, -(2**63) + 1],
}


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    use_triton(monkeypatch)


def both(function, *arrays, gradients=True):
    """What a function of arrays gives eagerly and in kernels: the output and the gradients."""
    net, found = nn.HybridLambda(lambda F, *args: function(F, *args)), []
    inputs = [nd.array(array, dtype=array.dtype) for array in arrays]
    gradients = gradients and arrays[0].dtype.kind == "f"
    with np.errstate(all="ignore"):
        for engine in (None, "triton"):
            if engine is not None:
                net.hybridize(engine=engine)
            for item in inputs if gradients else ():
                item.attach_grad()
            with autograd.record():
                y = net(*inputs)
            if gradients:
                y.backward()
            found.append([y.asnumpy(), *(item.grad.asnumpy() for item in inputs if gradients)])
    return found


def assert_same(eager, hybrid, tolerance, signs=True):
    """Equal with the signs of zeros, which a division would show, but for the larger or smaller of two zeros."""
    for wanted, found in zip(eager, hybrid, strict=True):
        assert found.dtype == wanted.dtype
        if wanted.dtype.kind != "f":
            np.testing.assert_array_equal(found, wanted)
            continue
        least = float(np.finfo(wanted.dtype).smallest_subnormal)
        np.testing.assert_allclose(found.astype("f8"), wanted.astype("f8"), rtol=tolerance, atol=2 * least)
        zeros = (wanted == 0) & (found == 0) & signs
        np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(wanted[zeros]))


#: Numbers and functions that make zeros below 0.
BELOW_ZERO = {
    "the opposite": lambda F, x: -x,
    "a number": lambda F, x: x * -0.0,
    "a filled array": lambda F, x: F.where(x, x, F.full_like(x, fill_value=-0.0)),
    "a lower end": lambda F, x: F.clip(F.abs(x) * -1.0, -0.0, 1.0),
}


@pytest.mark.parametrize("name", BELOW_ZERO)
@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_below_0_keep_their_sign(name, dtype):
    eager, hybrid = both(BELOW_ZERO[name], np.array(FLOATS, dtype))
    np.testing.assert_array_equal(np.signbit(hybrid[0])[np.isfinite(FLOATS)], np.signbit(eager[0])[np.isfinite(FLOATS)])


UNARY = {
    "abs": lambda F, x: F.abs(x),
    "sign": lambda F, x: F.sign(x),
    "round": lambda F, x: F.round(x),
    "rint": lambda F, x: F.rint(x),
    "cbrt": lambda F, x: F.cbrt(x),
    "rcbrt": lambda F, x: F.rcbrt(x),
    "arcsin": lambda F, x: F.arcsin(x),
    "arctan": lambda F, x: F.arctan(x),
    "softrelu": lambda F, x: F.Activation(x, act_type="softrelu"),
    "log1p": lambda F, x: F.log1p(x),
    "quadratic": lambda F, x: F.contrib.quadratic(x, a=0.5, b=INF, c=NAN),
    "clip": lambda F, x: F.clip(x, -0.3, 0.1),
    "smooth_l1": lambda F, x: F.smooth_l1(x, scalar=INF),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_number(name, dtype):
    tolerance, more = DTYPES[dtype]
    data = np.array([*FLOATS, *more], dtype)
    # Gradients of sums and squares are rounded in float16 on the way; sigmoid is another formula eagerly.
    gradients = not (dtype == "float16" and name in ("arctan", "arcsin")) and name not in ("softrelu", "cbrt", "rcbrt")
    assert_same(*both(UNARY[name], data, gradients=gradients), tolerance)


def test_cubes_have_whole_roots():
    data = np.arange(-40, 41, dtype="float32") ** 3
    (eager,), (hybrid,) = both(lambda F, x: F.trunc(F.cbrt(x)), data, gradients=False)
    np.testing.assert_array_equal(hybrid, eager)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["power", "mod", "hypot"])
def test_functions_of_two_numbers(name, dtype):
    tolerance, more = DTYPES[dtype]
    numbers = np.array([*FLOATS, *more[:5]], dtype)
    a, b = (item.ravel() for item in np.meshgrid(numbers, numbers))
    assert_same(*both(lambda F, a, b: getattr(F, f"broadcast_{name}")(a, b), a, b, gradients=False), tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", [1e-46, 1e-8, 0.1, 3, 255, 1e39, 1e300, INF, NAN])
def test_scalars_are_numbers_of_the_dtype(number, dtype):
    tolerance, more = DTYPES[dtype]
    data = np.array([*FLOATS, *more], dtype)
    for function in (
        lambda F, x: F.concat(x + number, x - number, x * number, x / number, number / x, dim=0),
        lambda F, x: F.concat(x == number, x > number, x <= number, F.broadcast_logical_and(x, x * 0 + number), dim=0),
        lambda F, x: F.concat(x**number, number**x, x % number, F.maximum(x + 0.0, number), dim=0),
    ):
        assert_same(*both(function, data, gradients=False), tolerance)
    assert_same(*both(lambda F, x: F.clip(x, -1.0, number), data, gradients=False), tolerance, signs=False)


def test_a_scalar_that_float16_rounds_is_what_it_is_compared_with():
    data = np.array([0.1, 0.2, 0.3], "float16")
    (eager,), (hybrid,) = both(lambda F, x: F.concat(x == 0.1, x * 1e-8 == 0, dim=0), data, gradients=False)
    np.testing.assert_array_equal(hybrid, eager)
    np.testing.assert_array_equal(hybrid, [1, 0, 0, 1, 1, 1])
    # The epsilon of a norm is no scalar of the user's: it is added in float32.
    rows = np.full((2, 4), 0.5, "float16")
    (eager,), (hybrid,) = both(
        lambda F, x: F.LayerNorm(x, F.ones_like(x[0]), F.zeros_like(x[0]), eps=1e-12), rows, gradients=False
    )
    np.testing.assert_array_equal(hybrid, eager)


@pytest.mark.parametrize("dtype", WHOLE)
@pytest.mark.parametrize(
    "function",
    [
        lambda F, x: F.relu(x),
        lambda F, x: F.Activation(x, act_type="relu"),
        lambda F, x: F.clip(x, -3, 3),
        lambda F, x: F.clip(x, -INF, 2**24),
        lambda F, x: F.clip(x, 0.5, INF),
        lambda F, x: F.softsign(x),
        lambda F, x: F.arctan(x),
        lambda F, x: F.degrees(x),
        lambda F, x: F.radians(x),
        lambda F, x: F.reciprocal(F.maximum(x, 1)),
        lambda F, x: F.smooth_l1(x, scalar=1.0),
        lambda F, x: F.contrib.quadratic(x, a=0.3, b=2.0),
        lambda F, x: F.maximum(x, 1) ** 2,
        lambda F, x: F.contrib.isfinite(x),
    ],
)
def test_whole_numbers_are_not_cut_to_24_bits(function, dtype):
    data = np.array(WHOLE[dtype], dtype)
    assert_same(*both(function, data), 0)


@pytest.mark.parametrize("dtype", WHOLE)
def test_numbers_that_are_chosen_wrap(dtype):
    data = np.array(WHOLE[dtype], dtype)
    assert_same(*both(lambda F, x: F.where(x > 1, x, 300) + F.where(x > 1, -3.7, x), data), 0)
    assert_same(*both(lambda F, x: F.one_hot(x, depth=4, on_value=300, off_value=-1, dtype=dtype), data[:2]), 0)


@pytest.mark.parametrize("number", [1e20, INF, NAN])
def test_whole_numbers_take_no_number_beyond_64_bits(number):
    net = nn.HybridLambda(lambda F, x: x + number)
    net.hybridize(engine="triton")
    with pytest.raises(DTypeError, match="does not fit int32"):
        net(nd.array([1, 2], dtype="int32"))


@pytest.mark.parametrize("head", [INF, NAN])
def test_masks_multiply(head):
    """What is dropped or cut off is multiplied by 0, as eagerly and in MXNet: of an infinite gradient NaN is left."""
    x = nd.array([-1.0, 0.2, 3.0])
    x.attach_grad()
    for function in (lambda F, x: F.relu(x), lambda F, x: F.clip(x, -0.5, 0.5), lambda F, x: F.Dropout(x, p=0.5)):
        net, found = nn.HybridLambda(function), []
        for engine in (None, "triton"):
            if engine is not None:
                net.hybridize(engine=engine)
            mx.random.seed(1)
            with autograd.record():
                y = net(x * head)
            y.backward(nd.full((3,), head))
            found.append([y.asnumpy(), x.grad.asnumpy()])
            with autograd.record():
                y = net(x)
            y.backward(nd.full((3,), head))
            found[-1].append(x.grad.asnumpy())
        np.testing.assert_array_equal(found[1], found[0])


class Named(HybridBlock):
    """A block with one parameter of a name."""

    def __init__(self, name, function):
        super().__init__()
        self.function = function
        with self.name_scope():
            setattr(self, name, self.params.get(name, shape=(3,), init=mx.init.Constant(2.5)))

    def hybrid_forward(self, F, x, **parameters):
        return self.function(F, x, *parameters.values())


@pytest.mark.parametrize(
    "name, function",
    [
        ("modulo", lambda F, x, p: F.broadcast_mod(x, p)),
        ("raised", lambda F, x, p: F.broadcast_power(x, p)),
        ("float", lambda F, x, p: F.where(x > p, x, F.full_like(x, NAN)) * p),
        ("draw0", lambda F, x, p: F.Dropout(x * p, p=0.5, mode="always")),
        ("range", lambda F, x, p: F.broadcast_mod(x.astype("float64"), p.astype("float64"))),
        ("tl", lambda F, x, p: F.exp(x) * p),
    ],
)
def test_a_parameter_may_be_called_like_what_a_kernel_calls(name, function):
    net, found = Named(name, function), []
    net.initialize()
    for engine in (None, "triton"):
        if engine is not None:
            net.hybridize(engine=engine)
        mx.random.seed(3)
        found.append(net(nd.array([1.0, 4.0, 7.0])).asnumpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_float_to_small_whole_numbers_wraps(dtype):
    data = np.array([300.0, -3.0, -129.0, 255.9, -0.5], "float32")
    assert_same(*both(lambda F, x: F.cast(x, dtype=dtype), data, gradients=False), 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "draw",
    [
        lambda F, x, dtype: F.random.uniform(-1e4, 1e4, shape=(257,), dtype=dtype),
        lambda F, x, dtype: F.random.uniform(0, INF, shape=(257,), dtype=dtype),
        lambda F, x, dtype: F.random.normal(-3, 2, shape=(257,), dtype=dtype),
        lambda F, x, dtype: F.random.normal(NAN, 1, shape=(257,), dtype=dtype),
        lambda F, x, dtype: F.random_uniform_like(x, low=-2, high=3),
        lambda F, x, dtype: F.random_normal_like(x, loc=-2, scale=3),
        lambda F, x, dtype: F.random_exponential_like(x, lam=INF),
    ],
)
def test_random_numbers_of_any_range(draw, dtype):
    def function(F, x):
        return draw(F, x, dtype) + x * 0

    net, found = nn.HybridLambda(function), []
    with np.errstate(all="ignore"):
        for engine in (None, "triton"):
            if engine is not None:
                net.hybridize(engine=engine)
            mx.random.seed(11)
            found.append(net(nd.zeros((257,), dtype=dtype)).asnumpy().astype("float64"))
    largest = np.abs(found[0][np.isfinite(found[0])]).max(initial=0)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-3 if dtype == "float16" else 0, atol=3e-7 * largest)


def test_a_deviation_below_0_is_refused():
    net = nn.HybridLambda(lambda F, x: F.random_normal_like(x, scale=-1.0))
    for engine in (None, "triton"):
        if engine is not None:
            net.hybridize(engine=engine)
        with pytest.raises(mx.MXNetError, match="scale >= 0 is needed"):
            net(nd.zeros((3,)))


HALF = {
    "largest": lambda F, x, y: F.max(x * 1.1, axis=1),
    "least of a product": lambda F, x, y: F.min(x * y - x, axis=0),
    "largest of what was kept": lambda F, x, y: F.max(F.exp(x) * y),
    "compared": lambda F, x, y: F.where(x * 1.1 > y * 1.1, x, y),
    "equal": lambda F, x, y: ((x * 1.1) == F.max(x * 1.1, axis=1, keepdims=True)) * x,
    "limited": lambda F, x, y: F.clip(x * 1.1, -0.5, 0.5),
    "rounded": lambda F, x, y: F.floor(x * 10.0) + F.round(y * 10.0),
    "endless": lambda F, x, y: F.contrib.isfinite(x * 30000.0) * y,
    "wide": lambda F, x, y: F.cast(x * y, dtype="float32"),
    "whole": lambda F, x, y: F.cast(F.cast(x * 10.0, dtype="int32"), dtype="float32"),
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", HALF)
def test_what_jumps_looks_at_half_precision(name, dtype):
    """Eager calls round what they compare, cut off or convert; a maximum's gradient goes to the number equal to it."""
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    random = np.random.RandomState(0)
    inputs = [nd.array(random.randn(4, 33), dtype=dtype) for _ in range(2)]
    net, found = nn.HybridLambda(HALF[name]), []
    for engine in (None, "triton"):
        if engine is not None:
            net.hybridize(engine=engine)
        for item in inputs:
            item.attach_grad()
        with autograd.record(), np.errstate(over="ignore"):
            y = net(*inputs)
        y.backward()
        found.append([item.astype("float32").asnumpy() for item in (y, *(item.grad for item in inputs))])
    for eager, hybrid in zip(*found, strict=True):
        np.testing.assert_allclose(hybrid, eager, rtol=2e-2 if dtype == "bfloat16" else 3e-3, atol=1e-3)
    np.testing.assert_array_equal(found[0][0] == 0, found[1][0] == 0)
