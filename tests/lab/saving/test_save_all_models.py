"""Saving and reloading every model at once: by a function in scripts, and by magics in notebooks."""

import os
import subprocess
import sys

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.gluon import nn
from hybrid_lab.lab.kernel import hooks
from hybrid_lab.lab.saving.all_models import PartlyDoneError
from tests.lab.conftest import CLASS, IMPORTS, MAKE, inputs, make_net, same, weights
from tests.lab.saving.test_actions import spoil


@pytest.fixture
def models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return {"net": make_net(), "big": make_net()}


def test_all_are_saved_and_reloaded(models, tmp_path):
    report = mx.lab.save_all(models=models)
    assert str(report).startswith("2 models saved") and "net.hlab" in str(report)
    assert [row["model"] for row in report.data()["rows"]] == ["net", "big"] and "<table" in report._repr_html_()
    before = {name: weights(net) for name, net in models.items()}
    for net in models.values():
        spoil(net)
    assert str(mx.lab.reload_all(models=models)).startswith("2 models reloaded")
    assert all(same(weights(net), before[name]) for name, net in models.items())


def test_the_table_has_the_names_of_files_however_long_their_paths(models, tmp_path, monkeypatch):
    below = tmp_path / ("deep" * 20) / ("deeper" * 20)
    assert "net.hlab  " in str(mx.lab.save_all(models=models))
    assert f"{os.sep}net.hlab" in str(mx.lab.save_all(below, models=models))
    monkeypatch.chdir(below)
    assert " net.hlab" in str(mx.lab.save_all(below, models=models))


def test_a_folder_is_created_and_what_is_replaced_is_kept(models, tmp_path):
    mx.lab.save_all("runs/a", models=models, note="first")
    spoil(models["net"])
    mx.lab.save_all("runs/a", models=models)
    kept = [path.name for path in (tmp_path / "runs" / "a" / ".hybrid_lab_history").glob("*.hlab")]
    assert len(kept) == 2
    with pytest.raises(HybridLabError, match="names and Blocks"):
        mx.lab.save_all(models={"../net": models["net"]})
    with pytest.raises(HybridLabError, match="names and Blocks"):
        mx.lab.save_all(models=[models["net"]])


def test_what_cannot_be_saved_is_named_and_the_others_are(models, tmp_path):
    other = nn.HybridSequential()
    other.add(nn.Dense(2, in_units=2))
    other.initialize()
    other(mx.nd.ones((1, 2)))
    other.save("net.hlab")
    theirs = (tmp_path / "net.hlab").read_bytes()
    with pytest.raises(
        HybridLabError, match="net: .*holds another model, HybridSequential.*; 1 model saved all the same"
    ):
        mx.lab.save_all(models=models)
    assert (tmp_path / "net.hlab").read_bytes() == theirs and (tmp_path / "big.hlab").exists()
    mx.lab.save_all(models=models, overwrite=True)
    assert (tmp_path / "net.hlab").read_bytes() != theirs
    (tmp_path / "big.hlab").write_text("my notes")
    with pytest.raises(HybridLabError, match="big: .*not an intact archive"):
        mx.lab.save_all(models=models, overwrite=True)
    assert (tmp_path / "big.hlab").read_text() == "my notes"


def test_graphs_are_not_lost_unless_asked_for(models):
    mx.lab.save_all(models=models)
    fresh = {"net": make_net(called=False), "big": models["big"]}
    with pytest.raises(HybridLabError, match="net: .*it would lose"):
        mx.lab.save_all(models=fresh)
    mx.lab.save_all(models=fresh, overwrite=True)


def test_what_cannot_be_reloaded_is_unchanged_and_named(models, tmp_path):
    mx.lab.save_all(models=models)
    os.remove("big.hlab")
    assert "there is no such file" in str(mx.lab.reload_all(models=models))
    (tmp_path / "big.hlab").write_bytes((tmp_path / "net.hlab").read_bytes()[:-9])
    for net in models.values():
        spoil(net)
    before = weights(models["big"])
    with pytest.raises(HybridLabError, match="big: .*; 1 model reloaded all the same"):
        mx.lab.reload_all(models=models)
    assert same(weights(models["big"]), before)
    with pytest.raises(HybridLabError):
        mx.lab.reload_all(models=models, graphs="maybe")


