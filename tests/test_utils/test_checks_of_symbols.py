"""mx.test_utils: checks of Symbols, which pass for right gradients and fail for wrong ones."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import test_utils
from hybrid_lab.test_utils import check_numeric_gradient, check_symbolic_backward, check_symbolic_forward

A, B = np.array([[1.0, 2], [3, 4]]), np.array([[5.0, 6], [7, 8]])


@pytest.fixture
def product():
    return mx.sym.dot(mx.sym.Variable("lhs"), mx.sym.Variable("rhs"))


def test_forward(product):
    (output,) = check_symbolic_forward(product, [A, B], [A @ B])
    assert output.asnumpy().tolist() == (A @ B).tolist()
    check_symbolic_forward(product, {"lhs": A, "rhs": B}, {product.list_outputs()[0]: A @ B}, dtype=np.float64)
    with pytest.raises(AssertionError, match="EXPECTED_"):
        check_symbolic_forward(product, [A, B], [A @ B + 1])
    with pytest.raises(ValueError, match="lhs"):
        check_symbolic_forward(product, {"lhs": A, "wrong": B}, [A @ B])


@pytest.mark.parametrize("grad_req", ["write", "add", {"lhs": "write", "rhs": "add"}, ["null", "write"]])
def test_backward(product, grad_req):
    head = np.array([[1.0, 0], [2, 1]])
    expected = [head @ B.T, A.T @ head]
    gradients = check_symbolic_backward(product, [A, B], [head], expected, grad_req=grad_req)
    assert set(gradients) == {"lhs", "rhs"}
    if "null" not in grad_req:
        with pytest.raises(AssertionError, match="BACKWARD_lhs"):
            check_symbolic_backward(product, [A, B], [head], [expected[0] * 1.1, expected[1]], grad_req=grad_req)


def test_numeric_gradient(product):
    check_numeric_gradient(product, [A, B], rtol=1e-2)
    check_numeric_gradient(product, {"lhs": A, "rhs": B}, grad_nodes=["lhs"], rtol=1e-2)
    check_numeric_gradient(product, [A, B], grad_nodes={"lhs": "add", "rhs": "null"}, rtol=1e-2)
    check_numeric_gradient(product, [A, B], dtype=np.float64, numeric_eps=1e-4, rtol=1e-5, atol=1e-8)


def test_numeric_gradient_finds_a_wrong_one():
    x = mx.sym.Variable("x")
    wrong = mx.sym.BlockGrad(x) * x  # its gradient is x instead of 2 x
    with pytest.raises(AssertionError, match="NUMERICAL_x"):
        check_numeric_gradient(wrong, [A])


def test_numeric_gradient_with_auxiliary_states():
    norm = mx.sym.BatchNorm(mx.sym.Variable("data"), fix_gamma=False, name="norm", use_global_stats=True)
    values = [np.random.randn(2, 3, 2, 2), np.ones(3), np.zeros(3)]
    states = [np.zeros(3), np.ones(3)]
    check_numeric_gradient(norm, values, states, rtol=5e-2, atol=5e-3)


def test_consistency():
    dense = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
    contexts = [
        {"ctx": mx.cpu(), "data": (2, 4), "type_dict": {"data": dtype, "fc_weight": dtype, "fc_bias": dtype}}
        for dtype in ("float64", "float32", "float16")
    ]
    truth = test_utils.check_consistency(dense, contexts)
    assert truth["fc_output"].dtype == np.float64 and truth["data"].shape == (2, 4)
    other = mx.sym.FullyConnected(mx.sym.Variable("data") * 2, num_hidden=3, name="fc")
    with pytest.raises(AssertionError):
        test_utils.check_consistency([dense, other], contexts[:2])


def test_speed_and_simple_forward(product):
    shapes = {"lhs": (2, 2), "rhs": (2, 2)}
    assert test_utils.check_speed(product, N=2, **shapes) > 0
    assert test_utils.check_speed(product, N=2, typ="forward", **shapes) > 0
    with pytest.raises(ValueError, match="typ"):
        test_utils.check_speed(product, typ="half", **shapes)
    assert test_utils.simple_forward(product, lhs=A, rhs=B).tolist() == (A @ B).tolist()


def test_structure_of_symbols(product):
    assert test_utils.same_symbol_structure(product, mx.sym.load_json(product.tojson()))
    assert not test_utils.same_symbol_structure(product, mx.sym.relu(product))
