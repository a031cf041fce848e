"""Executor: a bound Symbol computes what eager code computes, and keeps its arrays."""

from __future__ import annotations

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, nd, sym
from hybrid_lab.diagnostics import AttributeSpecError, BindError, SettingError, ShapeError


def perceptron():
    hidden = sym.FullyConnected(sym.var("data"), num_hidden=8, name="fc1")
    return sym.SoftmaxOutput(sym.FullyConnected(sym.relu(hidden), num_hidden=4, name="fc2"), name="softmax")


def filled(executor, seed=0):
    generator = np.random.default_rng(seed)
    for name, array in executor.arg_dict.items():
        array[:] = nd.array(generator.normal(size=array.shape) if "label" not in name else np.arange(array.size) % 4)
    return executor


def test_simple_bind_makes_all_arrays():
    executor = perceptron().simple_bind(mx.cpu(), data=(5, 6))
    assert {name: array.shape for name, array in executor.arg_dict.items()} == {
        "data": (5, 6),
        "fc1_weight": (8, 6),
        "fc1_bias": (8,),
        "fc2_weight": (4, 8),
        "fc2_bias": (4,),
        "softmax_label": (5,),
    }
    assert [array.shape for array in executor.grad_arrays] == [array.shape for array in executor.arg_arrays]
    assert executor.output_dict["softmax_output"] is executor.outputs[0]
    assert executor.outputs[0].shape == (5, 4)


def test_forward_and_backward_equal_eager_code():
    executor = filled(perceptron().simple_bind(mx.cpu(), data=(5, 6)))
    arrays = {name: array.copy() for name, array in executor.arg_dict.items()}
    for array in arrays.values():
        array.attach_grad()
    with autograd.record():
        hidden = nd.FullyConnected(arrays["data"], arrays["fc1_weight"], arrays["fc1_bias"], num_hidden=8)
        second = nd.FullyConnected(nd.relu(hidden), arrays["fc2_weight"], arrays["fc2_bias"], num_hidden=4)
        expected = nd.SoftmaxOutput(second, arrays["softmax_label"])
    expected.backward()
    executor.forward(is_train=True)
    executor.backward()
    np.testing.assert_allclose(executor.outputs[0].asnumpy(), expected.asnumpy(), rtol=1e-5)
    for name in ("data", "fc1_weight", "fc1_bias", "fc2_weight", "fc2_bias"):
        np.testing.assert_allclose(
            executor.grad_dict[name].asnumpy(), arrays[name].grad.asnumpy(), rtol=1e-4, atol=1e-6, err_msg=name
        )


def test_outputs_stay_the_same_arrays():
    executor = filled(perceptron().simple_bind(mx.cpu(), data=(5, 6)))
    (before,) = executor.outputs
    executor.forward(data=nd.ones((5, 6)))
    first = before.asnumpy()
    executor.forward(data=np.zeros((5, 6)))
    assert executor.outputs[0] is before
    assert not np.array_equal(before.asnumpy(), first)


def test_bind_uses_the_arrays_of_the_caller():
    x, y, gradient = nd.array([1.0, 2.0]), nd.array([3.0, 4.0]), nd.zeros(2)
    executor = (sym.var("x") * sym.var("y")).bind(mx.cpu(), {"y": y, "x": x}, args_grad={"x": gradient})
    executor.forward(is_train=True)
    executor.backward(nd.array([1.0, 10.0]))
    assert gradient.asnumpy().tolist() == [3, 40]
    x[:] = 5
    assert executor.forward()[0].asnumpy().tolist() == [15, 20]
    assert executor.grad_arrays[1] is None
    assert x.grad is None


def test_the_arrays_keep_their_own_gradients():
    x = nd.array([2.0])
    x.attach_grad()
    own = x.grad
    executor = (sym.var("x") * 3).bind(mx.cpu(), [x], [nd.zeros(1)])
    executor.forward(is_train=True)
    executor.backward(nd.ones(1))
    assert x.grad is own
    assert own.asscalar() == 0
    assert executor.grad_dict["x"].asscalar() == 3


@pytest.mark.parametrize("times", [1, 2, 3])
def test_requests(times):
    x, y = nd.array([2.0]), nd.array([3.0])
    grads = [nd.array([100.0]), nd.array([100.0])]
    executor = (sym.var("x") * sym.var("y")).bind(mx.cpu(), [x, y], grads, grad_req=["write", "add"])
    executor.forward(is_train=True)
    for _ in range(times):  # each after the first computes the forward again
        executor.backward(nd.ones(1))
    assert grads[0].asscalar() == 3
    assert grads[1].asscalar() == 100 + 2 * times


