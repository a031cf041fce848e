"""Every Block class of the package is rebuilt by gluon.load from its constructor's arguments, or the reason is here."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.gluon import nn, rnn
from hybrid_lab.gluon.contrib import cnn as contrib_cnn
from hybrid_lab.gluon.contrib import nn as contrib_nn
from hybrid_lab.gluon.contrib import rnn as contrib_rnn
from hybrid_lab.gluon.nn import registry

NOT_REBUILT = {
    "a base class, of which nobody makes a Block": {
        *("Block", "HybridBlock", "Loss", "Stack", "Classifier", "ModifierCell", "RecurrentCell", "CellOfCells"),
        *("HybridRecurrentCell", "GatedCell", "ElmanStep", "LSTMStep", "GRUStep"),
    },
    "it is its graph": {"SymbolBlock"},
    "its graph serves": {
        *("AlexNet", "DenseNet", "Inception3", "RELU6", "LinearBottleneck", "MobileNet", "MobileNetV2", "SqueezeNet"),
        *("BasicBlockV1", "BottleneckV1", "BottleneckV1b", "BasicBlockV2", "BottleneckV2", "ResNetV1", "ResNetV2"),
        "VGG",
    },
    "it stands for a Block whose code is missing": {"ArchivedBlock", "BlockStub", "HybridStub"},
}
"""Reason -> classes. Those of `data.vision.transforms` prepare data; they are no part of a model."""


def classes():
    for module in pkgutil.walk_packages(gluon.__path__, "hybrid_lab.gluon."):
        if not module.name.endswith("transforms"):
            for name, each in vars(importlib.import_module(module.name)).items():
                if inspect.isclass(each) and issubclass(each, gluon.Block) and each.__module__ == module.name:
                    if not name.startswith("_"):
                        yield each


def test_every_class_is_registered_or_has_a_reason():
    without = {each.__name__ for each in classes() if registry.classes().get(each.__name__) is not each}
    reasons = set().union(*NOT_REBUILT.values())
    assert without <= reasons, without - reasons


def lstm():
    return rnn.LSTMCell(4, input_size=3)


def stacked(kind):
    stack = kind()
    stack.add(nn.Dense(2), contrib_nn.Identity())
    return stack


X = nd.arange(24).reshape((2, 3, 4)) / 24
IMAGE = nd.arange(2 * 4 * 4 * 4).reshape((2, 4, 4, 4)) / 128


def unrolled(cell):
    return cell.unroll(4, X.swapaxes(1, 2), merge_outputs=True)[0]


BLOCKS = {
    "ZoneoutCell": (lambda: rnn.ZoneoutCell(lstm(), 0.25, zoneout_states=0.5), unrolled),
    "ResidualCell": (lambda: rnn.ResidualCell(rnn.GRUCell(3)), unrolled),
    "VariationalDropoutCell": (lambda: contrib_rnn.VariationalDropoutCell(lstm(), drop_outputs=0.5), unrolled),
    "BidirectionalCell": (lambda: rnn.BidirectionalCell(lstm(), rnn.GRUCell(2)), unrolled),
    "a modified cell in a modified cell": (lambda: rnn.ZoneoutCell(rnn.ResidualCell(rnn.RNNCell(3)), 0.5), unrolled),
    "Concurrent": (lambda: stacked(contrib_nn.Concurrent), lambda net: net(nd.ones((2, 3)))),
    "HybridConcurrent": (lambda: stacked(contrib_nn.HybridConcurrent), lambda net: net(nd.ones((2, 3)))),
    "SparseEmbedding": (lambda: contrib_nn.SparseEmbedding(5, 2), lambda net: net(nd.array([1, 4]))),
    "SyncBatchNorm": (lambda: contrib_nn.SyncBatchNorm(4, 2), lambda net: net(IMAGE)),
    "PixelShuffle1D": (lambda: contrib_nn.PixelShuffle1D(3), lambda net: net(X)),
    "PixelShuffle2D": (lambda: contrib_nn.PixelShuffle2D((2, 2)), lambda net: net(IMAGE)),
    "DeformableConvolution": (
        lambda: contrib_cnn.DeformableConvolution(2, (3, 3), in_channels=4), lambda net: net(IMAGE)
    ),
    "ModulatedDeformableConvolution": (
        lambda: contrib_cnn.ModulatedDeformableConvolution(2, (3, 3), activation="relu"), lambda net: net(IMAGE)
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "call"), BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("hybridized", [False, True])
def test_a_block_is_rebuilt(make, call, hybridized, tmp_path, caplog):
    net = make()
    net.initialize(mx.init.Uniform(1))
    if hybridized:
        net.hybridize()
    wanted = call(net).asnumpy()
    mx.save_cached_graphs(net, str(tmp_path / "net.hlab"))
    caplog.clear()
    again = gluon.load(str(tmp_path / "net.hlab"))
    assert type(again) is type(net) and repr(again) == repr(net)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    assert list(again.collect_params()) == list(net.collect_params())
    np.testing.assert_array_equal(call(again).asnumpy(), wanted)
    again.save_parameters(str(tmp_path / "net.params"))
    make().load_parameters(str(tmp_path / "net.params"))


def test_a_fresh_process_rebuilds_layers_whose_modules_are_not_loaded(tmp_path):
    net = rnn.SequentialRNNCell()
    net.add(contrib_rnn.VariationalDropoutCell(lstm(), 0.5), rnn.ZoneoutCell(rnn.LSTMCell(4, input_size=4), 0.5))
    net.initialize()
    wanted = unrolled(net).asnumpy()
    mx.save_cached_graphs(net, str(tmp_path / "net.hlab"))
    np.save(tmp_path / "x.npy", X.asnumpy())
    code = (
        "import sys, numpy as np, hybrid_lab as mx; net = mx.gluon.load(sys.argv[1])\n"
        "x = mx.nd.array(np.load(sys.argv[2])).swapaxes(1, 2)\n"
        "np.save(sys.argv[3], net.unroll(4, x, merge_outputs=True)[0].asnumpy())"
    )
    paths = [str(tmp_path / name) for name in ("net.hlab", "x.npy", "y.npy")]
    subprocess.run([sys.executable, "-c", code, *paths], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), wanted)


def test_a_cell_of_the_user_in_a_modified_cell_is_run_by_its_graph(tmp_path):
    class Mine(rnn.HybridRecurrentCell):
        def state_info(self, batch_size=0):
            return [{"shape": (batch_size, 3), "__layout__": "NC"}]

        def hybrid_forward(self, F, inputs, states):
            output = F.tanh(inputs + states[0])
            return output, [output]

    net, x, state = rnn.ResidualCell(Mine()), nd.ones((2, 3)), nd.ones((2, 3))
    net.hybridize()
    wanted = net(x, [state])[0].asnumpy()
    mx.save_cached_graphs(net, str(tmp_path / "net.hlab"))
    again = gluon.load(str(tmp_path / "net.hlab"))
    assert type(again).__name__ == "ArchivedBlock"
    np.testing.assert_array_equal(again(x, [state])[0].asnumpy(), wanted)
