"""The choice between engines in long calls: one rival at a time, beside the leader; whoever loses is freed."""

from __future__ import annotations

import gc
import logging
import os
import re
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from hybrid_lab.engines.choice import contest as contests
from hybrid_lab.engines.choice import executables
from hybrid_lab.engines.choice.engine import ChoosingEngine, ContestExecutable
from hybrid_lab.engines.numpy.engine import NumPyEngine
from hybrid_lab.graph.specialize import specialize
from tests.engines.test_choice import Clock, Contest
from tests.graph.building import graph_of, uniform

SHAPES = [(60, 50), (50, 40), (40, 30)]
DATA = [array / np.float32(5) for array in uniform(*SHAPES)]


def net(F, x, w, v):
    return F.dot(F.exp(F.dot(x, w)), v)


def gradient():
    x, w, v = DATA
    return (np.ones((60, 30)) @ v.T * np.exp(x @ w)) @ w.T


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setenv("HYBRID_LAB_CACHE", "")
    monkeypatch.setattr(contests, "IMPORTS", {})
    monkeypatch.setattr(executables, "SETTLE", 0.0)
    monkeypatch.setattr(executables, "COLLECT_BYTES", 0)
    return Clock()


class Paced(NumPyEngine):
    """The NumPy engine over joint arenas, taking as long as it is told; `wrong` is added to what `backward` gives.

    made : weak references to the trainings and executables it made
    """

    def __init__(self, name, clock, seconds, wrong=0.0):
        self.name = self.title = name
        self.clock, self.seconds, self.wrong = clock, seconds, wrong
        self.begun, self.made = 0, []

    def compile(self, graph, **options):
        made = super().compile(graph, **options)
        self.made.append(weakref.ref(made))
        return made

    def compile_training(self, *arguments, **options):
        made = super().compile_training(*arguments, **options)
        begin, finish, backward = made.begin, made.finish, made.backward.run
        self.made.append(weakref.ref(made))

        def paced_begin(inputs, rng):
            self.begun += 1
            self.clock.now += self.seconds
            return begin(inputs, rng)

        def paced_backward(inputs, rng):
            self.clock.now += self.seconds
            return [result + np.float32(self.wrong) for result in backward(inputs, rng)]

        def paced_finish(kept, operands, rng, last=True, out=None):
            self.clock.now += self.seconds
            return [result + np.float32(self.wrong) for result in finish(kept, operands, rng, last, out)]

        made.begin, made.finish, made.backward.run = paced_begin, paced_finish, paced_backward
        return made

    def alive(self):
        return [made() for made in self.made if made() is not None]


class Steps:
    """Training steps of a small graph; each checks its gradient."""

    def __init__(self, clock, *rivals):
        graph = graph_of(net, *SHAPES)
        self.parts = parts = specialize(graph, SHAPES, ["float32"] * 3, True, [0, 1, 2])
        self.training = ChoosingEngine(rivals).compile_training(
            parts.forward, parts.backward, parts.sources, 1, static_alloc=True
        )
        self.contest = self.training.forward.contest
        self.contest.clock = clock

    def __call__(self, times=1, checked=True):
        for _ in range(times):
            results, kept = self.training.begin(DATA, (0, 0))
            heads = [np.ones(results[0].shape, np.float32)]
            given = {"input": DATA, "output": results, "saved": kept.saved, "head": heads}
            operands = [given[kind][index] for kind, index in self.parts.sources]
            found = self.training.finish(kept, operands, (0, 0))[0]
            assert not checked or np.allclose(found, gradient(), rtol=1e-3, atol=1e-3)


def test_long_calls_meet_one_rival_at_a_time_and_losers_are_freed(clock):
    first, second, third = (Paced(*each) for each in (("a", clock, 0.2), ("b", clock, 0.1), ("c", clock, 0.15)))
    steps = Steps(clock, first, second, third)
    steps(1)
    assert (first.begun, second.begun, third.begun) == (1, 0, 0)
    steps(1)
    assert steps.contest.leader == "b" and steps.contest.open
    assert (first.begun, second.begun, third.begun) == (2, 2, 0), "the leader's own run is its measurement"
    steps(1)
    assert not first.alive() and (second.begun, third.begun) == (3, 2) and steps.contest.open, "c has another round"
    (training,) = (made for made in third.alive() if hasattr(made, "begin"))
    # Between the rounds its program stays, what it ran in does not.
    assert training.forward.run._run is None and not training._frames.idle
    del training
    steps(1)
    assert not third.alive() and len(second.alive()) == 3
    assert (second.begun, third.begun) == (4, 4) and not steps.contest.open and steps.contest.settled
    assert steps.contest.notes == {"a": "400 ms", "b": "200 ms", "c": "300 ms"}
    steps(2)
    assert (second.begun, third.begun) == (6, 4)


def test_a_rival_disturbed_in_one_step_wins_in_the_next(clock):
    leader, rival = Paced("a", clock, 0.1), Paced("b", clock, 0.15)
    steps = Steps(clock, leader, rival)
    steps(2)
    assert steps.contest.leader == "a" and steps.contest.open
    rival.seconds = 0.06
    steps(1)
    assert steps.contest.leader == "b" and not steps.contest.open
    assert steps.contest.notes == {"a": "200 ms", "b": "120 ms"} and len(rival.made) == 3
    steps(2)
    assert steps.contest.settled and not leader.alive()