def test_an_argument_without_influence_gets_zeros():
    outputs = sym.Group([sym.var("x") * 2, sym.BlockGrad(sym.var("y"))])
    executor = outputs.bind(mx.cpu(), [nd.ones(2), nd.ones(2)], [nd.ones(2), nd.ones(2)])
    executor.forward(is_train=True)
    executor.backward([nd.ones(2)])
    assert executor.grad_arrays[0].asnumpy().tolist() == [2, 2]
    assert executor.grad_arrays[1].asnumpy().tolist() == [0, 0]


def test_backward_after_a_prediction():
    executor = (sym.var("x") ** 2).bind(mx.cpu(), [nd.array([3.0])], [nd.zeros(1)])
    executor.forward()
    executor.backward(nd.ones(1))
    assert executor.grad_arrays[0].asscalar() == 6


def test_dropout_has_the_mask_of_the_forward():
    executor = sym.Dropout(sym.var("x"), p=0.5).simple_bind(mx.cpu(), x=(1000,))
    executor.arg_dict["x"][:] = 1
    executor.forward(is_train=True)
    mask = executor.outputs[0].asnumpy()
    for _ in range(2):
        executor.backward(nd.ones(1000))
        np.testing.assert_array_equal(executor.grad_dict["x"].asnumpy(), mask)
    assert executor.forward(is_train=True)[0].asnumpy().tolist() != mask.tolist()
    assert executor.forward()[0].asnumpy().tolist() == [1] * 1000


def test_random_numbers_are_those_of_eager_code():
    executor = sym.Dropout(sym.var("x"), p=0.5).simple_bind(mx.cpu(), x=(64,))
    executor.arg_dict["x"][:] = 1
    mx.random.seed(7)
    hybrid = executor.forward(is_train=True)[0].asnumpy()
    mx.random.seed(7)
    with autograd.train_mode():
        eager = nd.Dropout(nd.ones(64), p=0.5).asnumpy()
    np.testing.assert_array_equal(hybrid, eager)


def test_states_change_once_per_forward_in_training():
    net = sym.BatchNorm(sym.var("data"), fix_gamma=False, momentum=0.5, name="bn")
    executor = net.simple_bind(mx.cpu(), data=(8, 3))
    assert list(executor.aux_dict) == ["bn_moving_mean", "bn_moving_var"]
    executor.arg_dict["bn_gamma"][:] = 1
    executor.arg_dict["data"][:] = 4
    executor.forward()
    assert executor.aux_dict["bn_moving_mean"].asnumpy().tolist() == [0, 0, 0]
    executor.forward(is_train=True)
    for _ in range(3):
        executor.backward(nd.ones((8, 3)))
    assert executor.aux_dict["bn_moving_mean"].asnumpy().tolist() == [2, 2, 2]


def test_reshape_shares_what_it_can():
    executor = filled(perceptron().simple_bind(mx.cpu(), data=(5, 6)))
    smaller = executor.reshape(data=(3, 6), softmax_label=(3,))
    assert smaller.arg_dict["fc1_weight"] is executor.arg_dict["fc1_weight"]
    smaller.arg_dict["data"][:] = 0
    assert executor.arg_dict["data"][:3].asnumpy().max() == 0
    assert executor.arg_dict["data"][3:].asnumpy().any()
    executor.forward()
    smaller.forward()
    np.testing.assert_allclose(smaller.outputs[0].asnumpy(), executor.outputs[0][:3].asnumpy(), rtol=1e-5)
    with pytest.raises(BindError, match="allow_up_sizing"):
        executor.reshape(data=(9, 6), softmax_label=(9,))
    larger = executor.reshape(allow_up_sizing=True, data=(9, 6), softmax_label=(9,))
    assert larger.forward()[0].shape == (9, 4)
    assert larger.arg_dict["fc2_bias"] is executor.arg_dict["fc2_bias"]


def test_reshape_does_not_change_what_was_not_named():
    executor = sym.FullyConnected(sym.var("data"), num_hidden=4, name="fc").simple_bind(mx.cpu(), data=(2, 6))
    with pytest.raises(BindError, match="fc_weight would change from"):
        executor.reshape(data=(2, 3))
    assert executor.reshape(partial_shaping=True, data=(2, 3)).arg_dict["fc_weight"].shape == (4, 3)


def test_copy_params_from():
    executor = perceptron().simple_bind(mx.cpu(), data=(5, 6))
    executor.copy_params_from({"fc2_bias": nd.array([1, 2, 3, 4], dtype="float64")})
    assert executor.arg_dict["fc2_bias"].asnumpy().tolist() == [1, 2, 3, 4]
    assert executor.arg_dict["fc2_bias"].dtype == np.float32
    with pytest.raises(BindError, match="'other' is not among the arguments"):
        executor.copy_params_from({"fc2_bias": nd.zeros(4), "other": nd.ones(1)})
    assert executor.arg_dict["fc2_bias"].asnumpy().tolist() == [1, 2, 3, 4]
    executor.copy_params_from({"other": nd.ones(1)}, allow_extra_params=True)


