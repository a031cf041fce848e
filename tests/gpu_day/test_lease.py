"""right and fast: the two commands for a GPU that is lent for a quarter-hour."""

from __future__ import annotations

import tarfile
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from gpu_day import lease
from gpu_day.options import Options

from tests.gpu_day.test_stages import gpu_day


@pytest.fixture
def phases(monkeypatch):
    """(stage, seconds, items) of each phase; every item of a stage in `broken` fails, nothing else is run."""
    found, broken = [], set()

    def run_items(items, command, results, budget, jobs, fresh=False):
        found.append((Path(results.path).stem, budget.left(), [item.name for item in items]))
        for item in items:
            error = {"status": "failed", "error": "a wrong number"}
            results.add(item.name, error if found[-1][0] in broken else {"status": "passed", "result": {}})

    monkeypatch.setattr(lease, "run_items", run_items)
    monkeypatch.setattr(lease, "sanitize", lambda *given: None)
    monkeypatch.setattr(lease, "tests", lambda options, seconds: ["one test"])
    monkeypatch.setattr(lease, "probe", lambda options: True)
    return found, broken


@pytest.mark.long
def test_a_part_runs_on_a_gpu_and_leaves_one_archive(tmp_path):
    text = gpu_day(tmp_path, "right", "--simulate", "sm90", "--only", "pointwise, small, float32", "--seconds", "100")
    assert "0 of 48" in text and "smoke: 1 of 1 run, 0 wrong" in text and text.strip().endswith("right")
    with tarfile.open(tmp_path / "out" / "results.tar.xz") as file:
        assert {"probe.txt", "smoke.jsonl", "smoke.log"} <= set(file.getnames())


@pytest.mark.parametrize("part", lease.PARTS)
def test_no_phase_outlasts_its_part(tmp_path, phases, part):
    found, _ = phases
    assert lease.run(part, Options("smoke", str(tmp_path)), 60) == 0
    assert found and all(0 < seconds <= 60 for _, seconds, _ in found)
    assert len({(stage, name) for stage, _, names in found for name in names}) == sum(len(each[2]) for each in found)


def test_what_fails_is_named_and_the_rest_still_runs(tmp_path, phases, capsys):
    found, broken = phases
    broken.add("smoke")
    assert lease.run("right", Options("smoke", str(tmp_path)), 60) == 2
    assert [stage for stage, *_ in found] == ["smoke", "smoke", "tests"]
    text = capsys.readouterr().out
    assert "pointwise, small, float32: a wrong number" in text and "NOT RIGHT" in text


def test_items_that_the_time_did_not_reach_are_counted(tmp_path, phases, monkeypatch, capsys):
    monkeypatch.setattr(lease, "run_items", lambda *given, **keywords: None)
    assert lease.run("right", Options("smoke", str(tmp_path), only="pointwise, small, float32"), 60) == 0
    assert capsys.readouterr().out.strip().endswith("right; items not reached: 1")


def test_items_that_run_when_the_time_is_up_are_named(tmp_path, monkeypatch, capsys, phases):
    def run_items(items, command, results, budget, jobs, fresh=False):
        results.running = {item.name: 42.4 for item in items}

    monkeypatch.setattr(lease, "run_items", run_items)
    assert lease.run("right", Options("smoke", str(tmp_path), only="pointwise, small, float32"), 60) == 0
    assert "  unfinished pointwise, small, float32: the time was up after 42 s of it" in capsys.readouterr().out


def test_a_part_that_is_interrupted_says_so(tmp_path, monkeypatch, capsys, phases):
    def interrupted(*given, **keywords):
        raise KeyboardInterrupt

    monkeypatch.setattr(lease, "run_items", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lease.run("right", Options("smoke", str(tmp_path)), 60)
    assert capsys.readouterr().out.strip().endswith("interrupted")
    assert (tmp_path / "results.tar.xz").exists()


def test_a_first_kernel_that_hangs_ends_the_part(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lease, "PROBING", 0.5)
    monkeypatch.setattr(lease, "_PROBE", "import time  # {paths} {options}\ntime.sleep(60)")
    began = time.monotonic()
    assert lease.run("fast", Options("smoke", str(tmp_path)), 60) == 1
    assert "has not run after" in capsys.readouterr().out and time.monotonic() - began < 50


def test_a_first_kernel_that_waits_in_the_driver_ends_the_part(tmp_path, monkeypatch, capsys, unkillable):
    monkeypatch.setattr(lease, "PROBING", 0.5)
    monkeypatch.setattr(lease, "_PROBE", "import time  # {paths} {options}\ntime.sleep(60)")
    assert lease.run("right", Options("smoke", str(tmp_path)), 60) == 1
    assert "has not run after" in capsys.readouterr().out and len(unkillable) == 1


def test_tests_whose_collection_hangs_are_left_out(tmp_path, capsys):
    assert lease.tests(Options("tests", str(tmp_path)), 0.01) == []
    assert "tests: left out: the tests were not collected after" in capsys.readouterr().out


def test_kernels_for_another_triton_are_not_passed_over_in_silence(tmp_path, capsys):
    (tmp_path / "kernels-sm90-triton0.0.1.tar.xz").touch()
    lease._warn_of_other_triton(tmp_path)
    assert "WARNING: kernels-sm90-triton0.0.1.tar.xz is not for Triton" in capsys.readouterr().out
