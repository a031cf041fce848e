"""Messages count in words a person would write: one operator, two operators."""

import logging
import re
from pathlib import Path

import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon
from hybrid_lab.formats.archive.report import TrainerStates
from hybrid_lab.gluon import nn
from hybrid_lab.insight.explain import Explanation, engine_choice
from hybrid_lab.insight.table import milliseconds


class Twice(gluon.HybridBlock):
    """One operator, no parameters."""

    def hybrid_forward(self, F, x):
        return F.exp(x)


class Scaled(gluon.HybridBlock):
    """One parameter."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.scale = self.params.get("scale", shape=(3,), init="ones")

    def hybrid_forward(self, F, x, scale):
        return x * scale


@pytest.fixture
def scaled():
    net = Scaled(prefix="scaled_")
    net.initialize()
    net.hybridize(engine="numpy")
    net(mx.nd.ones((2, 3)))
    return net


def saved(net, path, caplog):
    """What saving said it saved."""
    caplog.clear()
    with caplog.at_level(logging.INFO, "hybrid_lab"):
        net.save(path)
    (line,) = (record.message for record in caplog.records if f" to {path}" in record.message)
    return line.partition(": saved ")[2].partition(" to ")[0]


def test_saving_counts_graphs_blocks_and_parameters(scaled, tmp_path, caplog):
    assert saved(scaled, tmp_path / "one", caplog) == "1 graph of 1 HybridBlock and 1 parameter"
    net = nn.Sequential()
    net.add(scaled, Twice())
    assert saved(net, tmp_path / "some", caplog) == "1 graph and 1 parameter (1 of 2 HybridBlocks has graphs)"
    net.add(scaled, Twice())
    net[1].hybridize(engine="numpy")
    net[1](mx.nd.ones((2, 3)))
    expected = "2 graphs and 1 parameter (2 of 3 HybridBlocks have graphs)"
    assert saved(net, tmp_path / "more", caplog) == expected


def test_loading_counts_too(scaled, tmp_path):
    path = scaled.save(tmp_path / "one")
    first = str(scaled.load(path)).splitlines()[0]
    assert first.startswith("loaded 1 parameter and 1 graph of 1 block from ")


def test_a_trainer_of_one_parameter(scaled):
    trainer = gluon.Trainer(scaled.collect_params(), "sgd")
    assert repr(trainer).startswith("Trainer(1 parameter, ")
    with autograd.record():
        loss = scaled(mx.nd.ones((2, 3))).sum()
    loss.backward()
    trainer.step(1)
    assert repr(trainer._updaters[0].fused).startswith("SGD: 1 weight, 3 values, in one pass of ")
    states, arrays = trainer.get_states()
    report = TrainerStates(states, arrays, None, {})
    assert repr(report) == "<trainer states: SGD after 1 update of 1 parameter>"
    report.settings["num_update"] = "damaged"
    assert "after damaged updates" in repr(report)


def test_the_panel_counts_operators(scaled):
    from hybrid_lab.lab.kernel.session import Session

    session = Session(lambda: {"net": scaled})
    (model,) = session.models()["models"]
    assert model["summary"].startswith("1 graph, 1 operator, ")


def test_explain_counts_reads():
    text = str(Explanation("net", [], {"to_device": 0, "to_host": 0, "reads": 1}, launches={}))
    assert text.endswith("in this process, copies so far: 0 to a device, 0 to the host, 1 read")


def test_explain_gives_the_reason_of_the_engine():
    from hybrid_lab.engines import Report

    report = Report("torch", choice="torch: recorded, 3.6 GFLOP of convolutions")
    assert engine_choice("torch", None, report) == "torch: recorded, 3.6 GFLOP of convolutions"


@pytest.mark.parametrize("choice", ["onnxruntime: predictions run on ONNX Runtime", ""])
def test_the_reason_says_why_the_chosen_engine_runs_nothing(choice):
    from hybrid_lab.engines import Report

    net = mx.gluon.nn.Activation("relu")
    net.hybridize(engine="numpy")
    net(mx.nd.ones((2,)))
    refused = [(node, "numpy", "too little work") for node in net._graphs.graphs()[0].graph.operators]
    report = Report("onnxruntime", operators={"onnxruntime": 0, "numpy": 1}, refused=refused, choice=choice)
    asked = "onnxruntime was chosen as hybridize(engine='onnxruntime') asked"
    reason = "predictions run on ONNX Runtime" if choice else asked
    expected = f"numpy: {reason}, but ONNX Runtime runs none of the operators: too little work"
    assert engine_choice("onnxruntime", "onnxruntime", report) == expected


def test_microseconds_have_their_sign():
    """In what is printed; `us` is how they are spelled where a text must be ASCII."""
    package = Path(mx.__file__).parent
    texts = {path: path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    found = [path.name for path, text in texts.items() if re.search(r"""[}0-9] us\b|["']us["']""", text)]
    assert found == []
    assert milliseconds(3.2e-6) == "3.2 µs"
