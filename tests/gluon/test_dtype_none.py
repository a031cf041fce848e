"""dtype=None is float32, as in MXNet: in every constructor of a layer, in `cast`, and in every file of the model."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.gluon import nn, rnn
from hybrid_lab.gluon.files.registering import load_layers
from hybrid_lab.mxnet.contrib.io import DataLoaderIter

load_layers()
LAYERS = [
    cls
    for cls in nn.registry.classes().values()
    if cls.__module__.startswith("hybrid_lab.") and "dtype" in inspect.signature(cls.__init__).parameters
]
ARGUMENTS = {"Embedding": (5, 3), "SparseEmbedding": (5, 3), "Cast": ()}
INPUTS = {"LSTM": (2, 1, 4), "GRU": (2, 1, 4), "RNN": (2, 1, 4)}


class Own(gluon.HybridBlock):
    """Parameters made in both ways."""

    def __init__(self):
        super().__init__()
        self.weight = self.params.get("weight", shape=(4, 0), dtype=None, allow_deferred_init=True)
        self.bias = gluon.Parameter("bias", shape=(4,), dtype=None)

    def hybrid_forward(self, F, x, weight, bias):
        return F.FullyConnected(x, weight, bias, num_hidden=4)


def made(cls):
    if cls is Own:
        return Own()
    name = cls.__name__
    return cls(*ARGUMENTS.get(name, (4,)), dtype=None) if name != "Cast" else cls(None)


KINDS = [Own, *[cls for cls in LAYERS if cls.__name__ != "Cast"]]


def test_the_layers_that_take_a_dtype():
    assert {"Dense", "Embedding", "LSTM", "GRU", "RNN"} <= {cls.__name__ for cls in LAYERS}


@pytest.fixture(params=KINDS, ids=lambda cls: cls.__name__)
def net(request):
    net = made(request.param)
    net.initialize()
    net.x = nd.ones(INPUTS.get(request.param.__name__, (2, 4)))
    net.hybridize()
    net(net.x)
    return net


def outputs(net, x):
    return net(x).asnumpy()


def test_values_gradients_and_outputs_are_float32(net):
    assert outputs(net, net.x).dtype == np.float32
    for parameter in net.collect_params().values():
        assert np.dtype(parameter.dtype) == parameter.data().dtype == parameter.grad().dtype == np.float32


def test_every_file_gives_it_back(net, tmp_path):
    x, wanted = net.x, outputs(net, net.x)
    del net.x
    for name in ("p.params", "p.safetensors"):
        net.save_parameters(tmp_path / name)
        other = made(type(net))
        other.load_parameters(tmp_path / name)
        assert np.array_equal(outputs(other, x), wanted)
    net.save(tmp_path / "m")
    other = made(type(net))
    other.load(tmp_path / "m")
    assert np.array_equal(outputs(other, x), wanted)
    assert np.array_equal(outputs(gluon.load(tmp_path / "m"), x), wanted)
    if not isinstance(net, (rnn.RNN, rnn.LSTM, rnn.GRU)):
        files = net.export(str(tmp_path / "e"))
        assert np.array_equal(outputs(gluon.SymbolBlock.imports(files[0], ["data"], files[1]), x), wanted)
    other = made(type(net))
    other.initialize()
    other(x)
    other.set_states(net.get_states())
    other.save_states(tmp_path / "s.zip")
    assert np.array_equal(outputs(other, x), wanted)


def test_a_fresh_model_is_saved(tmp_path):
    for cls in KINDS:
        made(cls).save(tmp_path / "fresh")
        for parameter in gluon.load(tmp_path / "fresh").collect_params().values():
            assert np.dtype(parameter.dtype) == np.float32


@pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.__name__)
def test_cast_to_none(cls):
    net = made(cls)
    net.initialize()
    x = nd.ones(INPUTS.get(cls.__name__, (2, 4)))
    net(x)
    net.cast("float16")
    net.cast(None)
    assert {parameter.data().dtype for parameter in net.collect_params().values()} == {np.float32}
    net.hybridize()
    assert outputs(net, x).dtype == np.float32


def test_cast_of_a_tree_and_of_statistics():
    net = nn.Sequential()
    net.add(nn.Dense(3), nn.BatchNorm(), nn.LayerNorm())
    net.cast(None)
    net.initialize()
    net(nd.ones((2, 4)))
    assert {parameter.data().dtype for parameter in net.collect_params().values()} == {np.float32}


def test_a_parameter_can_be_given_its_dtype_later():
    """As in MXNet: a second place that shares a Parameter without a dtype says which it has."""
    parameters = gluon.ParameterDict()
    parameters.get("w", shape=(2,), dtype=None)
    assert parameters.get("w", shape=(2,), dtype="float16").dtype == "float16"
    assert parameters.get("w", dtype=None).dtype == "float16"
    with pytest.raises(ValueError, match="dtype"):
        parameters.get("w", dtype="float64")


def test_parameters_dtype_can_be_assigned():
    parameter = gluon.Parameter("w", shape=(2,), dtype="float16")
    parameter.initialize()
    parameter.dtype = None
    assert np.dtype(parameter.dtype) == parameter.data().dtype == np.float32


def test_other_places(tmp_path):
    (tmp_path / "x.csv").write_text("1,2\n3,4\n")
    rows = mx.io.CSVIter(data_csv=str(tmp_path / "x.csv"), data_shape=(2,), batch_size=1, dtype=None)
    assert rows.next().data[0].dtype == np.float32
    loader = gluon.data.DataLoader(gluon.data.ArrayDataset(np.ones((4, 2)), np.ones(4)), 2)
    assert DataLoaderIter(loader, dtype=None).next().data[0].dtype == np.float32
    assert mx.np.zeros((2,), dtype="float16").astype(None).dtype == np.float32
    for cell in (rnn.LSTMCell(3), rnn.LSTM(3, dtype=None), rnn.GRU(3, dtype=None)):
        assert {state.dtype for state in cell.begin_state(2)} == {np.float32}
