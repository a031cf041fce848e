"""Runs that are kept: what of them, by several kernels, beside damaged files, and how they leave the notebook."""

import csv
import json
import math
import os
import sqlite3
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab.diagnostics.errors import InputError
from hybrid_lab.lab.messages.connection import PROTOCOL
from hybrid_lab.lab.training import export, keeper
from hybrid_lab.lab.training.current import runs
from hybrid_lab.lab.training.curves import run_data
from hybrid_lab.lab.training.export import MissingPackageError, values_by_step
from hybrid_lab.lab.training.keeper import keepers, setting
from hybrid_lab.lab.training.kept_runs import FILE, KeptRun, RunsFile, RunsFileError
from tests.lab.kernel_process import Kernel
from tests.lab.training.test_training import small_training


@pytest.fixture(autouse=True)
def kept(tmp_path, monkeypatch):
    """Runs are kept in a folder of their own."""
    runs.finish()
    runs.kept.clear()
    monkeypatch.chdir(tmp_path)
    mx.lab.keep_runs(True)
    yield tmp_path
    setting.chosen = None
    runs.finish()
    runs.kept.clear()
    keepers.clear()


def train(steps=20, rate=0.1, /, bad=(), **parameters):
    """A run with a Trainer; its model."""
    net, trainer, step = small_training()
    trainer.set_learning_rate(rate)
    with mx.lab.new_run(**parameters):
        for number in mx.lab.progress(range(steps)):
            loss = step()
            mx.log(loss=math.nan if number + 1 in bad else loss)
    return net


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_numbers_follow_one_another_however_often_a_run_is_written(kept):
    """A run is written again while it goes on, and by each save of its model afterwards."""
    for number in (1, 2, 3):
        net = train()
        for save in range(4):
            net.save(f"net{save}")
        assert [run.number for run in RunsFile().read()] == list(range(1, number + 1))
        assert len(RunsFile().read([number])[0].archives) == 4
    mx.lab.runs()[3].delete()
    train()
    assert [run.number for run in RunsFile().read()] == [1, 2, 4], "the number of a deleted run is not given again"


