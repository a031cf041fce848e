"""autograd.get_symbol: the history of an array as a Symbol that computes the same."""

from __future__ import annotations

import json

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, nd
from hybrid_lab.diagnostics import AutogradError
from hybrid_lab.gluon import nn


def _array(*shape):
    array = nd.array(np.random.default_rng(0).normal(size=shape))
    array.attach_grad()
    return array


def _nodes(symbol):
    return json.loads(symbol.tojson())["nodes"]


def test_the_graph_is_that_of_mxnet():
    x, w, constant = _array(2, 3), _array(4, 3), nd.ones((2, 4))
    with autograd.record():
        hidden = nd.relu(nd.FullyConnected(x, w, num_hidden=4, no_bias=True)) + constant
        halves = nd.split(hidden * 2, num_outputs=2, axis=1)
        y = halves[0] * halves[1] + x.sum()
    symbol = autograd.get_symbol(y)
    operators = [node["op"] for node in _nodes(symbol)]
    assert operators == [
        *("null", "null", "FullyConnected", "relu", "null", "broadcast_add", "_mul_scalar", "SliceChannel"),
        *("broadcast_mul", "sum", "broadcast_add"),
    ]
    assert symbol.list_arguments() == ["var0", "var1", "null2"]
    assert symbol.list_outputs() == ["node_7_output"]
    assert autograd.get_symbol(halves[1]).list_outputs() == ["node_4_output1"]
    assert autograd.get_symbol(x).list_arguments() == ["var0"]
    executor = symbol.bind(mx.cpu(), [x, w, constant])
    np.testing.assert_allclose(executor.forward()[0].asnumpy(), y.asnumpy(), rtol=1e-6)


def test_indexes_comparisons_and_numbers_keep_their_values():
    x = _array(3, 4, 2)
    with autograd.record():
        y = 2 / (x[1, ..., 0] + 3) * (x[:, 1:3, None, 1].sum() > 0.5) + x[0][:, 0].reshape((4,))
    executor = autograd.get_symbol(y).bind(mx.cpu(), [x])
    np.testing.assert_allclose(executor.forward()[0].asnumpy(), y.asnumpy(), rtol=1e-5)


def test_operators_have_no_mode_of_their_own():
    x, one = _array(4, 3), nd.ones((3,))
    length = nd.array([1, 2, 3, 2], dtype="int32")
    with autograd.record():
        y = nd.BatchNorm(nd.Dropout(x), one, one, nd.zeros((3,)), one.copy(), fix_gamma=False)
        z = nd.softmax(x, length, use_length=True, axis=-1)
    symbol = autograd.get_symbol(y)
    assert [node["op"] for node in _nodes(symbol) if node["op"] != "null"] == ["Dropout", "BatchNorm"]
    assert symbol.list_auxiliary_states() == ["null3", "null4"]
    assert _nodes(autograd.get_symbol(z))[-1]["op"] == "softmax"
    executor = symbol.simple_bind(mx.cpu(), var0=(4, 3))
    executor.copy_params_from({"var0": x, "null1": one, "null2": one}, {"null4": one})
    expected = x.asnumpy() / np.sqrt(1 + 1e-3) + 1  # a prediction, with a beta of 1
    np.testing.assert_allclose(executor.forward()[0].asnumpy(), expected, rtol=1e-4)


def test_a_compiled_call_is_unfolded():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(4, in_units=3, activation="tanh"), nn.BatchNorm(in_channels=4))
    net.initialize()
    net.hybridize()
    x = _array(2, 3)
    with autograd.record():
        y = net(x) * 2
    symbol = autograd.get_symbol(y)
    assert [node["name"] for node in _nodes(symbol) if node["op"] != "null"] == [
        *("net_dense0_fwd", "net_dense0_tanh_fwd", "net_batchnorm0_fwd", "node_0"),
    ]
    assert len(symbol.list_arguments()) == 5
    assert len(symbol.list_auxiliary_states()) == 2
    eager = nn.Dense(2, in_units=3)
    eager.initialize()
    with autograd.record():
        y = eager(x)
    assert autograd.get_symbol(y).list_arguments() == ["var0", "var1", "var2"]


class _Double(autograd.Function):
    def forward(self, x):
        return x * 2

    def backward(self, dy):
        return dy * 2


class _Scaled(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] * 3)
        aux[0][:] += 1

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0] * 3)


@mx.operator.register("scaled_for_history")
class _ScaledProp(mx.operator.CustomOpProp):
    def list_auxiliary_states(self):
        return ["calls"]

    def infer_shape(self, in_shape):
        return in_shape, in_shape, [[1]]

    def create_operator(self, ctx, in_shapes, in_dtypes):
        return _Scaled()


def test_an_operator_in_python_is_a_node():
    x, calls = _array(3), nd.zeros((1,))
    with autograd.record():
        y = nd.Custom(x, calls, op_type="scaled_for_history") + 1
    symbol = autograd.get_symbol(y)
    assert [node["op"] for node in _nodes(symbol)] == ["null", "null", "Custom", "_plus_scalar"]
    executor = symbol.bind(mx.cpu(), [x], aux_states=[calls])
    np.testing.assert_allclose(executor.forward()[0].asnumpy(), y.asnumpy(), rtol=1e-6)
    assert calls.asscalar() == 2


def test_what_has_no_symbol_says_so():
    with pytest.raises(AutogradError, match="get_symbol needs an NDArray, not int"):
        autograd.get_symbol(3)
    x = _array(3)
    with autograd.record():
        by_hand = _Double()(x) + 1
        chosen = x[nd.array([0, 2])] + 1
        y = x * 2
    with pytest.raises(AutogradError, match="_Double .*Symbol"):
        autograd.get_symbol(by_hand)
    with pytest.raises(AutogradError, match="an index with arrays is a step"):
        autograd.get_symbol(chosen)
    y.backward()
    with pytest.raises(AutogradError, match="was not differentiated yet"):
        autograd.get_symbol(y)
