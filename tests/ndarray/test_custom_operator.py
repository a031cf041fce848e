"""mx.operator: operators written in Python."""

from __future__ import annotations

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab.diagnostics import AutogradError, HybridLabError, ShapeError


class _Scaled(mx.operator.CustomOp):
    def __init__(self, factor):
        self.factor = factor

    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] * self.factor + in_data[1])
        self.assign(out_data[1], req[1], in_data[0] + is_train)
        if aux:
            aux[0][:] += 1

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0] * self.factor)
        self.assign(in_grad[1], req[1], out_grad[0])
        self.assign(in_grad[0], "add", out_grad[1])


@mx.operator.register("scaled_for_test")
class _ScaledProp(mx.operator.CustomOpProp):
    def __init__(self, factor="2"):
        super().__init__(need_top_grad=True)
        self.factor = float(factor)  # a text, as in MXNet

    def list_arguments(self):
        return ["data", "shift"]

    def list_outputs(self):
        return ["scaled", "moved"]

    def list_auxiliary_states(self):
        return ["calls"]

    def infer_shape(self, in_shape):
        return [in_shape[0], in_shape[0]], [in_shape[0], in_shape[0]], [[1]]

    def create_operator(self, ctx, in_shapes, in_dtypes):
        return _Scaled(self.factor)


def test_forward_backward_and_states():
    x, shift, calls = mx.nd.array([1.0, 2.0]), mx.nd.array([10.0, 20.0]), mx.nd.zeros((1,))
    x.attach_grad()
    shift.attach_grad()
    with mx.autograd.record():
        scaled, moved = mx.nd.Custom(x, shift, calls, factor=3, op_type="scaled_for_test")
        total = scaled.sum() + 5 * moved.sum()
    total.backward()
    assert scaled.asnumpy().tolist() == [13, 26]
    assert moved.asnumpy().tolist() == [2, 3]
    assert x.grad.asnumpy().tolist() == [8, 8]
    assert shift.grad.asnumpy().tolist() == [1, 1]
    assert calls.asscalar() == 1
    by_name = mx.nd.Custom(x, calls=calls, shift=shift, op_type="scaled_for_test")[0]
    np.testing.assert_array_equal(by_name.asnumpy(), [12, 24])
    assert "scaled_for_test" in mx.operator.get_all_registered_operators()


def test_wrong_calls_say_so():
    x = mx.nd.ones((2,))
    with pytest.raises(HybridLabError, match="no operator is registered as 'nothing'; registered: .*scaled_for_test"):
        mx.nd.Custom(x, op_type="nothing")
    with pytest.raises(HybridLabError, match="takes 3 arrays .data, shift, calls., not 1"):
        mx.nd.Custom(x, op_type="scaled_for_test")
    with pytest.raises(ShapeError, match=r"shift has shape \(3,\); infer_shape says \(2,\)"):
        mx.nd.Custom(x, mx.nd.ones((3,)), mx.nd.ones((1,)), op_type="scaled_for_test")
    with pytest.raises(TypeError, match="takes a subclass of CustomOpProp"):
        mx.operator.register("wrong")(_Scaled)


class _Product(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] * in_data[1])

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0] * in_data[1])
        self.assign(in_grad[1], req[1], out_grad[0] * in_data[0])


@mx.operator.register("product_for_test")
class _ProductProp(mx.operator.CustomOpProp):
    def list_arguments(self):
        return ["left", "right"]

    def create_operator(self, ctx, in_shapes, in_dtypes):
        return _Product()


def test_a_gradient_reads_the_values_of_the_recorded_call():
    x, w = mx.nd.array([2.0, 3.0]), mx.gluon.Parameter("w", shape=(2,))
    w.initialize(init="ones")
    x.attach_grad()
    with mx.autograd.record():
        y = mx.nd.Custom(x, w.data(), op_type="product_for_test")
    w.set_data([7, 7])
    y.backward(retain_graph=True)
    assert x.grad.asnumpy().tolist() == [1, 1] and w.grad().asnumpy().tolist() == [2, 3]
    x[:] = 4
    with pytest.raises(AutogradError, match="product_for_test.* written to since"):
        y.backward()
