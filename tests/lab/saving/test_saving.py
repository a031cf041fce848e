"""Saves that can be trusted: what they replace is kept, errors leave everything, Blocks, comparisons, autosave."""

import contextlib
import errno
import io
import json
import logging
import os
import shutil
import stat
import threading
import time

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.formats.archive import Container, inspect
from hybrid_lab.gluon import nn
from hybrid_lab.gluon.step import boundary
from hybrid_lab.lab.saving import autosaves, history
from hybrid_lab.system.logger import logger
from tests.lab.conftest import Net, inputs, make_net, same, weights
from tests.lab.saving.test_actions import graph_state, spoil


@pytest.fixture(autouse=True)
def no_autosave_is_left():
    yield
    for saver in list(autosaves.running):
        saver.stop()
    assert not boundary.listeners and not boundary.epoch_listeners


def saved(page, file="", **more):
    return page.ok("save", model="m1", file=file, overwrite=True, **more)


def files_in(folder):
    """Path below the folder -> contents, of all files."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# -- history -----------------------------------------------------------------------------------------------------------


def test_what_a_save_replaces_is_kept_and_can_be_compared_and_reloaded(page, namespace, tmp_path):
    net = namespace["net"] = make_net()
    assert saved(page)["kept"] == ""
    assert page.ok("history", model="m1", file="net.hlab")["saves"] == []
    first, old = (tmp_path / "net.hlab").read_bytes(), weights(net)
    spoil(net)
    kept = saved(page)["kept"]
    assert (tmp_path / kept).read_bytes() == first
    (entry,) = page.ok("history", model="m1", file="net.hlab")["saves"]
    assert entry["file"] == kept and entry["class"] == "Net" and entry["bytes"] == len(first)
    difference = page.ok("compare", model="m1", file=kept)["difference"]
    assert not difference["equal"] and difference["summary"] == f"{len(old)} tensors changed"
    assert page.ok("compare", model="m1", file="")["difference"]["equal"]
    page.ok("reload", model="m1", file=kept, graphs="code")
    assert same(weights(net), old)
    assert page.ok("models")["models"][0]["file"] == "net.hlab"  # where the next save goes


def test_the_last_five_are_kept_of_each_file(page, namespace, tmp_path):
    net = namespace["net"] = make_net()
    contents = []
    for _ in range(8):
        spoil(net)
        saved(page)
        contents.append((tmp_path / "net.hlab").read_bytes())
    saved(page, "net.2.hlab")
    saved(page, "net.2.hlab")
    saves = page.ok("history", model="m1", file="net.hlab")["saves"]
    assert [(tmp_path / save["file"]).read_bytes() for save in saves] == contents[-2:-7:-1]
    assert len(page.ok("history", model="m1", file="net.2.hlab")["saves"]) == 1
    assert (tmp_path / history.FOLDER / ".gitignore").read_text() == "*\n"
    assert [row["file"] for row in page.ok("archives")["archives"]] == ["net.2.hlab", "net.hlab"]


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_neither_clock_nor_time_zone_decides_which_save_is_newer(tmp_path, monkeypatch, zone, links):
    """The zone changes and the clock is set back before each save; the last five are kept, the newest first."""
    if not links:
        monkeypatch.setattr(os, "link", raises(OSError(errno.EPERM, "no links")))
    path, zones = tmp_path / "net.hlab", ["Pacific/Kiritimati", zone, "Pacific/Pago_Pago"]
    for number in range(9):
        monkeypatch.setenv("TZ", zones[number % 3])
        time.tzset()
        with history.replacing(path):
            path.with_suffix(".new").write_text(str(number))
            os.replace(path.with_suffix(".new"), path)
        moment = 1_700_000_000 - 3600 * number
        os.utime(path, (moment, moment))
    monkeypatch.undo()
    time.tzset()
    assert [entry.read_text() for entry in history.entries(path)] == ["7", "6", "5", "4", "3"]


def test_entries_of_older_releases_come_after_numbered_ones(tmp_path):
    path, folder = tmp_path / "net.hlab", tmp_path / history.FOLDER
    folder.mkdir()
    for number, name in enumerate(["2026-01-01_00-00-00-000000", "2025-01-01_00-00-00-000000-2"]):
        (folder / f"net.{name}.hlab").write_text(f"old {number}")
        os.utime(folder / f"net.{name}.hlab", (number, number))
    path.write_text("first")
    with history.replacing(path):
        pass
    assert [entry.read_text() for entry in history.entries(path)] == ["first", "old 1", "old 0"]


def test_a_copy_is_never_more_open_than_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", raises(OSError(errno.EPERM, "no links")))
    path, modes, copy = tmp_path / "net.hlab", [], shutil.copyfileobj
    path.write_text("secret")
    path.chmod(0o600)

    def watched(source, target, *arguments):
        modes.append(stat.S_IMODE(os.fstat(target.fileno()).st_mode))
        return copy(source, target, *arguments)

    monkeypatch.setattr(shutil, "copyfileobj", watched)
    monkeypatch.setattr(shutil, "_USE_CP_SENDFILE", False, raising=False)
    with history.replacing(path) as entry:
        pass
    assert stat.S_IMODE(entry.stat().st_mode) == 0o600 and modes in ([], [0o600])


def raises(error):
    def function(*arguments, **options):
        raise error

    return function


def test_copies_are_kept_where_there_are_no_links(page, namespace, tmp_path, monkeypatch):
    def refuse(*args, **keywords):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    net = namespace["net"] = make_net()
    saved(page)
    first = (tmp_path / "net.hlab").read_bytes()
    spoil(net)
    kept = tmp_path / saved(page)["kept"]
    assert kept.read_bytes() == first and not list(kept.parent.glob("*.tmp"))


@pytest.mark.parametrize("name", ["x" * 235 + ".hlab", "é" * 115 + ".hlab", "a[b]*.hlab", "net.x.y.hlab", "no.suffix"])
def test_names_of_every_kind_have_a_history(page, namespace, tmp_path, name):
    namespace["net"] = make_net()
    saved(page, name)
    saved(page, name)
    assert len(page.ok("history", model="m1", file=name)["saves"]) == 1


def test_files_of_the_history_are_checked_as_others_are(page, namespace, tmp_path):
    namespace["net"] = make_net()
    saved(page)
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    for name in (f"{history.FOLDER}/../net.hlab", f"{history.FOLDER}/a/b", f"{history.FOLDER}/.x", ".other/net.hlab"):
        assert page.error("compare", model="m1", file=name)["code"] == "bad-file-name", name
    assert page.error("compare", model="m1", file=f"{history.FOLDER}/none.hlab")["code"] == "not-found"
    assert page.error("save", model="m1", file=f"{history.FOLDER}/a.hlab", overwrite=True)["code"] == "bad-file-name"
    (tmp_path / history.FOLDER).symlink_to(outside)
    assert page.error("reload", model="m1", file=f"{history.FOLDER}/a.hlab", graphs="code")["code"] == "bad-file-name"
    before = (tmp_path / "net.hlab").read_bytes()
    error = page.error("save", model="m1", file="", overwrite=True)
    assert error["code"] == "failed" and "link" in error["message"] and error["next"]
    assert (tmp_path / "net.hlab").read_bytes() == before and not list(outside.iterdir())


def test_a_save_through_a_link_keeps_what_the_link_leads_to(tmp_path):
    (tmp_path / "real").mkdir()
    net, real, link = make_net(), tmp_path / "real" / "run.hlab", tmp_path / "link.hlab"
    net.save(real)
    link.symlink_to(real)
    before = real.read_bytes()
    spoil(net)
    with history.replacing(link) as entry:
        net.save(link)
    assert link.is_symlink() and entry.read_bytes() == before != real.read_bytes()
    assert history.entries(real) == [entry]


# -- failures leave everything as it was -------------------------------------------------------------------------------


FAILURES = {
    "disk full": (OSError, errno.ENOSPC, "No space left on device", "The disk is full"),
    "read-only disk": (OSError, errno.EROFS, "Read-only file system", "mount it for writing"),
    "not permitted": (PermissionError, errno.EPERM, "Operation not permitted", "The system does not let the kernel"),
    "no permission": (PermissionError, errno.EACCES, "Permission denied", "Allow the kernel's user"),
    "quota": (OSError, errno.EDQUOT, "Disk quota exceeded", "share of the disk"),
    "other": (OSError, errno.EIO, "Input/output error", "Try again"),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("where", ["begin", "sync", "rename", "history"])
def test_a_save_that_fails_leaves_file_history_and_model(page, namespace, tmp_path, monkeypatch, failure, where):
    kind, number, text, advice = FAILURES[failure]
    net = namespace["net"] = make_net()
    saved(page)
    spoil(net)
    saved(page)
    spoil(net)
    before, graphs, files = weights(net), graph_state(net), files_in(tmp_path)

    def fail(*args, **keywords):
        raise kind(number, text, str(tmp_path / "net.hlab"))

    if where == "begin":
        monkeypatch.setattr("hybrid_lab.formats.archive.container.ContainerWriter.add_json", fail)
    elif where == "history":
        monkeypatch.setattr(os, "link", fail)
        monkeypatch.setattr("shutil.copy2", fail)
    else:
        monkeypatch.setattr(os, {"sync": "fsync", "rename": "replace"}[where], fail)
    error = page.error("save", model="m1", file="", overwrite=True)
    monkeypatch.undo()
    assert error["code"] == "failed" and error["message"].startswith(text) and advice in error["next"]
    assert same(weights(net), before) and graph_state(net) == graphs
    assert {name: files[name] for name in files} == files_in(tmp_path)


def test_a_file_in_place_of_the_history_is_named(page, namespace, tmp_path):
    net = namespace["net"] = make_net()
    (tmp_path / ".hybrid_lab_history").write_text("mine")
    saved(page)
    spoil(net)
    before = files_in(tmp_path)
    error = page.error("save", model="m1", file="", overwrite=True)
    assert error["next"].startswith(f"Remove or rename {tmp_path / '.hybrid_lab_history'}, or save to another folder")
    assert files_in(tmp_path) == before
    error = page.error("note", model="m1", file="net", note="mine")
    assert error["next"] == f"Remove or rename {tmp_path / '.hybrid_lab_history'}."  # no save would help


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(page, namespace, tmp_path):
    namespace["net"] = make_net()
    saved(page)
    tmp_path.chmod(0o500)
    try:
        error = page.error("save", model="m1", file="", overwrite=True)
    finally:
        tmp_path.chmod(0o700)
    assert error["code"] == "failed" and str(tmp_path) in error["next"]


def test_a_folder_that_is_gone(page, namespace, tmp_path, monkeypatch):
    namespace["net"] = make_net()
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    error = page.error("save", model="m1", file="", overwrite=False)
    assert error["code"] == "failed" and "os.chdir" in error["next"]


def test_a_file_that_somebody_else_replaced_is_asked_about_again(page, namespace, tmp_path):
    namespace["net"] = make_net()
    saved(page)
    (target,) = page.ok("targets", files=["net.hlab"])["targets"]
    assert (target["class"], target["graphs"], target["path"]) == ("Net", 6, str(tmp_path / "net.hlab"))
    make_net().save(tmp_path / "net.hlab")
    theirs = (tmp_path / "net.hlab").read_bytes()
    error = page.error("save", model="m1", file="net.hlab", overwrite=True, replaces=target["version"])
    assert error["code"] == "exists" and "meanwhile" in error["message"]
    assert (tmp_path / "net.hlab").read_bytes() == theirs
    (target,) = page.ok("targets", files=["net.hlab"])["targets"]
    kept = saved(page, "net.hlab", replaces=target["version"])["kept"]
    assert (tmp_path / kept).read_bytes() == theirs


def test_targets_say_what_is_there_and_what_cannot_be_written(page, namespace, tmp_path):
    namespace["net"] = make_net()
    saved(page)
    (tmp_path / "notes.hlab").write_text("{}")
    (tmp_path / "folder.hlab").mkdir()
    rows = page.ok("targets", files=["net", "m.v2", "notes.hlab", "../x", "folder.hlab"])["targets"]
    assert [row["file"] for row in rows] == ["net.hlab", "m.v2.hlab", "notes.hlab", "../x", "folder.hlab"]
    assert [bool(row["version"]) for row in rows] == [True, False, False, False, False]
    assert [bool(row["problem"]) for row in rows] == [False, False, True, True, True]


def test_a_failed_reload_or_compare_leaves_everything(page, namespace, tmp_path, monkeypatch):
    net = namespace["net"] = make_net()
    saved(page)
    spoil(net)
    before, graphs = weights(net), graph_state(net)
    (tmp_path / "cut.hlab").write_bytes((tmp_path / "net.hlab").read_bytes()[:-7])
    (tmp_path / "notes.ipynb").write_text("{}")
    for kind, more in (("reload", {"graphs": "code"}), ("reload", {"graphs": "file"}), ("compare", {})):
        error = page.error(kind, model="m1", file="cut.hlab", **more)
        assert error["code"] == "corrupt" and "another copy" in error["next"]
        error = page.error(kind, model="m1", file="notes.ipynb", **more)
        assert error["code"] == "corrupt" and "Choose an archive" in error["next"]
        assert same(weights(net), before) and graph_state(net) == graphs


# -- reload shows what it changed --------------------------------------------------------------------------------------


def test_a_reload_says_what_it_changed_and_a_comparison_changes_nothing(page, namespace):
    net = namespace["net"] = make_net()
    saved(page)
    spoil(net)
    net.head.bias.grad_req = "null"
    before, graphs = weights(net), graph_state(net)
    difference = page.ok("compare", model="m1", file="")["difference"]
    assert (difference["first"], difference["second"]) == ("net.hlab", "net now")
    assert all(tensor["largest"] == pytest.approx(1) for block in difference["blocks"] for tensor in block["tensors"])
    assert any("grad_req" in change for block in difference["blocks"] for change in block["changes"])
    assert same(weights(net), before) and graph_state(net) == graphs
    body = page.ok("reload", model="m1", file="", graphs="code")
    changed = body["difference"]
    assert (changed["first"], changed["second"]) == ("net before", "net.hlab")
    names = {tensor["name"] for block in changed["blocks"] for tensor in block["tensors"]}
    assert names == set(before) and len(body["diff"]) == len(names)
    assert not any(block["changes"] for block in changed["blocks"])  # a load leaves grad_req


def test_graphs_that_differ_are_shown_before_anything_is_replaced(page, namespace):
    class Changing(Net):
        extra = False

        def hybrid_forward(self, F, x):
            result = super().hybrid_forward(F, x)
            return F.relu(result) if self.extra else result

    namespace["net"] = make_net(Changing)
    saved(page, "a")
    Changing.extra = True
    other = namespace["net"] = make_net(Changing)
    model = page.ok("models")["models"][0]["id"]
    assert page.error("reload", model=model, file="a", graphs="code")["code"] == "differs"
    difference = page.ok("compare", model=model, file="a")["difference"]
    rows = [row for block in difference["blocks"] for row in block["operators"] if row["kind"] != "same"]
    assert [(row["kind"], row["second"], row["block"], row["second_place"]) for row in rows] == [
        ("added", "relu()", "", 0)
    ]
    body = page.ok("reload", model=model, file="a", graphs="file")
    rows = [row for block in body["difference"]["blocks"] for row in block["operators"] if row["kind"] != "same"]
    assert [(row["kind"], row["first"]) for row in rows] == [("removed", "relu()")]
    assert "the file's graphs replace the code" in body["summary"]
    page.ok("undo", model=model, undo=body["undo"])
    assert not other._graphs.pinned


def test_undo_of_graphs_alone_and_of_nothing_says_so(page, namespace):
    namespace["net"] = make_net()
    saved(page)
    body = page.ok("reload", model="m1", file="", graphs="file")
    assert "graphs of 6 Blocks are as they were" in page.ok("undo", model="m1", undo=body["undo"])["summary"]
    body = page.ok("reload", model="m1", file="", graphs="code")
    assert page.ok("undo", model="m1", undo=body["undo"])["summary"] == "the reload had changed nothing"


# -- Blocks ------------------------------------------------------------------------------------------------------------


def test_a_block_is_saved_compared_and_reloaded_alone(page, namespace, tmp_path):
    net = namespace["net"] = make_net()
    body = saved(page, path="body")
    assert body["file"] == "net.body.hlab" and inspect(body["path"])["class"] == "HybridSequential"
    assert page.ok("models")["models"][0]["file"] == "net.hlab"
    before = weights(net)
    spoil(net)
    changed = weights(net)
    assert page.ok("compare", model="m1", file="", path="body")["difference"]["second"] == "net.body now"
    reply = page.ok("reload", model="m1", file="", graphs="code", path="body")
    now = weights(net)
    for name, values in now.items():
        expected = before if name.startswith("body.") else changed
        assert np.array_equal(values, expected[name])
    page.ok("undo", model="m1", undo=reply["undo"])
    assert same(weights(net), changed)
    for kind, more in (("save", {"overwrite": False}), ("reload", {"graphs": "code"}), ("compare", {})):
        assert page.error(kind, model="m1", file="", path="nothing", **more)["code"] == "unknown-block"


# -- nothing reaches a running cell ------------------------------------------------------------------------------------


def test_saves_and_loads_write_nothing_into_a_cell(page, namespace, caplog):
    class Loud(Net):
        def hybrid_forward(self, F, x):
            print("traced")
            return super().hybrid_forward(F, x)

    net = namespace["net"] = make_net(Loud)
    net.hybridize(False)
    net(inputs())
    logger.propagate = True
    caplog.clear()
    output, filters = io.StringIO(), list(logger.filters)
    try:
        with contextlib.redirect_stdout(output), caplog.at_level(logging.INFO, "hybrid_lab"):
            saved(page)
            page.ok("compare", model="m1", file="")
            page.ok("reload", model="m1", file="", graphs="code")
    finally:
        logger.propagate = False
    assert output.getvalue() == "" and not caplog.records and logger.filters == filters


def test_warnings_of_a_save_are_in_its_reply(page, namespace):
    net = namespace["net"] = Net()
    net.initialize()
    assert "no graph, because no HybridBlock of it was ever called" in saved(page)["note"]


def test_losses_and_models_without_a_graph_are_left_out(page, namespace):
    namespace |= {"net": make_net(), "new": make_net(called=False), "eager": Net(), "loss": gluon.loss.L2Loss()}
    namespace["eager"].initialize()
    namespace["eager"](inputs())
    namespace["loss"](inputs(), inputs())
    body = page.ok("models")
    left_out = {model["name"]: body["saving"][model["id"]]["left_out"] for model in body["models"]}
    assert left_out == {"net": "", "new": "no graph yet", "eager": "", "loss": "a loss function"}


def test_names_that_are_taken_are_not_proposed(page, namespace):
    namespace["net"] = make_net()
    for name in ("net", "print", "2 ways", "_x", "free", "new model"):
        saved(page, name)
    proposals = {row["file"]: row["variable"] for row in page.ok("archives")["archives"]}
    assert proposals == {
        "net.hlab": "net_2", "print.hlab": "print_2", "2 ways.hlab": "net_2_ways", "_x.hlab": "x", "free.hlab": "free",
        "new model.hlab": "new_model",
    }  # fmt: skip


# -- autosave ----------------------------------------------------------------------------------------------------------


def train(net, steps, trainer=None):
    trainer = trainer or gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for _ in range(steps):
        with autograd.record():
            loss = net(inputs()).sum()
        loss.backward()
        trainer.step(1)
    return trainer


def test_autosave_every_few_steps(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    net, other = make_net(), make_net()
    saver = mx.lab.autosave(net, "run", every=3)
    train(other, 4)
    assert saver.saves == 0 and not (tmp_path / "run.hlab").exists()  # another model's steps do not count
    train(net, 2)
    assert saver.saves == 0
    train(net, 1)
    assert saver.saves == 1 and saver.problem == "" and "every 3 steps" in repr(saver) and "1 save" in repr(saver)
    at_step_3 = weights(net)
    train(net, 5)
    assert saver.saves == 2 and len(history.entries(tmp_path / "run.hlab")) == 1
    again = make_net()
    again.load(history.entries(tmp_path / "run.hlab")[0])
    assert same(weights(again), at_step_3)
    saver.stop()
    train(net, 3)
    assert saver.saves == 2 and "stopped" in repr(saver)


@pytest.mark.parametrize("workers", [0, 2])
def test_autosave_each_epoch(tmp_path, monkeypatch, workers):
    monkeypatch.chdir(tmp_path)
    net = make_net()
    data = gluon.data.ArrayDataset(np.random.rand(8, 5).astype("float32"))
    saver = mx.lab.autosave(net, every="epoch")
    assert saver.path == str(tmp_path / f"{net.name}.autosave.hlab") and "each epoch" in repr(saver)
    loader = gluon.data.DataLoader(data, 4, num_workers=workers)
    list(loader)
    assert saver.saves == 0  # no step was made
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    for _ in range(3):
        for batch in loader:
            with autograd.record():
                loss = net(batch).sum()
            loss.backward()
            trainer.step(4)
        list(loader)  # an evaluation
    assert saver.saves == 3


def test_autosave_with_a_trainer_resumes_exactly(tmp_path):
    net = make_net()
    trainer = gluon.Trainer(net.collect_params(), "adam")
    mx.lab.autosave(net, tmp_path / "run", every=2, trainer=trainer)
    train(net, 2, trainer)
    report = mx.load_cached_graphs(make_net(), tmp_path / "run.hlab")
    assert report.trainer_states is not None


def test_an_autosave_that_fails_does_not_stop_the_training(page, namespace, tmp_path, monkeypatch):
    net = namespace["net"] = make_net()
    assert page.ok("autosave", model="m1", file="", unit="step", every=2)["autosave"]["saves"] == 0
    train(net, 2)
    state = page.ok("models")["saving"]["m1"]["autosave"]
    assert (state["saves"], state["file"], state["every"], state["problem"]) == (1, "net.autosave.hlab", 2, "")
    files = {"net.autosave.hlab": (tmp_path / "net.autosave.hlab").read_bytes()}

    def fail(*args):
        raise OSError(errno.ENOSPC, "No space left on device", "net.autosave.hlab")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        train(net, 2)
    state = page.ok("models")["saving"]["m1"]["autosave"]
    assert "net.autosave.hlab' cannot be written: No space left on device" in state["problem"] and state["saves"] == 1
    assert {name: content for name, content in files_in(tmp_path).items() if not name.endswith("ignore")} == files
    train(net, 2)
    assert page.ok("models")["saving"]["m1"]["autosave"]["problem"] == ""
    (tmp_path / "net.autosave.hlab").write_text("my notes")
    train(net, 2)
    assert "not an archive any more" in page.ok("models")["saving"]["m1"]["autosave"]["problem"]
    assert (tmp_path / "net.autosave.hlab").read_text() == "my notes"
    assert page.ok("autosave", model="m1", file="", unit="off", every=0)["autosave"] is None
    assert page.ok("models")["saving"]["m1"]["autosave"] is None


def test_autosave_takes_what_makes_sense_only(page, namespace, tmp_path):
    net = namespace["net"] = make_net()
    for every in (0, -1, 2.5, True, "day", None):
        with pytest.raises(HybridLabError, match="every must be"):
            mx.lab.autosave(net, every=every)
    with pytest.raises(HybridLabError, match="needs a Block"):
        mx.lab.autosave(3)
    (tmp_path / "notes.hlab").write_text("mine")
    with pytest.raises(HybridLabError, match="not an intact archive"):
        mx.lab.autosave(net, "notes.hlab")
    assert page.error("autosave", model="m1", file="../x", unit="step", every=2)["code"] == "bad-file-name"
    assert page.error("autosave", model="m1", file="", unit="step", every=0)["code"] == "bad-request"
    assert page.error("autosave", model="m1", file="", unit="day", every=2)["code"] == "bad-request"


def test_an_autosave_lets_go_of_its_model(tmp_path):
    import gc
    import weakref

    net = make_net()
    mx.lab.autosave(net, tmp_path / "run", every=1)
    reference = weakref.ref(net)
    del net
    gc.collect()
    assert reference() is None and all(saver.is_gone for saver in autosaves.running)
    autosaves._listen()


def test_a_save_from_the_panel_and_an_autosave_do_not_meet(page, namespace, tmp_path):
    """The panel's thread saves while another one trains with an autosave of each step."""
    net = namespace["net"] = make_net()
    saver = mx.lab.autosave(net, tmp_path / "run", every=1)
    thread = threading.Thread(target=train, args=(net, 10))
    thread.start()
    try:
        for _ in range(3):
            saved(page)
    finally:
        thread.join()
    assert saver.saves == 10 and saver.problem == ""
    for name in ("run.hlab", "net.hlab"):
        Container.open(tmp_path / name).verify()
    assert json.dumps(page.ok("models")["saving"]["m1"]["autosave"])
    assert nd.ones((1,)).asscalar() == 1 and isinstance(net.head, nn.Dense)
