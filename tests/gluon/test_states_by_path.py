"""States by path, `compile`, `gluon.register` and SINGA's file: the third seed's calls, with the thread's names."""

from __future__ import annotations

import io
import json
import logging
import zipfile

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics import ArchiveError, HybridLabError, LoadMismatchError, SettingError
from hybrid_lab.gluon import nn

pytestmark = pytest.mark.usefixtures("registered")


class Blk(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.conv1 = nn.Conv2D(4, 3)
            self.conv2 = nn.Conv2D(4, 3)

    def hybrid_forward(self, F, x):
        return F.relu(self.conv2(self.conv1(x)))


@gluon.register
class MyModel(gluon.Block):
    def __init__(self, units=3):
        super().__init__()
        self.blk1 = Blk()
        self.norm = nn.BatchNorm()
        self.linear = nn.Dense(units)

    def forward(self, x):
        return self.linear(self.norm(self.blk1(x)))

    def train_one_batch(self, x, y, trainer):
        with autograd.record():
            loss = gluon.loss.SoftmaxCrossEntropyLoss()(self(x), y).mean()
        loss.backward()
        trainer.step(1)
        return loss


PARAMS = [
    "blk1.conv1.weight", "blk1.conv1.bias", "blk1.conv2.weight", "blk1.conv2.bias",
    "norm.gamma", "norm.beta", "linear.weight", "linear.bias",
]  # fmt: skip
STATISTICS = ["norm.running_mean", "norm.running_var"]


@pytest.fixture
def x():
    return nd.array(np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32))


@pytest.fixture
def m(x):
    m = MyModel()
    m.compile([x])
    return m


def values(m):
    return {name: array.asnumpy() for name, array in m.get_states().items()}


