"""The files that the real MXNet's `Block.save` wrote (tests/golden/block_save) load into models here."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics import ArchiveError, HybridLabError, LoadMismatchError
from hybrid_lab.gluon import nn

GOLDEN = Path(__file__).parents[2] / "golden" / "block_save"


class Two(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.left = nn.Dense(3)
        self.right = nn.Dense(3)

    def hybrid_forward(self, F, x, y):
        return [self.left(x) + self.right(y), F.tanh(x)]


class Plain(gluon.Block):
    def __init__(self, channels=4):
        super().__init__()
        self.body = nn.HybridSequential()
        self.body.add(nn.Conv2D(channels, 3), nn.BatchNorm(), nn.Activation("relu"))
        self.head = nn.Dense(3)

    def forward(self, x):
        return self.head(self.body(x))


def check(net, name):
    with np.load(GOLDEN / f"{name}.npz") as file:
        inputs = [nd.array(file[key]) for key in file.files if key.startswith("in")]
        expected = [file[key] for key in file.files if key.startswith("out")]
    outputs = net(*inputs)
    outputs = outputs if isinstance(outputs, list) else [outputs]
    assert len(outputs) == len(expected)
    for mine, theirs in zip(outputs, expected, strict=True):
        np.testing.assert_allclose(mine.asnumpy(), theirs, rtol=1e-4, atol=1e-5)
    return inputs


@pytest.mark.parametrize("graphs", ["code", "file"])
@pytest.mark.parametrize(("name", "kind"), [("two", Two), ("plain", Plain)])
def test_a_model_computes_what_mxnet_computed(name, kind, graphs):
    net = kind()
    net.initialize()
    report = net.load(GOLDEN / name, graphs=graphs)
    assert report.graphs == ({"two": 1, "plain": 2}[name] if graphs == "file" else 0)
    inputs = check(net, name)
    net.hybridize()
    check(net, name)
    with autograd.record():
        outputs = net(*inputs)
        loss = (outputs[0] if isinstance(outputs, list) else outputs).sum()
    loss.backward()
    assert mx.load_cached_graphs(kind(), GOLDEN / f"{name}-model.json").parameters == report.parameters


def test_a_class_that_has_another_name_now():
    class Renamed(Two):
        pass

    with pytest.raises(LoadMismatchError, match="is a Renamed, in the file a two"):
        Renamed().load(GOLDEN / "two")
    net = Renamed()
    assert not net.load(GOLDEN / "two", classes={"Two": Renamed}).differences
    check(net, "two")


def test_the_files_graph_wins_over_other_code():
    class Two(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.left = nn.Dense(3)
            self.right = nn.Dense(3)

        def hybrid_forward(self, F, x, y):
            return [self.left(x) - self.right(y), x]

    net = Two()
    net.load(GOLDEN / "two", graphs="file")
    check(net, "two")


def test_all_differences_are_listed_and_nothing_changes():
    class Other(gluon.Block):
        def __init__(self):
            super().__init__()
            self.body = nn.HybridSequential()
            self.body.add(nn.Dense(4, in_units=2), nn.BatchNorm(in_channels=4))
            self.head = nn.Dense(3, in_units=144)

    net = Other()
    net.initialize()
    before = net.head.weight.data().asnumpy()
    with pytest.raises(LoadMismatchError) as error:
        net.load(GOLDEN / "plain")
    text = str(error.value)
    assert "class: the model is a Other, in the file a plain" in text
    assert "class: body.0 is a Dense, in the file a conv" in text
    assert "children: body has 2, 3 in the file" in text
    assert np.array_equal(net.head.weight.data().asnumpy(), before)
    with pytest.raises(LoadMismatchError, match="shape: body.0.weight"):
        wide = Plain(channels=5)
        wide.body[0].weight.shape = (5, 2, 3, 3)
        wide.load(GOLDEN / "plain", graphs="file")
    assert not wide.body._graphs.pinned


def test_options_of_archives_are_refused():
    with pytest.raises(HybridLabError, match="loaded as a whole"):
        Plain().load(GOLDEN / "plain", subtree="body")


def test_damaged_trees(tmp_path):
    shutil.copy(GOLDEN / "two-model.params", tmp_path / "two-model.params")
    path, good = tmp_path / "two-model.json", json.loads((GOLDEN / "two-model.json").read_text())
    (entry,) = good.values()
    changes = [
        {"orig_name": 7}, {"inputs": 7}, {"symbol": 7}, {"symbol": "{}"}, {"in_format": [0]}, {"out_format": -1},
        {"inputs": [entry["symbol"], entry["symbol"]]}, {"dense3": 1}, {"children": []},
    ]  # fmt: skip
    for damage in [[], {}, {"two0": []}, {**good, "more": {}}, *({"two0": {**entry, **each}} for each in changes)]:
        path.write_text(json.dumps(damage))
        net = Two()
        with pytest.raises(ArchiveError):
            net.load(tmp_path / "two", graphs="file")
        assert net.left.weight._data is None


def test_mutations(tmp_path):
    """A changed byte is a typed error, or a file that loads."""
    shutil.copy(GOLDEN / "plain-model.params", tmp_path / "plain-model.params")
    data, chance = (GOLDEN / "plain-model.json").read_bytes(), random.Random(3)
    for _ in range(300):
        changed = bytearray(data)
        changed[chance.randrange(len(data))] = chance.choice(b'0123456789"[]{},:ab\\')
        (tmp_path / "plain-model.json").write_bytes(changed)
        try:
            Plain().load(tmp_path / "plain", graphs="file")
        except HybridLabError:
            continue
