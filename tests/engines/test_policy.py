"""The policy: which engine runs a call of which kind, by rule, the same in every process; never a second engine."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import numpy as np
import pytest

from hybrid_lab import engines
from hybrid_lab.engines import policy, registry, tuned
from hybrid_lab.engines.engine import Engine
from hybrid_lab.engines.policy import choose
from hybrid_lab.graph.specialize import specialize
from hybrid_lab.system import threads
from tests.graph.building import graph_of

ALL = ("onnxruntime", "numpy", "torch")


def perceptron(rows):
    return lambda F, x, w: F.relu(F.FullyConnected(x, w, num_hidden=256, no_bias=True)), [(rows, 784), (256, 784)]


def convolution(batch, size=32):
    settings = {"kernel": (3, 3), "pad": (1, 1), "num_filter": 64, "no_bias": True}
    return lambda F, x, w: F.Convolution(x, w, **settings), [(batch, 64, size, size), (64, 64, 3, 3)]


def chain(F, x):
    """Many operators on few numbers."""
    for _ in range(60):
        x = F.broadcast_add(F.sin(x), F.reshape(x, shape=(3, 4)))
    return x


def forward(function, shapes, dtype="float32"):
    return [specialize(graph_of(function, *shapes), shapes, [dtype] * len(shapes), False).forward]


def recorded(function, shapes, dtype="float32"):
    parts = specialize(graph_of(function, *shapes), shapes, [dtype] * len(shapes), True, range(len(shapes)))
    return [parts.forward, parts.backward]


#: what is called -> (graphs, {what is installed: engine}, words of the reason where all are)
TABLE = {
    "prediction, large": (forward(*convolution(8)), {ALL: "onnxruntime", ALL[:2]: "onnxruntime", ALL[1:]: "torch"}, ""),
    "prediction, 8 bits": (
        forward(lambda F, x: F._contrib_quantize_v2(F.exp(x))[0], [(4, 9)]),
        {ALL: "numpy", ALL[:2]: "numpy"},
        "another rounding may change numbers of 8 bits by a whole step",
    ),
    "prediction, small": (forward(*perceptron(4)), {ALL: "onnxruntime", ALL[1:]: "numpy", ("numpy",): "numpy"}, ""),
    "recorded, convolutions": (
        recorded(*convolution(8)),
        {ALL: "torch", ALL[1:]: "torch", ALL[:2]: "onnxruntime", ("numpy",): "numpy"},
        "recorded, 1.8 GFLOP of convolutions; ONNX Runtime has no operators for gradients",
    ),
    "recorded, a large product": (recorded(*perceptron(2048)), {ALL: "torch"}, "GFLOP of products"),
    "recorded, small products": (
        recorded(*perceptron(64)),
        {ALL: "onnxruntime", ALL[1:]: "numpy"},
        "MFLOP and less than a MiB written by other operators: too little for the import of torch",
    ),
    "recorded, long arrays": (
        recorded(lambda F, x: F.softmax(F.tanh(x)), [(2048, 4096)]),
        {ALL: "torch", ALL[:2]: "onnxruntime"},
        "recorded, 192 MiB written by operators; ONNX Runtime has no operators for gradients",
    ),
    "recorded, many small operators": (recorded(chain, [(3, 4)]), {ALL: "numpy"}, "sessions of"),
    "recorded, numbers that torch does not take": (
        recorded(lambda F, x, w: F.dot(x, w), [(2048, 784), (784, 256)], "float16"),
        {ALL: "onnxruntime"},
        "GFLOP of products: too few of the operators can run in torch",
    ),
}


@pytest.fixture(autouse=True)
def nothing_tuned(monkeypatch):
    monkeypatch.setattr(tuned, "_known", {})


@pytest.mark.parametrize("name", TABLE)
def test_which_engine_runs_what(name):
    graphs, wanted, reason = TABLE[name]
    for installed, engine in wanted.items():
        chosen, why = choose(graphs, installed)
        assert chosen == engine, (installed, why)
        assert reason in why or installed is not ALL, why
    assert choose(graphs, ("numpy",))[0] == "numpy"
    assert choose(graphs, ALL, strict=True)[0] == "onnxruntime"


def test_what_was_tuned_comes_first():
    graphs = recorded(*convolution(24))
    tuned.remember(graphs, tuned.Tuned("numpy", {"numpy": 0.002, "torch": 0.004}))
    assert choose(graphs, ALL) == ("numpy", "mx.tune measured numpy 2 ms, torch 4 ms")
    assert choose(recorded(*convolution(20)), ALL)[0] == "numpy"  # of about the same size
    assert choose(recorded(*convolution(64)), ALL)[0] == "torch"
    assert choose(graphs, ("onnxruntime", "torch"))[0] == "torch"  # NumPy is gone
    assert choose(graphs, ALL, strict=True)[0] == "onnxruntime"


def test_other_operators_or_attributes_are_another_kind_of_call():
    kinds = [
        recorded(*convolution(8)),
        forward(*convolution(8)),
        recorded(lambda F, x, w: F.sin(convolution(8)[0](F, x, w)), convolution(8)[1]),
        recorded(convolution(8)[0], convolution(8)[1], "float64"),
        forward(lambda F, x: F.softmax(x, axis=0), [(4, 5)]),
        forward(lambda F, x: F.softmax(x, axis=1), [(4, 5)]),
    ]
    assert len({tuned.key_of(graphs) for graphs in kinds}) == len(kinds)


class Counting(Engine):
    """NumPy's engine under another name; notes what it compiles."""

    def __init__(self, name):
        self.name = self.title = name
        self.compiled = 0

    def compile(self, graph, **options):
        self.compiled += 1
        return engines.get("numpy").compile(graph)


