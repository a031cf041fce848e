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
