"""The examples of the third seed about states and saving, with the thread's names. ONNX's are in
tests/onnx/test_singa_thread.py.

`singa.save(path, m, ckp_states)` is `mx.save_cached_graphs(m, path, aux=ckp_states)`, `singa.load` is `gluon.load`.
"""

from __future__ import annotations

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.gluon import nn, rnn

pytestmark = pytest.mark.usefixtures("registered")


class Blk(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2D(4, 3)
        self.conv2 = nn.Conv2D(4, 3)

    def hybrid_forward(self, F, x):
        return self.conv2(F.relu(self.conv1(x)))


@gluon.register
class MyModel(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.blk1 = Blk()
        self.blk2 = Blk()
        self.bn = nn.BatchNorm()
        self.linear = nn.Dense(3)
        self.trainer = None

    def hybrid_forward(self, F, x):
        return self.linear(self.bn(self.blk2(self.blk1(x))))

    def train_one_batch(self, x, y):
        with autograd.record():
            loss = gluon.loss.SoftmaxCrossEntropyLoss()(self(x), y).mean()
        loss.backward()
        if self.trainer is None:
            self.trainer = gluon.Trainer(self.collect_params(), "sgd", {"momentum": 0.9})
        self.trainer.step(1)
        return loss


@pytest.fixture
def x():
    return nd.array(np.random.default_rng(0).normal(size=(2, 2, 12, 12)).astype(np.float32))


@pytest.fixture
def y():
    return nd.array([0, 2])


@pytest.fixture
def m(x, y):
    mx.random.seed(1)
    m = MyModel()
    m.compile([x], is_train=True, use_graph=True, graph_alg="sequence")
    m.train_one_batch(x, y)
    return m


def same(one, other):
    mine, theirs = one.get_states(), other.get_states()
    return mine.keys() == theirs.keys() and all(
        np.array_equal(mine[name].asnumpy(), theirs[name].asnumpy()) for name in mine
    )


def test_names_of_sublayers(m):
    """Lines 156 to 180: `blk1.conv1`; no layer needs a name of its own."""
    assert {"blk1.conv1.weight", "blk1.conv2.bias", "blk2.conv1.weight", "blk2.conv2.weight"} < set(m.get_params())


def test_params_states_and_attributes(m):
    """Lines 229 to 231: each is a superset of the one before."""
    params, states = m.get_params(), m.get_states()
    assert set(states) - set(params) == {"bn.running_mean", "bn.running_var"}
    assert all(states[name] is params[name] for name in params)
    assert {name.split(".")[0] for name in states} < set(vars(m))


GATES = {f"_unfused.0.{kind}2h_{what}" for kind in "ih" for what in ("weight", "bias")}  # MXNet's names


@pytest.mark.parametrize(
    ("layer", "shape", "params", "others"),
    [
        (lambda: nn.Dense(3), (2, 4), {"weight", "bias"}, set()),
        (lambda: nn.Conv2D(3, 3), (1, 2, 5, 5), {"weight", "bias"}, set()),
        (
            lambda: nn.SeparableConv2D(3, 3),
            (1, 2, 5, 5),
            {"depthwise.weight", "pointwise.weight", "pointwise.bias"},
            set(),
        ),
        (lambda: nn.BatchNorm(), (2, 3, 4, 4), {"gamma", "beta"}, {"running_mean", "running_var"}),
        (lambda: rnn.RNN(3), (4, 2, 5), GATES, set()),
        (lambda: rnn.LSTM(3), (4, 2, 5), GATES, set()),
    ],
)
def test_the_table_of_stateful_layers(layer, shape, params, others):
    """Lines 239 to 247."""
    net = layer()
    net.compile([shape])
    assert set(net.get_params()) == params and set(net.get_states()) == params | others


@pytest.mark.parametrize("ending", [".hlab", ".zip"])
def test_save_states_and_load_states(m, x, tmp_path, ending):
    """Lines 183 to 209: states and aux_states go into one file, load_states sets the model and returns the rest."""
    path = str(tmp_path / "my_checkpoint_1") + ending
    m.save_states(path, aux_states={"epoch": 7, "learning_rate": 0.5, "momentum": nd.ones((3,))})
    other = MyModel()
    other.compile([x], use_graph=True)
    aux = other.load_states(path)
    assert same(other, m) and (aux["epoch"], aux["learning_rate"], aux["momentum"].shape) == (7, 0.5, (3,))


def test_save_and_load_with_ckp_states(m, x, tmp_path):
    """Lines 212 to 214, 37, 417 and 418: the model by itself, without its code, and `ckp_states` beside it."""
    path = mx.save_cached_graphs(m, tmp_path / "my_model_1", inputs=x, aux={"epoch": 2})
    del nn.registry._classes["MyModel"]
    loaded = gluon.load(path)
    assert type(loaded) is not MyModel and same(loaded, m)
    np.testing.assert_allclose(loaded(x).asnumpy(), m(x).asnumpy(), rtol=1e-5)
    assert mx.load_cached_graphs(MyModel(), path).aux == {"epoch": 2}


def test_compile_before_the_first_iteration(x, y):
    """Lines 338 to 346: the parameters are there before train_one_batch; old code goes without compile."""
    losses = []
    for compiled in (True, False):
        mx.random.seed(5)
        m = MyModel()
        if compiled:
            m.compile([x], is_train=True, use_graph=True, graph_alg="sequence")
            assert m.linear.weight.data() is not None and m._graphs.first() is not None
        else:
            m.initialize()
            m.hybridize()
            m(x)
        losses.append([float(m.train_one_batch(x, y).asscalar()) for _ in range(3)])
    assert losses[0] == losses[1]


def test_compile_then_load_states(m, x, tmp_path):
    """Lines 355 to 361."""
    fpath = m.save_states(tmp_path / "states")
    one = MyModel()
    one.compile([x], use_graph=True)
    one.load_states(fpath)
    two = gluon.load(fpath)
    two.compile([x], use_graph=True)
    assert same(one, m) and same(two, m)


def test_my_model_of_a_path(m, x, tmp_path):
    """Lines 372 and 373, 406 to 410: the file is a model or just states."""
    for path in (m.save_states(tmp_path / "a"), m.save_states(tmp_path / "b.zip")):
        for opened in (MyModel(path), MyModel(states_path=path)):
            opened.compile([x], use_graph=True)
            assert same(opened, m)


def test_the_new_users_flow(m, x, y, tmp_path):
    """Lines 389 to 410."""
    data = [(x, y)] * 3
    for batch in data:
        m.train_one_batch(*batch)
    m.save_states(tmp_path / "my_checkpoint_1")
    m.save(tmp_path / "my_model_1")
    m2 = gluon.load(tmp_path / "my_model_1")
    m2.load_states(tmp_path / "my_checkpoint_1")
    m2.compile([x], use_graph=True)
    m3 = MyModel(states_path=tmp_path / "my_checkpoint_1")
    m3.compile([x])
    expected = float(m.train_one_batch(x, y).asscalar())
    for other in (m2, m3):
        assert type(other) is MyModel
        np.testing.assert_allclose(float(other.train_one_batch(x, y).asscalar()), expected, rtol=1e-5)