def test_thirty_calls_compile_one_engine_once(monkeypatch):
    import hybrid_lab as mx

    rivals = [Counting(name) for name in ALL]
    monkeypatch.setattr(registry, "default", lambda on_cpu: None)
    monkeypatch.setattr(registry, "cpu_engines", lambda: {rival.name: rival for rival in rivals})
    net = mx.gluon.nn.Conv2D(64, 3, padding=1, in_channels=64, use_bias=False)
    net.initialize()
    net.hybridize()
    x = mx.nd.ones((8, 64, 32, 32))
    for _ in range(30):
        with mx.autograd.record():
            y = net(x)
        y.backward()
    assert [rival.compiled for rival in rivals] == [0, 0, 2]
    (program,) = net._graph_calls.programs.values()
    assert program.forward.run.__module__ != policy.__name__
    assert "engine: torch: recorded, 1.2 GFLOP of convolutions" in " ".join(str(mx.explain(net)).split())


DECIDE = """
import json, sys
if "first" in sys.argv:
    import torch
import numpy as np
import hybrid_lab as mx

found = {}
for name, units, batch in (("small", 8, 4), ("large", 1024, 512)):
    net = mx.gluon.nn.Dense(units, in_units=units)
    net.initialize()
    net.hybridize()
    x = mx.nd.ones((batch, units))
    net(x)
    with mx.autograd.record():
        y = net(x)
    y.backward()
    found[name] = [item.program.forward.report.choice for item in net._graph_calls.compilations]
    found[name + " imports"] = "torch" in sys.modules
print(json.dumps(found))
"""


def decisions(*arguments, **environment):
    import os

    surroundings = os.environ | {"HYBRID_LAB_CPU": "auto", "HYBRID_LAB_CACHE": ""} | environment
    command = [sys.executable, "-c", DECIDE, *arguments]
    run = subprocess.run(command, capture_output=True, text=True, env=surroundings, check=True)
    return json.loads(run.stdout.splitlines()[-1]), run.stderr


@pytest.mark.long
def test_every_process_decides_alike_and_imports_torch_where_it_runs_something():
    pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    one, log = decisions()
    two, _ = decisions("first")
    assert (one.pop("small imports"), one.pop("large imports")) == (False, True)
    assert two.pop("small imports") and two.pop("large imports")
    assert one == two and one["large"][1].startswith("torch: recorded") and not one["small"][1].startswith("torch")


def test_the_import_of_torch_is_told(caplog, monkeypatch):
    from hybrid_lab.engines import libraries

    seen = {}
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    for name in threads.PASSIVE:
        monkeypatch.delenv(name, raising=False)

    class Torch:
        @staticmethod
        def get_num_threads():
            import os

            seen.update({name: os.environ.get(name) for name in threads.PASSIVE})

    monkeypatch.setattr(libraries.importlib, "import_module", lambda name: Torch)
    with caplog.at_level(logging.INFO, "hybrid_lab"):
        assert libraries.import_library("torch") is Torch
    assert "importing torch, which takes a few seconds, once per process" in caplog.text
    assert seen == threads.PASSIVE


# -- threads -------------------------------------------------------------------------------------------------------


def test_how_threads_wait_is_the_users_where_the_user_says_so():
    for name in threads.PASSIVE:
        environment = {name: "active"}
        with threads.passive_waiting(environment):
            assert environment == {name: "active"}
    environment = {"PATH": "here"}
    with threads.passive_waiting(environment):
        assert environment == {"PATH": "here", **threads.PASSIVE}
    assert environment == {"PATH": "here"}


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({}, 64),
        ({"cpu.max": "max 100000"}, 64),
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 64),
        ({"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4),
        ({"cpu.max": "nonsense"}, 64),
    ],
)
def test_a_containers_quota_limits_threads(tmp_path, files, wanted):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert threads._quota(64, str(tmp_path)) == wanted


# -- engines take turns --------------------------------------------------------------------------------------------


def trained(mx, hybrid):
    """Weights and running statistics after six steps, then a prediction."""
    mx.random.seed(3)
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Conv2D(4, 3, activation="relu"), mx.gluon.nn.BatchNorm(), mx.gluon.nn.MaxPool2D(2, 2))
    net.add(mx.gluon.nn.Dropout(0.3), mx.gluon.nn.Dense(5))
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


@pytest.mark.parametrize("cpu", ["auto", "torch", "onnxruntime", "numpy"])
def test_training_follows_eager_whoever_runs_it(monkeypatch, cpu):
    pytest.importorskip("torch")
    import hybrid_lab as mx

    wanted = trained(mx, False)
    monkeypatch.setenv("HYBRID_LAB_CPU", cpu)
    monkeypatch.setattr(policy, "PRODUCTS", 0.0)
    for found, value in zip(trained(mx, True), wanted, strict=True):
        assert np.abs(found - value).max() <= 1e-4 * max(np.abs(value).max(), 1e-3)
