"""Mixed precision in bfloat16: the same tables as for float16, and a loss that needs no scaling."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.contrib import amp
from hybrid_lab.gluon import nn
from hybrid_lab.ndarray import invoke as invoking
from hybrid_lab.ops.framework.dtypes import bfloat16
from tests.triton_device import use_triton

BFLOAT16 = bfloat16().type


def small_net() -> nn.HybridSequential:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, in_channels=2), nn.BatchNorm(in_channels=4), nn.Activation("relu"), nn.Dense(3))
    mx.random.seed(3)
    net.initialize(mx.init.Xavier())
    net(nd.zeros((1, 2, 6, 6)))
    return net


def data() -> nd.NDArray:
    mx.random.seed(5)
    return nd.random.normal(shape=(8, 2, 6, 6))


@pytest.mark.parametrize("dtype", ["bfloat16", BFLOAT16, bfloat16(), np.dtype([("bfloat16", np.uint16)])])
def test_every_name_of_it(dtype):
    amp.init(dtype)
    assert invoking.precision.target == bfloat16()
    y = nd.dot(nd.ones((2, 2)), nd.ones((2, 2)))
    assert y.dtype is BFLOAT16 and nd.exp(y).dtype is np.float32
    assert (y + nd.ones((2, 2))).dtype is np.float32


def test_one_without_ml_dtypes_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    bfloat16.cache_clear()
    with pytest.raises(mx.diagnostics.SettingError, match="needs the package ml_dtypes: pip install ml_dtypes"):
        amp.init("bfloat16")
    assert invoking.precision is None
    amp.init("float16")


def trained(engine: str | None, steps: int = 4, scaled: bool = False) -> tuple[list[float], dict[str, np.ndarray]]:
    """The losses of some steps, and the parameters behind them."""
    net, x = small_net(), data()
    if engine is not None:
        net.hybridize(engine=engine)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    amp.init_trainer(trainer)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    losses = []
    for _ in range(steps):
        with autograd.record():
            loss = loss_of(net(x), nd.arange(8) % 3)
            if scaled:
                with amp.scale_loss(loss, trainer) as bigger:
                    autograd.backward(bigger)
        if not scaled:
            loss.backward()
        trainer.step(8)
        losses.append(float(loss.mean()))
    own = net.collect_params()
    return losses, {name.split("_", 1)[-1]: parameter.data().asnumpy() for name, parameter in own.items()}


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime", "torch", "triton"])
def test_training_is_the_same_eagerly_and_hybridized(engine, monkeypatch):
    if engine == "triton":
        use_triton(monkeypatch)
    amp.init("bfloat16")
    wanted, parameters = trained(None)
    found, others = trained(engine)
    assert wanted[-1] < 0.8 * wanted[0]
    np.testing.assert_allclose(found, wanted, rtol=2.0**-6)
    for a, b in zip(parameters.values(), others.values(), strict=True):
        assert a.dtype == b.dtype == np.float32
        np.testing.assert_allclose(b, a, atol=2.0**-5 * np.abs(a).max())


def test_it_is_near_float32_and_may_be_scaled():
    amp.init("bfloat16")
    wanted, _ = trained("numpy")
    scaled, _ = trained("numpy", scaled=True)
    np.testing.assert_allclose(scaled, wanted, rtol=2.0**-6)
    amp.disable()


def test_small_gradients_need_no_scale():
    """Below float16's range, which ends at 6e-8."""
    x = nd.full((4, 4), 1e-5)
    for dtype, survives in (("float16", False), ("bfloat16", True)):
        amp.init(dtype)
        weight = nd.full((4, 4), 1e-5)
        weight.attach_grad()
        with autograd.record():
            loss = (nd.dot(x, weight) * 1e-4).sum()
        loss.backward()
        assert bool((weight.grad.asnumpy() != 0).all()) is survives
        amp.disable()


def test_graphs_with_conversions_of_their_own(tmp_path):
    net, x = small_net(), data()
    net.hybridize(engine="numpy")
    wanted = net(x).asnumpy()
    made = amp.convert_hybrid_block(net, "bfloat16", cast_optional_params=True)
    kinds = {name.rsplit("_", 1)[-1]: parameter.data().dtype for name, parameter in made.collect_params().items()}
    assert kinds["weight"] is BFLOAT16 and kinds["gamma"] is np.float32
    found = made(x).asnumpy().astype(np.float32)
    np.testing.assert_allclose(found, wanted, atol=2.0**-6 * np.abs(wanted).max())
    made.save_parameters(str(tmp_path / "made.params"))
    made.load_parameters(str(tmp_path / "made.params"))
    assert np.array_equal(made(x).asnumpy().astype(np.float32), found)
    with pytest.raises(mx.diagnostics.HybridLabError, match="are bfloat16, so that the graph needs its conversions"):
        made.export(str(tmp_path / "made"))
    made.export(str(tmp_path / "made"), remove_amp_cast=False)
    again = gluon.SymbolBlock.imports(str(tmp_path / "made-symbol.json"), ["data"], str(tmp_path / "made-0000.params"))
    assert np.array_equal(again(x).asnumpy().astype(np.float32), found)


def test_convert_model():
    symbol = mx.sym.softmax(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc"), name="out")
    weights = {"fc_weight": nd.ones((2, 3)), "fc_bias": nd.ones(2)}
    made, arguments, _ = amp.convert_model(symbol, weights, {}, "bfloat16", cast_optional_params=True)
    assert {array.dtype for array in arguments.values()} == {BFLOAT16}
    assert "bfloat16" in made.tojson()
