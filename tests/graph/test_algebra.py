"""Every rule of the table applies where it should, and changes no bit of any number."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab.graph.node import constant_node
from hybrid_lab.graph.passes.algebra import RULES
from hybrid_lab.graph.passes.simplify import simplify
from hybrid_lab.ops import get
from tests.graph.building import evaluate, graph_of, names, program

SPECIAL = [0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 3e-8, -1e-40, 6e4, np.inf, -np.inf, np.nan, 1e-45]


def test_before_and_after():
    def function(F, x, y):
        return F.negative(F.negative(x * 1.0)) / 8.0 + F.negative((y - 0.0) ** 2)

    graph = graph_of(function, (3,), (3,))
    assert len(names(graph)) == 8
    assert str(simplify(graph)) == program("""
        graph net(%x0: f32[3], %x1: f32[3]):
          %0: f32[3] = broadcast_mul(%x0, 0.125)
          %1: f32[3] = square(%x1)
          %2: f32[3] = broadcast_sub(%0, %1)
          return %2
    """)


#: rule -> (function of F and x, what is left)
APPLIES = {
    "x * 1 = x": (lambda F, x: F.exp(x * 1.0), ["exp"]),
    "1 * x = x": (lambda F, x: F.exp(1 * x), ["exp"]),
    "x / 1 = x": (lambda F, x: F.exp(x / 1), ["exp"]),
    "x - 0 = x": (lambda F, x: F.exp(x - 0.0), ["exp"]),
    "x + -0.0 = x": (lambda F, x: F.exp(x + -0.0), ["exp"]),
    "-0.0 + x = x": (lambda F, x: F.exp(-0.0 + x), ["exp"]),
    "x + 0 = x, whole numbers": (lambda F, x: F.square(x + 0), ["square"]),
    "0 + x = x, whole numbers": (lambda F, x: F.square(0 + x), ["square"]),
    "x * -1 = -x": (lambda F, x: x * -1.0, ["negative"]),
    "-1 * x = -x": (lambda F, x: -1.0 * x, ["negative"]),
    "-(-x) = x": (lambda F, x: F.exp(F.negative(-x)), ["exp"]),
    "x + -y = x - y": (lambda F, x: F.exp(x) + -x, ["exp", "broadcast_sub"]),
    "x - -y = x + y": (lambda F, x: F.exp(x) - -x, ["exp", "broadcast_add"]),
    "x / 2^k = x * 2^-k": (lambda F, x: x / 4.0, ["broadcast_mul"]),
    "x ** 2, 0.5, -1, 1 = square, sqrt, reciprocal, x": (lambda F, x: x**2, ["square"]),
    "f(f(x)) = f(x)": (lambda F, x: F.relu(F.relu(x)), ["relu"]),
    "f(-x) = f(x)": (lambda F, x: F.abs(-x), ["abs"]),
    "max(x, x) = min(x, x) = x": (lambda F, x: F.exp(F.broadcast_maximum(x, x)), ["exp"]),
    "where(c, x, x) = x": (lambda F, x: F.exp(F.where(x, x, x)), ["exp"]),
    "amp_cast(x) = cast(x), or x": (lambda F, x: F.amp_cast(x, dtype="float16"), ["Cast"]),
    "cast(cast(x)) = cast(x)": (lambda F, x: F.Cast(F.Cast(x, dtype="float64"), dtype="float16"), ["Cast"]),
    "sum(x) = x + 0, axes of size 1": (
        lambda F, x: F.mean(F.Reshape(x, shape=(-1, 1)), axis=0, exclude=True),
        ["Reshape", "squeeze", "broadcast_add"],
    ),
    "f(repeat(x)) = repeat(f(x))": (
        lambda F, x: F.broadcast_to(F.Reshape(x, shape=(1, -1)), shape=(2, 0)) * 3.0,
        ["Reshape", "broadcast_mul", "broadcast_to"],
    ),
    "-(repeat(x) * y) = repeat(-x) * y": (
        lambda F, x: F.negative(F.broadcast_to(F.Reshape(x, shape=(1, -1)), shape=(2, 0)) * F.exp(x)),
        ["Reshape", "exp", "negative", "broadcast_to", "broadcast_mul"],
    ),
    "concat(x) = x": (lambda F, x: F.exp(F.Concat(x, dim=0)), ["exp"]),
}


def same_bits(one: np.ndarray, two: np.ndarray) -> bool:
    """Equal with the sign of zero; any NaN is any other."""
    if one.dtype != two.dtype or one.dtype.kind != "f":
        return one.dtype == two.dtype and np.array_equal(one, two)
    numbers = ~np.isnan(one)
    signs = np.array_equal(np.signbit(one)[numbers], np.signbit(two)[numbers])
    return signs and np.array_equal(one, two, equal_nan=True)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        (rule.text, dtype)
        for rule in RULES
        for dtype in (["int32"] if "whole" in rule.text else ["float32", "float64", "float16"])
    ],
)
def test_each_rule_applies_and_is_exact(text, dtype):
    function, left = APPLIES[text]
    graph = graph_of(function, (len(SPECIAL),), dtype=dtype)
    x = np.arange(-6, 7, dtype=dtype) if dtype == "int32" else np.array(SPECIAL).astype(dtype)
    simple = simplify(graph)
    is_left_alone = (dtype, left) == ("float16", ["Cast"]) or (dtype == "float64" and text.startswith("amp_cast"))
    assert names(simple) == ([] if is_left_alone else left)
    assert same_bits(evaluate(simple, [x])[0], evaluate(graph, [x])[0])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "function",
    [
        lambda F, x: x + 0.0,  # -0.0 becomes 0.0
        lambda F, x: x - -0.0,
        lambda F, x: x - x,  # of infinity: NaN
        lambda F, x: x * 0.0,
        lambda F, x: x / 3.0,
        lambda F, x: x / 1e39,  # 2^-k is no number of this type
        lambda F, x: F.sqrt(F.square(x)),
        lambda F, x: F.Cast(F.Cast(x, dtype="float16"), dtype="float32"),
        lambda F, x: F.Cast(F.Cast(x, dtype="int32"), dtype="float32"),
        lambda F, x: F.Cast(F.Cast(x, dtype="float64"), dtype="int8"),
    ],
)
def test_what_is_not_exact_stays(function):
    graph = graph_of(function, (3,))
    assert names(simplify(graph)) == names(graph)


@pytest.mark.parametrize("exponent", [-126, -100, -3, 5, 100, 125])
def test_division_by_a_power_of_two_is_exact_to_the_last_bit(exponent):
    random = np.random.RandomState(0)
    bits = random.randint(0, 1 << 32, 2000, dtype=np.uint64).astype(np.uint32)
    x = bits.view(np.float32)
    graph = graph_of(lambda F, x: x / 2.0**exponent, (2000,))
    with np.errstate(all="ignore"):
        assert same_bits(evaluate(simplify(graph), [x])[0], evaluate(graph, [x])[0])


def test_the_table_names_operators_there_are():
    assert {rule.text for rule in RULES} == set(APPLIES)
    for rule in RULES:
        for name in rule.operators:
            assert get(name).name == name


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint8", "int64"])
@pytest.mark.parametrize("attributes", [{"axis": 1}, {"axis": (1, 2)}, {"axis": 1, "keepdims": True}])
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "max", "min"])
def test_a_reduction_over_axes_of_size_one_is_exact(name, attributes, dtype):
    x = np.array(SPECIAL if dtype.startswith("float") else [0, 1, 2, 100, 127, 255, (1 << 62) + 1]).astype(dtype)
    graph = graph_of(lambda F, x: getattr(F, name)(x, **attributes), (len(x), 1, 1), dtype=dtype)
    simple = simplify(graph)
    left = [] if "keepdims" in attributes else ["squeeze"]
    left += ["broadcast_add"] if dtype.startswith("float") and name in ("sum", "mean") else []
    assert names(simple) == (left if dtype.startswith("float") or name != "mean" else ["mean"])
    x = x.reshape(-1, 1, 1)
    assert same_bits(evaluate(simple, [x])[0], evaluate(graph, [x])[0])


def test_a_reduction_over_more_than_one_element_stays():
    assert names(simplify(graph_of(lambda F, x: F.sum(x, axis=(0, 1)), (1, 3)))) == ["sum"]


def test_the_loss_of_one_number_a_sample_is_a_difference():
    graph = graph_of(lambda F, x: F.mean(F.negative(x), axis=0, exclude=True), (4, 1))
    assert str(simplify(graph)) == program("""
        graph net(%x0: f32[4,1]):
          %0: f32[4] = squeeze(%x0, axis=(1,))
          %1: f32[4] = broadcast_sub(0.0, %0)
          return %1
    """)
    x = np.array([[0.0], [-0.0], [np.inf], [1e-45]], "float32")
    assert same_bits(evaluate(simplify(graph), [x])[0], evaluate(graph, [x])[0])


@pytest.mark.parametrize(
    ("shape", "ones", "left"),
    [
        ((4, 3), (1,), ["exp"]),
        ((4, 3), (1, 1), ["exp"]),
        ((1,), (1,), ["exp"]),
        ((3,), (1, 1), ["broadcast_mul", "exp"]),
        ((), (1,), ["broadcast_mul", "exp"]),
        ((2, 3), (2, 1), ["broadcast_mul", "exp"]),
    ],
)
def test_a_constant_of_one_element_is_its_number_where_the_shape_stays(shape, ones, left):
    def function(F, x):
        return F.exp(x * F.expr(constant_node(np.ones(ones, "float32"))))

    assert [name for name in names(simplify(graph_of(function, shape))) if name != "constant"] == left


def test_an_int_times_a_number_below_two_is_that_int():
    # int32 * 1.5 multiplies by 1, as in MXNet.
    assert names(simplify(graph_of(lambda F, x: F.square(x * 1.5), (3,), dtype="int32"))) == ["square"]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "int64"])
@pytest.mark.parametrize("text", APPLIES)
def test_rules_are_exact_for_whole_numbers_too(text, dtype):
    # What wraps around: -1 of uint8 is 255, so that abs(-x) is not abs(x); -(-128) of int8 is -128.
    x = np.array([0, 1, 2, 3, 7, 100, 127, 128, 200, 255]).astype(dtype)
    graph = graph_of(APPLIES[text][0], x.shape, dtype=dtype)
    assert same_bits(evaluate(simplify(graph), [x])[0], evaluate(graph, [x])[0])