def same(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


# -- get and set ---------------------------------------------------------------------------------------------------


def test_names_are_paths_and_states_are_a_superset_of_parameters(m):
    assert list(m.get_params()) == PARAMS
    assert sorted(m.get_states()) == sorted(PARAMS + STATISTICS)
    assert set(m.get_params()) < set(m.get_states())
    assert m.get_params()["linear.weight"] is m.linear.weight.data()


def test_a_frozen_weight_is_a_state_and_no_parameter(m):
    m.linear.weight.grad_req = "null"
    assert "linear.weight" not in m.get_params() and "linear.weight" in m.get_states()


def test_states_go_from_one_model_to_another(m, x):
    other = MyModel()
    other.compile([x])
    other.set_states(m.get_states())
    assert same(values(other), values(m))
    other.set_params({name: np.full(array.shape, 2.0) for name, array in m.get_params().items()})
    assert other.linear.weight.data().asnumpy().min() == 2 and other.norm.running_var.data().asnumpy().max() == 1


def test_a_model_without_shapes_takes_the_states(m):
    other = MyModel()
    other.set_states(m.get_states())
    assert same(values(other), values(m))
    other.linear.weight.set_data(np.zeros(m.linear.weight.shape))
    assert m.linear.weight.data().asnumpy().any(), "copied, not shared"


def test_a_dict_that_does_not_fit_changes_nothing(m):
    before = values(m)
    wrong = {**before, "linear.bias": np.zeros(4), "linear.wait": np.zeros(3)}
    del wrong["norm.gamma"]
    with pytest.raises(LoadMismatchError) as error:
        m.set_states(wrong)
    text = str(error.value)
    assert "missing: norm.gamma" in text and "extra: linear.wait" in text and "shape: linear.bias" in text
    with pytest.raises(LoadMismatchError, match="extra: norm.running_mean"):
        m.set_params(before)
    assert same(values(m), before)
    m.set_params({"linear.bias": [1, 2, 3]}, allow_missing=True)
    assert m.linear.bias.data().asnumpy().tolist() == [1, 2, 3]


def test_before_compile_there_are_no_values():
    with pytest.raises(mx.MXNetError):
        MyModel().get_params()


# -- compile -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_train", [True, False])
@pytest.mark.parametrize("use_graph", [True, False])
def test_compile_completes_and_changes_nothing_else(x, is_train, use_graph):
    mx.random.seed(1)
    m = MyModel()
    draws = mx.random.get_state()["draws"]
    m.compile([x], is_train=is_train, use_graph=use_graph, graph_alg="sequence")
    assert mx.random.get_state()["draws"] == draws
    assert not m.norm.running_mean.data().asnumpy().any() and (m.norm.running_var.data().asnumpy() == 1).all()
    assert bool(m.blk1._active) is use_graph
    if use_graph:
        assert m.blk1._graphs.first() is not None and m.linear._graphs.first() is not None
    before = values(m)
    m.compile([x], is_train=is_train, use_graph=use_graph)
    assert same(values(m), before), "parameters that have values keep them"


def test_compile_takes_shapes_and_keeps_the_flags_of_hybridize():
    m = MyModel()
    m.hybridize(engine="numpy")
    m.compile([(2, 3, 8, 8)])
    assert m.linear.weight.shape == (3, 64) and m.blk1._flags["engine"] == "numpy"
    m.compile([(2, 3, 8, 8)], use_graph=False)
    assert not m.blk1._active


def test_a_training_after_compile_is_that_without(x):
    def train(compiled):
        mx.random.seed(3)
        m = MyModel()
        m.initialize()
        m.hybridize(engine="numpy")
        m(x) if not compiled else m.compile([x])
        trainer = gluon.Trainer(m.collect_params(), "sgd")
        return [float(m.train_one_batch(x, nd.array([0, 1]), trainer).asscalar()) for _ in range(3)], values(m)

    (losses, states), (others, other_states) = train(True), train(False)
    assert losses == others and same(states, other_states)


# -- the thread's flow -----------------------------------------------------------------------------------------------


def test_save_and_load_states_with_aux_states(m, x, tmp_path):
    aux = {"epoch": 3, "learning_rate": 0.1, "note": "half way", "momentum": nd.ones((2,)), "list": [1, (2, None)]}
    m.save_states(tmp_path / "my_checkpoint_1", aux_states=aux)
    other = MyModel()
    other.compile([x], use_graph=True)
    loaded = other.load_states(tmp_path / "my_checkpoint_1")
    assert same(values(other), values(m))
    assert {**loaded, "momentum": None} == {**aux, "momentum": None} and loaded["momentum"].asnumpy().tolist() == [1, 1]


def test_a_registered_class_opens_its_files(x, tmp_path):
    m = MyModel(5)
    m.compile([x])
    for path in (m.save_states(tmp_path / "my_checkpoint_1"), str(tmp_path / "my_checkpoint_1")):
        opened = MyModel(path)
        assert type(opened) is MyModel and same(values(opened), values(m))
        opened.compile([x], use_graph=True)
        np.testing.assert_allclose(opened(x).asnumpy(), m(x).asnumpy(), rtol=1e-5)
    assert same(values(MyModel(states_path=tmp_path / "my_checkpoint_1")), values(m))
    found = gluon.load(tmp_path / "my_checkpoint_1")
    assert type(found) is MyModel and found.linear.weight.shape[0] == 5
    np.testing.assert_allclose(found(x).asnumpy(), m(x).asnumpy(), rtol=1e-5)


def test_a_registered_class_opens_mere_states(x, m, tmp_path):
    m.save_parameters(str(tmp_path / "m.params"))
    m.save_parameters(str(tmp_path / "m.safetensors"))
    m.save_states(tmp_path / "m.zip")
    for name in ("m.params", "m.safetensors", "m.zip"):
        assert same(values(MyModel(tmp_path / name)), values(m)), name


def test_the_archive_of_another_class_is_refused(m, tmp_path):
    net = nn.Dense(2, in_units=2)
    net.initialize()
    path = net.save(tmp_path / "dense")
    with pytest.raises(HybridLabError, match="holds a Dense, not a MyModel"):
        MyModel(path)
    with pytest.raises(FileNotFoundError):
        MyModel(str(tmp_path / "nothing.hlab"))


def test_an_archive_of_a_constructor_with_other_arguments(m, tmp_path):
    path = m.save(tmp_path / "m")
    m4 = MyModel(units=4)
    m4.compile([(1, 3, 8, 8)])
    other = m4.save(tmp_path / "m4")
    after = type("MyModel", (MyModel,), {"__init__": lambda self: MyModel.__init__(self)})
    gluon.register(after)
    assert same(values(after(path)), values(m))
    with pytest.raises(HybridLabError, match="MyModel takes no argument units"):
        after(other)


def test_names_of_our_layers_are_taken():
    with pytest.raises(HybridLabError, match="Dense is the name of a layer of this package"):
        gluon.register(type("Dense", (gluon.HybridBlock,), {}))


def test_a_hybrid_class_with_a_text_argument(tmp_path):
    @gluon.register
    class Named(gluon.HybridBlock):
        def __init__(self, activation="relu", units=2):
            super().__init__()
            self.dense = nn.Dense(units, activation=activation, in_units=2)

        def hybrid_forward(self, F, x):
            return self.dense(x)

    net = Named("tanh", units=4)
    net.initialize()
    net(nd.ones((1, 2)))
    opened = Named(net.save(tmp_path / "named"))
    assert opened.dense.act is not None and opened.dense.weight.shape == (4, 2)
    assert np.array_equal(opened(nd.ones((1, 2))).asnumpy(), net(nd.ones((1, 2))).asnumpy())


def test_wrong_values_and_names(m, tmp_path):
    before = values(m)
    for call, argument in (
        (m.set_states, [1, 2]),
        (m.set_params, {"linear.weight": "x"}),
        (m.set_params, {"linear.weight": None}),
        (lambda aux: m.save_states(tmp_path / "m.zip", aux), {3: 3}),
        (lambda aux: m.save_states(tmp_path / "m.zip", aux), [3]),
        (gluon.register, m),
        (gluon.register, dict),
    ):
        with pytest.raises(SettingError):
            call(argument)
    assert same(values(m), before) and not list(tmp_path.iterdir())


def test_differences_from_a_dictionary_name_it_and_propose_only_what_there_is(m, tmp_path):
    with pytest.raises(LoadMismatchError) as caught:
        m.set_states({"linear.bias": nd.ones((9,)), "stranger": nd.ones((1,))})
    text = str(caught.value)
    assert "shape: linear.bias is (3,) in the model, (9,) in the dictionary" in text
    assert "allow_missing=True" in text and "ignore_extra" not in text
    path = m.save_states(tmp_path / "m.zip")
    with pytest.raises(LoadMismatchError, match=r"in the model, \(3,\) in the file") as caught:
        MyModel(units=4).load_states(path)
    assert "=True" not in str(caught.value)


def test_names_of_other_files_go_to_the_constructor(tmp_path):
    (tmp_path / "words.txt").write_text("one two three")

    @gluon.register
    class Vocabulary(gluon.HybridBlock):
        def __init__(self, file):
            super().__init__()
            self.dense = nn.Dense(len(open(file).read().split()), in_units=2)

        def hybrid_forward(self, F, x):
            return self.dense(x)

    for file in (tmp_path / "words.txt", str(tmp_path / "words.txt")):
        net = Vocabulary(file)
        assert net.dense.weight.shape == (3, 2)
    net.initialize()
    opened = Vocabulary(net.save(tmp_path / "archive.of_words"))  # an archive by its contents
    assert same(values(opened), values(net))


def test_a_block_that_was_made_before_its_class_was_registered(tmp_path):
    class Late(gluon.HybridBlock):
        def __init__(self, units=2):
            super().__init__()
            self.dense = nn.Dense(units, in_units=2)

        def hybrid_forward(self, F, x):
            return self.dense(x)

    net = Late(3)
    net.initialize()
    gluon.register(Late)
    path = net.save(tmp_path / "late")
    assert not mx.diff(path, net) and gluon.load(path).dense.weight.shape == (3, 2)


def test_an_archive_of_a_class_that_is_not_registered_here_opens_without_a_warning(m, x, tmp_path, monkeypatch, caplog):
    path = m.save(tmp_path / "m", inputs=x)
    monkeypatch.delitem(nn.registry._classes, "MyModel")
    monkeypatch.setattr(logging.getLogger("hybrid_lab"), "propagate", True)
    caplog.clear()
    opened = gluon.load(path)
    assert repr(opened).startswith("MyModel [code missing](") and same(values(opened), values(m)) and not caplog.records


@pytest.mark.parametrize("known", [True, False])
def test_separable_convolution(known, tmp_path):
    net = nn.SeparableConv2D(6, 3, padding=1, depth_multiplier=2, activation="relu", in_channels=3 if known else 0)
    net.initialize(mx.init.Xavier())
    x = nd.array(np.random.default_rng(1).normal(size=(2, 3, 5, 5)).astype(np.float32))
    expected = net(x).asnumpy()
    depth, point = net.depthwise.weight.data().asnumpy(), net.pointwise.weight.data().asnumpy()
    assert depth.shape == (6, 1, 3, 3) and point.shape == (6, 6, 1, 1)
    torch = pytest.importorskip("torch")
    y = torch.nn.functional.conv2d(torch.tensor(x.asnumpy()), torch.tensor(depth), padding=1, groups=3)
    y = torch.relu(torch.nn.functional.conv2d(y, torch.tensor(point)))
    np.testing.assert_allclose(expected, y.numpy(), rtol=1e-4, atol=1e-5)
    net.hybridize()
    np.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-4, atol=1e-5)
    assert net(nd.ones((1, 3, 7, 7))).shape == (1, 6, 7, 7)
    opened = gluon.load(net.save(tmp_path / "m"))
    np.testing.assert_allclose(opened(x).asnumpy(), expected, rtol=1e-4, atol=1e-5)
    assert list(net.get_params()) == ["depthwise.weight", "pointwise.weight", "pointwise.bias"]


