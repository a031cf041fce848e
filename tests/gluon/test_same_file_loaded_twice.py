"""One file opened twice in one model, such as teacher and student: parameters that a file has named do not clash."""

import copy

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.gluon import nn


class Both(gluon.HybridBlock):
    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def hybrid_forward(self, F, x):
        return self.first(x) + 2 * self.second(x)


@pytest.fixture
def x():
    return nd.array(np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32))


def written(kind, x, folder):
    """Writes a file; returns a function that opens it."""
    mx.random.seed(1)
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(4, activation="relu"), nn.BatchNorm(), nn.Dense(2))
    net.initialize(mx.init.Xavier())
    net.hybridize(engine="numpy")
    net(x)
    if kind == "archive":
        path = net.save(folder / "m")
        return lambda: gluon.load(path)
    if kind == "onnx":
        mx.onnx.export(net, folder / "m.onnx")
        return lambda: mx.onnx.imports(folder / "m.onnx")
    net.export(str(folder / "m"))
    return lambda: gluon.SymbolBlock.imports(str(folder / "m-symbol.json"), "data", str(folder / "m-0000.params"))


@pytest.mark.parametrize("kind", ["archive", "onnx", "mxnet"])
def test_twice_in_one_model(kind, x, tmp_path):
    opened = written(kind, x, tmp_path)
    net = Both(opened(), opened())
    for array in net.second.get_params().values():
        array *= 0.5
    assert len(net.collect_params()) == 2 * len(net.first.collect_params()) == len(net.get_states())
    eager = net(x).asnumpy()
    net.hybridize(engine="numpy")
    np.testing.assert_allclose(net(x).asnumpy(), eager, rtol=1e-5)

    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    before = {path: array.asnumpy() for path, array in net.get_params().items()}
    with autograd.record():
        loss = (net(x) ** 2).sum()
    loss.backward()
    trainer.step(2)
    moved = [not np.array_equal(array.asnumpy(), before[path]) for path, array in net.get_params().items()]
    assert sum(moved) >= 8, "both copies train"

    expected = net(x).asnumpy()
    archive = net.save(tmp_path / "both", trainer=trainer)
    np.testing.assert_allclose(gluon.load(archive)(x).asnumpy(), expected, rtol=1e-5)
    other = Both(opened(), opened())
    assert other.load(archive, trainer=gluon.Trainer(other.collect_params(), "sgd", {"momentum": 0.9})).restored
    np.testing.assert_allclose(other(x).asnumpy(), expected, rtol=1e-5)
    mx.onnx.export(net, tmp_path / "both.onnx")
    np.testing.assert_allclose(mx.onnx.imports(tmp_path / "both.onnx")(x).asnumpy(), expected, rtol=1e-4)
    symbol, arrays = net.export(str(tmp_path / "both"))
    again = gluon.SymbolBlock.imports(symbol, "data", arrays)
    np.testing.assert_allclose(again(x).asnumpy(), expected, rtol=1e-5)


def test_a_layer_of_ones_own_beside_one_from_a_file_of_that_name(tmp_path):
    saved = nn.Dense(2, in_units=2, prefix="dense7_")
    saved.initialize()
    path = saved.save(tmp_path / "m")
    for order in (0, 1):
        pair = [gluon.load(path), nn.Dense(2, in_units=2, prefix="dense7_")]
        net = nn.HybridSequential()
        net.add(*(reversed(pair) if order else pair))
        assert sorted(net.collect_params()) == ["dense7_bias", "dense7_bias_1", "dense7_weight", "dense7_weight_1"]


def test_names_of_numbers_that_exist_already():
    parameters = {name: gluon.Parameter(name, shape=(1,)) for name in ("w", "w_1")}
    others = {name: gluon.Parameter(name, shape=(1,)) for name in ("w", "w_1", "w_2")}
    for parameter in others.values():
        parameter.from_file = True
    collected = gluon.ParameterDict()
    for _ in range(2):  # a second time nothing is added
        collected.update(parameters)
        collected.update(others)
        assert set(map(id, collected.values())) == set(map(id, [*parameters.values(), *others.values()]))
        assert len(collected) == 5
    with pytest.raises(ValueError, match="two different parameters are named 'w'"):
        collected.update({"w": gluon.Parameter("w", shape=(1,))})


def test_a_copy_of_an_imported_graph_has_parameters_of_its_own(x, tmp_path):
    net = written("onnx", x, tmp_path)()
    before = net(x).asnumpy()
    twin = copy.deepcopy(net)
    for array in twin.get_params().values():
        array *= 0
    assert np.array_equal(net(x).asnumpy(), before) and not twin(x).asnumpy().any()


@pytest.mark.parametrize("kind", ["archive", "onnx", "mxnet"])
def test_summary_counts_the_parameters_of_a_graph_from_a_file(kind, x, tmp_path, capsys):
    written(kind, x, tmp_path)().summary(x)
    assert "Total params: 42\n" in capsys.readouterr().out
