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
from hybrid_lab.lab import hooks
from tests.lab.conftest import CLASS, IMPORTS, MAKE, make_net, same, weights
from tests.lab.test_actions import spoil


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


def test_function_and_panel_share_the_files(run, shell, tmp_path):
    run(IMPORTS, CLASS, MAKE, "mx.lab.save_all('runs')")
    session = hooks.lab_of(shell).session
    assert session.models()["models"][0]["file"] == os.path.join("runs", "net.hlab")
    run("net.fc.weight.set_data(net.fc.weight.data() + 1); report = mx.lab.save_all()")
    assert [row.file for row in shell.user_ns["report"].rows if row.ok] == [str(tmp_path / "runs" / "net.hlab")]


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