def test_separable_convolution_hybridized_from_the_first_call():
    net = nn.SeparableConv2D(4, 3)
    net.initialize()
    net.hybridize()
    assert [net(nd.ones((batch, 2, 6, 6))).shape for batch in (2, 5, 1)] == [(2, 4, 4, 4), (5, 4, 4, 4), (1, 4, 4, 4)]


# -- SINGA's file ----------------------------------------------------------------------------------------------------


def singa_file(path, states, aux=None, arrays=None, attributes=None, level=zipfile.ZIP_DEFLATED):
    """As SINGA writes it: np.savez and json, zipped."""
    both = {**states, **(aux or {})}
    stream = io.BytesIO()
    np.savez(stream, **(both if arrays is None else arrays))
    made = {
        name: {"state_type": int(name not in states), "shape": list(array.shape), "dtype": 0}
        for name, array in both.items()
    }
    with zipfile.ZipFile(path, "w") as zf:
        zf.writestr("tensor_dict.npz", stream.getvalue(), level)
        zf.writestr("states_attr.json", json.dumps(made if attributes is None else attributes), level)
    return path


def test_singas_file_has_singas_names_and_arrays(m, tmp_path):
    path = m.save_states(tmp_path / "m.zip", {"epoch": 3, "rates": np.ones(2, np.float32)})
    with zipfile.ZipFile(path) as zf:
        assert zf.namelist() == ["tensor_dict.npz", "states_attr.json"]
        arrays = np.load(io.BytesIO(zf.read("tensor_dict.npz")), allow_pickle=False)
        attributes = json.loads(zf.read("states_attr.json"))
    assert np.array_equal(arrays["linear.W"], m.linear.weight.data().asnumpy().T)
    assert np.array_equal(arrays["blk1.conv1.W"], m.blk1.conv1.weight.data().asnumpy())
    assert {"linear.b", "norm.scale", "norm.bias", "norm.running_mean"} < set(arrays.files) == set(attributes)
    assert attributes["linear.W"] == {"state_type": 0, "shape": [64, 3], "dtype": 0}
    assert attributes["epoch"]["state_type"] == attributes["rates"]["state_type"] == 1
    assert path and m.save_states(tmp_path / "again.zip", {"epoch": 3, "rates": np.ones(2, np.float32)})
    assert (tmp_path / "m.zip").read_bytes() == (tmp_path / "again.zip").read_bytes()


