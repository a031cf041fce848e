"""Every layer, cell and loss of `gluon` comes back from every kind of file, with arrays of `nd` and of `mx.np`."""

from __future__ import annotations

import numpy
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd, np
from hybrid_lab.gluon import loss, nn, rnn
from hybrid_lab.gluon.contrib import nn as contrib_nn
from hybrid_lab.gluon.contrib import rnn as contrib_rnn
from tests.formats.doors import check
from tests.formats.test_library_blocks import BLOCKS, NOT_REBUILT, classes
from tests.gluon.nn.test_layers import LAYERS

pytestmark = pytest.mark.usefixtures("quick_disk")


def values(shape, integers=False):
    made = numpy.random.RandomState(len(shape)).uniform(-1, 1, shape).astype("float32")
    return numpy.abs(2 * made).astype("int32") if integers else made


def stack(kind, *members):
    made = kind()
    made.add(*members)
    return made


def lstm(size=3):
    return rnn.LSTMCell(4, input_size=size)


def recurrent(cell, count, shape=(2, 4)):
    """A cell, its input and `count` states."""
    return cell, [values((2, 3)), [values(shape) for _ in range(count)]]


def convolutional(kind, axes, count):
    def make():
        return kind((2, *(5,) * axes), 3, 3, 3, i2h_pad=1)

    return make, [values((2, 2, *(5,) * axes)), [values((2, 3, *(5,) * axes)) for _ in range(count)]]


IMAGE, ROW, PREDICTION, LABEL = (2, 4, 4, 4), (2, 4, 9), values((3, 4)), values((3, 4)).round()

MEMBERS = {
    **{name: (make, [values(shape, name == "Embedding")]) for name, (make, shape) in LAYERS.items()},
    **{
        name: (BLOCKS[name][0], [values(shape, name == "SparseEmbedding")])
        for name, shape in {
            "Concurrent": (2, 3), "HybridConcurrent": (2, 3), "SparseEmbedding": (4,), "SyncBatchNorm": IMAGE,
            "PixelShuffle1D": (2, 3, 4), "PixelShuffle2D": IMAGE, "DeformableConvolution": IMAGE,
            "ModulatedDeformableConvolution": IMAGE,
        }.items()
    },
    "PixelShuffle3D": (lambda: contrib_nn.PixelShuffle3D((1, 2, 2)), [values((1, 4, 2, 2, 2))]),
    "Identity": (contrib_nn.Identity, [values((2, 3))]),
    "Lambda": (lambda: nn.Lambda("tanh"), [values((2, 3))]),
    "Sequential": (lambda: stack(nn.Sequential, nn.Dense(3), nn.Dropout(0.5)), [values((2, 3))]),
    "HybridSequential": (lambda: stack(nn.HybridSequential, nn.Dense(3), nn.BatchNorm()), [values((2, 3))]),
    "DepthwiseConv2D": (lambda: nn.DepthwiseConv2D(3, in_channels=4), [values(IMAGE)]),
    "SeparableConv2D": (lambda: nn.SeparableConv2D(3, 3, padding=1), [values(IMAGE)]),
    "RNN": (lambda: rnn.RNN(4, 2, bidirectional=True), [values((3, 2, 5))]),
    "LSTM": (lambda: rnn.LSTM(4, layout="NTC", dropout=0.5), [values((2, 3, 5))]),
    "LSTM with states": (lambda: rnn.LSTM(4), [values((3, 2, 5)), [values((1, 2, 4)), values((1, 2, 4))]]),
    "GRU": (lambda: rnn.GRU(4), [values((3, 2, 5))]),
    "RNNCell": recurrent(lambda: rnn.RNNCell(4), 1),
    "LSTMCell": recurrent(lstm, 2),
    "GRUCell": recurrent(lambda: rnn.GRUCell(4), 1),
    "DropoutCell": recurrent(lambda: rnn.DropoutCell(0.5), 0),
    "ZoneoutCell": recurrent(lambda: rnn.ZoneoutCell(lstm(), 0.25, 0.5), 2),
    "ResidualCell": recurrent(lambda: rnn.ResidualCell(rnn.GRUCell(3)), 1, (2, 3)),
    "SequentialRNNCell": recurrent(lambda: stack(rnn.SequentialRNNCell, lstm(), lstm(4)), 4),
    "HybridSequentialRNNCell": recurrent(lambda: stack(rnn.HybridSequentialRNNCell, lstm(), rnn.DropoutCell(0.5)), 2),
    "VariationalDropoutCell": recurrent(lambda: contrib_rnn.VariationalDropoutCell(lstm(), 0.5, 0.5, 0.5), 2),
    "LSTMPCell": (
        lambda: contrib_rnn.LSTMPCell(4, 2), [values((2, 3)), [values((2, 2)), values((2, 4))]],
    ),
    **{
        f"Conv{axes}D{kind}Cell": convolutional(getattr(contrib_rnn, f"Conv{axes}D{kind}Cell"), axes, count)
        for axes in (1, 2, 3)
        for kind, count in (("RNN", 1), ("LSTM", 2), ("GRU", 1))
    },
    **{
        name: (getattr(loss, name), [PREDICTION, LABEL])
        for name in (
            "L1Loss", "L2Loss", "SigmoidBCELoss", "SigmoidBinaryCrossEntropyLoss", "KLDivLoss", "HuberLoss",
            "HingeLoss", "SquaredHingeLoss", "LogisticLoss", "PoissonNLLLoss",
        )
    },
    "L2Loss with weights": (loss.L2Loss, [PREDICTION, LABEL, values((3, 1))]),
    "SoftmaxCrossEntropyLoss": (loss.SoftmaxCrossEntropyLoss, [PREDICTION, values((3,), True).astype("float32")]),
    "SoftmaxCELoss": (lambda: loss.SoftmaxCELoss(sparse_label=False), [PREDICTION, LABEL]),
    "CTCLoss": (loss.CTCLoss, [values((2, 9, 5)), numpy.float32([[1, 2, 0], [3, 1, 1]])]),
    "TripletLoss": (loss.TripletLoss, [PREDICTION, LABEL, values((3, 4)) / 2]),
    "CosineEmbeddingLoss": (loss.CosineEmbeddingLoss, [PREDICTION, LABEL, numpy.float32([1, -1, 1])]),
    "SDMLLoss": (loss.SDMLLoss, [PREDICTION, LABEL]),
}  # fmt: skip
"""Name -> the function that makes the layer, and its arguments as NumPy arrays."""

