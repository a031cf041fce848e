"""Layers whose results nobody uses get shapes and statistics as in eager calls; files of MXNet do not hold them."""

import json

import numpy as np
import pytest

from hybrid_lab import autograd, contrib, gluon, nd, onnx, sym
from hybrid_lab import random as mx_random
from hybrid_lab.gluon import nn, rnn
from tests.hybridize.test_own_forward import CLASSES, arrays, assert_same, each_class, leaves_of, make, numbers


class Beside(gluon.HybridBlock):
    """A layer that is computed and not returned, beside one that is."""

    def __init__(self, layer):
        super().__init__()
        self.unused = layer
        self.head = nn.Dense(2)

    def hybrid_forward(self, F, x, *args):
        self.unused(x, *args)
        return self.head(x)


class Around(gluon.HybridBlock):
    """The same one level deeper, where the graph of the inner Block is a part of the outer one's."""

    def __init__(self, layer):
        super().__init__()
        self.inner = Beside(layer)

    def hybrid_forward(self, F, *args):
        return self.inner(*args) * 2


class Returned(gluon.HybridBlock):
    """The caller drops a result of a Block that returns two."""

    def __init__(self, layer):
        super().__init__()
        self.pair = Pair(layer)

    def hybrid_forward(self, F, *args):
        return self.pair(*args)[0]


class Pair(Beside):
    def hybrid_forward(self, F, x, *args):
        return self.head(x), self.unused(x, *args)


def state_of(net):
    return {name: each.data().asnumpy() for name, each in net._collect_params_with_prefix().items()}


def trained(net, args, hybrid):
    """The results of three calls, two of them recorded, and what the parameters are then."""
    mx_random.seed(7)
    net.initialize()
    net.hybridize(hybrid)
    results = numbers(net(*arrays(args)))
    for _ in range(2):
        with autograd.record():
            results += numbers(net(*arrays(args)))
    return results, state_of(net)


def assert_no_unused_parameters(symbol, names):
    assert {name.split(":")[1] for name in names} <= {*symbol.list_inputs()}
    states = {*symbol.list_auxiliary_states()}
    assert {name.split(":")[1] for name in names if name.startswith("aux:")} == states


@pytest.mark.each_value
@pytest.mark.parametrize("outer", [Beside, Around, Returned], ids=lambda outer: outer.__name__)
@each_class
def test_an_unused_layer_is_completed_and_updated_as_in_eager_calls(kind, outer, tmp_path):
    if kind is gluon.contrib.rnn.VariationalDropoutCell:
        pytest.skip("it keeps its masks from call to call, so that its Blocks run eagerly")
    args = make(kind, lambda base: base)[1]
    expected, states = trained(outer(make(kind, lambda base: base)[0]), args, False)
    net = outer(make(kind, lambda base: base)[0])
    results, hybrid_states = trained(net, args, True)
    assert_same(results, expected)
    assert hybrid_states.keys() == states.keys()
    for name, state in states.items():
        np.testing.assert_allclose(hybrid_states[name], state, rtol=1e-4, atol=1e-5, err_msg=name)
    net.save(tmp_path / "net.hlab")
    loaded = gluon.load(tmp_path / "net.hlab")
    assert state_of(loaded).keys() == states.keys()
    for name, state in state_of(loaded).items():
        np.testing.assert_array_equal(state, hybrid_states[name])
    for each in net, loaded:
        mx_random.seed(11)
        with autograd.record():
            each(*arrays(args))
    again = state_of(net)
    for name, state in state_of(loaded).items():
        np.testing.assert_allclose(state, again[name], rtol=1e-4, atol=1e-5, err_msg=name)
    if outer is Beside:
        symbol, parameters = net.export(None)
        assert_no_unused_parameters(symbol, parameters)
        assert len(parameters) == 2


def _net():
    net = Around(nn.HybridSequential())
    net.inner.unused.add(nn.Dense(3), nn.BatchNorm(), nn.Dropout(0.5), nn.PReLU())
    net.initialize()
    net.hybridize()
    x = nd.array(np.random.RandomState(1).rand(4, 5))
    net(x)
    return net, x


def _pair(path):
    return sym.load(f"{path}-symbol.json"), nd.load(f"{path}-0000.params")


def _by_export(net, x, folder):
    net.export(str(folder / "net"))
    return [folder / "net"]


def _by_folder(net, x, folder):
    net.save(folder / "all", format="mxnet")
    return [each.parent / each.name.removesuffix("-symbol.json") for each in (folder / "all").glob("*-symbol.json")]


def _by_loaded_archive(net, x, folder):
    net.save(folder / "net.hlab")
    loaded = gluon.load(folder / "net.hlab")
    loaded.hybridize()
    loaded(x)
    loaded.export(str(folder / "loaded"))
    return [folder / "loaded"]


def _by_amp(net, x, folder):
    converted = contrib.amp.convert_hybrid_block(net, "float16")
    converted(x)
    converted.export(str(folder / "half"), remove_amp_cast=False)
    return [folder / "half"]


