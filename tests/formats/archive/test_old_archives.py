"""Archives of every schema ever released still load. Their files are never made anew."""

import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.formats.archive import Container, SavedHistograms
from hybrid_lab.gluon.call_record import last_record

GOLDEN = Path(__file__).parents[2] / "golden" / "formats"
VERSIONS = ["v1_0"]


def test_blocks_that_are_called_several_times():
    """New in 1.1: a graph tells the calls of one Block apart. Readers of 1.0 read it as well."""
    path = GOLDEN / "v1_1.hlab"
    manifest = json.loads(zipfile.ZipFile(path).read("manifest.json"))
    assert manifest["schema"] == "1.1" and manifest["reader"] == "1.0"
    golden = np.load(GOLDEN / "v1_1.npz")
    net = gluon.load(path)
    np.testing.assert_allclose(net(mx.nd.array(golden["x"])).asnumpy(), golden["y"], rtol=1e-5)
    (graph,) = net._graphs.graphs()
    assert [node.scope.numbers for node in graph.graph.operators] == ["", "", "2", "", "3", ""]


@pytest.fixture(scope="module")
def model():
    sys.path.insert(0, str(GOLDEN))
    from make_archive import Model

    sys.path.remove(str(GOLDEN))
    return Model


@pytest.mark.parametrize("version", VERSIONS)
def test_without_code(version):
    golden = np.load(GOLDEN / f"{version}.npz")
    net = gluon.load(GOLDEN / f"{version}.hlab")
    found = net.tower(mx.nd.array(golden["x"]))
    assert list(found) == ["sum", "parts", "noise"] and found["parts"][1] is None
    np.testing.assert_allclose(found["sum"].asnumpy(), golden["y"], rtol=1e-5)
    assert net.shared is net.tower.shared and net.unused.weight.shape == (4, 0)


@pytest.mark.parametrize("graphs", ["code", "file"])
@pytest.mark.parametrize("version", VERSIONS)
def test_into_a_model(version, graphs, model):
    golden = np.load(GOLDEN / f"{version}.npz")
    net = model()
    report = net.load(GOLDEN / f"{version}.hlab", graphs=graphs)
    assert report.notes == [] and report.aux["list"] == [1, (2.5, None)]
    np.testing.assert_allclose(net(mx.nd.array(golden["x"])).asnumpy(), golden["y"], rtol=1e-5)
    trainer = gluon.Trainer([p for p in net.collect_params().values() if p._data is not None], "adam")
    report.trainer_states.restore(trainer)
    assert trainer.optimizer.num_update == 1


def test_attributes_and_kinds_of_values():
    """New in 1.2, with kinds of values in aux that readers of 1.1 do not know."""
    path = GOLDEN / "v1_2.hlab"
    manifest = json.loads(zipfile.ZipFile(path).read("manifest.json"))
    assert manifest["schema"] == manifest["reader"] == "1.2"
    net, aux = gluon.load(path, with_aux=True)
    assert net.step == 3 and net.cfg == {"sizes": (1, 2), "names": {"a", "b"}} and net.mean.tolist() == [0, 1, 2]
    assert net.first == [net.dense] and net.trainer.optimizer.num_update == 1
    assert aux["raw"] == b"\0\1" and aux["point"]._asdict() == {"x": 1, "y": 2} and aux["texts"].tolist() == ["a", "bc"]
    assert aux["metric"].get() == ("accuracy", 1.0)


def test_calls_of_plain_blocks():
    """New in 1.3; readers of 1.0 ignore them."""
    path = GOLDEN / "v1_3.hlab"
    manifest = json.loads(zipfile.ZipFile(path).read("manifest.json"))
    assert (manifest["schema"], manifest["reader"]) == ("1.3", "1.0")
    net = gluon.load(path)
    record = last_record(net)
    assert [item.name or item.block().prefix for item in record.items] == ["first_", "relu", "second_"]
    assert [item.inputs for item in record.items] == [((-1, 0),), ((0, 0),), ((1, 0),)] and record.outputs == ((2, 0),)


def test_histograms():
    """New in 1.4: a record of each parameter, and of its gradient. Readers of 1.0 ignore it."""
    path = GOLDEN / "v1_4.hlab"
    manifest = json.loads(zipfile.ZipFile(path).read("manifest.json"))
    assert manifest["schema"] == "1.4" and manifest["reader"] == "1.0"
    assert gluon.load(path)(mx.nd.ones((1, 3))).asnumpy().tolist() == [[3, 3]]
    saved = SavedHistograms(Container.open(path))
    assert saved.names == ["0.bias", "0.weight"]
    assert saved.of("0.weight").values.bins == (6,) and saved.of("0.bias").gradient.mean == 2
