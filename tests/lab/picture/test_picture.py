"""The picture of a graph: boxes by Block call and by what runs together, badges, shapes of the chosen program."""

import re

import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon
from hybrid_lab.gluon import nn
from hybrid_lab.lab.models.registry import Registry
from hybrid_lab.lab.picture.graph_view import graph_view, picture_of
from tests.lab.picture.checks import boxes_around, check_picture, operators
from tests.triton_device import use_triton


def network():
    net, inner = nn.HybridSequential(), nn.HybridSequential()
    inner.add(nn.Dense(8, activation="relu"), nn.Dense(3))
    net.add(nn.Conv2D(6, 5), inner)
    net.initialize()
    net.hybridize()
    return net


def outputs(reply):
    return {box["block"]: box["outputs"] for box in reply["boxes"]}


def test_shapes_appear_with_the_first_call_and_are_those_of_the_chosen_program():
    net = network()
    assert outputs(graph_view(net, ""))["0"] == [{"shape": None, "dtype": ""}]
    net(mx.nd.ones((2, 1, 28, 28)))
    net(mx.nd.ones((3, 1, 28, 28)))
    reply = graph_view(net, "")
    labels = [item["label"] for item in reply["programs"]]
    assert labels == ["traced", "predict (2, 1, 28, 28)", "predict (3, 1, 28, 28)"]
    assert reply["program"] == "p1:forward"
    assert outputs(reply)["0"] == [{"shape": [3, 6, 24, 24], "dtype": "float32"}]
    assert outputs(graph_view(net, "", "p0:forward"))["1"] == [{"shape": [2, 3], "dtype": "float32"}]
    assert "shapes of predict (3, 1, 28, 28)" in graph_view(net, "", "traced")["summary"]


def test_blocks_are_boxes_with_full_paths():
    net = network()
    net(mx.nd.ones((2, 1, 28, 28)))
    reply = graph_view(net, "1", "traced")
    check_picture(reply)
    assert [(box["label"], box["class"], box["block"]) for box in reply["boxes"]] == [
        ("0", "Dense", "1.0"), ("act", "Activation", "1.0.act"), ("1", "Dense", "1.1"),
    ]  # fmt: skip


def normalized(engine):
    net = nn.HybridSequential(prefix="net_")
    net.add(nn.Dense(8, activation="relu"), nn.LayerNorm(), nn.Dense(8, activation="relu"))
    net.initialize()
    net.hybridize(engine=engine)
    net(mx.nd.ones((4, 8)))
    return net


@pytest.fixture
def kernels(monkeypatch):
    use_triton(monkeypatch)
    return graph_view(normalized("triton"), "")


def test_a_kernel_is_a_box_with_its_source(kernels):
    check_picture(kernels)
    units = {box["id"]: box for box in kernels["boxes"] if box["kind"] == "kernel"}
    assert f"{len(units)} kernels, Triton in" in kernels["summary"]
    chains = {node["id"]: boxes_around(kernels, node) for node in operators(kernels)}
    assert all(sum(box["kind"] == "kernel" for box in chain) == 1 for chain in chains.values())
    assert {node["engine"] for node in operators(kernels)} == {"triton"}
    (root,) = (node for node in operators(kernels) if node["op"] == "sqrt")
    (kernel,) = (box for box in chains[root["id"]] if box["kind"] == "kernel")
    assert kernel["text"].count("out_ptr, rows") == 1 and "tl.sum(" in kernel["text"]
    assert "operators, rows" in kernel["summary"] and kernel["notes"][0].startswith("1 program with ROWS")
    assert f'subgraph cluster_{kernel["id"]} {{ id="{kernel["id"]}"; class="kernel"' in kernels["dot"]


def test_the_parts_of_an_operator_name_it_and_shapes_are_no_numbers(kernels):
    (root,) = (node for node in kernels["nodes"] if node["op"] == "sqrt")
    assert root["attributes"]["part of"].endswith("layernorm0") and root["block"] == "1"
    shown = [badge["name"] for node in kernels["nodes"] for badge in node["badges"] if badge["kind"] == "constant"]
    shown += [node["label"] for node in kernels["nodes"] if node["kind"] == "constant"]
    assert "shape(4, 8)" in kernels["text"] and not any(label.startswith("shape(") for label in shown)


