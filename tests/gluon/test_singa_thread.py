"""The examples of the third seed about states and saving, with the thread's names. ONNX's are in
tests/onnx/test_singa_thread.py.

`singa.save(path, m, ckp_states)` is `mx.save_cached_graphs(m, path, aux=ckp_states)`, `singa.load` is `gluon.load`.
"""

from __future__ import annotations

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics import HybridLabError, LoadMismatchError, SettingError, ShapeError
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


def test_placeholders(x, y):
    """Lines 336 to 346: placeholders are filled with the batches of NumPy arrays."""
    losses = []
    for filled in (True, False):
        mx.random.seed(5)
        m = MyModel()
        if filled:
            px, py = gluon.Placeholder((2, 2, 12, 12), device=mx.cpu(), dtype="float32"), mx.Placeholder((2,))
            m.compile([px], is_train=True, use_graph=True, graph_alg="sequence")
        else:
            m.compile([x], is_train=True, use_graph=True)
        found = []
        for number in range(3):
            npx, npy = x.asnumpy() * (number + 1), y.asnumpy()
            if filled:
                assert px.copy_from(npx) is px and py.copy_from(npy.tolist()) is py
                found.append(float(m.train_one_batch(px, py).asscalar()))
            else:
                found.append(float(m.train_one_batch(nd.array(npx), nd.array(npy)).asscalar()))
        losses.append(found)
    assert losses[0] == losses[1]
    with pytest.raises(ShapeError, match=r"the array has shape \(2,\), the values have \(3,\)"):
        py.copy_from([1, 2, 3])


def recurrent(name, layers=1, **options):
    layer = getattr(rnn, name)(3, layers, **options)
    layer.initialize(mx.init.Uniform(1.0))
    layer(nd.ones((5, 2, 4)))
    for parameter in layer.collect_params().values():
        if parameter.name.endswith("bias"):
            parameter.set_data(nd.random.uniform(shape=parameter.shape))
    return layer


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def singas_rnn(states, xs):
    """SINGA's formula (python/singa/layer.py, RNN.step_forward)."""
    h = np.zeros((xs.shape[1], 3), "float32")
    for x in xs:
        h = np.tanh(x @ states["Wx"] + h @ states["Wh"] + states["b"])
    return h


def singas_lstm(states, xs):
    """SINGA's formula (python/singa/layer.py, LSTM.step_forward)."""
    h = c = np.zeros((xs.shape[1], 3), "float32")
    for x in xs:
        i, f, o, g = (
            x @ states[f"Wx_{gate}"] + states[f"Bx_{gate}"] + h @ states[f"Wh_{gate}"] + states[f"Bh_{gate}"]
            for gate in "ifog"
        )
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
    return h


