"""Pictures of networks: every operator once, small layers, complete edges, folds of equal Blocks, on every engine."""

import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon
from hybrid_lab.engines.registry import find
from hybrid_lab.gluon import nn, rnn
from hybrid_lab.gluon.model_zoo import vision
from hybrid_lab.insight.states import blocks_below
from hybrid_lab.lab.picture.boxes import LARGEST
from hybrid_lab.lab.picture.graph_view import chosen, graph_view, picture_of, programs_of
from tests.lab.picture.checks import boxes_around, check_picture, operators
from tests.test_training import Encoder
from tests.triton_device import use_triton

ENGINES = ("numpy", "onnxruntime", "torch", "triton")


def encoder():
    net = nn.HybridSequential()
    for _ in range(6):
        net.add(Encoder(8))
    net.add(nn.Dense(3))
    return net, mx.nd.ones((2, 3, 8))


class Unrolled(gluon.HybridBlock):
    """Calls one cell many times."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps
        self.cell = rnn.LSTMCell(4)

    def hybrid_forward(self, F, x):
        state = [F.zeros_like(x), F.zeros_like(x)]
        for _ in range(self.steps):
            _, state = self.cell(x, state)
        return state[0]


def cells():
    return Unrolled(5), mx.nd.ones((2, 4))


def lstm():
    net = nn.HybridSequential()
    net.add(nn.Embedding(9, 4), rnn.LSTM(4, num_layers=2), nn.Dense(3, flatten=False))
    return net, mx.nd.ones((5, 2))


def convolutions():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(2), nn.Dropout(0.5), nn.Dense(3))
    return net, mx.nd.ones((2, 1, 8, 8))


def tiny():
    """Too little work for any engine but NumPy."""
    net = nn.HybridSequential()
    net.add(nn.Dense(2), nn.Activation("relu"))
    return net, mx.nd.ones((1, 3))


NETWORKS = {"encoder": encoder, "cells": cells, "lstm": lstm, "convolutions": convolutions, "tiny": tiny}


def parameters(net):
    """(path, Parameter) of all parameters."""
    for above, block in blocks_below(net):
        for name, parameter in block._reg_params.items():
            yield f"{above}.{name}" if above else name, parameter


def check_all(net, path=""):
    """Check the picture of every program of a Block; returns them by half."""
    replies = {}
    for choice in programs_of(net, path):
        identity = choice.entry["id"]
        reply, program = graph_view(net, path, identity), choice.show().program
        check_picture(reply)
        if program is None:
            assert choice.entry["half"] == "update" and reply["missing"]
            continue
        before = () if program.prologue is None else program.prologue.operators
        shown = {*program.graph.operators, *before}
        assert sorted(node.op.name for node in shown) == sorted(node["op"] for node in operators(reply))
        check_executable(net, path, choice.entry, reply)
        check_engine(choice.entry, reply)
        replies[choice.entry["half"]] = reply
    return replies


def check_executable(net, path, entry, reply):
    """Every node that an executable runs is found in the picture."""
    if not entry["id"].startswith("p"):
        return
    block = net
    for name in path.split(".") if path else ():
        block = block._children[name]
    number = int(entry["id"].split(":")[0][1:])
    (program,) = (item.program for item in block._graph_calls.compilations if item.number == number)
    picture = picture_of(net, path, entry["id"])
    ids = {item["id"] for item in (*reply["nodes"], *reply["boxes"])}
    executable = program.backward if entry["half"] == "backward" else program.forward
    executed = [*executable.graph.operators]
    if program.prologue is not None:
        executed += program.prologue.executable.graph.operators
    assert {picture.id_of(node) for node in executed} <= ids


def check_engine(entry, reply):
    """Entry, reason and summary name one engine, which runs operators of the picture."""
    running = {node["engine"] for node in reply["nodes"]} - {""}
    if entry["half"] == "traced":
        assert (entry["engine"], entry["reason"], running) == ("", "", set())
    elif entry["half"] != "update":
        assert entry["engine"] in running
        assert entry["reason"].startswith((f"{entry['engine']}: ", f"{entry['engine']}, "))
        assert reply["summary"].endswith(find(entry["engine"]).where())


@pytest.mark.each_value
@pytest.mark.parametrize("name", sorted(NETWORKS))
@pytest.mark.parametrize("engine", [*ENGINES, "auto"])
def test_every_program_on_every_engine(engine, name, monkeypatch):
    pytest.importorskip({"auto": "numpy"}.get(engine, engine))
    monkeypatch.delenv("HYBRID_LAB_CPU", raising=False)
    if engine == "triton":
        use_triton(monkeypatch)
    net, x = NETWORKS[name]()
    net.initialize()
    net.hybridize(engine=None if engine == "auto" else engine)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"momentum": 0.9})
    net(x)
    with autograd.record():
        net(x).backward()
    trainer.step(2)
    replies = check_all(net)
    assert set(replies) == {"traced", "predict", "forward", "backward", "update"}
    for half in ("traced", "predict", "forward", "backward"):
        blocks = {box["block"] for box in replies[half]["boxes"] if box["kind"] == "block"}
        assert blocks & set(net._children), "the Blocks of the tree are boxes in every half"
    gradients = {node["attributes"].get("gradient of") for node in replies["backward"]["nodes"]} - {None}
    assert gradients == {path for path, item in parameters(net) if item.grad_req != "null"}
    places = {node["attributes"].get("saved") for node in replies["forward"]["nodes"]}
    assert "for the backward" in places or name in ("lstm", "tiny")


def folds(reply):
    return {box["label"]: (box["class"], box["copies"]) for box in reply["boxes"] if box["kind"] == "fold"}


def test_equal_blocks_in_a_row_are_folded():
    net, x = encoder()
    net.initialize()
    net.hybridize(engine="numpy")
    assert folds(graph_view(net, "")) == {"0 to 5": ("Encoder", 6)}
    with autograd.record():
        net(x)
    assert folds(graph_view(net, "")) == {"0 to 5": ("Encoder", 6)}
    (backward,) = folds(graph_view(net, "", "p0:backward")).values()
    assert backward == ("Encoder", 5), "the first one computes no gradient of its input"


@pytest.mark.parametrize(
    "others",
    [
        lambda: [nn.Dense(4), nn.Dense(5)],
        lambda: [nn.Dense(4), nn.Dense(4, use_bias=False)],
        lambda: [nn.Dense(4), nn.Dense(4, activation="relu")],
        lambda: [nn.Dense(4, activation="tanh"), nn.Dense(4, activation="relu")],
        lambda: [nn.Dropout(0.1), nn.Dropout(0.2)],
        lambda: [nn.Dense(4), nn.HybridLambda("relu"), nn.Dense(4)],
        lambda: [nn.HybridLambda(lambda F, x: x * x), nn.HybridLambda(lambda F, x: x * F.ones_like(x))],
        lambda: [nn.HybridLambda(lambda F, x: F.exp(x) - x), nn.HybridLambda(lambda F, x: x - F.exp(x))],
        lambda: [nn.HybridLambda(lambda F, x: x + 1), nn.HybridLambda(lambda F, x: x + 2)],
    ],
)
def test_unequal_blocks_are_not_folded(others):
    net = nn.HybridSequential()
    net.add(*others())
    net.initialize()
    net.hybridize(engine="numpy")
    assert folds(graph_view(net, "")) == {}
    net(mx.nd.ones((2, 4)))
    assert folds(graph_view(net, "", "traced")) == {} == folds(graph_view(net, ""))


def test_each_call_of_a_block_is_a_box():
    class Twice(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.cell, self.other = nn.Dense(4), nn.Dense(4, activation="relu")

        def hybrid_forward(self, F, x):
            return self.cell(self.other(self.cell(x)))

    net = Twice()
    net.initialize()
    net.hybridize(engine="numpy")
    net(mx.nd.ones((2, 4)))
    for program in ("traced", "p0:forward"):
        reply = graph_view(net, "", program)
        check_picture(reply)
        top = [(box["label"], box["block"], box["operators"]) for box in reply["boxes"] if not box["parent"]]
        assert top == [("cell", "cell", 1), ("other", "other", 2), ("cell (2)", "cell", 1)]
        shared = {
            node["attributes"]["parameter"]: node["box"] for node in reply["nodes"] if node["kind"] == "parameter"
        }
        assert shared == {"cell.weight": "", "cell.bias": ""}, "what two calls read is drawn beside both"


def test_many_calls_of_a_block_are_folded():
    net = Unrolled(400)
    net.initialize()
    net.hybridize(engine="numpy")
    net(mx.nd.ones((2, 4)))
    reply = graph_view(net, "", "traced")
    check_picture(reply)
    assert {"cell to cell (400)": ("LSTMCell", 400)} == folds(reply)


class Chain(gluon.HybridBlock):
    """Operators without Blocks."""

    def __init__(self, operators):
        super().__init__()
        self.operators = operators

    def hybrid_forward(self, F, x):
        for _ in range(self.operators):
            x = F.relu(x)
        return x


@pytest.mark.parametrize(
    "number",
    [
        LARGEST - 1,
        LARGEST,
        *(pytest.param(many, marks=pytest.mark.long) for many in (LARGEST - 2, 1000, LARGEST * LARGEST + 7)),
    ],
)
def test_large_layers_are_cut_into_parts(number):
    net = Chain(number)
    reply = graph_view(net, "")
    check_picture(reply)
    top = [box for box in reply["boxes"] if not box["parent"]]
    assert sum(box["operators"] for box in top) == (number if number > LARGEST - 2 else 0)
    assert all(box["kind"] == "part" for box in reply["boxes"])
    (first,) = (node for node in reply["nodes"] if node["kind"] == "input")
    assert first["box"] == "" and first is reply["nodes"][0], "the picture starts at the input"
    if number == 1000:
        assert [box["label"] for box in top][:2] == ["operators 1 to 142", "operators 143 to 285"]


def test_a_graph_with_many_inputs_and_outputs():
    class Wide(gluon.HybridBlock):
        def hybrid_forward(self, F, *arrays):
            return [F.relu(array) for array in arrays]

    net = Wide()
    net.hybridize(engine="numpy")
    net(*[mx.nd.ones((2,))] * 200)
    check_all(net)


def test_blocks_below_a_plain_block():
    class Plain(gluon.Block):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Dense(4), encoder()[0]

        def forward(self, x):
            return self.second(self.first(x).reshape((2, 3, 8)))

    net = Plain()
    net.first = nn.Dense(24)
    net.initialize()
    net.hybridize(engine="numpy")
    net(mx.nd.ones((2, 4)))
    assert [box["label"] for box in graph_view(net, "")["boxes"] if not box["parent"]] == ["first", "second"]
    for path in ("first", "second"):
        check_all(net, path)
    check_all(net, "second.0")
    assert {box["block"] for box in graph_view(net, "second.0")["boxes"]} >= {"second.0.qkv", "second.0.norm1"}


@pytest.mark.parametrize("name", ["resnet50_v1", "densenet121", "inceptionv3"])
def test_every_operator_of_a_model_zoo_network(name):
    net = vision.get_model(name)
    (choice,) = programs_of(net, "")
    graph = choice.show().program.graph
    reply = graph_view(net, "")
    check_picture(reply, graph)
    top = [box["label"] for box in reply["boxes"] if not box["parent"]]
    assert top == ["features", "output"]
    assert all(node["block"] for node in operators(reply))


def test_the_training_program_of_resnet50():
    net = vision.resnet50_v1(classes=10)
    net.initialize()
    net.hybridize(engine="numpy")
    with autograd.record():
        net(mx.nd.ones((1, 3, 32, 32)))
    for program in ("p0:forward", "p0:backward"):
        reply = graph_view(net, "", program)
        check_picture(reply)
        boxes = {box["block"]: box for box in reply["boxes"] if box["kind"] == "block"}
        inside = [box["label"] for box in reply["boxes"] if box["parent"] == boxes["features"]["id"]]
        assert sorted(inside) == sorted(map(str, range(9)))
        assert ("BottleneckV1", 5) in folds(reply).values()
        for node in operators(reply):
            assert node["block"] in {box["block"] for box in boxes_around(reply, node)}


def test_a_program_that_is_gone_gives_the_latest():
    net, x = convolutions()
    net.initialize()
    net.hybridize(engine="numpy")
    net(x)
    assert chosen(programs_of(net, ""), "p7:forward").entry["id"] == "p0:forward"


def test_the_prologue_of_a_session_stands_beside_it():
    pytest.importorskip("onnxruntime")
    net = vision.get_model("resnet18_v1", classes=10)
    net.initialize()
    net.hybridize(engine="onnxruntime")
    net(mx.nd.ones((1, 3, 32, 32)))
    reply = graph_view(net, "")
    check_picture(reply)
    assert [box["kind"] for box in reply["boxes"] if not box["parent"]] == ["prologue", "session"]


def test_calls_of_a_block_stay_apart_in_a_file(tmp_path):
    net, x = cells()
    net.initialize()
    net.hybridize(engine="numpy")
    net(x)
    net.save(tmp_path / "cells.hlab")
    loaded = gluon.load(tmp_path / "cells.hlab")
    loaded(x)
    for program in ("traced", "p0:forward"):
        reply = graph_view(loaded, "", program)
        check_picture(reply)
        labels = [box["label"] for box in reply["boxes"] if box["kind"] == "block"]
        assert labels == ["cell", "cell (2)", "cell (3)", "cell (4)", "cell (5)"]