def test_the_magics_save_and_load_the_models_of_the_notebook(run, shell, tmp_path):
    run(IMPORTS, CLASS, MAKE, "loss = gluon.loss.L2Loss(); fresh = Net()")
    report = run("%hybrid_save_all")
    rows = {row.model: row.did for row in report.rows}
    assert rows["loss"] == "left out: a loss function" and rows["fresh"] == "left out: no graph yet"
    assert sorted(path.name for path in tmp_path.glob("*.hlab")) == ["net.hlab"]
    run("before = net.fc.weight.data().asnumpy(); net.fc.weight.set_data(net.fc.weight.data() + 1)")
    assert str(run("%hybrid_load_all")).startswith("1 model reloaded")
    assert np.array_equal(shell.user_ns["net"].fc.weight.data().asnumpy(), shell.user_ns["before"])
    run("%hybrid_save_all runs/b")
    assert (tmp_path / "runs" / "b" / "net.hlab").exists()
    run("%hybrid_load_all runs/b --graphs file")
    for line in (
        "%hybrid_save_all a b",
        "%hybrid_save_all --x",
        "%hybrid_load_all --graphs maybe",
        '%hybrid_load_all "',
    ):
        assert not shell.run_cell(line).success


def test_the_magics_of_one_model_are_undone_by_the_panel(run, shell, tmp_path):
    run(IMPORTS, CLASS, MAKE)
    session = hooks.lab_of(shell).session

    def undo():
        (row,) = session.models()["models"]
        return row["undoes"], session.ask("undo", {"model": row["id"], "undo": row["undo"]})["summary"]

    run("%hybrid_save net m")
    first = (tmp_path / "m.hlab").read_bytes()
    run("net.fc.weight.set_data(net.fc.weight.data() + 1)", "%hybrid_save net m")
    assert undo()[0] == "the save to m.hlab" and (tmp_path / "m.hlab").read_bytes() == first
    before = weights(shell.user_ns["net"])
    run("%hybrid_load net m")
    assert not same(weights(shell.user_ns["net"]), before)
    assert undo() == ("the reload of m.hlab", "1 parameter restored") and same(weights(shell.user_ns["net"]), before)
    assert undo()[0] == "the save to m.hlab" and not (tmp_path / "m.hlab").exists()
    run("%hybrid_save net.fc part", "%hybrid_load net.fc part")  # a part of a model is not listed
    assert session.models()["models"][0]["undo"] == ""


def test_function_and_panel_share_the_files(run, shell, tmp_path):
    run(IMPORTS, CLASS, MAKE, "mx.lab.save_all('runs')")
    session = hooks.lab_of(shell).session
    assert session.models()["models"][0]["file"] == os.path.join("runs", "net.hlab")
    run("net.fc.weight.set_data(net.fc.weight.data() + 1); report = mx.lab.save_all()")
    assert [row.file for row in shell.user_ns["report"].rows if row.ok] == [str(tmp_path / "runs" / "net.hlab")]


# -- undo --------------------------------------------------------------------------------------------------------------


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.hlab")}


def history_of(folder):
    return sorted(path.read_bytes() for path in (folder / ".hybrid_lab_history").glob("*.hlab"))


def test_undo_of_a_save_brings_the_replaced_files_back_and_takes_new_ones_away(models, tmp_path):
    mx.lab.save_all(models={"net": models["net"]})
    before = contents(tmp_path)
    for net in models.values():
        spoil(net)
    report = mx.lab.save_all(models=models)
    written = contents(tmp_path)
    undone = report.undo()
    assert str(undone).startswith("2 models undone") and [row.model for row in undone.rows] == ["net", "big"]
    assert contents(tmp_path) == before
    assert history_of(tmp_path) == sorted(written.values())  # what was saved is not lost
    with pytest.raises(HybridLabError, match="nothing to undo"):
        report.undo()
    with pytest.raises(HybridLabError, match="nothing to undo"):
        undone.undo()
    assert "_steps" not in report.data() and report.data()["verb"] == "saved"


