"""mx.tune on a CPU: every engine measured and held against NumPy, kept on disk, taken by the next compile."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import engines, nd
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.engines import registry, tuned
from hybrid_lab.engines.engine import Engine, Executable
from hybrid_lab.gluon import nn
from hybrid_lab.insight import tune_engines
from hybrid_lab.insight.tune_engines import difference


class Clock:
    """Time that only the engines below let pass."""

    now = 0.0

    def __call__(self):
        return self.now


CLOCK = Clock()


class Paced(Engine):
    """NumPy's engine, taking as long as it is told."""

    def __init__(self, name, seconds, wrong=0.0, error=None):
        self.name = self.title = name
        self.seconds, self.wrong, self.error, self.compiled = seconds, wrong, error, 0

    def compile(self, graph, **options):
        if self.error is not None:
            raise self.error
        self.compiled += 1
        inner = engines.get("numpy").compile(graph)

        def run(inputs, rng):
            CLOCK.now += self.seconds
            return [result + result.dtype.type(self.wrong) for result in inner.run(inputs, rng)]

        inner.report.engine = self.name
        return Executable(graph, run, inner.report)


@pytest.fixture
def rivals(monkeypatch, tmp_path):
    """The default engine is the policy among NumPy (10 ms), "fast" (4 ms) and what a test adds."""
    monkeypatch.setenv("HYBRID_LAB_CACHE", str(tmp_path))
    monkeypatch.setattr(tuned, "_known", {})
    monkeypatch.setattr(tune_engines, "SETTLE", 0.0)
    monkeypatch.setattr(tune_engines._timed, "__defaults__", (CLOCK,))
    made = {"numpy": Paced("numpy", 0.01), "fast": Paced("fast", 0.004)}
    monkeypatch.setattr(registry, "default", lambda on_cpu: None)
    monkeypatch.setattr(engines, "cpu_engines", lambda: made)
    monkeypatch.setattr(registry, "cpu_engines", lambda: made)
    monkeypatch.setitem(registry._loaded, "fast", made["fast"])
    return made


def dense():
    net = nn.Dense(3, in_units=4)
    net.initialize()
    net.hybridize()
    return net


def choices(net, train):
    x = nd.ones((2, 4))
    if train:
        with mx.autograd.record():
            net(x).backward()
    else:
        net(x)
    return net._graph_calls.compilations[-1].program.forward.report.choice


@pytest.mark.parametrize("train", [False, True])
def test_the_next_call_takes_what_was_found(rivals, train):
    net = dense()
    assert choices(net, train).startswith("numpy: ") and "mx.tune" not in choices(net, train)
    found = mx.tune(net, (2, 4), train=train)
    (call,) = found.calls
    graphs = 1 + train
    assert call.engine == "fast"
    assert call.seconds == pytest.approx({"numpy": 0.01 * graphs, "fast": 0.004 * graphs})
    assert "chosen" in str(found) and "<table" in found._repr_html_() and found.data()["calls"][0]["engine"] == "fast"
    assert choices(net, train).startswith("fast: mx.tune measured numpy ")
    assert choices(net, not train).startswith("numpy: ")  # which was not tuned


def test_both_modes_are_tuned_and_found_again(rivals):
    net = dense()
    found = mx.tune(net, (2, 4))
    assert [(call.role, call.measured) for call in found.calls] == [("prediction", True), ("training", True)]
    rivals["numpy"].seconds = 0.001
    tuned._known.clear()  # as in another process
    again = mx.tune(net, (2, 4))
    assert [(call.engine, call.measured) for call in again.calls] == [("fast", False)] * 2
    assert "at an earlier time" in str(again)
    assert [call.engine for call in mx.tune(net, (2, 4), again=True).calls] == ["numpy"] * 2


@pytest.mark.parametrize(
    ("rival", "why"),
    [
        (Paced("wrong", 0.001, wrong=0.5), "other numbers than NumPy's: result 0 differs by"),
        (Paced("failing", 0.001, error=RuntimeError("no such kernel\nmore")), "not possible: no such kernel"),
    ],
)
def test_an_engine_with_other_numbers_is_left_out(rivals, rival, why):
    rivals[rival.name] = rival
    found = mx.tune(dense(), (2, 4))
    for call in found.calls:
        assert call.engine == "fast" and rival.name not in call.seconds and call.left_out[rival.name].startswith(why)
    assert "2 engines left out" in str(found) and f"left out: {why}" in str(found)


