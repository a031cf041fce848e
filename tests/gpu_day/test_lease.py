"""right and fast: the two commands for a GPU that is lent for a quarter-hour."""

from __future__ import annotations

import tarfile
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from gpu_day import lease, report
from gpu_day.options import Budget, Options
from gpu_day.pool import Worker
from gpu_day.results import Results

from tests.gpu_day.test_stages import gpu_day

#: A GPU without its chip and its engine: what becomes of an item is in its plan, `BROKEN`, by name.
WORKER = """
import json, os, sys, time
BROKEN = {broken!r}
machine = dict.fromkeys(("memory MiB", "multiprocessors", "L2 MiB"), 1) | {{"gpu": "Planned", "target": "sm90"}}
print(json.dumps({{"machine": machine}}), flush=True)
for line in sys.stdin:
    name = json.loads(line)
    plan = BROKEN.get(name, "")
    if plan == "hang":
        time.sleep(60)
    if plan == "die":
        print("CUDA error: unspecified launch failure", file=sys.stderr)
        os._exit(134)
    kernel = {{"name": name, "kind": "pointwise", "bytes": 1e6, "flops": 0, "times": 1, "left_out": {{}},
              "seconds": {{"rule": 1e-5}}}}
    result = {{"ms": 2.0, "first s": 1.0, "compiled": 3, "host ms": 1.0, "host us a launch": None, "launches": None,
              "kernels": None, "memory MiB": 1.0, "copy GB/s": 1000.0, "flops": 0, "torch": {{"torch": 1e-5}}}}
    answer = {{"status": "passed", "result": result if "train" in name else result | {{"kernels": [kernel]}}}}
    if plan in ("fail", "lose"):
        answer = {{"status": "failed", "error": "Traceback ...\\nCUDA error: " + plan}}
    print(json.dumps(answer | ({{"lost": True}} if plan == "lose" else {{}})), flush=True)
"""


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """A function that runs `fast` with items that fail, hang, die or lose the GPU; it gives the status.

    after : what the clock of the stages says once an item hangs; before, no time passes
    """
    give, hanging = Worker.give, []
    monkeypatch.setattr(lease, "probe", lambda options: True)
    monkeypatch.setattr(lease, "SCRIPT", tmp_path / "worker.py")

    def run(after=0.0, **broken):
        def give_and_note(worker, item, now):
            give(worker, item, now)
            hanging.extend([item.name] * (broken.get(item.name) == "hang"))

        monkeypatch.setattr(Worker, "give", give_and_note)
        monkeypatch.setattr(lease, "Budget", lambda minutes: Budget(minutes, lambda: after if hanging else 0.0))
        (tmp_path / "worker.py").write_text(WORKER.format(broken=broken))
        return lease.run("fast", Options("steps", str(tmp_path)), 600)

    return run


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


def test_fast_goes_on_beside_a_failure_a_hang_and_a_lost_context_and_its_report_says_so(tmp_path, planned, capsys):
    broken = {"lenet": "fail", "resnet18": "hang", "lstm 2x200": "lose", "encoder 6 layers": "die"}
    broken = {f"train, {net}, hybrid, tf32": what for net, what in broken.items()} | {"memory gelu, float32": "lose"}
    status = planned(lease.STEP_LIMIT + 1, **broken)
    text = capsys.readouterr().out
    names, kernels = lease.step_names(Options("steps", "")), lease.kernel_names()
    assert status == 2 and text.strip().endswith("NOT RIGHT"), text
    assert f"steps: {len(names)} of {len(names)} run, 4 wrong" in text
    assert f"kernels: {len(kernels)} of {len(kernels)} run, 1 wrong" in text
    said = {"fail": "failed", "lose": "failed", "hang": "late", "die": "died"}
    steps = Results(tmp_path, "steps").items
    assert {name: said[what] for name, what in broken.items() if name in steps} == {
        name: record["status"] for name, record in steps.items() if record["status"] != "passed"
    }
    assert report.write(tmp_path, tmp_path) == 0
    page = (tmp_path / "gpu-planned.md").read_text()
    for line in (
        f"| steps | {len(names) - 4} | 2 | 1 | 1 | 0 | 0 |",
        f"| kernels | {len(kernels)} | 1 | 0 | 0 | 0 | 0 |",
        "- steps, train, lenet, hybrid, tf32: failed; CUDA error: fail",
        f"- steps, train, resnet18, hybrid, tf32: late; it was ended after {lease.STEP_LIMIT + 1:.0f} s, its limit is ",
        "- steps, train, encoder 6 layers, hybrid, tf32: died; CUDA error: unspecified launch failure",
        "- kernels, memory gelu, float32: failed; CUDA error: lose",
        "| train, lenet, tf32 |  | 2 | 2 | 2 | 1.00 | 1.00 |",
        "| train, lstm 2x200, torch eager, tf32 | 1.00 | 3 | 1 |  |  |  | 1 |",
    ):
        assert line in page, page
    assert "not reached |\n" in page and "What was not reached" not in page


def test_fast_keeps_its_time_beside_a_hang_and_its_report_names_what_was_not_reached(tmp_path, planned, capsys):
    hanging = "train, encoder 6 layers, hybrid, tf32"
    status = planned(1000.0, **{hanging: "hang"})
    names = lease.step_names(Options("steps", ""))
    text = capsys.readouterr().out
    assert status == 0 and "items not reached: " in text
    assert f"  unfinished {hanging}: the time was up" in text
    left = Results(tmp_path, "steps").unreached
    begun = [name for name, ran in left.items() if ran]
    assert begun == [hanging] and set(left) == set(names[names.index(hanging) :])
    assert report.write(tmp_path, tmp_path) == 0
    page = (tmp_path / "gpu-planned.md").read_text()
    assert f"- steps, {hanging}: the time was up after " in page and f"- steps: {list(left)[1]}; " in page
    assert f"| steps | {names.index(hanging)} | 0 | 0 | 0 | 0 | {len(left)} |" in page
    # The next command does what is left, and the page forgets it.
    planned()
    assert not Results(tmp_path, "steps").unreached
