"""Training in the lab: bars of loops, curves of values, what stays of them, and what they cost."""

import io
import math
import re
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon
from hybrid_lab.gluon import nn
from hybrid_lab.gluon.step import boundary
from hybrid_lab.lab.training import run as runs_of_cells
from hybrid_lab.lab.training.current import KEPT, Runs, runs
from hybrid_lab.lab.training.curves import run_data
from hybrid_lab.lab.training.html import run_html, run_text
from hybrid_lab.lab.training.run import Loop


@pytest.fixture(autouse=True)
def fresh_runs():
    """No run is under way, and none came before."""
    runs.finish()
    runs.kept.clear()
    yield
    runs.finish()
    runs.kept.clear()
    assert boundary.listeners == []


@pytest.fixture
def at_once(monkeypatch):
    """Everything is measured and drawn at every call."""
    monkeypatch.setattr(runs_of_cells, "SHARE", 0)
    monkeypatch.setattr(runs_of_cells, "NORM_SHARE", 0)


def data():
    return run_data(runs.under_way())


def curve(name):
    return next(each for each in data()["curves"] if each["name"] == name)


def small_training():
    """A model, its Trainer, and a step that returns the loss."""
    net = nn.Dense(3, in_units=4)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    x = mx.nd.array(np.random.RandomState(0).rand(8, 4).astype("float32"))

    def step():
        with autograd.record():
            loss = (net(x) ** 2).sum()
        loss.backward()
        trainer.step(8)
        return loss

    return net, trainer, step


# -- loops ------------------------------------------------------------------------------------------------------------


def test_a_loop_gives_its_items_and_counts_its_steps():
    assert list(mx.lab.progress("abc", "letters")) == ["a", "b", "c"]
    (loop,) = data()["loops"]
    assert (loop["title"], loop["done"], loop["total"], loop["state"], loop["left"]) == ("letters", 3, 3, "done", None)
    assert loop["text"].startswith("3 steps in ")


def test_loops_inside_of_loops():
    for _ in mx.lab.progress(range(2), "epochs", unit="epoch"):
        for _ in mx.lab.progress(range(5), "batches"):
            pass
        assert [(each["title"], each["depth"]) for each in data()["loops"]] == [("epochs", 0), ("batches", 1)]
    assert [each["title"] for each in data()["loops"]] == ["epochs"]


def test_many_loops_one_after_the_other_are_counted():
    for epoch in range(20):
        for _ in mx.lab.progress(range(2), f"epoch {epoch}"):
            pass
    shown = data()
    assert (shown["earlier_loops"], [each["title"] for each in shown["loops"]][-1]) == (12, "epoch 19")
    assert len(shown["loops"]) == 8


def test_a_generator_has_no_length_and_no_time_left():
    loop = mx.lab.progress(number for number in range(4))
    with pytest.raises(TypeError, match="generator has no len"):
        len(loop)
    assert list(loop) == [0, 1, 2, 3]
    assert data()["loops"][0]["total"] is None and "of" not in data()["loops"][0]["text"]
    assert len(mx.lab.progress(iter("abc"), total=3)) == 3


def test_a_data_loader_and_how_often_it_may_be_gone_through():
    loader = gluon.data.DataLoader(gluon.data.ArrayDataset(np.arange(10.0)), batch_size=3)
    loop = mx.lab.progress(loader)
    assert len(loop) == 4 and [len(batch) for batch in loop] == [len(batch) for batch in loop] == [3, 3, 3, 1]


def test_what_is_no_iterable_is_refused_at_once():
    with pytest.raises(TypeError, match="such as a DataLoader, not int"):
        mx.lab.progress(3)
    with pytest.raises(ValueError, match="not -1"):
        mx.lab.progress([], total=-1)


def test_a_loop_that_is_left_early_says_where():
    for number in mx.lab.progress(range(10)):
        if number == 4:
            break
    (loop,) = data()["loops"]
    assert (loop["state"], loop["done"]) == ("stopped", 4)
    assert loop["text"].startswith("stopped after 4 of 10 steps")


@pytest.mark.parametrize(("error", "state", "words"), [
    (ValueError("no"), "failed", "failed: ValueError"),
    (KeyboardInterrupt(), "interrupted", "interrupted"),
])  # fmt: skip
def test_an_error_in_a_loop_is_what_stays(error, state, words):
    run = runs.under_way()
    iterator = iter(mx.lab.progress(range(10)))
    next(iterator), next(iterator)
    mx.log(loss=1.0)
    runs.finish(error)
    shown = run_data(run)
    assert (shown["state"], shown["loops"][0]["state"], shown["loops"][0]["left"]) == (state, state, None)
    assert words in run_text(shown) and words in run_html(shown)


