"""The examples of the third seed about ONNX, with the thread's names. States and saving are in tests/gluon.

`to_onnx(model)` is `mx.onnx.export`, `SONNXModel` is `mx.onnx.OnnxBlock`, `sonnx.prepare` is `mx.onnx.Backend.prepare`.
"""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.gluon import nn

onnx = pytest.importorskip("onnx")
SONNXModel, sonnx = mx.onnx.OnnxBlock, mx.onnx.Backend


def to_onnx(model, path):
    """Lines 215, 249 and 301: returns an onnx model."""
    mx.onnx.export(model, path)
    return onnx.load(path)


class Convolutions(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2D(3, 3, padding=1, activation="relu"), nn.Conv2D(3, 3, padding=1)

    def hybrid_forward(self, F, x):
        return self.conv2(self.conv1(x))


class MyModel(SONNXModel):
    """Lines 220 to 226, 273 to 283 and 325 to 335: two results of the imported graph go into layers of one's own."""

    def __init__(self, ox, inside):
        super().__init__(ox)
        self.inside, self.layer1, self.layer2 = inside, nn.Conv2D(3, 1), nn.Conv2D(3, 1)
        self.trainer = None

    def forward(self, x):
        x1, x2 = super().forward(x, aux_output=[self.inside])
        x = self.layer1(x2)
        return self.layer2(x1) + x

    def train_one_batch(self, x, y):
        with autograd.record():
            y_ = self(x)
            loss = gluon.loss.SoftmaxCrossEntropyLoss()(y_.mean(axis=(2, 3)), y).mean()
        loss.backward()
        if self.trainer is None:
            self.trainer = gluon.Trainer(self.collect_params(), "sgd", {"learning_rate": 0.1})
        self.trainer.step(1)
        return float(loss.asscalar())


@pytest.fixture
def x():
    return nd.array(np.random.default_rng(0).normal(size=(2, 3, 6, 6)).astype(np.float32))


@pytest.fixture
def net(x):
    mx.random.seed(0)
    net = Convolutions()
    net.compile([x])
    net(x)
    return net


@pytest.fixture
def fpath(net, tmp_path):
    path = tmp_path / "model.onnx"
    to_onnx(net, path)
    return path


def inner_name(ox):
    """The name of a result inside the graph."""
    return mx.onnx.OnnxBlock(ox).tensor_names[0]


def test_to_onnx_returns_a_model_that_computes_the_same(net, x, tmp_path):
    ox = to_onnx(net, tmp_path / "m.onnx")
    onnx.checker.check_model(ox, full_check=True)
    rep = sonnx.prepare(ox)  # lines 253, 292 and 305
    np.testing.assert_allclose(rep.run([x.asnumpy()])[0], net(x).asnumpy(), rtol=1e-4, atol=1e-5)


def test_subclass_compile_and_train(fpath, x):
    """Lines 297 to 299 and 337 to 346: load, subclass, compile, train batch by batch."""
    ox = onnx.load(fpath)
    m = MyModel(ox, inner_name(ox))
    m.compile([x], is_train=True, use_graph=True, graph_alg="sequence")
    y = nd.array([0, 2])
    before = {name: array.asnumpy() for name, array in m.get_params().items()}
    losses = [m.train_one_batch(x, y) for _ in range(5)]
    assert losses[-1] < losses[0]
    after = m.get_params()
    assert all(not np.array_equal(before[name], after[name].asnumpy()) for name in before), "all of them are trained"
    eager = m(x).asnumpy()
    m.hybridize(False)
    np.testing.assert_allclose(m(x).asnumpy(), eager, rtol=1e-4, atol=1e-5)


def test_aux_output_follows_the_last_output(fpath, net, x):
    """Lines 217 to 219, 262 to 264 and 314 to 316: the last output, and aux_output."""
    base = SONNXModel(fpath)
    name = base.tensor_names[0]
    last, inside = base.forward(x, aux_output=[name])
    np.testing.assert_allclose(last.asnumpy(), net(x).asnumpy(), rtol=1e-4, atol=1e-5)
    assert inside.shape[:2] == (2, 3)


def test_the_arrays_of_the_file_are_released(fpath, x):
    """Line 324: what the parameters own is not kept a second time."""
    ox = onnx.load(fpath)
    before = sys.getrefcount(ox)
    m = MyModel(ox, inner_name(ox))
    m.compile([x])
    gc.collect()
    assert sys.getrefcount(ox) == before


def test_always_compile_then_states(fpath, x, tmp_path):
    """Lines 358, 359, 374, 375 and 390 to 402: an imported model is compiled, trained, saved, and loaded again."""
    ox = onnx.load(fpath)
    m1 = MyModel(ox, inner_name(ox))
    m1.compile([x], use_graph=True)
    m1.train_one_batch(x, nd.array([0, 2]))
    m1.save_states(tmp_path / "my_checkpoint_1")
    mx.save_cached_graphs(m1, tmp_path / "my_model_1", aux={"epoch": 1})
    m2 = gluon.load(tmp_path / "my_model_1.hlab")
    m2.load_states(tmp_path / "my_checkpoint_1")
    m2.compile([x], use_graph=True)
    np.testing.assert_allclose(m2(x).asnumpy(), m1(x).asnumpy(), rtol=1e-4, atol=1e-5)


def test_last_layers_cuts_the_graph(fpath, net, x):
    cut = SONNXModel(fpath, last_layers=-1)
    assert cut(x).shape == (2, 3, 6, 6)
    np.testing.assert_allclose(cut(x).asnumpy(), net.conv1(x).asnumpy(), rtol=1e-4, atol=1e-5)


@pytest.fixture
def ordinary(tmp_path):
    """An ONNX file of nobody's: nodes without functions and metadata. Returns its path and what it computes."""
    helper, generator = onnx.helper, np.random.default_rng(1)
    arrays = {
        "conv1.weight": generator.normal(size=(4, 3, 3, 3)), "conv1.bias": generator.normal(size=(4,)),
        "fc.weight": generator.normal(size=(4, 5)),
    }  # fmt: skip
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    nodes = [
        helper.make_node("Conv", ["x", "conv1.weight", "conv1.bias"], ["c"], name="conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu1"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"], name="/flat/Flatten"),
        helper.make_node("MatMul", ["f", "fc.weight"], ["y"], name="fc"),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, ["n", 3, 6, 6])],
        [helper.make_tensor_value_info("y", 1, ["n", 5])],
        [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    path = tmp_path / "ordinary.onnx"
    onnx.save(model, path)
    return path


def test_an_ordinary_file_as_layers_by_name(ordinary, x):
    """Lines 221 to 224, 253 to 259: `for layer_name, layer in singa_rep.layers: self.__dict__[layer_name] = layer`."""
    net = mx.onnx.imports(ordinary)
    assert [*net.layers] == ["conv1", "relu1", "p", "/flat/Flatten", "fc"] and "conv1" in dir(net)
    assert net.conv1 is net.layers["conv1"] and net.conv1.archived_class == "Conv"
    y, h = net(x), x
    for layer in net.layers.values():
        h = layer(h)
    np.testing.assert_allclose(h.asnumpy(), y.asnumpy(), rtol=1e-5, atol=1e-6)
    assert net.conv1.weight is net.collect_params()["conv1.weight"]
    net.conv1.hybridize()
    inside = net(x, aux_output=["c"])[1].asnumpy()
    np.testing.assert_allclose(net.conv1(x).asnumpy(), inside, rtol=1e-4, atol=1e-5)
    # A layer trains the parameters of the whole.
    trainer = gluon.Trainer(net.conv1.collect_params(), "sgd", {"learning_rate": 0.1})
    with autograd.record():
        loss = net.conv1(x).sum()
    loss.backward()
    trainer.step(1)
    assert not np.allclose(net(x).asnumpy(), y.asnumpy())
    with pytest.raises(AttributeError, match="conv2"):
        net.conv2  # noqa: B018
    with pytest.raises(KeyError):
        net.layers["conv2"]


@pytest.mark.parametrize("hybrid", [False, True])
def test_aux_output_of_a_call(ordinary, x, hybrid):
    """Lines 217 to 219: the last output, and aux_output, from a call of the net itself."""
    net, base = mx.onnx.imports(ordinary), SONNXModel(ordinary)
    if hybrid:
        net.hybridize()
        base.hybridize()
    for each in (net, base):
        y, relu, flat = each(x, aux_output=["r", "f"])
        np.testing.assert_allclose(y.asnumpy(), net(x).asnumpy(), rtol=1e-5, atol=1e-6)
        assert relu.shape == (2, 4, 6, 6) and (relu.asnumpy() >= 0).all() and flat.shape == (2, 4)
        with autograd.record():
            loss = each(x, aux_output=["c"])[1].sum()
        loss.backward()
    with pytest.raises(mx.MXNetError, match="the graph computes no 'nothing'"):
        net(x, aux_output=["nothing"])
    with pytest.raises(mx.MXNetError, match="a list of names"):
        net(x, aux_output="c")


def test_layers_of_a_file_of_this_package(fpath, net, x):
    imported = mx.onnx.imports(fpath)
    assert len(imported.layers) and all(isinstance(name, str) for name in imported.layers)
    np.testing.assert_allclose(imported(x).asnumpy(), net(x).asnumpy(), rtol=1e-4, atol=1e-5)


def test_a_model_with_a_forward_of_its_own(fpath, x):
    ox = onnx.load(fpath)
    m = MyModel(ox, inner_name(ox))
    m.compile([x])
    with pytest.raises(mx.MXNetError, match="has a forward of its own"):
        m(x, aux_output=[inner_name(ox)])
