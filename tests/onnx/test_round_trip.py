"""Networks that are exported, imported and exported again: the same file, and equal in ONNX Runtime for several sizes.

`make test` takes small networks of the zoo; HYBRID_LAB_ONNX=all (`make test-onnx`) one of each family.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.gluon import nn, rnn
from hybrid_lab.gluon.model_zoo import vision
from hybrid_lab.onnx.reading.block import ImportedGraph
from hybrid_lab.onnx.reading.compose import compose

from .networks import Detector, Encoder, Mixed, SeveralOutputs, Unrolled, WithStates, assert_equal, call, floats

FAMILIES = ["mobilenet0.25", "squeezenet1.1", "resnet18_v2"]
if os.environ.get("HYBRID_LAB_ONNX") == "all":
    FAMILIES += [
        "squeezenet1.0", "resnet18_v1", "resnet50_v2", "vgg11", "vgg11_bn", "alexnet", "densenet121", "inceptionv3",
        "mobilenetv2_0.25",
    ]  # fmt: skip


def there_and_back(net, folder, calls, **settings):
    """Export, import, export; returns what was imported. The second file is the first one, byte by byte."""
    net.initialize(mx.init.Xavier())
    net.hybridize()
    call(net, calls[0])
    first = mx.onnx.export(net, folder / "first.onnx", **settings)
    again = mx.onnx.imports(first.path)
    again.hybridize()
    by_nodes = ImportedGraph(compose(first.path, by_nodes=True))  # as of a file that the metadata say nothing of
    for arrays, block in itertools.product(calls, (again, by_nodes)):
        for one, two in zip(call(net, arrays), call(block, arrays), strict=True):
            np.testing.assert_allclose(two, one, rtol=1e-4, atol=1e-4 * max(np.abs(one).max(initial=0), 1e-6))
    second = mx.onnx.export(again, folder / "second.onnx", **settings)
    assert Path(first.path).read_bytes() == Path(second.path).read_bytes()
    for arrays in calls:
        assert_equal(second.path, net, arrays)
    return again


@pytest.mark.parametrize("name", FAMILIES)
def test_model_zoo(name, tmp_path):
    wide = name.startswith(("densenet", "alexnet", "vgg", "squeezenet"))
    size = 299 if name == "inceptionv3" else 224 if wide else 64
    there_and_back(
        vision.get_model(name, classes=10), tmp_path, [[floats(2, 3, size, size)], [floats(3, 3, size, size)]]
    )


def test_blocks_that_do_nothing_in_prediction_stay(tmp_path):
    again = there_and_back(Mixed(), tmp_path, [[floats(2, 4)], [floats(3, 4)]])
    assert "Dropout" in repr(again)


def test_the_structure_of_results_comes_back(tmp_path):
    calls = [[floats(2, 3), floats(2, 5)], [floats(4, 3), floats(4, 5)]]
    again = there_and_back(SeveralOutputs(), tmp_path, calls)
    result = again(*map(nd.array, calls[0]))
    assert list(result) == ["p", "pair", "again"] and result["pair"][1][1] is None


def test_frozen_parameters_stay_frozen_and_can_be_trained(tmp_path):
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=4), nn.BatchNorm(in_channels=3, scale=False, center=False))
    net[0].bias.grad_req = "null"
    again = there_and_back(net, tmp_path, [[floats(2, 4)], [floats(3, 4)]])
    found = {parameter.name: parameter for parameter in again.collect_params().values()}
    assert found.keys() == {"0.weight", "0.bias", "1.beta", "1.running_mean", "1.running_var"}
    assert {name for name, parameter in found.items() if parameter.grad_req == "null"} == found.keys() - {"0.weight"}
    found["0.bias"].grad_req = "write"
    assert found["0.bias"].grad_req == "write"


def test_a_batch_norm_keeps_its_momentum(tmp_path):
    """ONNX counts momentum as Gluon does: running = running * momentum + batch * (1 - momentum)."""
    net = nn.HybridSequential()
    net.add(nn.BatchNorm(momentum=0.7))
    again = there_and_back(net, tmp_path, [[floats(4, 3)], [floats(5, 3)]])
    x = nd.array(floats(6, 3))
    for model in (net, again):
        with mx.autograd.record():
            model(x)
    states = [model.collect_params(".*running_var").values() for model in (net, again)]
    np.testing.assert_array_equal(*(parameter.data().asnumpy() for (parameter,) in states))


@pytest.mark.parametrize("layout", ["TNC", "NTC"])
@pytest.mark.parametrize("layer", [rnn.LSTM, rnn.GRU, rnn.RNN])
def test_recurrent_layers(layer, layout, tmp_path):
    """Their zeros at the beginning have the open size of the batch."""
    net = layer(7, 2, layout=layout, bidirectional=True, input_size=5)
    there_and_back(net, tmp_path, [[floats(4, 3, 5)], [floats(4, 2, 5)]])


@pytest.mark.parametrize("settings", [{}, {"flat": True}, {"opset": 13}, {"flat": True, "opset": 17}])
def test_a_cell_that_is_unrolled(settings, tmp_path):
    there_and_back(Unrolled(), tmp_path, [[floats(3, 5, 4)], [floats(2, 5, 4)]], **settings)


def test_states_that_come_in_and_go_out(tmp_path):
    calls = [[floats(4, size, 5), floats(1, size, 7), floats(1, size, 7)] for size in (3, 2)]
    there_and_back(WithStates(), tmp_path, calls)


def test_an_encoder(tmp_path):
    def inputs(batch, time):
        ids = np.random.RandomState(batch).randint(0, 50, (batch, time)).astype(np.int32)
        return [ids, (floats(batch, time) > 0.2).astype(np.float32)]

    there_and_back(Encoder(2), tmp_path, [inputs(3, 7), inputs(2, 9)])


def test_a_detection_head(tmp_path):
    there_and_back(Detector(), tmp_path, [[floats(2, 3, 32, 32)], [floats(3, 3, 32, 32)]])


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_whole_numbers_divided_by_anything(dtype, tmp_path):
    """ONNX Runtime ends the process where it divides by 0, or the least number by -1."""

    class Divided(gluon.HybridBlock):
        def hybrid_forward(self, F, a, b):
            return F.broadcast_div(a, b), F.broadcast_mod(a, b)

    net = Divided()
    least = np.iinfo(dtype).min
    a = np.array([7, -7, 7, -7, 5, 0, least + 1, least], dtype)
    b = np.array([2, 2, -2, -2, 0, 0, -1, 3], dtype)
    net.hybridize()
    call(net, [a, b])
    assert_equal(mx.onnx.export(net, tmp_path / "m.onnx").path, net, [a, b])


@pytest.mark.parametrize("convention", ["valid", "full"])
@pytest.mark.parametrize("pool", [nn.MaxPool2D, nn.AvgPool2D])
def test_pooling(pool, convention, tmp_path):
    for pad in (0, 1):
        for size in (9, 10, 11):
            net = pool(3, 2, pad, ceil_mode=convention == "full")
            calls = [[floats(2, 3, size, size)], [floats(3, 3, size, size)]]
            there_and_back(net, tmp_path, calls)