@pytest.mark.parametrize("change", ["written by another process", "removed", "saved again"])
def test_a_file_that_changed_since_is_left_alone_and_named(models, tmp_path, change):
    mx.lab.save_all(models=models)
    before = contents(tmp_path)
    for net in models.values():
        spoil(net)
    report = mx.lab.save_all(models=models)
    path = tmp_path / "net.hlab"
    if change == "removed":
        path.unlink()
    elif change == "saved again":
        spoil(models["net"])
        mx.lab.save_all(models={"net": models["net"]})
    else:
        (tmp_path / "elsewhere").mkdir()
        os.replace(models["big"].save(tmp_path / "elsewhere" / "net"), path)
    changed = path.read_bytes() if path.exists() else None
    with pytest.raises(
        PartlyDoneError, match=r"net: net\.hlab was changed or removed since.*; 1 model undone"
    ) as caught:
        report.undo()
    assert (path.read_bytes() if path.exists() else None) == changed
    assert (tmp_path / "big.hlab").read_bytes() == before["big.hlab"]
    assert [row.model for row in caught.value.report.rows] == ["big"]
    report.undo(overwrite=True)
    assert contents(tmp_path) == before
    assert changed is None or changed in history_of(tmp_path)


def test_undo_of_a_reload_is_exact(models):
    mx.lab.save_all(models=models)
    for net in models.values():
        net.step = 1
        spoil(net)
    before = {name: weights(net) for name, net in models.items()}
    report = mx.lab.reload_all(models=models)
    assert not any(same(weights(net), before[name]) for name, net in models.items())
    report.undo()
    assert all(same(weights(net), before[name]) for name, net in models.items())
    with pytest.raises(HybridLabError, match="nothing to undo"):
        report.undo()


def test_a_model_that_changed_since_its_reload_is_left_alone_and_named(models):
    mx.lab.save_all(models=models)
    for net in models.values():
        spoil(net)
    before = {name: weights(net) for name, net in models.items()}
    report = mx.lab.reload_all(models=models)
    models["net"].head.bias.set_data(models["net"].head.bias.data() + 1)
    trained = weights(models["net"])
    with pytest.raises(PartlyDoneError, match="net: 1 of 8 parameters of the model changed since this reload"):
        report.undo()
    assert same(weights(models["net"]), trained) and same(weights(models["big"]), before["big"])
    report.undo(overwrite=True)
    assert same(weights(models["net"]), before["net"])


def test_attributes_and_trainers_of_a_model_come_back_too(models):
    net = models["net"]
    net.trainer = gluon.Trainer(net.collect_params(), "adam")

    def step():
        with mx.autograd.record():
            loss = (net(inputs()) ** 2).sum()
        loss.backward()
        net.trainer.step(4)

    step()
    net.steps, net.log = 3, [1]
    mx.lab.save_all(models=models)
    step()
    net.steps = 5
    net.log.append(2)
    before, states = weights(net), net.trainer.get_states()
    report = mx.lab.reload_all(models=models)
    assert (net.steps, net.log, net.trainer.optimizer.num_update) == (3, [1], 1)
    net.other = "set since"
    assert "3 attributes" in str(report.undo())
    assert (net.steps, net.log, net.other, net.trainer.optimizer.num_update) == (5, [1, 2], "set since", 2)
    now = net.trainer.get_states()
    assert same(weights(net), before) and now[0] == states[0]
    assert all(np.array_equal(now[1][key], array) for key, array in states[1].items())


def test_an_attribute_that_was_set_after_the_reload_stays(models):
    models["net"].steps = 3
    mx.lab.save_all(models=models)
    models["net"].steps = 5
    report = mx.lab.reload_all(models=models)
    models["net"].steps = 7
    report.undo()
    assert models["net"].steps == 7


def test_models_that_share_parameters_and_one_under_two_names(models):
    net = models["net"]
    shared = {"a": net, "b": net, "body": net.body}
    mx.lab.save_all(models=shared)
    spoil(net)
    before = weights(net)
    report = mx.lab.reload_all(models=shared)
    assert not same(weights(net), before)
    report.undo()
    assert same(weights(net), before)


