"""Mixed precision: eager and hybrid convert alike; switching it on and off; what is refused."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd, sym
from hybrid_lab.contrib import amp
from hybrid_lab.diagnostics import DTypeError, SettingError
from hybrid_lab.gluon import nn
from hybrid_lab.ndarray import invoke as invoking
from hybrid_lab.ndarray.interpret import interpret
from hybrid_lab.ops.framework.operator import get
from hybrid_lab.symbol.symbol import compose
from tests.contrib.amp_nets import NETS, close, made, run, uniform
from tests.triton_device import use_triton


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("name", NETS)
def test_hybrid_equals_eager(name, engine, train):
    if engine == "onnxruntime":
        pytest.importorskip("onnxruntime")
    x = uniform(*NETS[name][1])
    amp.init()
    wanted = run(made(name, x), x, train)
    net = made(name, x)
    net.hybridize(engine=engine)
    for _ in range(2 if train is False else 1):  # running statistics move in training
        # A sum in another order may round to the next number of float16.
        close(run(net, x, train), wanted, 2e-3)


@pytest.mark.parametrize("name, shape", [("twice", (2, 5)), ("lenet", (1, 1, 6, 6))])
def test_hybrid_equals_eager_in_kernels(name, shape, monkeypatch):
    use_triton(monkeypatch)
    x = uniform(*shape)
    amp.init()
    wanted = run(made(name, x), x)
    net = made(name, x)
    net.hybridize(engine="triton")
    # Values that stay inside of a kernel are not rounded to float16 on the way.
    close(run(net, x), wanted, 5e-3)


@pytest.mark.parametrize("name", ["lenet", "attention", "lstm"])
def test_near_float32_and_parameters_stay_float32(name):
    x = uniform(*NETS[name][1])
    exact = run(made(name, x), x)
    amp.init()
    net = made(name, x)
    found = run(net, x)
    for y, expected in zip(found, exact, strict=True):
        assert 0 <= np.abs(y - expected).max() <= 2e-2 * max(1, np.abs(expected).max())
    assert any(not np.array_equal(y, expected) for y, expected in zip(found, exact, strict=True))
    for parameter in net.collect_params().values():
        assert parameter.dtype == "float32" and parameter.data().dtype == np.float32
        assert parameter.grad_req == "null" or parameter.grad().dtype == np.float32


def test_dtypes_along_the_way():
    amp.init()
    x = nd.ones((2, 3))
    y = nd.FullyConnected(x, nd.ones((4, 3)), no_bias=True, num_hidden=4)
    assert y.dtype == np.float16 and nd.relu(y).dtype == np.float16 and (y * 2).dtype == np.float16
    assert nd.exp(y).dtype == np.float32 and (y + nd.ones((2, 4))).dtype == np.float32 and y.sum().dtype == np.float32
    assert (y**2).dtype == np.float32 and (1 / y).dtype == np.float32 and (y / 2).dtype == np.float16
    assert nd.concat(y, nd.ones((2, 1)), dim=1).dtype == np.float32 and (x @ nd.ones((3, 2))).dtype == np.float16
    wide = nd.ones((2, 3), dtype="float64")
    assert nd.dot(wide, wide, transpose_b=True).dtype == np.float64
    total = nd.ones((2, 4))
    total += y
    assert total.dtype == np.float32 and total.asnumpy().max() == 4
    with pytest.raises(DTypeError, match=r"the result is float32, out= is float16"):
        y += nd.ones((2, 4))


def test_gradients_of_gradients_are_alike():
    def second(net):
        x = nd.array(uniform(2, 5))
        x.attach_grad()
        with autograd.record():
            first = autograd.grad((net(x) ** 2).sum(), [x], create_graph=True)[0]
            loss = (first**2).sum()
        loss.backward()
        return [x.grad.asnumpy(), net.weight.grad().asnumpy()]

    x = uniform(2, 5)
    amp.init()
    wanted = second(made("twice", x))
    net = made("twice", x)
    net.hybridize(engine="numpy")
    close(second(net), wanted, 5e-3)


# -- on and off ------------------------------------------------------------------------------------------------------


def test_compiled_calls_are_compiled_anew(caplog):
    x = nd.array(uniform(2, 4))
    net = nn.Dense(3, in_units=4)
    net.initialize()
    net.hybridize(engine="numpy")
    asks = made("dtype", x)
    asks.hybridize(engine="numpy")
    plain, other = net(x), asks(x)
    with caplog.at_level(logging.INFO, "hybrid_lab"):
        amp.init()
        assert net(x).dtype == np.float16
    assert "mixed precision (float16 and float32) is on" in caplog.text
    assert "1 graph, 1 operator in float16 and float32, " in caplog.text and ", compiled in " in caplog.text
    np.testing.assert_allclose(asks(x).asnumpy(), other.asnumpy() / 2 + 1, atol=2e-3)
    amp.disable()
    assert net(x).dtype == np.float32
    np.testing.assert_array_equal(net(x).asnumpy(), plain.asnumpy())
    np.testing.assert_array_equal(asks(x).asnumpy(), other.asnumpy())


def test_explain_has_the_pass():
    amp.init()
    net = nn.Dense(3, in_units=4)
    net.initialize()
    net.hybridize(engine="numpy")
    net(nd.ones((2, 4)))
    assert "prediction, in float16 and float32 f32[2,4]" in str(mx.explain(net))
    passes = mx.explain(net).passes()
    assert next(iter(passes)).name == "mixed_precision"
    assert "Cast(%data, dtype='float16')" in str(passes["mixed_precision"])
    assert "equals eager" in str(mx.compare(net, nd.ones((2, 4))))


def test_a_second_init():
    amp.init()
    amp.init()
    amp.init("float16")
    with pytest.raises(SettingError, match=r"is on with other settings; call amp.disable\(\) first"):
        amp.init(fp32_ops=["exp"])
    amp.disable()
    amp.disable()
    conditional = [("Activation", "act_type", ["relu"])]
    amp.init(target_precision_ops=["dot"], fp32_ops=["exp"], conditional_fp32_ops=conditional)
    y = nd.dot(nd.ones((2, 2)), nd.ones((2, 2)))
    assert y.dtype == np.float16 and nd.log(y).dtype == np.float16 and nd.exp(y).dtype == np.float32
    assert nd.Activation(y, act_type="relu").dtype == np.float32


@pytest.mark.parametrize("dtype", ["int8", "float32", "a half", type("bfloat", (), {})])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(SettingError, match="target_dtype must be 'float16' or 'bfloat16', not "):
        amp.init(dtype)
    assert invoking.precision is None


def test_dtypes_that_are_accepted():
    amp.init(np.float16)
    amp.init(np.dtype("float16"))


def test_lists_that_cannot_be():
    with pytest.raises(SettingError, match="float32: .*list.*'exp'$"):
        amp.init(fp32_ops="exp")
    with pytest.raises(SettingError, match="dot .*float16 and in float32; give both lists"):
        amp.init(fp32_ops=["dot"])
    with pytest.raises(SettingError, match="dot cannot compute in float16 and in float32$"):
        amp.init(fp32_ops=["dot"], target_precision_ops=["dot"])
    assert invoking.precision is None


def test_a_loss_is_an_array():
    net = nn.Dense(1, in_units=1)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    amp.init()
    amp.init_trainer(trainer)
    with pytest.raises(TypeError, match="takes an NDArray or a list of them, not float"), amp.scale_loss(1.0, trainer):
        pass


def test_names_that_are_not_here():
    with pytest.raises(AttributeError, match="use amp.convert_hybrid_block"):
        amp.convert_bucketing_module  # noqa: B018
    with pytest.raises(AttributeError, match="quantization"):
        mx.contrib.quantization  # noqa: B018
    assert mx.contrib.amp is amp


# -- lists -----------------------------------------------------------------------------------------------------------


def test_lists():
    assert {"Convolution", "Deconvolution", "FullyConnected", "RNN", "batch_dot"} <= set(amp.list_lp16_ops())
    assert {"exp", "softmax", "LayerNorm", "norm", "broadcast_power"} <= set(amp.list_fp32_ops("float16"))
    assert {"broadcast_add", "Concat", "stack"} <= set(amp.list_widest_type_cast())
    assert {"relu", "Pooling", "BatchNorm", "Embedding", "transpose"} <= set(amp.list_lp16_fp32_ops())
    assert ("Activation", "act_type", ["softrelu"]) in amp.list_conditional_fp32_ops()
    assert "SoftmaxOutput" in amp.list_loss_output_functions() and amp.list_lp16_use_fp32_params() is None
    parts = [amp.list_lp16_ops(), amp.list_fp32_ops(), amp.list_widest_type_cast(), amp.list_lp16_fp32_ops()]
    names = [name for part in parts for name in part]
    assert len(names) == len(set(names)) and not any(name.startswith("_relu") for name in names)
    assert amp.list_lp16_ops("bfloat16") == amp.list_lp16_ops()
    with pytest.raises(SettingError):
        amp.list_lp16_ops("int8")


def test_operators_that_stand_for_others_are_converted_where_a_graph_runs_eagerly():
    amp.init()
    product = compose(get("_np_tensordot").bind(axes=1), [sym.var("x"), sym.var("y")], None)
    arrays = [nd.ones((2, 3)), nd.ones((3, 2))]
    assert interpret(product.graph(), arrays)[0].dtype is np.float16
    assert interpret(product.graph(), arrays, cast=False)[0].dtype is np.float32
