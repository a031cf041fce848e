"""The saves of a model over time, and the values and gradients of a parameter in each: by code, and by the protocol."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon
from hybrid_lab.diagnostics import ArchiveError, HybridLabError
from hybrid_lab.diagnostics.errors import InputError
from hybrid_lab.diagnostics.file_errors import FileError
from hybrid_lab.formats.archive import Container, layout
from hybrid_lab.gluon import nn
from hybrid_lab.lab.saving import history, one_save
from hybrid_lab.lab.saving.save_facts import SaveFacts
from tests.formats.archive.test_histograms import rewritten
from tests.lab.conftest import inputs, make_net

GOLDEN = Path(__file__).parents[2] / "golden" / "formats"


def train(net, steps=1):
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for _ in range(steps):
        with autograd.record():
            loss = (net(inputs()) ** 2).sum()
        loss.backward()
        trainer.step(4)


@pytest.fixture
def net(tmp_path, monkeypatch):
    """A model with three saves: before its training, and twice while it goes on."""
    monkeypatch.chdir(tmp_path)
    net = make_net()
    mx.lab.save_all(models={"net": net})
    for step, note in enumerate(("first", "second"), start=1):
        train(net)
        mx.lab.save_all(models={"net": net})
        one_save.set_facts(tmp_path / "net.hlab", SaveFacts(step, 0.5 / step, "loss", note))
    return net


# -- by code -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", ["model", "path", "name", "Path"])
def test_saves_of_a_model_or_of_a_path(net, of):
    given = {"model": net, "path": os.path.abspath("net.hlab"), "name": "net", "Path": Path("net.hlab")}[of]
    saves = mx.lab.saves(given)
    assert [save.note for save in saves] == ["", "first", "second"] and len(saves) == 3
    assert [save.step for save in saves] == [None, 1, 2] and saves[2].loss_name == "loss"
    assert Path(saves[-1].path) == Path("net.hlab").absolute()
    assert str(saves).startswith("3 saves of ") and "step 2" in str(saves) and "<table" in saves._repr_html_()
    assert [row["note"] for row in saves.data()["saves"]] == ["", "first", "second"]
    assert saves.parameters == sorted(net.get_states())


def test_a_parameter_over_the_saves_ends_with_the_live_one(net):
    found = mx.lab.saves(net).histograms("head.weight")
    assert [row.save and row.save.note for row in found.rows] == ["", "first", "second", None]
    assert [row.gradient is not None for row in found.rows] == [False, True, True, True]
    last, live = found.rows[-2:]
    assert last.values == live.values and last.gradient == live.gradient and last.recorded
    assert live.values.minimum == net.head.weight.data().asnumpy().min()
    assert str(found).startswith("head.weight in 3 saves") and "now" in str(found)
    assert found.data()["rows"][1]["values"]["bins"] == found.rows[1].values.bins
    net.head.weight.set_data(net.head.weight.data() + 1)
    rows = mx.lab.saves(net).histograms("head.weight").rows
    assert rows[-1].values.mean == pytest.approx(rows[-2].values.mean + 1)
    assert len(mx.lab.saves("net").histograms("head.weight").rows) == 3


def test_a_folder_of_checkpoints(tmp_path):
    net = make_net()
    manager = mx.checkpoint.Manager(tmp_path / "run", net, gluon.Trainer(net.collect_params(), "sgd"))
    for step in (1, 2, 3):
        train(net)
        manager.save(step=step)
    found = mx.lab.saves(tmp_path / "run")
    assert [Path(save.path).name for save in found] == [f"step-{step:08}.hlab" for step in (1, 2, 3)]
    assert [row.gradient is not None for row in found.histograms("head.bias").rows] == [True] * 3


def test_what_is_not_there_is_named(net, tmp_path):
    with pytest.raises(InputError, match="no parameter|has a parameter 'head.wieght'; did you mean head.weight"):
        mx.lab.saves(net).histograms("head.wieght")
    with pytest.raises(InputError, match="neither saved nor loaded in this process"):
        mx.lab.saves(make_net())
    with pytest.raises(FileError):
        mx.lab.saves(tmp_path / "nothing")
    with pytest.raises(HybridLabError, match="saves"):
        mx.lab.saves(3)
    (tmp_path / "empty").mkdir()
    assert str(mx.lab.saves(tmp_path / "empty")).startswith("no saves of")


def test_older_archives_and_damaged_ones_are_rows_too(tmp_path):
    net = nn.HybridSequential(prefix="model_")
    net.add(nn.Dense(2, in_units=3, prefix="dense_"))
    net.initialize()
    for number, name in enumerate(["v1_2", "v1_4"]):
        shutil.copy(GOLDEN / f"{name}.hlab", tmp_path / f"{number}.hlab")
    (tmp_path / "2.hlab").write_bytes((tmp_path / "1.hlab").read_bytes()[:-3])
    (tmp_path / "3.hlab").write_text("no archive")
    net.save(tmp_path / "4")
    bad = rewritten(tmp_path / "4.hlab", lambda tensors: tensors | {"values": tensors["values"] * np.nan})
    bad.rename(tmp_path / "5.hlab")
    for number in range(6):
        os.utime(tmp_path / f"{number}.hlab", (number, number))
    saves = mx.lab.saves(tmp_path)
    assert [bool(save.problem) for save in saves] == [False, False, True, True, False, False]
    rows = saves.histograms("0.weight").rows
    assert [row.values is not None for row in rows] == [False, True, False, False, True, False]
    assert [bool(row.problem) for row in rows] == [False, False, True, True, False, True]
    assert "the record of '0.weight'" in rows[5].problem and str(saves.histograms("0.weight"))
    (older, *_) = saves.histograms("dense.weight").rows
    assert not older.recorded and older.values.size == 6


def test_fifty_saves_are_opened_once_each_and_no_weights_are_read(net, monkeypatch):
    monkeypatch.setattr(history, "KEPT", 49)
    for _ in range(48):
        mx.lab.save_all(models={"net": net})
    opened, read = [], []
    open_one, tensors = Container.open.__func__, Container.read_tensors
    monkeypatch.setattr(Container, "open", classmethod(lambda cls, path: opened.append(path) or open_one(cls, path)))
    monkeypatch.setattr(Container, "read_tensors", lambda self, name: read.append(name) or tensors(self, name))
    assert len(mx.lab.saves("net")) == 50 == len(opened)
    opened.clear()
    assert len(mx.lab.saves("net").histograms("head.weight").rows) == 50
    assert len(opened) == 100 and set(read) == {layout.HISTOGRAMS}


# -- by the protocol ---------------------------------------------------------------------------------------------------


def test_the_reply(page, namespace, net):
    namespace["net"] = net
    reply = page.ok("histograms", model="m1", file="", path="", name="")
    assert reply["parameters"][:2] == ["body.0.weight", "body.0.bias"] and reply["name"] == "body.0.weight"
    reply = page.ok("histograms", model="m1", file="net.hlab", path="body", name="1.gamma")
    assert reply["name"] == "1.gamma" and reply["parameters"][0] == "0.weight"
    files = [save["file"] for save in reply["saves"]]
    assert files[-1] == "net.hlab" and files[0].startswith(".hybrid_lab_history/net.000001.")
    assert [(save["note"], save["step"]) for save in reply["saves"]] == [("", None), ("first", 1), ("second", 2)]
    assert reply["saves"][-1]["values"] == reply["live"] and sum(reply["live"]["bins"]) == reply["live"]["looked"] == 8
    assert reply["saves"][0]["gradient"] is None and reply["saves"][-1]["gradient"] == reply["live_gradient"]
    kept = page.ok("history", model="m1", file="")["saves"]
    assert {save["file"] for save in kept} < set(files)
    assert page.error("histograms", model="m1", file="", path="nowhere", name="")["code"] == "unknown-block"
    assert page.error("histograms", model="m1", file="../net", path="", name="")["code"] == "bad-file-name"
    assert page.ok("histograms", model="m1", file="other", path="head", name="weight")["saves"] == []


def test_of_a_shared_parameter_each_place_has_the_record(page, namespace, tmp_path):
    dense = nn.Dense(4, in_units=4)
    net = nn.HybridSequential()
    net.add(dense, nn.Dense(4, in_units=4, params=dense.params))
    net.initialize()
    net(mx.nd.ones((2, 4)))
    namespace["net"] = net
    page.ok("save", model="m1", file="", overwrite=True)
    one, two = (page.ok("histograms", model="m1", file="", path=path, name="weight") for path in ("0", "1"))
    assert one["saves"] == two["saves"] and one["saves"][0]["values"]["size"] == 16


def test_names_that_no_path_may_have_are_found(page, namespace, tmp_path):
    net = nn.HybridSequential()
    net.register_child(nn.Dense(2, in_units=2), "größe <b>")
    net.initialize()
    net(mx.nd.ones((2, 2)))
    namespace["net"] = net
    page.ok("save", model="m1", file="", overwrite=True)
    reply = page.ok("histograms", model="m1", file="", path="größe <b>", name="weight")
    assert reply["saves"][0]["values"]["size"] == 4
    reply = page.ok("histograms", model="m1", file="", path="", name="")
    assert reply["parameters"] == ["größe <b>.weight", "größe <b>.bias"]


def test_parameters_without_values_and_blocks_without_parameters(page, namespace, tmp_path):
    net = make_net()
    namespace["net"] = net
    page.ok("save", model="m1", file="", overwrite=True)
    net.head = nn.Dense(3)
    reply = page.ok("histograms", model="m1", file="", path="head", name="weight")
    assert reply["live"] is None and reply["saves"][0]["values"]["size"] == 24
    reply = page.ok("histograms", model="m1", file="", path="body.0.act", name="")
    assert (reply["parameters"], reply["saves"]) == ([], [])


def test_a_damaged_save_is_named_in_its_row(page, namespace, net, tmp_path):
    namespace["net"] = net
    (oldest, *_) = page.ok("histograms", model="m1", file="", path="head", name="weight")["saves"]
    kept = tmp_path / oldest["file"]
    kept.write_bytes(kept.read_bytes()[:-1])
    rows = page.ok("histograms", model="m1", file="", path="head", name="weight")["saves"]
    assert "damaged" in rows[0]["problem"] and [row["problem"] for row in rows[1:]] == ["", ""]
    with pytest.raises(ArchiveError):
        Container.open(kept)