# -- values -----------------------------------------------------------------------------------------------------------


def test_values_of_all_kinds(at_once):
    mx.log(a=1, b=np.float32(0.5), c=mx.nd.array([1, 2, 6]), d=np.array([True, False]))
    mx.log(a=2)
    assert [each["last"] for each in data()["curves"]] == [2.0, 0.5, 3.0, 0.5]
    assert curve("a")["steps"] == [1, 2] and curve("b")["last_step"] == 1


@pytest.mark.parametrize(("value", "kind"), [("high", "str"), (None, "NoneType"), (np.zeros(0), "an empty array")])
def test_what_is_no_number_is_refused(value, kind):
    with pytest.raises(TypeError, match=f"for 'loss', not {kind}"):
        mx.log(loss=value)


def test_a_run_keeps_a_bounded_number_of_curves(at_once):
    mx.log(**{f"value{number}": number for number in range(40)})
    shown = data()
    assert len(shown["curves"]) == 32 and shown["note"] == "A run keeps 32 curves: 8 names more were logged."


def test_a_trainer_gives_learning_rate_gradient_norm_and_step_time(at_once):
    net, trainer, step = small_training()
    for number in mx.lab.progress(range(3)):
        trainer.set_learning_rate(0.1 / (1 + number))
        mx.log(loss=step())
    assert [each["name"] for each in data()["curves"]] == ["loss", "learning rate", "gradient norm", "step time"]
    gradients = np.concatenate([each.grad().asnumpy().ravel() for each in net.collect_params().values()])
    assert curve("gradient norm")["last"] == pytest.approx(np.linalg.norm(gradients) / 8, rel=1e-5)
    assert curve("learning rate")["means"] == pytest.approx([0.1, 0.05, 0.1 / 3], rel=1e-5)
    assert curve("loss")["steps"] == [1, 2, 3] == curve("gradient norm")["steps"]
    assert curve("step time")["steps"] == [2, 3]


def test_a_slow_gradient_norm_does_not_thin_the_other_curves(monkeypatch):
    """Each of them has a pace of its own: a norm that takes a second is not measured again for ten minutes."""
    now = [0.0]

    def slow_norm(trainer):
        now[0] += 1.0
        return 1.0, False

    monkeypatch.setattr(runs_of_cells, "perf_counter", lambda: now[0])
    monkeypatch.setattr(runs_of_cells, "gradient_norm", slow_norm)
    _, _, step = small_training()
    for _ in mx.lab.progress(range(5)):
        step()
        now[0] += 1.0
    assert curve("gradient norm")["steps"] == [1, 2]  # the first one does not count, it imports and allocates
    assert curve("learning rate")["steps"] == [1, 2, 3, 4, 5]
    assert curve("step time")["means"] == [1.0e3] * 4


def test_the_steps_are_those_of_the_first_trainer(at_once):
    (_, _, one), (_, _, two) = small_training(), small_training()
    mx.log(start=0)
    for _ in range(3):
        one()
        two()
    mx.log(end=1)
    assert curve("end")["steps"] == [3] == curve("learning rate")["steps"][-1:]


def test_a_trainer_is_not_recorded_where_nobody_looks():
    small_training()[2]()
    assert boundary.listeners == [] and runs.current is None


# -- runs -------------------------------------------------------------------------------------------------------------


def test_each_cell_is_a_run_and_the_last_ones_are_kept(run):
    run("import hybrid_lab as mx", *["mx.log(loss=1.0)"] * (KEPT + 2), "1 + 1")
    assert runs.current is None and [each.label for each in runs.kept] == [f"cell {n}" for n in range(5, 5 + KEPT - 1)]
    assert {each.state for each in runs.kept} == {"done"}


def test_a_cell_that_fails_ends_its_run(shell):
    shell.run_cell("import hybrid_lab as mx\nfor n in mx.lab.progress(range(9)):\n    mx.log(loss=n)\n    1 / (3 - n)")
    (run,) = runs.kept
    assert (run.state, run.reason) == ("failed", "ZeroDivisionError")
    assert (run.loops[0].state, run.loops[0].done) == ("stopped", 3)


# -- pictures ---------------------------------------------------------------------------------------------------------


def picture(at_once):
    for run in range(2):
        for step in range(30):
            mx.log(loss=1 / (step + 1 + run), val_loss=2 / (step + 1), **{"<b>&": step})
        shown = data()
        runs.finish()
    return shown