def test_where_one_fails_the_error_undoes_the_others(models, tmp_path):
    mx.lab.save_all(models=models)
    before = contents(tmp_path)
    (tmp_path / "big.hlab").write_text("my notes")
    spoil(models["net"])
    with pytest.raises(PartlyDoneError, match="big: .*1 model saved all the same") as caught:
        mx.lab.save_all(models=models)
    assert (tmp_path / "net.hlab").read_bytes() != before["net.hlab"]
    caught.value.report.undo()
    assert (tmp_path / "net.hlab").read_bytes() == before["net.hlab"]
    assert (tmp_path / "big.hlab").read_text() == "my notes"
    spoil(models["net"])
    spoiled = weights(models["net"])
    with pytest.raises(PartlyDoneError, match="big: .*1 model reloaded all the same") as caught:
        mx.lab.reload_all(models=models)
    assert not same(weights(models["net"]), spoiled)
    caught.value.report.undo()
    assert same(weights(models["net"]), spoiled)


def test_names_of_one_file_are_undone_once(models, tmp_path):
    with pytest.raises(PartlyDoneError, match="is the file of a b already") as caught:
        mx.lab.save_all(models={"a b": models["net"], "a_b": models["big"]})
    caught.value.report.undo()
    assert contents(tmp_path) == {}


def test_a_folder_that_cannot_be_written_leaves_all_and_can_be_tried_again(models, tmp_path, monkeypatch):
    mx.lab.save_all(models=models)
    before = contents(tmp_path)
    for net in models.values():
        spoil(net)
    report = mx.lab.save_all(models=models)
    after = contents(tmp_path)

    def refuse(*arguments):
        raise PermissionError(13, "Permission denied", str(tmp_path))

    with monkeypatch.context() as patched:  # the tests may run as root, who can write everywhere
        patched.setattr(os, "replace", refuse)
        with pytest.raises(PartlyDoneError, match="big: .*net: .*0 models undone"):
            report.undo()
    assert contents(tmp_path) == after
    report.undo()
    assert contents(tmp_path) == before


def test_an_earlier_save_that_is_gone_is_named(models, tmp_path):
    mx.lab.save_all(models=models)
    report = mx.lab.save_all(models=models)
    for path in (tmp_path / ".hybrid_lab_history").glob("net.*"):
        path.unlink()
    after = (tmp_path / "net.hlab").read_bytes()
    with pytest.raises(PartlyDoneError, match=r"net: .*net\.hlab .*no longer kept"):
        report.undo()
    assert (tmp_path / "net.hlab").read_bytes() == after


def test_undo_of_the_magics_and_of_the_panel_are_one(run, shell, tmp_path):
    run(IMPORTS, CLASS, MAKE)
    session = hooks.lab_of(shell).session
    report = run("%hybrid_save_all")
    row = session.models()["models"][0]
    assert row["undoes"] == "the save to net.hlab"
    report.undo()
    assert not (tmp_path / "net.hlab").exists() and session.models()["models"][0]["undo"] == ""
    report = run("%hybrid_save_all")
    session.ask("undo", {"model": row["id"], "undo": session.models()["models"][0]["undo"]})
    with pytest.raises(PartlyDoneError, match=r"net\.hlab was changed or removed"):
        report.undo()
    run("%hybrid_save_all", "net.fc.weight.set_data(net.fc.weight.data() + 1)")
    spoiled = weights(shell.user_ns["net"])
    report = run("%hybrid_load_all")
    assert session.models()["models"][0]["undoes"] == "the reload of net.hlab"
    report.undo()
    assert same(weights(shell.user_ns["net"]), spoiled)


SCRIPT = """
import hybrid_lab as mx
from hybrid_lab.gluon import nn
net = nn.HybridSequential()
net.add(nn.Dense(2, in_units=2))
net.initialize()
net(mx.nd.ones((1, 2)))
_hidden = net
print(mx.lab.save_all())
print(mx.lab.reload_all())
"""


def test_a_script_saves_its_variables(tmp_path):
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "1 model saved" in done.stdout and "1 model reloaded" in done.stdout and (tmp_path / "net.hlab").exists()
    assert isinstance(gluon.load(tmp_path / "net.hlab"), nn.HybridSequential)