def test_equal_kernels_have_names_of_their_own(monkeypatch):
    use_triton(monkeypatch)
    net = nn.HybridSequential(prefix="net_")
    net.add(nn.Dense(8), nn.Dense(8))
    net.initialize()
    net.hybridize(engine="triton")
    net(mx.nd.ones((4, 8)))
    names = [box["label"] for box in graph_view(net, "")["boxes"] if box["kind"] == "kernel"]
    assert names == ["k_fullyconnected", "k_fullyconnected (2)"]


def test_sessions_are_boxes_too_and_what_runs_alone_is_in_none():
    pytest.importorskip("onnxruntime")
    found = graph_view(normalized("onnxruntime"), "")
    check_picture(found)
    units = [box for box in found["boxes"] if box["kind"] != "block"]
    assert all(box["kind"] == "session" and not box["text"] for box in units)
    engines = {}
    for node in operators(found):
        inside = any(box["kind"] == "session" for box in boxes_around(found, node))
        engines.setdefault(inside, set()).add(node["engine"])
    assert engines.pop(True, {"onnxruntime"}) == {"onnxruntime"} and engines.pop(False, {"numpy"}) <= {"numpy", ""}
    alone = graph_view(normalized("numpy"), "")
    assert {box["kind"] for box in alone["boxes"]} == {"block"}
    assert {node["engine"] for node in operators(alone)} == {"numpy"}


def test_id_of_finds_what_an_executable_runs(monkeypatch):
    use_triton(monkeypatch)
    for engine in ("numpy", "triton"):
        net = normalized(engine)
        picture = picture_of(net, "")
        ids = {node["id"] for node in picture.nodes} | {box["id"] for box in picture.boxes}
        graph = net._graph_calls.compilations[-1].program.forward.graph
        assert all(picture.id_of(node) in ids for node in graph.operators)


class Stopping(gluon.HybridBlock):
    def __init__(self, **options):
        super().__init__(**options)
        with self.name_scope():
            self.first = nn.Dense(3)
            self.second = nn.Dense(4)

    def hybrid_forward(self, F, x):
        y = F.relu(self.first(x))
        rows = y.shape[0]
        return self.second(y) * rows


class Outer(gluon.HybridBlock):
    def __init__(self, **options):
        super().__init__(**options)
        with self.name_scope():
            self.inner = Stopping()

    def hybrid_forward(self, F, x):
        return self.inner(F.exp(x))


def test_a_failed_trace_is_drawn_up_to_the_line_that_failed():
    net = Outer()
    net.initialize()
    net.hybridize()
    before = graph_view(net, "")
    with pytest.raises(mx.HybridizeError) as caught:
        net(mx.nd.ones((2, 3)))
    for reply, sentence in ((before, "has no graph yet"), (graph_view(net, ""), "does not hybridize")):
        check_picture(reply)
        assert [node["op"] for node in operators(reply)] == ["exp", "FullyConnected", "relu"]
        assert reply["failed"]["line"] == caught.value.location.line and sentence in reply["missing"]
        assert [item["id"] for item in reply["programs"]] == ["failed"] == [reply["program"]]
        (end,) = (node for node in reply["nodes"] if node["kind"] == "output")
        assert end["label"] == "stopped here" and boxes_around(reply, end)[0]["block"] == "inner"
        weights = [badge["path"] for node in operators(reply) for badge in node["badges"]]
        assert weights == ["inner.first.weight", "inner.first.bias"]


def test_after_a_trace_that_worked_nothing_is_left_of_the_failed_one():
    class Choosing(gluon.HybridBlock):
        stop = True

        def hybrid_forward(self, F, x):
            return F.relu(x) * len(x) if self.stop else F.relu(x)

    net = Choosing()
    net.hybridize()
    with pytest.raises(mx.HybridizeError):
        net(mx.nd.ones((2, 3)))
    assert graph_view(net, "")["failed"] is not None
    net.stop = False
    net(mx.nd.ones((2, 3)))
    assert graph_view(net, "")["failed"] is None and graph_view(net, "")["program"] == "p0:forward"