UNROLLED = {"BidirectionalCell": "it is unrolled, never called"}


def test_every_class_is_a_member():
    named = {type(make()).__name__ for make, _ in MEMBERS.values()}
    reasons = set().union(*NOT_REBUILT.values(), UNROLLED)
    assert {each.__name__ for each in classes()} - reasons <= named


def arrays(item, front):
    return [arrays(each, front) for each in item] if isinstance(item, list) else front.array(item, dtype=item.dtype)


@pytest.mark.each_value
@pytest.mark.parametrize("hybridized", [True, False])
@pytest.mark.parametrize("name", MEMBERS)
def test_layer(name, hybridized, tmp_path):
    make, given = MEMBERS[name]
    check(lambda: [make()], [arrays(given, nd)], tmp_path, hybridized)


@pytest.mark.parametrize("name", MEMBERS)
def test_layer_on_arrays_of_numpy(name, tmp_path, np_mode):
    make, given = MEMBERS[name]
    check(lambda: [make()], [arrays(given, np)], tmp_path)


class Scaled(gluon.HybridBlock):
    """Parameters, constants and arrays of the shape ()."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.scale = self.params.get("scale", shape=())
            self.shift = self.params.get_constant("shift", np.array(2.5))
            self.dense = nn.Dense(3, in_units=2)

    def hybrid_forward(self, F, x, scale, shift):
        return self.dense(x) * scale + shift + F.np.array(1.5)


@pytest.mark.parametrize("hybridized", [True, False])
def test_parameters_and_constants_without_axes(hybridized, tmp_path, np_mode):
    x = np.ones((2, 2))
    check(lambda: [Scaled()], [[x]], tmp_path, hybridized)
    net = Scaled()
    net.initialize(mx.init.Uniform(1))
    net.hybridize()
    wanted = net(x).asnumpy()
    symbol_file, params_file = net.export(str(tmp_path / "scaled"))
    net.save_parameters(tmp_path / "by_path.params")
    net.collect_params().save(tmp_path / "by_name.params")
    fresh = Scaled()
    fresh.load_parameters(tmp_path / "by_path.params")
    assert numpy.array_equal(fresh(x).asnumpy(), wanted)
    net.collect_params().load(tmp_path / "by_name.params")
    assert numpy.array_equal(net(x).asnumpy(), wanted)
    again = gluon.SymbolBlock.imports(symbol_file, ["data"], params_file)
    assert numpy.array_equal(again(x).asnumpy(), wanted)