@pytest.mark.parametrize(("name", "formula"), [("RNN", singas_rnn), ("LSTM", singas_lstm)])
def test_recurrent_layers_have_singas_names_in_its_file(name, formula, tmp_path):
    """Lines 239 to 247: RNN has Wx, Wh and b, LSTM four of each; the arrays mean the same in SINGA's formula."""
    from hybrid_lab.formats.singa import read_states, write_states

    options = {"activation": "tanh"} if name == "RNN" else {}
    layer = recurrent(name, **options)
    path = layer.save_states(tmp_path / "r.zip")
    states, _ = read_states(path)
    gates = {f"{what}_{gate}" for what in ("Wx", "Wh", "Bx", "Bh") for gate in "ifog"}
    assert states.keys() == ({"Wx", "Wh", "b"} if name == "RNN" else gates)
    xs = nd.random.uniform(shape=(5, 2, 4))
    np.testing.assert_allclose(formula(states, xs.asnumpy()), layer(xs)[-1].asnumpy(), rtol=1e-4, atol=1e-6)
    other = recurrent(name, **options)
    other.load_states(path)
    np.testing.assert_allclose(other(xs).asnumpy(), layer(xs).asnumpy(), rtol=1e-5, atol=1e-6)
    # A file of SINGA's own, inside a model.
    write_states(tmp_path / "s.zip", {f"body.{key}": value * 2 for key, value in states.items()})
    model = nn.HybridSequential()
    model.register_child(recurrent(name, **options), "body")
    model.load_states(tmp_path / "s.zip")
    doubled = {key: value * 2 for key, value in states.items()}
    np.testing.assert_allclose(
        formula(doubled, xs.asnumpy()), model._children["body"](xs)[-1].asnumpy(), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("make", [
    lambda: recurrent("LSTM", 2), lambda: recurrent("LSTM", bidirectional=True), lambda: recurrent("GRU"),
    lambda: recurrent("RNN", 3),
])  # fmt: skip
def test_other_recurrent_layers_keep_their_paths(make, tmp_path):
    layer, other = make(), make()
    path = layer.save_states(tmp_path / "r.zip", aux_states={"epoch": 2})
    assert other.load_states(path) == {"epoch": 2} and same(layer, other)


def test_a_file_that_lacks_one_of_a_layers_arrays(tmp_path):
    from hybrid_lab.formats.singa import read_states, write_states

    layer = recurrent("LSTM")
    states, _ = read_states(layer.save_states(tmp_path / "r.zip"))
    del states["Wx_o"]
    write_states(tmp_path / "s.zip", states)
    before = {name: array.asnumpy() for name, array in layer.get_states().items()}
    with pytest.raises(LoadMismatchError, match="i2h_weight"):
        layer.load_states(tmp_path / "s.zip")
    assert all(np.array_equal(before[name], array.asnumpy()) for name, array in layer.get_states().items())


@pytest.mark.parametrize("ending", [".hlab", ".zip"])
def test_load_states_onto_a_device(m, x, tmp_path, ending):
    """Lines 189 to 192: load_states(fpath, dev, use_graph=True, graph_alg='sequence')."""
    path = str(tmp_path / "s") + ending
    m.save_states(path, aux_states={"epoch": 1})
    other = MyModel()
    aux = other.load_states(path, mx.cpu(1), True, "sequence")
    assert aux == {"epoch": 1} and same(other, m) and other._active
    assert other.linear.weight.list_ctx() == [mx.cpu(1)]
    assert other.load_states(path, dev=[mx.cpu(0)], use_graph=False) == {"epoch": 1} and not other._active
    fresh = MyModel()
    for options in ({"graph_alg": "nope"}, {"use_graph": "x"}, {"dev": "tpu(0)"}):
        with pytest.raises(HybridLabError):
            fresh.load_states(path, **options)
    with pytest.raises(HybridLabError):
        fresh.linear.weight.data()


def test_compile_checks_its_settings(x):
    wrong = ("graph_alg", "nope"), ("graph_alg", None), ("sequential", "no"), ("use_graph", 3.5), ("is_train", "x")
    for options in ({name: value} for name, value in wrong):
        with pytest.raises(SettingError):
            MyModel().compile([x], **options)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_shapes_stand_for_arrays_of_the_models_dtype(dtype):
    net = nn.HybridSequential()
    net.add(nn.Dense(4), nn.BatchNorm(), nn.Dense(2))
    net.cast(dtype)
    net.compile([(2, 3)], is_train=dtype != "bfloat16")
    assert str(net(nd.ones((2, 3), dtype=dtype)).asnumpy().dtype) == dtype


def test_shapes_with_their_dtypes():
    class Two(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.table, self.out = nn.Embedding(5, 3), nn.Dense(2)

        def hybrid_forward(self, F, words, x):
            return self.out(self.table(words).sum(axis=1) + x)

    described = mx.io.DataDesc("words", (2, 4), "int32")
    for words in (((2, 4), "int32"), ((2, 4), np.int32), [(2, 4), np.dtype("int32")], described, (2, 4)):
        net = Two()
        net.compile([words, (2, 3)])
        assert net.out.weight.shape == (2, 3)
    one = nn.Embedding(5, 3)
    one.compile(((2, 4), "int32"))
    assert one.weight.data().shape == (5, 3)
    with pytest.raises(HybridLabError):
        nn.Dense(2).compile([((2, 3), "nonsense")])