def test_what_is_kept_of_a_run(kept, monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", str(kept / "a.ipynb"))
    main = sys.modules["__main__"]
    net, trainer, step = small_training()
    monkeypatch.setattr(main, "my_net", net, raising=False)
    with mx.lab.new_run("first", width=8, data="mnist"):
        mx.lab.note("with warm-up")
        for _ in range(300):
            mx.log(loss=step())
        net(mx.nd.ones((2, 4)))
        net.save("model")
    (run,) = mx.lab.runs()
    assert (run.number, run.title, run.state, run.steps, run.notes) == (1, "first", "done", 300, ["with warm-up"])
    wanted = {"optimizer": "SGD", "learning_rate": 0.1, "batch_size": 8, "width": 8, "data": "mnist"}
    assert wanted.items() <= run.parameters.items()
    assert run.model == "my_net: Dense, 15 weights"
    assert [(each.path, each.step) for each in run.archives] == [("model.hlab", 300)]
    assert run.versions["hybrid_lab"] == mx.__version__ and run.versions["numpy"] == np.__version__
    loss = run.curve("loss")
    assert loss["count"] == 300 and len(loss["steps"]) <= 200
    assert run.curve("learning rate")["count"] == 300


def test_curves_are_kept_with_all_digits(kept):
    values = list(np.random.RandomState(0).randn(50))
    with mx.lab.new_run():
        for value in values:
            mx.log(loss=value)
    (run,) = mx.lab.runs()
    for column in ("means", "lows", "highs", "firsts", "lasts"):
        assert run.curve("loss")[column] == values


def test_an_archive_that_is_saved_after_the_run_is_noted(kept):
    net = train(5)
    other = train(5)
    net(mx.nd.ones((2, 4)))
    net.save("later")
    first, second = mx.lab.runs()
    assert ([each.path for each in first.archives], second.archives) == (["later.hlab"], [])
    assert other is not net


@pytest.mark.parametrize(("error", "state"), [
    (ValueError("no"), "failed: ValueError"),
    (KeyboardInterrupt(), "interrupted"),
    (None, "done"),
])  # fmt: skip
def test_how_a_run_ended(kept, error, state):
    mx.log(loss=1.0)
    runs.finish(error)
    assert state in str(mx.lab.runs())


def test_runs_inside_of_a_loop_and_what_is_logged_around_them(kept):
    mx.log(around=0)
    for rate in mx.lab.progress([0.1, 0.2]):
        with mx.lab.new_run(rate=rate):
            for number in mx.lab.progress(range(3)):
                mx.log(loss=number * rate)
        mx.log(around=rate)
    outer = runs.current
    runs.finish()
    found = {run.title: [curve["name"] for curve in run.curves] for run in mx.lab.runs()}
    assert found == {"rate=0.1": ["loss"], "rate=0.2": ["loss"], "": ["around"]}
    assert run_data(outer)["loops"][0]["state"] == "done" and outer.series["around"].count == 3


def test_an_error_in_an_inner_run_ends_it_as_failed(kept):
    with pytest.raises(ZeroDivisionError), mx.lab.new_run("outer"):
        mx.log(a=1)
        with mx.lab.new_run("inner"):
            mx.log(b=1)
            raise ZeroDivisionError
    assert {run.title: run.state for run in mx.lab.runs()} == {"inner": "failed", "outer": "failed"}
    assert runs.current is None


def test_a_run_without_values_is_not_kept(kept):
    with mx.lab.new_run("nothing"):
        list(mx.lab.progress(range(3)))
    assert not os.path.exists(FILE) and len(mx.lab.runs()) == 0
    assert "no runs are kept" in str(mx.lab.runs())


@pytest.mark.parametrize(("chosen", "variable", "is_kept"), [
    (None, "", False),  # this process is no notebook
    (None, "1", True),
    (None, "0", False),
    (True, "0", True),
    (False, "1", False),
])  # fmt: skip
def test_one_setting_switches_it_off(kept, monkeypatch, chosen, variable, is_kept):
    setting.chosen = chosen
    monkeypatch.setenv("HYBRID_LAB_RUNS", variable)
    mx.lab.note("nothing happens", size=3)
    mx.log(loss=1.0)
    runs.finish()
    assert os.path.exists(FILE) is is_kept
    assert ("keep_runs(True)" in mx.lab.runs().headline) is not is_kept


def test_a_run_that_is_under_way_is_written_and_is_lost_with_its_kernel(kept, monkeypatch):
    monkeypatch.setattr(keeper, "FIRST", 0.0)
    monkeypatch.setattr("hybrid_lab.lab.training.run.DRAW", 0.0)
    for number in range(200):
        mx.log(loss=number)
        time.sleep(0.001)
    (run,) = mx.lab.runs()
    assert run.state == "running" and run.curve("loss")["count"] > 0
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    RunsFile(FILE).write(KeptRun("other", time.time(), host=run.host, process=child.pid))
    RunsFile(FILE).write(KeptRun("elsewhere", time.time(), host="another machine", process=1))
    assert [each.state for each in mx.lab.runs()] == ["running", "lost", "running"]


def test_parameters_of_any_kind_become_data(kept):
    with mx.lab.new_run(a=mx.nd.ones((2,)), b=math.nan, c=[1, 2], d=None, e="x" * 9000, f=10**400, g=object):
        mx.log(loss=1)
    (run,) = mx.lab.runs()
    assert (run.parameters["b"], run.parameters["c"], run.parameters["d"]) == ("nan", "[1, 2]", None)
    assert len(run.parameters["e"]) == 500 and run.parameters["f"] == 10**400
    json.dumps(mx.lab.runs().data())


# -- the file ---------------------------------------------------------------------------------------------------------


def test_many_threads_and_processes_write_at_once(kept):
    code = "import time, sys\nfrom hybrid_lab.lab.training.kept_runs import *\n"
    code += f"for n in range(20): RunsFile({FILE!r}).write(KeptRun(sys.argv[1] + str(n), time.time()))"
    processes = [subprocess.Popen([sys.executable, "-c", code, str(number)]) for number in range(3)]

    def write(name):
        for number in range(20):
            RunsFile(FILE).write(KeptRun(f"{name}{number}", time.time()))

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    found = RunsFile(FILE).read()
    assert len(found) == 120 and sorted({run.number for run in found}) == list(range(1, 121))


def foreign(path):
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE runs(anything)")


def newer(path):
    RunsFile(path).write(KeptRun("a", 0.0))
    with sqlite3.connect(path) as file:
        file.execute("PRAGMA user_version = 99")


def truncated(path):
    RunsFile(path).write(KeptRun("a", 0.0, notes=["x" * 20_000]))
    os.truncate(path, 5000)


def overwritten(path):
    RunsFile(path).write(KeptRun("a", 0.0, notes=["x" * 50_000]))
    data = bytearray(open(path, "rb").read())
    data[200:40_000] = os.urandom(39_800)
    open(path, "wb").write(data)


BROKEN = {
    "no database": lambda path: open(path, "wb").write(b"These are no runs." * 100),
    "a database of another program": foreign,
    "a newer version": newer,
    "truncated": truncated,
    "overwritten": overwritten,
    "a folder": os.mkdir,
    "a dangling link": lambda path: os.symlink("nowhere/at/all", path),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_file_that_is_broken_is_a_clear_error_and_training_goes_on(kept, kind):
    BROKEN[kind](kept / FILE)
    before = None if os.path.isdir(FILE) or os.path.islink(FILE) else open(FILE, "rb").read()
    with pytest.raises(RunsFileError, match=FILE):
        mx.lab.runs()
    run = runs.under_way()
    mx.log(loss=1.0)
    runs.finish()
    assert run.series["loss"].count == 1 and run_data(run)["note"].startswith("This run is not kept: ")
    assert before is None or open(FILE, "rb").read() == before


def test_an_empty_file_is_begun(kept):
    open(FILE, "w").close()
    assert len(mx.lab.runs()) == 0
    train(3)
    assert len(mx.lab.runs()) == 1


@pytest.mark.parametrize("change", [
    "UPDATE curves SET data = '{}'",
    "UPDATE curves SET data = 'x'",
    "UPDATE curves SET data = replace(data, '\"steps\": [', '\"steps\": [\"<b>\", ')",
    "UPDATE curves SET data = replace(data, '\"steps\": [', '\"steps\": [7, ')",
    "UPDATE curves SET name = 'other'",
    "UPDATE runs SET record = '[]'",
    "UPDATE runs SET record = replace(record, '\"notes\": []', '\"notes\": 3')",
    "UPDATE runs SET state = 'unheard of'",
])  # fmt: skip
def test_a_damaged_run_is_named_and_can_be_deleted(kept, change):
    train(3)
    with sqlite3.connect(FILE) as file:
        file.execute(change)
    with pytest.raises(RunsFileError, match="run 1.*is damaged"):
        mx.lab.runs()
    train(3)
    RunsFile(FILE).delete([1])
    assert [run.number for run in mx.lab.runs()] == [2]


def test_a_locked_file_does_not_hold_up_a_training(kept, monkeypatch):
    train(3)
    monkeypatch.setattr(keeper, "PATIENCE", 0.2)
    with sqlite3.connect(FILE, isolation_level=None) as file:
        file.execute("BEGIN EXCLUSIVE")
        run = runs.under_way()
        mx.log(loss=1.0)
        runs.finish()
        file.execute("ROLLBACK")
    assert "another program holds it" in run.note


def test_sqlite_is_imported_when_it_is_used():
    code = "import sys, hybrid_lab as mx; mx.log(loss=1.0); print('sqlite3' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# -- what is shown ----------------------------------------------------------------------------------------------------


def test_runs_are_chosen_by_number(kept):
    for rate in (0.1, 0.2, 0.3):
        train(3, rate, rate=rate)
    found = mx.lab.runs()
    assert [run.number for run in found[1, 3]] == [1, 3] == [run.number for run in mx.lab.runs(1, 3)]
    assert [run.number for run in found[-1]] == [3] and [run.number for run in found[-2:]] == [2, 3]
    for wrong in (7, -4, "1", True):
        with pytest.raises(InputError):
            found[wrong]
    found[2].delete()
    assert [run.number for run in mx.lab.runs()] == [1, 3]
    train(3)
    assert [run.number for run in mx.lab.runs()] == [1, 3, 4]  # a number is never used again


def test_the_table_has_what_differs_and_fits_the_screen(kept):
    for rate in (0.1, 0.2):
        train(30, rate, bad=(7,), rate=rate, same="yes")
    text = str(mx.lab.runs())
    assert all(len(line) <= 120 for line in text.splitlines())
    assert "learning_r" in text and "  same" not in text and "(1 NaN)" in text
    assert all(len(line) <= 120 for line in str(mx.lab.runs(1)).splitlines()) and "same=yes" in str(mx.lab.runs(1))


def test_the_html_is_inert_well_formed_and_has_one_chart_for_all_runs(kept):
    for rate in (0.1, 0.2):
        with mx.lab.new_run("<script>alert(1)</script>\u202e", **{"<b>": "<i>"}):
            mx.lab.note("<u>")
            for number in range(300):
                mx.log(**{"<s>": number * rate, "other": math.nan if number == 7 else 1})
    for shown in (mx.lab.runs(), mx.lab.runs(1)):
        page = shown._repr_html_()
        ElementTree.fromstring(page)
        assert "<script" not in page and "<b>&" not in page and "<i>" not in page and "\u202e" not in page
    chart = mx.lab.runs().chart("other")
    assert chart.count('stroke-dasharray="2 3"') == 2 and "NaN at step 8" in chart
    with pytest.raises(InputError, match="no run has a curve 'loss'"):
        mx.lab.runs().chart("loss")


def test_many_runs_have_a_chart_of_the_last_ones(kept):
    for number in range(12):
        with mx.lab.new_run(number=number):
            mx.log(loss=number)
    page = mx.lab.runs()._repr_html_()
    assert "The chart has the last 8 runs" in page and "run 12 number=11" in page and "run 3 number=2" not in page
    assert mx.lab.runs(*range(1, 13)).chart().count("<circle") == 12


# -- what leaves ------------------------------------------------------------------------------------------------------


def test_csv_has_every_bucket_and_every_nan(kept):
    train(450, 0.1, bad=(7, 8, 300), name='a,b\n"c"')
    table, buckets = mx.lab.runs().export("runs.csv")
    (row,) = csv.DictReader(open(table, newline=""))
    assert (row["parameter name"], row["loss not finite"], row["steps"]) == ('a,b\n"c"', "3", "450")
    rows = [row for row in csv.DictReader(open(buckets, newline="")) if row["curve"] == "loss"]
    assert sum(int(row["values"]) for row in rows) == 450
    assert [(row["first step"], row["last step"]) for row in rows if row["mean"] == "NaN"] == [
        ("7", "8"),
        ("300", "300"),
    ]


def test_the_chart_as_png_and_svg(kept):
    pytest.importorskip("matplotlib")
    train(30)
    assert open(*mx.lab.runs().export("runs.png"), "rb").read()[:4] == b"\x89PNG"
    ElementTree.parse(*mx.lab.runs().export("runs.svg"))
    with pytest.raises(InputError, match="not as .xlsx"):
        mx.lab.runs().export("runs.xlsx")


def test_without_matplotlib_an_svg_is_written_and_that_is_said(kept, monkeypatch, caplog):
    train(30)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with caplog.at_level("WARNING", logger="hybrid_lab"):
        (path,) = mx.lab.runs().export("runs.png")
    assert path.endswith("runs.svg") and "an SVG was written instead" in caplog.text


def test_values_by_step(kept):
    train(450, bad=(7, 8))
    (run,) = mx.lab.runs()
    rows = values_by_step([run.curve("loss")])
    assert [step for step, _ in rows] == sorted(step for step, _ in rows) and rows[-1][0] == 450
    assert all(math.isnan(dict(rows)[step]["loss"]) for step in (7, 8))
    assert min(row["loss/min"] for _, row in rows if "loss/min" in row) == min(run.curve("loss")["lows"])


@pytest.mark.parametrize(("call", "name"), [
    (lambda found: found.to_tensorboard("logs"), "tensorboardX"),
    (lambda found: found.to_wandb("project"), "wandb"),
    (lambda found: found.to_mlflow("experiment"), "mlflow"),
])  # fmt: skip
def test_a_package_that_is_missing_is_named(kept, monkeypatch, call, name):
    for each in ("tensorboard", "tensorboardX", "wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, each, None)
    with pytest.raises(MissingPackageError, match=f"pip install {name}"):
        call(mx.lab.runs())


class Written(list):
    """A module of a package that notes what it is told."""

    def __getattr__(self, name):
        return lambda *values, **named: self.append((name, values, named))


def test_tensorboard_gets_every_bucket(kept, monkeypatch):
    train(5, bad=(2,), width=3)
    seen = Written()
    writer = SimpleNamespace(SummaryWriter=lambda folder: seen.append(("folder", folder, {})) or seen)
    monkeypatch.setattr(export, "_writer_module", lambda: writer)
    (folder,) = mx.lab.runs().to_tensorboard("logs")
    assert folder.endswith("run1") and seen[-1][0] == "close"
    scalars = [values for name, values, _ in seen if name == "add_scalar" and values[0] == "loss"]
    assert [values[2] for values in scalars] == [1, 2, 3, 4, 5] and math.isnan(scalars[1][1])
    assert "| width | 3 |" in next(values[1] for name, values, _ in seen if name == "add_text")


def test_wandb_is_offline_unless_asked_otherwise(kept, monkeypatch):
    train(3, width=3)
    seen, options = Written(), []
    seen.id = "abc"
    package = SimpleNamespace(init=lambda **given: options.append(given) or seen)
    monkeypatch.setitem(sys.modules, "wandb", package)
    assert mx.lab.runs().to_wandb("project") == ["abc"] and options[0]["mode"] == "offline"
    assert options[0]["config"]["width"] == 3 and [name for name, _, _ in seen] == ["log", "log", "log", "finish"]
    mx.lab.runs().to_wandb("project", mode="online", entity="me")
    assert (options[1]["mode"], options[1]["entity"]) == ("online", "me")


# -- pages and kernels ------------------------------------------------------------------------------------------------


def test_a_page_lists_the_runs_and_asks_for_curves(kept, page):
    train(3, 0.1, title="<b>")
    train(3, 0.2)
    reply = page.ok("runs", numbers=[])
    assert ([row["number"] for row in reply["runs"]], reply["curves"], reply["problem"]) == ([2, 1], [], "")
    (curves,) = page.ok("runs", numbers=[1])["curves"]
    assert (curves["number"], curves["curves"][0]["name"]) == (1, "loss")
    assert page.ok("runs", numbers=[99])["curves"] == []
    assert page.error("runs", numbers=["1"])["code"] == "bad-request"
    open(FILE, "w").write("no database at all" * 1000)
    assert FILE in page.ok("runs", numbers=[])["problem"]


NOTEBOOK = """
import hybrid_lab as mx
from hybrid_lab import autograd, gluon
from hybrid_lab.gluon import nn
net = nn.Dense(1, in_units=2); net.initialize()
trainer = gluon.Trainer(net.collect_params(), "adam")
x = mx.nd.ones((8, 2))
"""
LOOP = """
for _ in range(50):
    with autograd.record():
        loss = net(x).mean()
    loss.backward(); trainer.step(8)
    mx.log(loss=loss)
"""


def test_runs_of_two_notebooks_of_a_folder(kept):
    kernels = [Kernel(kept), Kernel(kept)]
    try:
        for kernel in kernels:
            kernel.run(NOTEBOOK)
        identities = [kernel.start(LOOP + f"{number} / 0" * number) for number, kernel in enumerate(kernels)]
        kernels[0].finish(identities[0])
        with pytest.raises(AssertionError):
            kernels[1].finish(identities[1])
        page = kernels[0].page()
        page.ok("hello", front_end="0", protocol=PROTOCOL, notebook="")
        rows = page.ok("runs", numbers=[])["runs"]
        kernels[0].run("net(x); net.save('late')")
        assert "late.hlab at step 50" in str(kernels[1].run("print(mx.lab.runs(1), mx.lab.runs(2))"))
        assert kernels[1].run("print(type(mx.lab.runs).__name__)") == "function"
    finally:
        for kernel in kernels:
            kernel.stop()
    assert {row["state"] for row in rows} == {"done", "failed: ZeroDivisionError"}
    found = mx.lab.runs()
    assert [run.curve("loss")["count"] for run in found] == [50, 50] and len({run.code for run in found}) == 2
    assert {run.model for run in found} == {"net: Dense, 3 weights"} and {run.cell for run in found} == {"cell 2"}


SCRIPT = """
import sys
import hybrid_lab as mx
if len(sys.argv) > 1:
    mx.lab.keep_runs(True)
mx.log(loss=1.0)
1 / 0
"""


def test_a_script_is_kept_where_it_asks_for_it(kept):
    (kept / "train.py").write_text(SCRIPT)
    for arguments in ([], ["on"]):
        subprocess.run([sys.executable, "train.py", *arguments], capture_output=True)
        assert os.path.exists(FILE) is bool(arguments)
    (run,) = mx.lab.runs()
    assert (run.notebook, run.state, run.reason) == ("train.py", "failed", "ZeroDivisionError")