def test_the_arenas_of_comparisons_are_freed_with_them(clock):
    leader, rival = Paced("a", clock, 0.1), Paced("b", clock, 0.2)
    steps = Steps(clock, leader, rival)
    steps(2)
    assert not steps.contest.open and not rival.alive()
    (training,) = (made for made in leader.alive() if hasattr(made, "begin"))
    # Forward and backward by themselves ran for nobody.
    assert len(training._frames.idle) == 1 and training.forward.run._run is None


def test_a_rival_that_needs_longer_for_a_part_than_the_leader_for_all_is_not_tried_further(clock):
    rivals = Paced("a", clock, 0.1), Paced("b", clock, 0.5)
    steps = Steps(clock, *rivals)
    steps(2)
    assert not steps.contest.open and steps.contest.notes["b"] == "slower: 500 ms for a part of the call"


@pytest.mark.parametrize(("wrong", "leader"), [("b", "a"), ("a", "b")])
def test_long_calls_that_differ_are_judged_by_numpy_at_the_next_call(clock, caplog, wrong, leader):
    rivals = [Paced(name, clock, seconds, 0.5 * (name == wrong)) for name, seconds in (("a", 0.2), ("b", 0.1))]
    steps = Steps(clock, *rivals, Paced("numpy", clock, 0.3))
    with caplog.at_level(logging.WARNING, "hybrid_lab"):
        steps(2, checked=False)
        assert not caplog.records
        steps(5, checked=wrong == "b")
    assert f"{wrong} was left out: output 0 differs" in caplog.text and "the reference is numpy" in caplog.text
    assert steps.contest.leader == leader and not steps.contest.open
    steps(1)


def test_only_the_first_call_was_long(clock):
    quick, other = Paced("a", clock, 0.06), Paced("b", clock, 0.001)
    steps = Steps(clock, quick, other)
    steps(1)
    quick.seconds = 0.002
    steps(1)
    assert steps.contest.open
    steps(1)
    assert steps.contest.leader == "b"


def test_predictions_free_losers_too(clock, monkeypatch):
    monkeypatch.setattr(contests, "LONG", 0.0)
    monkeypatch.setattr(contests, "SMALL", 0.0)
    rivals = [Paced(name, clock, 0.0) for name in ("a", "b", "c")]
    graph = graph_of(net, *SHAPES)
    contest = Contest([graph], {rival.name: rival for rival in rivals}, {"static_alloc": True}, clock=clock)
    executable = ContestExecutable(contest, 0)
    for _ in range(4):
        executable(DATA)
    assert contest.settled and [len(rival.alive()) for rival in rivals] == [1, 0, 0]


def resident():
    """MiB that this process has in memory."""
    return int(re.search(r"VmRSS:\s*(\d+)", Path("/proc/self/status").read_text())[1]) / 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_what_sessions_used_goes_back_to_the_system():
    pytest.importorskip("onnxruntime")
    from hybrid_lab.engines.onnxruntime.engine import OnnxRuntimeEngine

    engine, shape = OnnxRuntimeEngine(lambda region: None), (4096, 4096)
    graph = graph_of(lambda F, x: F.sum(F.softmax(x) * F.softmax(-x), axis=1), shape)
    x = np.ones(shape, np.float32)
    executable = engine.compile(graph)
    executable([x])
    gc.collect()
    before = resident()
    engine.trim()
    assert resident() < before - 60  # 64 MiB each, of which the session needs two or more
    assert np.allclose(executable([x])[0], 1 / 4096)


MEASURED = """
import re, sys
import numpy as np
import hybrid_lab as mx
from hybrid_lab import autograd, gluon

net = gluon.nn.HybridSequential()
for _ in range(6):
    net.add(gluon.nn.Conv2D(24, 3, padding=1, activation="relu", in_channels=24))
net.initialize()
net.hybridize(static_alloc=True, static_shape=True)
x = mx.nd.array(np.random.RandomState(0).rand(8, 24, 96, 96).astype("float32"))
for _ in range(5):
    with autograd.record():
        y = net(x)
    y.backward()
    y.asnumpy()
print(int(re.search(r"VmRSS:\\s*(\\d+)", open("/proc/self/status").read())[1]) / 1024)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_process_needs_little_more_than_its_fastest_engine():
    pytest.importorskip("onnxruntime")

    def used(cpu):
        environment = os.environ | {"HYBRID_LAB_CPU": cpu, "HYBRID_LAB_CACHE": ""}
        run = subprocess.run(
            [sys.executable, "-c", MEASURED], capture_output=True, text=True, env=environment, check=True
        )
        return float(re.findall(r"[\d.]+", run.stdout)[-1])

    alone = max(used("numpy"), used("onnxruntime"))
    assert used("auto") < alone + 300  # importing torch takes nearly as much


def test_threads_train_while_engines_are_compared(clock):
    rivals = [Paced(name, clock, seconds) for name, seconds in (("a", 0.2), ("b", 0.1), ("c", 0.15), ("d", 0.05))]
    steps = Steps(clock, *rivals)
    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(steps, 10) for _ in range(8)]:
            done.result()
    steps(4)
    assert steps.contest.settled and len(steps.contest.built.trainings) == 1