def _by_checkpoint_of_a_module(net, x, folder):
    from hybrid_lab import module

    symbol, parameters = net.export(None)
    bound = module.Module(symbol, data_names=["data"], label_names=None)
    bound.bind(data_shapes=[("data", x.shape)], for_training=False)
    bound.set_params(
        {name[4:]: each for name, each in parameters.items() if name.startswith("arg:")},
        {name[4:]: each for name, each in parameters.items() if name.startswith("aux:")},
    )
    bound.save_checkpoint(str(folder / "module"), 0)
    return [folder / "module"]


def _by_convert(net, x, folder):
    from hybrid_lab.cli import main

    net.save(folder / "net.hlab")
    assert main(["convert", str(folder / "net.hlab"), str(folder / "converted-symbol.json")]) == 0
    return [folder / "converted"]


DOORS = [_by_convert, _by_export, _by_folder, _by_loaded_archive, _by_amp, _by_checkpoint_of_a_module]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_files_of_mxnet_hold_the_parameters_of_their_graph(door, tmp_path):
    net, x = _net()
    expected = net(x).asnumpy()
    for path in door(net, x, tmp_path):
        symbol, parameters = _pair(path)
        assert_no_unused_parameters(symbol, parameters)
        block = gluon.SymbolBlock.imports(f"{path}-symbol.json", ["data"], f"{path}-0000.params")
        result = block(x).asnumpy() if path.name != "inner" and "." not in path.name else expected
        np.testing.assert_allclose(result, expected, rtol=2e-2 if path.name == "half" else 1e-5, atol=1e-3)


def test_onnx_files_hold_the_parameters_of_their_graph(tmp_path):
    onnx_library = pytest.importorskip("onnx")
    net, x = _net()
    onnx.export(net, tmp_path / "net.onnx", inputs=x)
    model = onnx_library.load(tmp_path / "net.onnx")
    assert {item.name for item in model.graph.initializer} == {"inner.head.weight", "inner.head.bias"} or all(
        "unused" not in item.name and "batchnorm" not in item.name for item in model.graph.initializer
    )
    np.testing.assert_allclose(onnx.imports(tmp_path / "net.onnx")(x).asnumpy(), net(x).asnumpy(), rtol=1e-5, atol=1e-6)


def test_an_archive_says_which_results_only_update_states(tmp_path):
    from hybrid_lab.formats.archive.container import Container

    net, _ = _net()
    net.save(tmp_path / "net.hlab")
    container = Container.open(tmp_path / "net.hlab")
    attrs = container.read_json("graphs/__root__.json")["attrs"]
    assert json.loads(attrs["hybrid_lab"][1])["updates"] == 1


def test_a_shape_that_follows_from_an_unused_layer_alone_is_found():
    """As in apache/mxnet issue 14373."""

    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.body, self.head, self.aux = nn.Dense(4), nn.Dense(2), nn.Dense(3)

        def hybrid_forward(self, F, x):
            h = self.body(x)
            aux = self.aux(h)
            return (self.head(h), aux) if autograd.is_training() else self.head(h)

    net = Net()
    net.initialize()
    net.hybridize()
    assert net(nd.ones((2, 5))).shape == (2, 2)
    assert net.aux.weight.shape == (3, 4)
    with autograd.record():
        assert [each.shape for each in net(nd.ones((2, 5)))] == [(2, 2), (2, 3)]


def test_the_update_of_an_unused_batch_norm_is_one_of_several():
    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm()

        def hybrid_forward(self, F, x):
            self.norm(x * 2)
            y = self.norm(x)
            self.norm(y + 1)
            return y

    args = [np.random.RandomState(2).rand(4, 3).astype("float32")]
    expected, states = trained(Net(), args, False)
    results, hybrid_states = trained(Net(), args, True)
    assert_same(results, expected)
    for (name, state), other in zip(states.items(), hybrid_states.values(), strict=True):
        np.testing.assert_allclose(other, state, rtol=1e-5, atol=1e-6, err_msg=name)


def test_results_inside_the_body_of_a_loop_belong_to_the_loop():
    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.unused, self.head = nn.Dense(3, flatten=False), nn.Dense(2)

        def hybrid_forward(self, F, x):
            def step(data, state):
                doubled = data * 2  # in no result
                del doubled
                return data + state, state + 1

            first = F.slice_axis(x, axis=0, begin=0, end=1)
            y, _ = F.contrib.foreach(step, x, F.zeros_like(F.Reshape(first, shape=(-1,))))
            self.unused(y)
            return self.head(y)

    net = Net()
    net.initialize()
    net.hybridize()
    assert net(nd.ones((4, 5))).shape == (4, 2)
    assert net.unused.weight.shape == (3, 5)
    assert len(leaves_of(net(nd.ones((4, 5))))) == 1


def test_rnn_states_that_nobody_uses():
    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.cell, self.head = rnn.LSTMCell(3), nn.Dense(2)

        def hybrid_forward(self, F, x, states):
            _, states = self.cell(x, states)
            return self.head(states[0])

    assert rnn.LSTMCell in CLASSES
    args = CLASSES[rnn.LSTMCell][1]
    expected, _ = trained(Net(), args, False)
    results, _ = trained(Net(), args, True)
    assert_same(results, expected)
