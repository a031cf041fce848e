"""The choice between engines: compared on real calls, checked, remembered on disk, never in the way of a call."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from hybrid_lab import engines, symbol
from hybrid_lab.engines import Engine
from hybrid_lab.engines.choice import contest as contests
from hybrid_lab.engines.choice import executables, memory
from hybrid_lab.engines.choice.contest import Contest, difference
from hybrid_lab.engines.choice.engine import ChoosingEngine, ContestExecutable
from hybrid_lab.engines.engine import Executable
from hybrid_lab.graph import Graph
from hybrid_lab.graph.specialize import specialize
from tests.engines.random_graphs import random_case
from tests.engines.test_random_graphs import engine_named, problems
from tests.graph.building import graph_of, uniform


class Clock:
    """Time that only the engines below let pass."""

    now = 0.0

    def __call__(self):
        return self.now


class Paced(Engine):
    """The NumPy engine, taking as long as it is told and giving other numbers if asked to."""

    def __init__(self, name, clock, seconds, wrong=0.0, fails=False):
        self.name = self.title = name
        self.clock, self.seconds, self.wrong, self.fails = clock, seconds, wrong, fails
        self.compiled, self.runs, self.packed = 0, 0, []

    def compile(self, graph, **options):
        if self.fails:
            raise RuntimeError("no such kernel\nmore")
        self.compiled += 1
        inner = engines.get("numpy").compile(graph)
        engine = self

        def run(inputs, rng):
            engine.runs += 1
            engine.clock.now += engine.seconds
            return [result + result.dtype.type(engine.wrong) for result in inner.run(inputs, rng)]

        class Packing(Executable):
            def pack(self, inputs, token=None):
                engine.packed.append(token)

            def unpack(self):
                engine.packed.append("unpacked")

        inner.report.operators = {self.name: 2}
        inner.report.regions = [None]
        return Packing(graph, run, inner.report)


@pytest.fixture
def clock(monkeypatch, tmp_path):
    monkeypatch.setenv("HYBRID_LAB_CACHE", str(tmp_path))
    monkeypatch.setattr(contests, "PATIENCE", 0.5)
    monkeypatch.setattr(contests, "IMPORTS", {})
    monkeypatch.setattr(contests, "_busy", lambda: False)
    return Clock()


def net(F, x, w):
    return F.exp(F.dot(x, w))


SHAPES = [(6, 5), (5, 4)]
DATA = uniform(*SHAPES)
WANTED = np.exp(DATA[0] @ DATA[1])


def contest(clock, *rivals, roles="data data"):
    made = Contest([graph_of(net, *SHAPES, roles=roles)], {rival.name: rival for rival in rivals}, {}, clock=clock)
    made.executables = lambda: [ContestExecutable(made, 0)]
    return made


def call(executable, times=1):
    for _ in range(times):
        assert np.allclose(executable(DATA)[0], WANTED, rtol=1e-5)


def test_the_fastest_takes_over_after_the_second_call(clock, caplog):
    slow, fast, slower = Paced("slow", clock, 0.01), Paced("fast", clock, 0.004), Paced("slower", clock, 0.02)
    made = contest(clock, slow, fast, slower)
    (executable,) = made.executables()
    call(executable)
    assert (slow.runs, fast.compiled) == (1, 0)
    with caplog.at_level(logging.INFO, "hybrid_lab"):
        call(executable)
    assert made.leader == "fast" and not made.open
    assert "net: fast takes over from slow: 4 instead of 10 ms a call" in caplog.text
    before = slow.runs, fast.runs, slower.runs
    call(executable, 3)
    assert (slow.runs, fast.runs, slower.runs) == (before[0], before[1] + 3, before[2])
    report = executable.report
    assert report.choice == "fast, measured" and executable.where == "fast on the CPU"
    assert report.candidates == {"slow": "10 ms", "fast": "4 ms", "slower": "20 ms"}
    assert "choice: fast, measured (slow 10 ms; fast 4 ms; slower 20 ms)" in str(report)


def test_forward_and_backward_are_decided_together(clock):
    graph = graph_of(net, *SHAPES)
    parts = specialize(graph, SHAPES, ["float32"] * 2, True, [0, 1])

    class Uneven(Paced):
        def compile(self, graph, **options):
            made = super().compile(graph, **options)
            backward = "backward" in graph.name
            run = made.run

            def paced(inputs, rng):
                self.clock.now += self.backward if backward else 0.0
                return run(inputs, rng)

            made.run = paced
            return made

    one, two = Uneven("one", clock, 0.010), Uneven("two", clock, 0.004)
    one.backward, two.backward = 0.0, 0.015
    training = ChoosingEngine([one, two]).compile_training(parts.forward, parts.backward, parts.sources, 1)
    contest = training.forward.contest
    contest.clock = clock
    wanted = np.exp(DATA[0] @ DATA[1]) @ DATA[1].T

    def step():
        results, kept = training.begin(DATA, (0, 0))
        given = {"input": DATA, "output": results, "saved": kept.saved, "head": [np.ones((6, 4), np.float32)]}
        operands = [given[kind][index] for kind, index in parts.sources]
        assert np.allclose(training.finish(kept, operands, (0, 0))[0], wanted, rtol=1e-4)

    step()
    assert (two.compiled, contest.open) == (0, True)
    step()
    assert not contest.open and contest.leader == "one"
    assert training.backward.report.candidates == {"one": "20 ms", "two": "23 ms"}
    runs = one.runs
    step()
    assert one.runs == runs + 2


def test_short_calls_are_left_alone(clock):
    quick, other = Paced("quick", clock, 1e-5), Paced("other", clock, 1e-6)
    made = contest(clock, quick, other)
    (executable,) = made.executables()
    call(executable, 3)
    assert not made.open and made.leader == "quick" and other.compiled == 0
    assert made.notes["other"] == "not tried: the calls are short"


@pytest.mark.parametrize("wrong", [0.01, np.nan])
def test_wrong_numbers_are_left_out_aloud(clock, caplog, wrong):
    made = contest(clock, Paced("right", clock, 0.01), Paced("wrong", clock, 0.001, wrong=wrong))
    (executable,) = made.executables()
    with caplog.at_level(logging.WARNING, "hybrid_lab"):
        call(executable, 3)
    assert made.leader == "right" and "wrong was left out: output 0 differs" in caplog.text
    assert made.notes["wrong"].startswith("left out: output 0 differs")


def judged(clock, caplog, *rivals):
    made = contest(clock, *rivals)
    (executable,) = made.executables()
    with caplog.at_level(logging.WARNING, "hybrid_lab"):
        executable(DATA), executable(DATA)
    call(executable)
    assert not made.open
    return made, executable.report


@pytest.mark.parametrize("wrong", [0.01, np.nan])
def test_a_leader_that_differs_from_numpy_has_to_go(clock, caplog, wrong):
    first, third = Paced("first", clock, 0.002, wrong=wrong), Paced("third", clock, 0.003)
    made, report = judged(clock, caplog, first, Paced("numpy", clock, 0.004), third)
    assert made.leader == "third"
    assert "net: first was left out: output 0 differs" in caplog.text and "the reference is numpy" in caplog.text
    assert report.candidates == {"numpy": "4 ms", "third": "3 ms"}
    assert "\n  left out: first computes other numbers here: output 0 differs" in str(report)


def test_numpy_is_asked_where_others_differ_in_heavy_work(clock, caplog):
    slow = Paced("numpy", clock, 0.1)
    made, _ = judged(clock, caplog, Paced("first", clock, 0.01, wrong=0.01), slow, Paced("third", clock, 0.02))
    assert (made.leader, slow.runs) == ("third", 1)
    slow = Paced("numpy", clock, 0.1)
    made, _ = judged(clock, caplog, Paced("first", clock, 0.01), slow, Paced("third", clock, 0.002, wrong=0.01))
    assert (made.leader, slow.runs) == ("first", 1)


def test_numpy_leads_where_all_others_differ(clock, caplog):
    wrong = Paced("first", clock, 0.01, wrong=0.01), Paced("third", clock, 0.002, wrong=0.02)
    made, report = judged(clock, caplog, wrong[0], Paced("numpy", clock, 0.1), wrong[1])
    assert made.leader == "numpy" and sorted(report.left_out) == ["first", "third"] and report.candidates == {}


def test_a_challenger_that_fails_does_not_fail_the_call(clock):
    made = contest(clock, Paced("sound", clock, 0.01), Paced("broken", clock, 0.001, fails=True))
    (executable,) = made.executables()
    call(executable, 3)
    assert made.leader == "sound" and made.notes["broken"] == "not possible: no such kernel"


def test_a_long_import_waits_until_it_pays(clock, monkeypatch):
    monkeypatch.setattr(contests, "PATIENT_CALLS", 0)
    monkeypatch.setattr(contests, "PATIENCE", 0.5)
    monkeypatch.setattr(contests, "IMPORTS", {"late": "a_package_that_nobody_imports"})
    here, late = Paced("here", clock, 0.1), Paced("late", clock, 0.01)
    made = contest(clock, here, late)
    (executable,) = made.executables()
    call(executable, 5)
    assert late.compiled == 0 and made.open and here.runs == 5
    assert executable.report.choice == "here, to be compared"
    call(executable)
    assert made.leader == "late"


def test_a_long_import_waits_for_a_few_long_calls_too(clock, monkeypatch):
    monkeypatch.setattr(contests, "PATIENCE", 0.5)
    monkeypatch.setattr(contests, "IMPORTS", {"late": "a_package_that_nobody_imports"})
    here, late = Paced("here", clock, 1.0), Paced("late", clock, 0.1)
    made = contest(clock, here, late)
    (executable,) = made.executables()
    call(executable, 10)
    assert late.compiled == 0 and made.open and here.runs == 10
    call(executable, 2)
    assert made.leader == "late"


def test_what_is_here_is_compared_before_a_long_import(clock, monkeypatch):
    monkeypatch.setattr(contests, "PATIENT_CALLS", 0)
    monkeypatch.setattr(contests, "PATIENCE", 0.5)
    monkeypatch.setattr(contests, "IMPORTS", {"late": "a_package_that_nobody_imports"})
    rivals = Paced("here", clock, 0.1), Paced("better", clock, 0.08), Paced("late", clock, 0.01)
    made = contest(clock, *rivals)
    (executable,) = made.executables()
    call(executable, 2)
    assert made.leader == "better" and made.open and rivals[2].compiled == 0
    call(executable, 6)
    assert made.leader == "late" and not made.open
    assert made.notes == {"here": "100 ms", "better": "80 ms", "late": "10 ms"}


def test_what_the_disk_says_takes_over_without_a_comparison(clock, monkeypatch):
    call(contest(clock, Paced("slow", clock, 0.01), Paced("fast", clock, 0.004)).executables()[0], 2)
    monkeypatch.setattr(contests, "PATIENT_CALLS", 0)
    monkeypatch.setattr(contests, "PATIENCE", 0.5)
    monkeypatch.setattr(contests, "IMPORTS", {"fast": "a_package_that_nobody_imports"})
    slow, fast = Paced("slow", clock, 0.1), Paced("fast", clock, 0.04)
    made = contest(clock, slow, fast)
    call(made.executables()[0], 2)
    assert made.leader == "slow" and made.open
    call(made.executables()[0], 2)
    assert made.leader == "fast" and not made.open and (slow.runs, fast.runs) == (2, 2)


def test_large_recorded_calls_start_in_numpy(clock, monkeypatch):
    monkeypatch.setattr(contests, "MANY", 2)
    parts = specialize(graph_of(net, *SHAPES), SHAPES, ["float32"] * 2, True, [0, 1])
    first, numpy = Paced("first", clock, 0.01), Paced("numpy", clock, 0.02)
    training = ChoosingEngine([first, numpy]).compile_training(parts.forward, parts.backward, parts.sources, 1)
    assert training.forward.contest.leader == "numpy" and first.compiled == 0
    # But for those of which an engine says that it will be done sooner all the same.
    monkeypatch.setattr(first, "pays_at_once", lambda graphs: list(graphs) == [parts.forward, parts.backward])
    training = ChoosingEngine([first, numpy]).compile_training(parts.forward, parts.backward, parts.sources, 1)
    assert training.forward.contest.leader == "first" and (first.compiled, numpy.compiled) == (2, 2)
    # There NumPy is not even compared.
    assert training.forward.contest._hopeless("numpy", 0.1) == "not tried: too much work"


@pytest.mark.parametrize("rival, runs", [(0.9, 2), (2.5, 1)])
def test_a_rival_that_takes_twice_as_long_to_warm_up_runs_once(clock, rival, runs):
    first, second = Paced("first", clock, 0.1), Paced("second", clock, 0.1 * rival)
    made = contest(clock, first, second)
    call(made.executables()[0], 2)
    assert second.runs == runs and made.leader == ("second" if rival < 1 else "first") and not made.open


class Disturbed(Paced):
    """Takes `first` seconds while it is `disturbed`, for so many runs (one to warm up, one for the time)."""

    def __init__(self, name, clock, first, seconds, disturbed=2):
        super().__init__(name, clock, seconds)
        self.first, self.disturbed = first, disturbed

    def compile(self, graph, **options):
        made = super().compile(graph, **options)
        run = made.run

        def paced(inputs, rng):
            if self.runs < self.disturbed:
                self.clock.now += self.first - self.seconds
            return run(inputs, rng)

        made.run = paced
        return made


def test_a_rival_that_lost_a_long_call_narrowly_has_a_second_chance(clock):
    leader, disturbed = Paced("leader", clock, 0.1), Disturbed("disturbed", clock, 0.15, 0.08)
    made = contest(clock, leader, disturbed)
    (executable,) = made.executables()
    call(executable, 2)
    assert made.leader == "leader" and made.open and disturbed.runs == 2
    call(executable)
    assert made.leader == "disturbed" and not made.open
    assert disturbed.compiled == 1 and list(made.built.compiled) == ["disturbed"]
    assert made.notes == {"leader": "100 ms", "disturbed": "80 ms"}


def test_the_better_of_both_rounds_counts(clock):
    leader, disturbed = Paced("leader", clock, 0.1), Disturbed("disturbed", clock, 0.11, 0.18)
    made = contest(clock, leader, disturbed)
    call(made.executables()[0], 3)
    assert made.leader == "leader" and not made.open and made.notes["disturbed"] == "110 ms"


@pytest.mark.parametrize("seconds, calls, runs", [(0.15, 3, 4), (0.25, 2, 1)])
def test_who_is_slower_twice_or_far_slower_is_freed(clock, seconds, calls, runs):
    leader, slower = Paced("leader", clock, 0.1), Paced("slower", clock, seconds)
    made = contest(clock, leader, slower)
    (executable,) = made.executables()
    call(executable, calls - 1)
    assert made.open
    call(executable)
    assert not made.open and made.settled and made.leader == "leader"
    assert list(made.built.compiled) == ["leader"] and (slower.compiled, slower.runs) == (1, runs)
    call(executable, 3)
    assert slower.runs == runs


def test_the_second_round_comes_before_the_next_rival(clock, monkeypatch):
    monkeypatch.setattr(contests, "PATIENT_CALLS", 0)
    rivals = Paced("leader", clock, 0.1), Paced("late", clock, 0.05), Disturbed("disturbed", clock, 0.15, 0.08)
    made = contest(clock, *rivals)
    (executable,) = made.executables()
    monkeypatch.setattr(made, "_ready", lambda name: name != "late")
    call(executable, 2)
    assert "disturbed" in made.built.compiled
    monkeypatch.undo()
    call(executable)
    assert made.leader == "disturbed" and rivals[1].compiled == 0
    call(executable)
    assert made.leader == "late" and not made.open and rivals[2].compiled == 1


def test_what_was_measured_is_remembered_for_calls_of_about_this_size(clock, tmp_path):
    call(contest(clock, Paced("slow", clock, 0.01), Paced("fast", clock, 0.004)).executables()[0], 2)
    (file,) = (tmp_path / "choices").iterdir()
    assert '"choice":"fast"' in file.read_text()
    slow, fast = Paced("slow", clock, 0.01), Paced("fast", clock, 0.004)
    again = contest(clock, slow, fast)
    assert again.leader == "fast" and not again.open and slow.compiled == 0
    assert again.executables()[0].report.choice == "fast, remembered"
    keys = [
        memory.key_of([graph_of(net, (rows, 5), (5, 4))]) == again.key for rows in (6, 7, 100)
    ]
    assert keys == [True, False, False]
    large = [memory.key_of([graph_of(net, (rows, 5), (5, 4))]) for rows in (100, 128, 129)]
    assert large[0] == large[1] != large[2]


def test_other_operators_or_attributes_are_another_kind_of_call():
    keys = {
        memory.key_of([graph_of(function, (4, 5))])
        for function in (
            lambda F, x: F.exp(x),
            lambda F, x: F.sin(x),
            lambda F, x: F.softmax(x),
            lambda F, x: F.softmax(x, axis=0),
            lambda F, x: x * 2.0,
            lambda F, x: x * 3.0,
        )
    }
    assert len(keys) == 6


def test_loops_with_other_bodies_are_another_kind_of_call():
    def key(body, backward):
        x, h = symbol.var("x"), symbol.var("h")
        outputs, _ = symbol.contrib.foreach(body, x, h)
        graph = Graph([x.outputs[0], h.outputs[0]], outputs.outputs)
        parts = specialize(graph, [(4, 3), (3,)], ["float32"] * 2, True, [0])
        return memory.key_of([parts.backward if backward else parts.forward])

    for backward in (False, True):
        first, again, other = (
            key(body, backward)
            for body in (lambda d, s: (d + s, s), lambda d, s: (d + s, s), lambda d, s: (symbol.tanh(d) * s, s))
        )
        assert first == again != other


@pytest.mark.parametrize("text", ["", "{", "[]", '{"choice": 3}', '{"key": "?", "choice": "fast", "seconds": {}}'])
def test_damaged_files_are_ignored(clock, tmp_path, text):
    call(contest(clock, Paced("slow", clock, 0.01), Paced("fast", clock, 0.004)).executables()[0], 2)
    (file,) = (tmp_path / "choices").iterdir()
    file.write_text(text)
    again = contest(clock, Paced("slow", clock, 0.01), Paced("fast", clock, 0.004))
    assert again.open and again.leader == "slow"
    call(again.executables()[0], 2)
    assert '"choice":"fast"' in file.read_text() and len(list(file.parent.iterdir())) == 1


def test_an_engine_that_is_gone_is_not_remembered(clock):
    call(contest(clock, Paced("slow", clock, 0.01), Paced("fast", clock, 0.004)).executables()[0], 2)
    again = contest(clock, Paced("slow", clock, 0.01), Paced("other", clock, 0.02))
    assert again.open and again.leader == "slow"


def test_nothing_is_written_where_there_is_no_folder_or_the_machine_is_busy(clock, monkeypatch, tmp_path):
    monkeypatch.setenv("HYBRID_LAB_CACHE", "")
    call(contest(clock, Paced("slow", clock, 0.01), Paced("fast", clock, 0.004)).executables()[0], 2)
    monkeypatch.setenv("HYBRID_LAB_CACHE", str(tmp_path / "file"))
    (tmp_path / "file").write_text("not a folder")
    call(contest(clock, Paced("slow", clock, 0.01), Paced("fast", clock, 0.004)).executables()[0], 2)
    monkeypatch.setenv("HYBRID_LAB_CACHE", str(tmp_path))
    monkeypatch.setattr(contests, "_busy", lambda: True)
    call(contest(clock, Paced("slow", clock, 0.01), Paced("fast", clock, 0.004)).executables()[0], 2)
    assert not (tmp_path / "choices").exists()


def test_parameters_are_packed_before_engines_are_compared(clock):
    slow, fast = Paced("slow", clock, 0.01), Paced("fast", clock, 0.004)
    made = contest(clock, slow, fast, roles="data param")
    (executable,) = made.executables()
    call(executable, 5)
    assert made.open and fast.compiled == 0
    executable.pack(DATA, "token")
    call(executable)
    assert made.leader == "fast" and slow.packed == fast.packed == ["token"]
    executable.unpack()
    assert fast.packed == ["token", "unpacked"] and slow.packed == ["token"]


def test_what_reads_parameters_alone_is_not_compared(clock):
    slow, fast = Paced("slow", clock, 0.01), Paced("fast", clock, 0.004)
    made = ChoosingEngine([slow, fast]).compile(graph_of(net, *SHAPES, roles="param param"))
    call(made, 5)
    assert (slow.runs, fast.compiled) == (5, 0)


def test_nothing_of_the_caller_is_kept_alive(clock):
    import gc
    import weakref

    made = contest(clock, Paced("slow", clock, 0.01), Paced("fast", clock, 0.004), roles="data param")
    (executable,) = made.executables()
    x, w = (array.copy() for array in DATA)
    executable([x, w])
    executable.pack([x, w])
    alive = weakref.ref(x)
    del x
    gc.collect()
    assert alive() is None
    executable([DATA[0], w])
    executable([DATA[0], w])
    alive = weakref.ref(w)
    executable.unpack()
    del w
    gc.collect()
    assert alive() is None


def test_differences_in_words():
    a = np.array([1.0, np.nan, np.inf], np.float32)
    assert difference([a], [a.copy()], 1e-4) == ""
    assert "float64[3] instead of float32[3]" in difference([a.astype(np.float64)], [a], 1e-4)
    assert difference([np.array([1])], [np.array([2])], 1) == "output 0 differs"
    b = np.array([1.0, 1.0, -np.inf], np.float32)
    assert difference([a], [b], 1) == "output 0 differs: NaN where the reference has none"
    assert difference([b], [a], 1) == "output 0 differs: no NaN where the reference has some"
    assert difference([a[2:]], [b[2:]], 1) == "output 0 differs: infinite in other places than the reference"
    assert "differs by 1" in difference([np.zeros(2, np.float32)], [np.ones(2, np.float32)], 1e-3)


def test_hybrid_calls_say_who_runs_them(monkeypatch, caplog):
    pytest.importorskip("torch")
    import hybrid_lab as mx

    monkeypatch.setenv("HYBRID_LAB_CPU", "torch")
    layer = mx.gluon.nn.Dense(5)
    layer.initialize()
    layer.hybridize()
    x = mx.nd.ones((4, 3))
    with caplog.at_level(logging.INFO, "hybrid_lab"):
        hybrid = layer(x).asnumpy()
    assert "torch on the CPU" in caplog.text
    layer.hybridize(False)
    assert np.allclose(hybrid, layer(x).asnumpy(), rtol=1e-5)


def small_net(mx):
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Conv2D(4, 3, activation="relu"), mx.gluon.nn.BatchNorm(), mx.gluon.nn.MaxPool2D(2, 2))
    net.add(mx.gluon.nn.Dropout(0.3), mx.gluon.nn.Dense(5))
    return net


def trained(mx, hybrid):
    """Weights and running statistics after six steps, then a prediction."""
    mx.random.seed(3)
    net = small_net(mx)
    net.initialize(mx.init.Xavier())
    if hybrid:
        net.hybridize()
    x = mx.nd.array(np.random.RandomState(0).uniform(-1, 1, (8, 2, 10, 10)).astype("float32"))
    label = mx.nd.array(np.arange(8) % 5)
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    net(x)
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    for _ in range(6):
        with mx.autograd.record():
            value = loss(net(x), label)
        value.backward()
        trainer.step(8)
    predictions = [net(x).asnumpy() for _ in range(4)]
    return [parameter.data().asnumpy() for parameter in net.collect_params().values()] + predictions


@pytest.mark.parametrize("cpu", ["auto", "torch", "onnxruntime"])
def test_training_follows_eager_whoever_runs_it(monkeypatch, cpu):
    pytest.importorskip("torch")
    import hybrid_lab as mx

    wanted = trained(mx, False)
    monkeypatch.setenv("HYBRID_LAB_CPU", cpu)
    monkeypatch.setattr(contests, "SMALL", 0.0)
    monkeypatch.setattr(executables, "SETTLE", 0.0)
    for found, value in zip(trained(mx, True), wanted, strict=True):
        assert np.abs(found - value).max() <= 1e-4 * max(np.abs(value).max(), 1e-3)


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_graphs_follow_eager_while_engines_change(monkeypatch, first):
    monkeypatch.setattr(contests, "SMALL", 0.0)
    monkeypatch.setattr(executables, "SETTLE", 0.0)
    monkeypatch.setattr(contests, "CALLS", 0)
    pytest.importorskip("torch")
    engine = ChoosingEngine([engine_named(name) for name in ("onnxruntime", "numpy", "torch")])
    for seed in range(first, first + 20):
        assert problems(random_case(seed), engine, True) == [], seed
