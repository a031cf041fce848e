"""The folder of a Manager: which checkpoints stay, and what is left after kills, damage and several writers."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from training import Training

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.diagnostics import ArchiveError, HybridLabError, LoadMismatchError, SettingError
from hybrid_lab.gluon import nn

#: How many times a process is killed while it writes checkpoints; `make test-checkpoints` takes 200.
KILLS = int(os.environ.get("HYBRID_LAB_KILLS", "10"))


@pytest.fixture
def net():
    net = nn.Dense(2, in_units=3)
    net.initialize()
    return net


def steps(checkpoints):
    return [each.step for each in checkpoints.list()]


def test_a_new_folder_has_none(net, tmp_path):
    checkpoints = mx.checkpoint.Manager(tmp_path / "new", net, None)
    assert checkpoints.list() == [] and checkpoints.restore() is None
    with pytest.raises(HybridLabError, match="has no checkpoint of step 3; its steps: none"):
        checkpoints.restore(3)


def test_the_newest_and_the_best_stay(net, tmp_path):
    checkpoints = mx.checkpoint.Manager(tmp_path, net, None, keep_last=2, keep_best=2)
    for step, metric in enumerate([0.5, 0.1, float("nan"), 0.3, 0.2, 0.9]):
        checkpoints.save(step=step, metric=metric)
    assert steps(checkpoints) == [1, 4, 5]
    assert [each.metric for each in checkpoints.list()] == [0.1, 0.2, 0.9]
    highest = mx.checkpoint.Manager(tmp_path / "max", net, None, keep_last=1, keep_best=1, mode="max")
    for step, metric in enumerate([nd.array([0.5]), 0.7, 0.3]):
        highest.save(step=step, metric=metric)
    assert steps(highest) == [1, 2]


def test_every_step_of_a_number(net, tmp_path):
    checkpoints = mx.checkpoint.Manager(tmp_path, net, None, every=4)
    paths = [checkpoints.save(step=step) for step in range(1, 9)]
    assert [path is not None for path in paths] == [step % 4 == 0 for step in range(1, 9)]
    assert os.path.basename(paths[3]) == "step-00000004.hlab"


def test_a_checkpoint_opens_by_itself(net, tmp_path):
    trainer = gluon.Trainer(net.collect_params(), "adam")
    path = mx.checkpoint.Manager(tmp_path, net, trainer).save(step=7, aux={"note": "half way"})
    x = nd.ones((1, 3))
    assert np.array_equal(gluon.load(path)(x).asnumpy(), net(x).asnumpy())
    other = nn.Dense(2, in_units=3)
    report = mx.load_cached_graphs(other, path)
    assert report.aux == {"note": "half way"} and report.trainer_states is not None
    assert np.array_equal(other(x).asnumpy(), net(x).asnumpy())


def test_your_own_values_come_back(net, tmp_path):
    checkpoints = mx.checkpoint.Manager(tmp_path, net, None)
    checkpoints.save(step=1, aux={"seen": 12, "names": ["a", "b"]})
    assert checkpoints.restore().aux == {"seen": 12, "names": ["a", "b"]}


def test_going_on_from_an_older_step_makes_its_line_the_newest(net, tmp_path):
    checkpoints = mx.checkpoint.Manager(tmp_path, net, None, keep_last=2)
    for step in (100, 200):
        checkpoints.save(step=step)
    checkpoints.restore(100)
    checkpoints.save(step=110)
    assert steps(checkpoints) == [200, 110] and checkpoints.restore().step == 110


def test_a_save_writes_no_line(net, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("hybrid_lab"), "propagate", True)
    checkpoints = mx.checkpoint.Manager(tmp_path, net, None)
    with caplog.at_level(logging.INFO, logger="hybrid_lab"):
        checkpoints.save(step=1, metric=0.5)
    assert not caplog.records
    path = os.path.join(str(tmp_path), "step-00000001.hlab")
    assert repr(checkpoints.list()) == f"[Checkpoint(step=1, metric=0.5, epoch=0, path={path!r})]"


def test_a_damaged_file_is_left_out_with_a_warning(net, tmp_path, caplog):
    checkpoints = mx.checkpoint.Manager(tmp_path, net, None)
    for step in (1, 2):
        path = checkpoints.save(step=step)
    data = bytearray(Path(path).read_bytes())
    for position in (len(data) // 3, len(data) - 40):
        damaged = bytearray(data)
        damaged[position] ^= 1
        Path(path).write_bytes(damaged)
        assert checkpoints.restore().step == 1
        assert "step-00000002.hlab is left out: damaged archive" in caplog.text
        with pytest.raises(ArchiveError):
            checkpoints.restore(2)


def test_all_damaged(net, tmp_path):
    checkpoints = mx.checkpoint.Manager(tmp_path, net, None)
    Path(checkpoints.save(step=1)).write_bytes(b"")
    with pytest.raises(ArchiveError, match="the file is empty"):
        checkpoints.restore()


def test_another_model_or_optimizer_changes_nothing(tmp_path):
    training = Training("sgd", 0, tmp_path)
    training.run(3, save_at=(3,))
    other = Training("adam", 0, tmp_path)
    next(iter(other.loader))
    before, random, values = other.loader.get_state(), mx.random.get_state(), np.random.get_state()[1].tolist()
    with pytest.raises(LoadMismatchError, match="optimizer: Adam here, SGD in the file"):
        other.checkpoints.restore()
    assert other.loader.get_state()["epoch"] == before["epoch"] and mx.random.get_state() == random
    assert np.random.get_state()[1].tolist() == values


@pytest.mark.parametrize("options", [{"keep_last": 0}, {"every": 0}, {"keep_best": 1.5}, {"mode": "best"}])
def test_wrong_settings(net, tmp_path, options):
    with pytest.raises(HybridLabError):
        mx.checkpoint.Manager(tmp_path, net, None, **options)


@pytest.mark.parametrize(("step", "metric"), [(-1, None), (1.5, None), (True, None), ("a", None), (1, "good")])
def test_wrong_steps_and_metrics_leave_no_file(net, tmp_path, step, metric):
    with pytest.raises(HybridLabError):
        mx.checkpoint.Manager(tmp_path, net, None).save(step=step, metric=metric)
    assert not any(tmp_path.iterdir())


def test_a_step_may_be_a_number_of_numpy(net, tmp_path):
    checkpoints = mx.checkpoint.Manager(tmp_path, net, None)
    checkpoints.save(step=np.int64(7))
    assert checkpoints.restore(np.int32(7)).step == 7


def test_arguments_in_another_order(net, tmp_path):
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    for arguments in ((net, tmp_path, trainer), (tmp_path, trainer, net), (tmp_path, nn.Dense, None), ("", net, None)):
        with pytest.raises(SettingError):
            mx.checkpoint.Manager(*arguments)
    with pytest.raises(SettingError, match="the trainer is a DataLoader and no gluon.Trainer"):
        mx.checkpoint.Manager(tmp_path, net, gluon.data.DataLoader([1, 2], 1))


def test_what_a_manager_lacks_is_warned_of(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("hybrid_lab"), "propagate", True)
    training = Training("adam", 0, str(tmp_path))
    training.net(nd.ones((2, 5)))
    training.checkpoints.save(step=1)
    mx.checkpoint.Manager(tmp_path, Training("adam", 0, None).net, None).restore()
    assert "has the position of a loader, which this Manager lacks" in caplog.text
    assert "has states of a Trainer, which this Manager lacks" in caplog.text


def test_an_archive_that_is_no_checkpoint(net, tmp_path):
    net.save(tmp_path / "step-00000001.hlab")
    with pytest.raises(ArchiveError, match="an archive, but not a checkpoint"):
        mx.checkpoint.Manager(tmp_path, net, None).restore(1)


def test_what_is_no_loader(net, tmp_path):
    with pytest.raises(HybridLabError, match="the loader is a list without get_state"):
        mx.checkpoint.Manager(tmp_path, net, None, [1, 2])


def test_a_save_that_cannot_be_written_leaves_the_others(net, tmp_path):
    checkpoints = mx.checkpoint.Manager(tmp_path, net, None)
    checkpoints.save(step=1)
    with pytest.raises(HybridLabError, match="only numbers, strings"):
        checkpoints.save(step=2, aux={"f": open})
    assert steps(checkpoints) == [1] and len(list(tmp_path.iterdir())) == 1


def test_a_bar_above_100_megabytes(net, tmp_path, monkeypatch):
    from hybrid_lab.formats import atomic

    class Bar:
        told = []

        def __init__(self, title, total, unit):
            self.told.append((title, total, unit))

        def step(self, done, current=""):
            self.told.append(done)

        def close(self):
            self.told.append("closed")

    monkeypatch.setattr(atomic, "Progress", Bar)
    checkpoints = mx.checkpoint.Manager(tmp_path, net, None)
    checkpoints.save(step=1)
    assert Bar.told == []
    checkpoints.save(step=2, aux={"large": np.zeros(110_000_000, np.uint8)})
    (title, total, unit), *steps, last = Bar.told
    assert (title, total, unit) == (f"saving {net.name}", 110, "MB")
    assert steps == sorted(steps) and steps[-1] == 110 and last == "closed"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_kills_at_random_moments(tmp_path):
    """After each kill the newest checkpoint opens; it is not older than the last one whose save returned."""
    script = Path(__file__).with_name("kill.py")
    done = subprocess.run(
        [sys.executable, script, tmp_path, str(KILLS), "1"], capture_output=True, text=True, timeout=3000
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{KILLS} kills" in done.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_two_processes_write_into_one_folder(tmp_path):
    script = Path(__file__).with_name("kill.py")
    done = subprocess.run(
        [sys.executable, script, tmp_path, str(max(4, KILLS // 4)), "2"], capture_output=True, text=True, timeout=3000
    )
    assert done.returncode == 0, done.stdout + done.stderr
