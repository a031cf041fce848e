"""Whole networks in ONNX files: equal in ONNX Runtime for several batch sizes, and the same bytes each time.

`make test` takes two small networks of the zoo; HYBRID_LAB_ONNX=all (`make test-onnx`) one of each family.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab.gluon import rnn
from hybrid_lab.gluon.model_zoo import vision

from .networks import Detector, Encoder, SeveralOutputs, Unrolled, WithStates, assert_equal, call, floats

FAMILIES = ["mobilenet0.25", "squeezenet1.0"]
if os.environ.get("HYBRID_LAB_ONNX") == "all":
    FAMILIES += [
        "resnet18_v1", "resnet18_v2", "vgg11", "vgg11_bn", "alexnet", "densenet121", "inceptionv3", "mobilenetv2_0.25",
    ]  # fmt: skip


def check(net, path, calls, hybridize=True):
    """Export after the first call, twice; the file holds for all calls."""
    net.initialize(mx.init.Xavier())
    if hybridize:
        net.hybridize()
    call(net, calls[0])
    report = mx.onnx.export(net, path)
    written = Path(report.path).read_bytes()
    assert Path(mx.onnx.export(net, path).path).read_bytes() == written
    for arrays in calls:
        assert_equal(report.path, net, arrays)
    return report


@pytest.mark.parametrize("name", FAMILIES)
def test_model_zoo(name, tmp_path):
    size = 299 if name == "inceptionv3" else 224
    net = vision.get_model(name, classes=10)
    report = check(net, tmp_path / "net.onnx", [[floats(1, 3, size, size)], [floats(2, 3, size, size)]])
    (exported,) = report.exported
    assert exported.inputs == {"data": ("batch", 3, size, size)} and exported.outputs == {"output": ("batch", 10)}
    assert not exported.notes and exported.functions


@pytest.mark.parametrize("hybridize", [True, False])
def test_an_encoder(hybridize, tmp_path):
    def inputs(batch, time):
        ids = np.random.RandomState(batch).randint(0, 50, (batch, time)).astype(np.int32)
        return [ids, (floats(batch, time) > 0.2).astype(np.float32)]

    sizes = [inputs(3, 7), inputs(2, 9), inputs(1, 4)]
    report = check(Encoder(6 if hybridize else 1), tmp_path / "net.onnx", sizes, hybridize)
    assert report.exported[0].inputs == {"data0": ("batch", "data0_1"), "data1": ("batch", "data0_1")}
    assert not report.notes


@pytest.mark.parametrize("layout", ["TNC", "NTC"])
@pytest.mark.parametrize("layer", [rnn.LSTM, rnn.GRU, rnn.RNN])
def test_recurrent_layers(layer, layout, tmp_path):
    net = layer(7, 2, layout=layout, bidirectional=True, input_size=5)
    report = check(net, tmp_path / "net.onnx", [[floats(4, 3, 5)], [floats(6, 2, 5)], [floats(1, 1, 5)]])
    names = ("time", "batch") if layout == "TNC" else ("batch", "time")
    assert report.exported[0].inputs == {"data": (*names, 5)}


def test_states_that_come_in_and_go_out(tmp_path):
    report = check(
        WithStates(), tmp_path / "net.onnx",
        [[floats(4, 3, 5), floats(1, 3, 7), floats(1, 3, 7)], [floats(5, 2, 5), floats(1, 2, 7), floats(1, 2, 7)]],
    )  # fmt: skip
    assert list(report.exported[0].outputs) == ["y", "states.0", "states.1"]


def test_an_unrolled_cell(tmp_path):
    check(Unrolled(), tmp_path / "net.onnx", [[floats(3, 5, 4)], [floats(2, 5, 4)]])


def test_a_detection_head(tmp_path):
    report = check(Detector(), tmp_path / "net.onnx", [[floats(2, 3, 32, 32)], [floats(3, 3, 32, 32)]])
    assert report.exported[0].outputs["boxes"] == ("batch", 256, 4)


def test_several_inputs_and_outputs(tmp_path):
    calls = [[floats(2, 3), floats(2, 5)], [floats(4, 3), floats(4, 5)]]
    report = check(SeveralOutputs(), tmp_path / "net.onnx", calls)
    assert list(report.exported[0].outputs) == ["p", "pair.0", "pair.1.0", "again"]
