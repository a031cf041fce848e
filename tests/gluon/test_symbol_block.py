"""SymbolBlock: graphs as blocks, and MXNet's exported files."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd, sym
from hybrid_lab.diagnostics import HybridLabError, LoadMismatchError
from hybrid_lab.gluon import nn


@pytest.fixture
def net():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(
            nn.Dense(4, activation="relu", prefix="hidden_"), nn.BatchNorm(prefix="bn_"), nn.Dense(2, prefix="out_")
        )
    net.initialize(mx.init.Normal(1.0))
    return net


X = nd.array(np.random.RandomState(0).normal(size=(3, 5)))


def test_a_part_of_a_net_with_shared_parameters(net):
    net(X)
    inner = net(sym.var("data")).get_internals()
    block = gluon.SymbolBlock(
        [inner["net_hidden_relu_fwd_output"], inner["net_out_fwd_output"]], sym.var("data"), net.collect_params()
    )
    hidden, out = block(X)
    assert np.array_equal(hidden.asnumpy(), net[0](X).asnumpy())
    assert np.array_equal(out.asnumpy(), net(X).asnumpy())
    assert block.params["net_out_weight"] is net[2].weight


def test_it_trains_and_hybridizes(net):
    net(X)
    block = gluon.SymbolBlock(net(sym.var("data")), sym.var("data"), net.collect_params())
    results = []
    for hybrid in (False, True):
        if hybrid:
            block.hybridize(engine="numpy")
        with autograd.record(train_mode=False):
            y = block(X)
        y.backward()
        results.append((y.asnumpy(), net[0].weight.grad().asnumpy()))
    np.testing.assert_allclose(results[1][0], results[0][0], rtol=1e-5)
    np.testing.assert_allclose(results[1][1], results[0][1], rtol=1e-4, atol=1e-6)


def test_fresh_parameters_take_their_shapes_from_the_first_batch(net):
    net(X)
    block = gluon.SymbolBlock(net(sym.var("data")), sym.var("data"))
    block.initialize(mx.init.One())
    assert block(X).shape == (3, 2)
    assert block.params["net_bn_running_var"].grad_req == "null"


def test_an_initializer_as_an_attribute_of_an_operator_is_left_to_initialize():
    """As in MXNet, where the object becomes a text that names no initializer; GluonCV's detectors are written so."""
    x = sym.var("data")
    y = sym.FullyConnected(x, num_hidden=2, no_bias=True, attr={"__init__": mx.init.Xavier()})
    block = gluon.SymbolBlock(y, x)
    block.initialize(mx.init.One())
    assert block(X).asnumpy()[0, 0] == pytest.approx(X.asnumpy()[0].sum(), rel=1e-5)
    z = sym.FullyConnected(x, sym.var("w", init=mx.init.Constant(2.0)), num_hidden=2, no_bias=True)
    block = gluon.SymbolBlock(z, x)
    block.initialize(mx.init.One())
    assert block(X).asnumpy()[0, 0] == pytest.approx(2 * X.asnumpy()[0].sum(), rel=1e-5)


def test_two_inputs_and_a_block_around_it():
    a, b = sym.var("a"), sym.var("b")
    block = gluon.SymbolBlock(sym.broadcast_add(a * 2, b), [a, b])
    assert block(nd.ones((2,)), nd.ones((2,))).asnumpy().tolist() == [3, 3]

    class Around(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.inner = block

        def hybrid_forward(self, F, x):
            return self.inner(x, x) + 1

    around = Around()
    assert around(nd.ones((2,))).asnumpy().tolist() == [4, 4]
    around.hybridize(engine="numpy")
    assert around(nd.ones((2,))).asnumpy().tolist() == [4, 4]


def test_exported_files_come_back(net, tmp_path):
    net.hybridize(engine="numpy")
    y = net(X).asnumpy()
    symbol_file, params_file = net.export(str(tmp_path / "net"), epoch=3)
    assert params_file.endswith("net-0003.params")
    block = gluon.SymbolBlock.imports(symbol_file, ["data"], params_file)
    np.testing.assert_allclose(block(X).asnumpy(), y, rtol=1e-6)
    bare = gluon.SymbolBlock.imports(symbol_file, "data")
    bare.initialize()
    assert bare(X).shape == (3, 2)
    assert repr(bare) == "SymbolBlock(\n  data -> net_out_fwd\n)"


def test_what_is_missing_is_named(net, tmp_path):
    net.hybridize(engine="numpy")
    net(X)
    symbol_file, params_file = net.export(str(tmp_path / "net"))
    with pytest.raises(HybridLabError, match="has no input 'image'; its inputs are data$"):
        gluon.SymbolBlock.imports(symbol_file, "image", params_file)
    with pytest.raises(HybridLabError, match="has no input 'image'; its inputs are data$"):
        gluon.SymbolBlock.imports(symbol_file, "image")
    nd.save(params_file, {"arg:net_hidden_weight": net[0].weight.data()})
    with pytest.raises(LoadMismatchError, match="missing: net_hidden_bias"):
        gluon.SymbolBlock.imports(symbol_file, "data", params_file)
    with pytest.raises(HybridLabError, match="an input of a SymbolBlock must be a variable"):
        gluon.SymbolBlock(net(sym.var("data")), sym.var("data") + 1)