def test_singas_file_comes_back(m, x, tmp_path):
    aux = {"epoch": 3, "rate": 0.5, "rates": nd.ones((2,))}
    m.save_states(tmp_path / "m.zip", aux)
    other = MyModel()
    loaded = other.load_states(tmp_path / "m.zip")
    assert same(values(other), values(m))
    assert (loaded["epoch"], loaded["rate"]) == (3, 0.5) and loaded["rates"].asnumpy().tolist() == [1, 1]
    trainer = gluon.Trainer(other.collect_params(), "sgd")
    other.train_one_batch(x, nd.array([0, 1]), trainer)


def test_a_file_that_singa_wrote(tmp_path):
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    path = singa_file(
        tmp_path / "singa", {"linear1.W": weights, "linear1.b": np.ones(3, np.float32)}, {"lr": np.array([0.1])}
    )

    class Net(gluon.Block):
        def __init__(self):
            super().__init__()
            self.linear1 = nn.Dense(3)

    net = Net()
    aux = net.load_states(path)
    assert np.array_equal(net.linear1.weight.data().asnumpy(), weights.T) and aux["lr"].asnumpy() == [0.1]


def test_singas_file_of_another_model_changes_nothing(m, tmp_path):
    before = values(m)
    path = singa_file(tmp_path / "m.zip", {"linear.W": np.zeros((64, 3), np.float32), "x": np.zeros(1, np.float32)})
    with pytest.raises(LoadMismatchError, match="missing: norm.gamma"):
        m.load_states(path)
    assert same(values(m), before)


def test_what_singas_file_cannot_hold(m, tmp_path):
    with pytest.raises(HybridLabError, match=r"aux_states\['note'\] is a str"):
        m.save_states(tmp_path / "m.zip", {"note": "text"})
    with pytest.raises(SettingError, match="takes no trainer"):
        m.save_states(tmp_path / "m.zip", trainer=None)
    with pytest.raises(ArchiveError, match="is a state of the model"):
        m.save_states(tmp_path / "m.zip", {"linear.W": 1})
    assert not list(tmp_path.iterdir())
