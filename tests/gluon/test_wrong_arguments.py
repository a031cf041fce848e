"""What is no array, given to Blocks and to operators: the same typed error in eager and in hybridized calls."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

from hybrid_lab import nd, sym
from hybrid_lab.diagnostics import DTypeError, HybridizeError, HybridLabError, InputError, ShapeError
from hybrid_lab.gluon import HybridBlock, nn

X = nd.ones((2, 3))
BLOCKS = {
    "a deferred Dense": lambda: nn.Dense(2, prefix="net_"),
    "Dense": lambda: nn.Dense(2, in_units=3, prefix="net_"),
    "Conv2D": lambda: nn.Conv2D(2, 3, prefix="net_"),
    "Activation": lambda: nn.Activation("relu", prefix="net_"),
    "Embedding": lambda: nn.Embedding(3, 2, prefix="net_"),
    "BatchNorm": lambda: nn.BatchNorm(prefix="net_"),
    "an empty HybridSequential": lambda: nn.HybridSequential(prefix="net_"),
    "a Block inside": lambda: Outer(),
}
BINARY = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.matmul, operator.and_, operator.or_, operator.xor, operator.lt, operator.le, operator.gt, operator.ge,
    operator.eq, operator.ne,
]  # fmt: skip
OPERANDS = ["a", None, [1, 2], (1, 2), {"a": 1}, 1j, object(), np.complex64(1), np.str_("a"), np.datetime64("2020")]


class Code(HybridBlock):
    """hybrid_forward from a function."""

    def __init__(self, code: Any):
        super().__init__(prefix="net_")
        self.code = code

    def hybrid_forward(self, F, x):
        return self.code(F, x)


class Outer(HybridBlock):
    """A Block that calls another one with something else."""

    passed: object = None

    def __init__(self):
        super().__init__(prefix="net_")
        self.inner = nn.Dense(2, prefix="inner_")

    def hybrid_forward(self, F, x):
        return self.inner(self.passed)


def _error(block: HybridBlock, argument: object, hybridized: bool) -> tuple[type, str]:
    block.initialize()
    block.hybridize(hybridized)
    with pytest.raises(HybridLabError) as caught:
        block(argument)
    return caught.type, str(caught.value)


@pytest.mark.parametrize("argument", [None, 3, 0.5, True, "a", [], (), {}, [None], (1, "a"), np.ones(3)], ids=repr)
@pytest.mark.parametrize("kind", BLOCKS)
def test_a_call_without_an_array(kind, argument):
    eager, hybrid = (_error(BLOCKS[kind](), argument, hybridized) for hybridized in (False, True))
    assert eager == hybrid
    if not isinstance(argument, np.ndarray):
        assert eager == (InputError, f"net was called without an array; it got {type(argument).__name__}")


@pytest.mark.parametrize("argument", [None, 3, "a", []], ids=repr)
def test_a_block_inside_that_is_called_without_an_array(argument):
    blocks = Outer(), Outer()
    for block in blocks:
        block.passed = argument
    eager, hybrid = (_error(block, X, hybridized) for block, hybridized in zip(blocks, (False, True), strict=True))
    assert eager == hybrid == (InputError, f"inner was called without an array; it got {type(argument).__name__}")


@pytest.mark.parametrize("argument", [[X], (X,), {"a": X}], ids=["list", "tuple", "dict"])
@pytest.mark.parametrize("kind", ["a deferred Dense", "Dense", "Conv2D", "Activation", "Embedding"])
def test_a_container_in_place_of_an_array(kind, argument):
    eager, hybrid = (_error(BLOCKS[kind](), argument, hybridized) for hybridized in (False, True))
    assert eager == hybrid and eager[0] is DTypeError
    needed = "an NDArray" if kind == "Embedding" else "an NDArray or a number"  # a number cannot be looked up
    assert f"the input data must be {needed}, not {type(argument).__name__}" in eager[1]


@pytest.mark.parametrize("function", BINARY, ids=lambda each: each.__name__)
def test_operands_that_are_no_arrays(function):
    for operand in OPERANDS:
        for code, side in ((lambda F, x: function(x, operand), "rhs"), (lambda F, x: function(operand, x), "lhs")):  # noqa: B023
            if side == "lhs" and function is operator.mod and isinstance(operand, str):
                continue  # Python's own formatting
            eager, hybrid = (_error(Code(code), X, hybridized) for hybridized in (False, True))
            assert eager == hybrid and eager[0] is DTypeError
            assert eager[1].endswith(f"must be an NDArray or a number, not {type(operand).__name__}")


@pytest.mark.parametrize("function", BINARY, ids=lambda each: each.__name__)
@pytest.mark.parametrize("number", [2, True, 1.5, np.float32(2), np.bool_(True), np.int64(2)], ids=repr)
def test_numbers_on_both_sides(function, number):
    for code in (lambda F, x: function(x, number), lambda F, x: function(number, x)):
        if function is operator.matmul:
            for hybridized in (False, True):
                assert _error(Code(code), X, hybridized)[0] is ShapeError
            continue
        block = Code(code)
        eager = block(X * 3)
        block.hybridize(engine="numpy")
        np.testing.assert_array_equal(block(X * 3).asnumpy(), eager.asnumpy())


CALLS = {
    "add": lambda F, x: F.broadcast_add(x, "a"),
    "concat": lambda F, x: F.concat(x, "a", dim=0),
    "dot": lambda F, x: F.dot(x, [x]),
    "a method": lambda F, x: x.broadcast_add("a"),
    "maximum": lambda F, x: F.maximum(x, "a"),
    "text": lambda F, x: F.relu("a"),
    "a number": lambda F, x: F.relu(3),
    "two numbers": lambda F, x: F.broadcast_add(3, 4.0),
}


@pytest.mark.parametrize("name", CALLS)
def test_operators_with_what_is_no_array(name):
    eager, hybrid = (_error(Code(CALLS[name]), X, hybridized) for hybridized in (False, True))
    assert eager == hybrid and eager[0] is DTypeError


def test_symbols_outside_of_a_trace_ask_for_symbols():
    with pytest.raises(DTypeError, match="broadcast_add: .*rhs .*Symbol .*str"):
        sym.var("x") + "a"
    with pytest.raises(DTypeError, match="relu: .*data .*Symbol .*list"):
        sym.relu([sym.var("x")])
    with pytest.raises(DTypeError, match="relu: at least one input .*Symbol.*int"):
        sym.relu(3)


def _hasattr(F, x):
    return x.T if hasattr(x, "T") else x


def _getattr(F, x):
    return x if getattr(x, "T", None) is None else x


def _try(F, x):
    try:
        return x.T
    except AttributeError:
        return x


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (_hasattr, '`hasattr(x, "T")` makes eager and hybrid run different code'),
        (_getattr, '`getattr(x, "T", None)` makes eager and hybrid run different code'),
        (_try, "whether `except` runs is decided once"),
    ],
)
def test_what_swallowed_a_refusal_is_named(code, message):
    block = Code(code)
    block(X)
    block.hybridize()
    with pytest.raises(HybridizeError) as caught:
        block(X)
    assert message in str(caught.value) and ("the try" in str(caught.value)) == (code is _try)


def test_parameters_under_the_former_names_of_their_functions(tmp_path):
    net = nn.Dense(2, in_units=3, prefix="net_")
    net.initialize()
    net.save_params(tmp_path / "net.params")
    assert sorted(nd.load(str(tmp_path / "net.params"))) == ["bias", "weight"]
    other = nn.Dense(2, in_units=3)
    other.load_params(tmp_path / "net.params")
    assert (other.weight.data().asnumpy() == net.weight.data().asnumpy()).all()
