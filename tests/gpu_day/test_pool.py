"""Items in worker processes: records, resuming, limits of time, workers that die or lose the GPU."""

from __future__ import annotations

import itertools
import json
import sys

import pytest
from gpu_day.options import Budget, Item
from gpu_day.pool import Worker, WorkersFailed, run_items
from gpu_day.results import Results

#: A worker whose items say by their names what becomes of them.
WORKER = """
import json, os, sys, time
print(json.dumps({"machine": {"gpu": "none"}}), flush=True)
for line in sys.stdin:
    name = json.loads(line)
    if name.startswith("die"):
        print("a last word" * (name == "die"), end="", file=sys.stderr)
        os._exit(3)
    if name.startswith("hang"):
        time.sleep(60)
    answer = {"status": "passed", "result": {"process": os.getpid()}}
    if name.startswith("lose"):
        answer = {"status": "failed", "error": "illegal access", "lost": True}
    print(json.dumps(answer), flush=True)
"""


def run(folder, names, minutes=1.0, jobs=1, limit=30.0, worker=WORKER, clock=None, fresh=False):
    results = Results(folder, "stage")
    waiting = [Item(name, limit) for name in names if not results.is_done(name)]
    budget = Budget(minutes, clock) if clock else Budget(minutes)
    return run_items(waiting, [sys.executable, "-c", worker], results, budget, jobs, fresh), Results(folder, "stage")


def test_every_item_has_a_record_and_the_machine_is_noted_once(tmp_path):
    complete, results = run(tmp_path, [f"item {number}" for number in range(5)], jobs=2)
    assert complete and results.counts() == {"passed": 5} and results.machine == {"gpu": "none"}
    assert results.path.read_text().count("machine") == 1


def test_a_second_run_does_what_the_first_one_left(tmp_path):
    run(tmp_path, ["one", "two"])
    first = Results(tmp_path, "stage").items["one"]
    _, results = run(tmp_path, ["one", "two", "three"])
    assert results.items["one"] == first and list(results.items) == ["one", "two", "three"]


def test_a_line_that_was_cut_off_is_run_again(tmp_path):
    _, results = run(tmp_path, ["one", "two"])
    text = results.path.read_text()
    results.path.write_text(text[:-20])
    assert list(Results(tmp_path, "stage").items) == ["one"]
    complete, results = run(tmp_path, ["one", "two"])
    assert complete and list(results.items) == ["one", "two"]


def test_a_worker_that_dies_is_replaced_and_its_last_words_are_kept(tmp_path):
    complete, results = run(tmp_path, ["one", "die", "two"])
    assert complete and results.counts() == {"passed": 2, "died": 1}
    assert "a last word" in results.items["die"]["error"] and "a last word" in results.log.read_text()
    processes = {results.items[name]["result"]["process"] for name in ("one", "two")}
    assert len(processes) == 2


def test_a_worker_that_dies_without_a_word_leaves_its_status(tmp_path):
    _, results = run(tmp_path, ["die silently"])
    assert results.items["die silently"]["error"] == "its process ended with status 3 and said nothing"


def test_a_worker_that_lost_the_gpu_runs_nothing_more(tmp_path):
    complete, results = run(tmp_path, ["one", "lose", "two"])
    assert complete and results.counts() == {"passed": 2, "failed": 1}
    assert results.items["one"]["result"] != results.items["two"]["result"]
    assert "lost" not in results.items["lose"]


def test_an_item_that_takes_too_long_is_ended_alone(tmp_path):
    complete, results = run(tmp_path, ["hang", "one"], limit=1.0)
    assert complete and results.counts() == {"late": 1, "passed": 1}
    assert results.items["hang"]["error"].splitlines()[-1].endswith(" s, its limit is 1 s")


def test_a_worker_that_waits_in_the_driver_is_left_behind(tmp_path, unkillable):
    complete, results = run(tmp_path, ["hang", "one"], limit=1.0)
    assert complete and results.counts() == {"late": 1, "passed": 1}
    assert f"process {unkillable[0]} was killed and has not ended" in results.items["hang"]["error"]


def test_a_stage_may_give_every_item_a_process_of_its_own(tmp_path):
    _, results = run(tmp_path, ["one", "two", "three"], fresh=True)
    assert len({record["result"]["process"] for record in results.items.values()}) == 3


def test_the_stage_ends_with_its_time_and_goes_on_with_what_was_running(tmp_path):
    clock = itertools.count(step=7).__next__  # seconds pass whenever it is looked at
    names = [f"item {number}" for number in range(100)]
    complete, results = run(tmp_path, names, minutes=2, clock=clock)
    assert not complete and 0 < len(results.items) < 100
    assert list(results.items) == names[: len(results.items)]
    complete, results = run(tmp_path, names)
    assert complete and list(results.items) == names


def test_what_is_running_when_the_time_is_up_has_no_record(tmp_path):
    complete, results = run(tmp_path, ["one", "hang"], minutes=2 / 60)
    assert not complete and list(results.items) == ["one"]


def test_what_was_running_is_named_when_the_time_is_up(tmp_path, monkeypatch):
    begun, give = [], Worker.give

    def give_and_note(worker, item, now):
        give(worker, item, now)
        begun.append(item)

    monkeypatch.setattr(Worker, "give", give_and_note)
    results, budget = Results(tmp_path, "stage"), Budget(20 / 60, lambda: 50.0 if begun else 0.0)
    assert not run_items([Item("hang", 100.0)], [sys.executable, "-c", WORKER], results, budget, 1)
    assert not results.items and results.running == {"hang": 50.0}


@pytest.mark.parametrize(
    "worker, said",
    [("import json; print(json.dumps({'error': 'no GPU here'}))", "no GPU here"), ("raise SystemExit('bad')", "bad")],
)
def test_a_worker_that_cannot_start_ends_the_stage_with_the_reason(tmp_path, worker, said):
    with pytest.raises(WorkersFailed, match=said):
        run(tmp_path, ["one"], worker=worker)


def test_items_that_did_not_pass_are_run_again_when_asked(tmp_path):
    _, results = run(tmp_path, ["one", "lose"])
    assert results.is_done("lose") and not results.is_done("lose", again=True)
    assert results.is_done("one", again=True)
    assert all(isinstance(json.loads(line), dict) for line in results.path.read_text().splitlines())
