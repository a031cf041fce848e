"""The networks of the zoo have MXNet's parameters and give MXNet's outputs."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from hybrid_lab import nd
from hybrid_lab.gluon.model_zoo import vision

FOLDER = Path(__file__).parents[1] / "golden" / "gluon"
sys.path.insert(0, str(FOLDER))
from zoo_weights import digest, image, size_of, weight  # noqa: E402

GOLDEN = json.loads((FOLDER / "zoo.json").read_text())

#: One network of each kind, the small ones.
RUN = ["alexnet", "densenet121", "inceptionv3", "mobilenet0.25", "mobilenetv2_0.25", "resnet18_v1", "resnet50_v1",
       "resnet18_v2", "resnet50_v2", "squeezenet1.0", "squeezenet1.1"]  # fmt: skip


def test_every_model_of_mxnet_is_here():
    assert set(vision.MODELS) == set(GOLDEN)


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_parameters_have_mxnets_names_and_shapes(name):
    net = vision.get_model(name, classes=10)
    net.infer_shape(nd.zeros((1, 3, size_of(name), size_of(name))))
    full = [f"{key[len(net.prefix) :]} {value.shape}" for key, value in net.collect_params().items()]
    assert len(full) == GOLDEN[name]["parameters"]
    assert digest(f"{key} {p.shape}" for key, p in net._collect_params_with_prefix().items()) == GOLDEN[name]["names"]
    assert digest(full) == GOLDEN[name]["full_names"]


@pytest.mark.each_value
@pytest.mark.parametrize("hybrid", [False, True], ids=["eager", "hybrid"])
@pytest.mark.parametrize("name", RUN)
def test_output_is_mxnets(name, hybrid):
    net = vision.get_model(name, classes=10)
    net.initialize()
    x = nd.array(image(size_of(name)))
    net.infer_shape(x)
    for key, parameter in net._collect_params_with_prefix().items():
        parameter.set_data(nd.array(weight(key, parameter.shape)))
    if hybrid:
        net.hybridize()
    wanted = np.array(GOLDEN[name]["output"])
    np.testing.assert_allclose(net(x).asnumpy()[0], wanted, rtol=0, atol=2e-5 * np.abs(wanted).max())


def test_unknown_model_names_near_ones():
    with pytest.raises(ValueError, match="did you mean resnet18_v1"):
        vision.get_model("resnet18v1")


def test_pretrained_weights_come_from_a_folder(tmp_path):
    net = vision.mobilenet0_25(classes=3)
    net.initialize()
    net(nd.zeros((1, 3, 32, 32)))
    net.save_parameters(str(tmp_path / "mobilenet0.25-12345678.params"))
    again = vision.mobilenet0_25(classes=3, pretrained=True, root=tmp_path)
    np.testing.assert_array_equal(again.output.weight.data().asnumpy(), net.output.weight.data().asnumpy())
    assert vision.get_mobilenet(0.25, True, None, tmp_path, classes=3).output.weight.shape == again.output.weight.shape
    with pytest.raises(FileNotFoundError, match=re.escape("resnet18_v1.params")):
        vision.resnet18_v1(pretrained=True, root=tmp_path)