def test_the_monitor_sees_every_operator():
    executor = filled(perceptron().simple_bind(mx.cpu(), data=(5, 6)))
    executor.forward(is_train=True)
    expected = executor.outputs[0].asnumpy()
    seen = {}
    executor.set_monitor_callback(lambda name, array: seen.update({name: array.asnumpy()}))
    executor.forward(is_train=True)
    executor.backward()
    assert [name for name in seen if name.startswith(("fc", "softmax")) and "backward" not in name] == [
        "fc1_output",
        "fc2_output",
        "softmax_output",
    ]
    np.testing.assert_allclose(seen["softmax_output"], expected, rtol=1e-5)
    executor.set_monitor_callback(lambda name, array: seen.update({name: array}), monitor_all=True)
    executor.forward()
    assert {"fc1_data", "fc1_weight", "fc1_bias"} <= seen.keys()


def test_shared_buffer_and_shared_arguments():
    net, buffer = perceptron(), {}
    first = net.simple_bind(mx.cpu(), data=(5, 6), shared_buffer=buffer)
    second = net.simple_bind(mx.cpu(), data=(2, 6), shared_buffer=buffer)
    second.arg_dict["data"][:] = 3
    assert first.arg_dict["data"].asnumpy()[:2].tolist() == second.arg_dict["data"].asnumpy().tolist()
    third = net.simple_bind(mx.cpu(), data=(3, 6), shared_arg_names=["fc1_weight"], shared_exec=first)
    assert third.arg_dict["fc1_weight"] is first.arg_dict["fc1_weight"]
    assert third.arg_dict["fc2_weight"] is not first.arg_dict["fc2_weight"]


def test_dtypes():
    net = sym.FullyConnected(sym.Cast(sym.var("data"), dtype="float64"), num_hidden=2, name="fc")
    executor = net.simple_bind(
        mx.cpu(), data=(3, 4), type_dict={"data": "float16", "fc_weight": "float64", "fc_bias": "float64"}
    )
    assert [array.dtype for array in executor.arg_arrays] == [np.float16, np.float64, np.float64]
    assert executor.forward()[0].dtype == np.float64


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda net: net.bind("cpu", [nd.ones(2)] * 2), TypeError, "ctx must be a Context"),
        (lambda net: net.bind(mx.cpu(), [nd.ones(2)]), ValueError, "args holds 1 arrays, and there are 2: x, y"),
        (lambda net: net.bind(mx.cpu(), {"x": nd.ones(2)}), BindError, "args lacks y"),
        (lambda net: net.bind(mx.cpu(), [1, 2]), SettingError, "x in args must be an NDArray, not int"),
        (lambda net: net.bind(mx.cpu(), [nd.ones(2), nd.ones(3)]), ShapeError, "2"),
        (lambda net: net.bind(mx.cpu(), [nd.ones(2)] * 2, grad_req="no"), AttributeSpecError, "grad_req"),
        (lambda net: net.simple_bind(mx.cpu(), grad_req=[], x=(2,), y=(2,)), RuntimeError, "must not be empty"),
        (lambda net: sym.dot(net, net).simple_bind(mx.cpu()), RuntimeError, "x"),
        (lambda net: net.simple_bind(mx.cpu(), x=(2,), y=(2,), group2ctx={"a": mx.gpu()}), BindError, "one device"),
    ],
)
def test_refused_bindings(call, error, words):
    with pytest.raises(error, match=words) as caught:
        call(sym.var("x") + sym.var("y"))
    assert isinstance(caught.value, mx.MXNetError)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda executor: executor.forward(z=nd.ones(2)), TypeError, "no argument 'z'; there are x, y"),
        (lambda executor: executor.forward(x=nd.ones(3)), ValueError, r"x has shape \(3,\); it is bound to \(2,\)"),
        (lambda executor: executor.forward(x=[1, 2]), ValueError, "must be an NDArray or a NumPy array, not list"),
        (lambda executor: executor.backward(), mx.MXNetError, "is no loss"),
        (lambda executor: executor.backward([nd.ones(3)]), BindError, r"has shape \(3,\), the output \(2,\)"),
        (lambda executor: executor.backward([3]), TypeError, "must be an NDArray, not int"),
    ],
)
def test_refused_calls_change_nothing(call, error, words):
    executor = (sym.var("x") + sym.var("y")).bind(mx.cpu(), [nd.ones(2), nd.ones(2)], [nd.ones(2), nd.ones(2)])
    executor.forward(is_train=True)
    with pytest.raises(error, match=words):
        call(executor)
    assert executor.arg_dict["x"].asnumpy().tolist() == [1, 1]
    assert executor.grad_dict["x"].asnumpy().tolist() == [1, 1]