def test_an_interrupt_leaves_everything_as_it_was(rivals, tmp_path):
    net = dense()
    before = choices(net, False), list(net._graph_calls.programs.values())
    rivals["stopped"] = Paced("stopped", 0.001, error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        mx.tune(net, (2, 4))
    assert (choices(net, False), list(net._graph_calls.programs.values())) == before
    assert not any(tmp_path.iterdir()) and not tuned._known


def test_without_inputs_those_of_the_first_call_count(rivals):
    net = dense()
    with pytest.raises(HybridLabError, match="has not been called yet"):
        mx.tune(net)
    net(nd.ones((2, 4)))
    assert mx.tune(net, train=False).calls[0].engine == "fast"


def test_an_engine_asked_for_by_name_is_not_tuned(monkeypatch):
    net = dense()
    monkeypatch.setenv("HYBRID_LAB_CPU", "numpy")
    with pytest.raises(HybridLabError, match="NumPy.* leave engine= out"):
        mx.tune(net, (2, 4))
    net.hybridize(engine="numpy")
    monkeypatch.setenv("HYBRID_LAB_CPU", "auto")
    with pytest.raises(HybridLabError, match="asked for by name"):
        mx.tune(net, (2, 4))
    with pytest.raises(HybridLabError, match="is not a HybridBlock"):
        mx.tune(nn.Sequential(), (2, 4))


@pytest.mark.parametrize("name", ["onnxruntime", "torch"])
def test_every_engine_gives_the_numbers_of_numpy(name, monkeypatch):
    """Whole calls, with effects, saved values, hoisted parameters and packed weights."""
    if engines.find(name).missing():
        pytest.skip(f"needs {name}")
    monkeypatch.setattr(tune_engines, "BUDGET", 0.0)
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, activation="relu"), nn.BatchNorm(), nn.MaxPool2D(2, 2), nn.Dropout(0.3), nn.Dense(5))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    monkeypatch.setenv("HYBRID_LAB_CPU", "auto")
    candidates = {"numpy": engines.get("numpy"), name: engines.get(name)}
    for train in (False, True):
        special, arrays, options = tune_engines._call_of(net, [(8, 2, 10, 10)], train)
        times = tune_engines.measure("call", special, arrays, candidates, options)
        assert set(times.seconds) == {"numpy", name} and not times.left_out


PROCESS = """
import hybrid_lab as mx
from hybrid_lab.gluon import nn
net = nn.Dense(3, in_units=4)
net.initialize()
net.hybridize()
net(mx.nd.ones((2, 4)))
{}
print(net._graph_calls.compilations[-1].program.forward.report.choice)
"""


def test_what_was_found_survives_the_process(tmp_path):
    environment = os.environ | {"HYBRID_LAB_CPU": "auto", "HYBRID_LAB_CACHE": str(tmp_path)}

    def said(line):
        command = [sys.executable, "-c", PROCESS.format(line)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout

    first = said("mx.tune(net, (2, 4), train=False); net(mx.nd.ones((2, 4)))")
    assert "mx.tune measured" in first and said("") == first


def test_differences_in_words():
    one = np.array([1.0, np.nan, np.inf], np.float32)
    assert difference([one], [one], 1e-4) == "" and difference([one + 0], [one], 0) == ""
    assert difference([np.array([1.0, 2.0])], [np.array([1.0, 2.1])], 1e-3).startswith("result 0 differs by 0.05")
    assert difference([np.array([1])], [np.array([2])], 1) == "result 0 differs"
    assert "dtype" in difference([np.zeros(2)], [np.zeros(2, np.float32)], 1)
    for other in ([1.0, 1.0, np.inf], [1.0, np.nan, -np.inf], [np.nan, np.nan, np.inf]):
        assert "NaN or infinity" in difference([np.array(other, np.float32)], [one], 1e9)