def test_a_program_has_the_engine_reason_and_seconds_that_explain_prints():
    net = network()
    net(mx.nd.ones((2, 1, 28, 28)))
    with mx.autograd.record():
        net(mx.nd.ones((2, 1, 28, 28)))
    rows = mx.explain(net).blocks[0].programs
    shown = {item["id"]: item for item in graph_view(net, "")["programs"]}
    for number, row in enumerate(rows):
        entry = shown[f"p{number}:forward"]
        assert (entry["engine"], entry["seconds"]) == (row.engine, row.seconds)
        assert entry["reason"].startswith(f"{row.choice}; {row.reason}") and row.place in entry["reason"]
    assert [item["half"] for item in shown.values()] == ["traced", "predict", "forward", "backward"]


class Own(mx.optimizer.SGD):
    def update(self, index, weight, grad, state):
        weight -= grad


def test_an_update_that_is_no_graph_says_why():
    net = network()
    net(mx.nd.ones((2, 1, 28, 28)))
    trainer = gluon.Trainer(net.collect_params(), Own())
    reply = graph_view(net, "", "u0")
    assert "no step so far" in reply["missing"] and reply["nodes"] == [] and reply["program"] == "u0"
    with mx.autograd.record():
        net(mx.nd.ones((2, 1, 28, 28))).backward()
    trainer.step(2)
    assert "Own has its own update()" in graph_view(net, "", "u0")["missing"]
    assert graph_view(net, "0", "u0")["program"] == "u0", "a Block that the Trainer updates a part of"


def test_an_update_is_drawn_with_its_program():
    net = network()
    net(mx.nd.ones((2, 1, 28, 28)))
    trainer = gluon.Trainer(net.collect_params(), "adam", {"wd": 0.1})
    with mx.autograd.record():
        net(mx.nd.ones((2, 1, 28, 28))).backward()
    trainer.step(2)
    reply = graph_view(net, "", "u0")
    check_picture(reply)
    assert reply["programs"][-1]["label"] == "update (Adam)"
    (box,) = reply["boxes"]
    assert box["kind"] == "kernel" and "6 weights" in box["summary"] and "def " in box["text"]
    labels = {kind: {node["label"] for node in reply["nodes"] if node["kind"] == kind} for kind in ("input", "output")}
    assert labels["input"] >= {"weight", "grad", "mean", "var", "lr"}
    assert labels["output"] == {"new weight", "new mean", "new var"}


def test_one_number_of_operators_says_how_large_a_block_is():
    """The graph of the code has it; what a call was compiled to is another number with other words."""
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3), nn.BatchNorm(), nn.Activation("relu"), nn.Dense(3))
    net.initialize()
    net.hybridize(engine="numpy")
    with autograd.record():
        net(mx.nd.ones((2, 3, 8, 8))).sum().backward()
    net(mx.nd.ones((2, 3, 8, 8)))
    summaries = {item["half"]: graph_view(net, "", item["id"])["summary"] for item in graph_view(net, "")["programs"]}
    for half in ("traced", "predict", "forward"):
        assert summaries[half].startswith("4 operators"), summaries[half]
    assert summaries["backward"].startswith("gradients of 4 operators, compiled to ")
    assert re.match(r"4 operators, compiled to \d+, .*NumPy", summaries["forward"])
    (entry,) = Registry(lambda: {"net": net}).refresh()
    assert entry.facts.shown["summary"].startswith("1 graph, 4 operators, ")
    plain = gluon.nn.Sequential()
    plain.add(net)
    assert "1 graph, 4 operators" in graph_view(plain, "")["summary"]
    (entry,) = Registry(lambda: {"plain": plain}).refresh()
    assert entry.facts.shown["summary"].startswith("1 graph, 4 operators, ")