def test_gradients_that_nothing_reads_are_left_alone():
    """As in MXNet: one beyond the last output, and one of an output through which no argument has a gradient."""
    x, grad, variable = nd.array([1.0, 2.0]), nd.zeros(2), sym.var("x")
    executor = sym.Group([sym.shape_array(variable), variable * 3]).bind(mx.cpu(), {"x": x}, {"x": grad})
    executor.forward(is_train=True)
    executor.backward([nd.ones(7), nd.ones(2), nd.ones(5)])
    np.testing.assert_array_equal(grad.asnumpy(), [3, 3])


def test_whole_numbers_have_a_gradient_of_zero():
    grads = {"data": nd.ones((2, 3)), "length": nd.array([5, 5], dtype="int32")}
    values = {"data": nd.ones((2, 3)), "length": nd.array([1, 3], dtype="int32")}
    softmax = sym.softmax(sym.var("data"), sym.var("length"), use_length=True)
    executor = softmax.bind(mx.cpu(), values, grads)
    executor.forward(is_train=True)
    executor.backward([nd.ones((2, 3))])
    assert not grads["length"].asnumpy().any()


def test_the_monitor_sees_gradients_and_inputs_under_the_names_of_mxnet():
    """Names in order, as MXNet 1.9.1 gives them, but for what only its backward reads."""
    hidden = sym.FullyConnected(sym.var("data"), num_hidden=2, name="fc")
    normed = sym.BatchNorm(hidden, fix_gamma=False, name="bn")
    halves = sym.split(sym.Activation(normed, act_type="tanh", name="act"), num_outputs=2, name="sp")
    joined = sym.concat(halves[0], halves[1] * 2, dim=1, name="cc")
    net = sym.SoftmaxOutput(joined, sym.var("label"), name="softmax")
    requests = {name: "write" if name.startswith("fc_") else "null" for name in net.list_arguments()}
    executor = net.simple_bind(mx.cpu(), requests, data=(3, 4))
    filled(executor)
    executor.arg_dict["label"][:] = [0, 1, 0]
    executor.aux_dict["bn_moving_var"][:] = 1
    executor.forward(is_train=True)
    executor.backward()
    expected = executor.grad_dict["fc_weight"].asnumpy()
    seen = {}
    executor.set_monitor_callback(lambda name, array: seen.update({name: array.asnumpy()}))
    executor.forward(is_train=True)
    executor.backward()
    times = next(name for name in seen if "mulscalar" in name).removesuffix("_output")
    assert list(seen) == [
        *("fc_output", "bn_output", "act_output", "sp_output0", "sp_output1", f"{times}_output", "cc_output"),
        *("softmax_output", "softmax_backward_output0", "softmax_backward_output1"),
        *("cc_backward_output0", "cc_backward_output1", f"{times}_backward_output", "sp_backward_output"),
        *("act_backward_output", "bn_backward_output0", "bn_backward_output1", "bn_backward_output2"),
        *("fc_backward_output0", "fc_backward_output1", "fc_backward_output2"),
    ]
    np.testing.assert_allclose(executor.grad_dict["fc_weight"].asnumpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(seen["fc_backward_output1"], expected, rtol=1e-5)
    weight = executor.arg_dict["fc_weight"].asnumpy()
    np.testing.assert_allclose(seen["fc_backward_output0"], seen["bn_backward_output0"] @ weight, rtol=1e-5)
    assert not seen["softmax_backward_output1"].any()
    names = []
    executor.set_monitor_callback(lambda name, array: names.append(name), monitor_all=True)
    executor.forward()
    assert names[:7] == ["data", "fc_data", "fc_weight", "fc_weight", "fc_bias", "fc_bias", "fc_output"]
    assert {"cc_arg0", "cc_arg1"} <= set(names)
    executor.set_monitor_callback(None)
    executor.forward(is_train=True)
    executor.backward()
    np.testing.assert_allclose(executor.grad_dict["fc_weight"].asnumpy(), expected, rtol=1e-5)


def test_a_monitor_of_gradients():
    executor = filled(perceptron().simple_bind(mx.cpu(), data=(5, 6)))
    monitor = mx.mon.Monitor(1, pattern=".*backward.*")
    monitor.install(executor)
    monitor.tic()
    executor.forward(is_train=True)
    executor.backward()
    rows = {name: float(text) for _, name, text in monitor.toc()}
    gradient = executor.grad_dict["fc1_weight"]
    np.testing.assert_allclose(rows["fc1_backward_output1"], gradient.norm().asscalar() / gradient.size**0.5, rtol=1e-4)