def test_the_picture_is_inert_and_well_formed(at_once):
    shown = picture(at_once)
    text = run_html(shown, [run_data(each) for each in runs.kept])
    assert "<script" not in text and " on" not in re.sub(r">[^<]*<", "><", text) and "<b>&" not in text
    assert "&lt;b&gt;&amp;" in text
    ElementTree.fromstring(text)


def test_curves_of_one_word_share_a_chart_and_earlier_runs_are_faint(at_once):
    shown = picture(at_once)
    alone, after = run_html(shown), run_html(shown, [run_data(runs.kept[0])])
    assert alone.count('role="img"') == 2 and 'stroke-opacity=".28"' not in alone
    assert after.count('stroke-opacity=".28"') == 3
    assert "loss: 0.0323 at step 30, smallest 0.0323, largest 0.5" in after


def test_a_picture_says_where_values_were_not_finite(at_once):
    mx.log(loss=1.0)
    mx.log(loss=math.nan)
    assert "loss: NaN at step 2, smallest 1, largest 1, NaN at step 2" in run_html(data())


@pytest.mark.parametrize("values", [[0.0], [5.0, 5.0], [1e300, -1e300], [1e-300, 2e-300], [-1.0, -2.0]])
def test_charts_of_all_ranges(at_once, values):
    for value in values:
        mx.log(loss=value)
    text = run_html(data())
    assert "nan" not in text and "inf" not in text
    ElementTree.fromstring(text)


def test_time_left():
    loop = Loop("", "step", 100, 0)
    loop.done, loop._mark, loop.started = 50, (loop.started - 10, 0), loop.started - 10
    loop.measure()
    run = runs.under_way()
    run.loops.append(loop)
    assert run_data(run)["loops"][0]["left"] == pytest.approx(10, rel=0.01)
    assert run_data(run)["loops"][0]["text"].startswith("50 of 100, 5.0 steps/s, ")


def test_a_terminal_gets_bars(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    seen = Terminal()
    monkeypatch.setattr(sys, "stderr", seen)
    for _ in mx.lab.progress(range(3), "epochs", unit="epoch"):
        mx.log(loss=0.5)
    assert "epochs: 100%" in seen.getvalue() and "3/3" in seen.getvalue() and "loss=0.5" in seen.getvalue()


def test_a_file_gets_nothing(capsys):
    for _ in mx.lab.progress(range(3)):
        mx.log(loss=0.5)
    assert capsys.readouterr() == ("", "")


CELL = """
import hybrid_lab as mx
for step in mx.lab.progress(range(5), "train"):
    mx.log(loss=1 / (step + 1))
print("after")
"""


def test_a_notebook_keeps_one_picture(tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL), nbformat.v4.new_code_cell("1 / 0")])
    client = nbclient.NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=60,
        allow_errors=True,
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    shown, printed = notebook.cells[0].outputs
    assert printed.text == "after\n" and "train: 5 steps in " in shown.data["text/plain"]
    ElementTree.fromstring(shown.data["text/html"])
    assert "loss: 0.2 at step 5, smallest 0.2, largest " in shown.data["text/plain"]


# -- pages ------------------------------------------------------------------------------------------------------------


def test_a_page_asks_for_the_curves(page, at_once):
    mx.log(loss=1.0)
    (run,) = page.ok("curves")["runs"]
    assert (run["state"], run["curves"][0]["means"]) == ("running", [1.0])
    assert page.ok("watch", visible=False) == {}
    assert page.error("watch", visible=1)["code"] == "bad-request"


def test_a_trainer_is_recorded_for_a_page(at_once):
    watched = Runs()
    watched.watch(True)
    assert len(boundary.listeners) == 1
    watched.finish()
    assert len(boundary.listeners) == 1
    watched.watch(False)
    assert boundary.listeners == []


@pytest.mark.parametrize(("unit", "units"), [("step", "steps"), ("batch", "batches"), ("epoch", "epochs")])
def test_units_in_the_plural(unit, units):
    list(mx.lab.progress(range(2), unit=unit))
    assert data()["loops"][0]["text"].startswith(f"2 {units} in ")


def test_a_page_that_connects_during_a_training_gets_its_end(at_once):
    ended = Runs()
    run = ended.under_way()
    run.log({"loss": 1.0})
    pushed = []
    ended.connect(lambda run: pushed.append(run.state))
    ended.finish()
    assert pushed[-1] == "done"
