"""Overlays: times, memory, values, gradients and engines by the ids of the picture; measuring changes nothing."""

import json
import sys

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics import NonFiniteError
from hybrid_lab.engines.report import format_bytes
from hybrid_lab.gluon import nn
from hybrid_lab.insight.capture import capture
from hybrid_lab.lab.kernel.session import Session
from hybrid_lab.lab.picture.overlays import source
from hybrid_lab.ndarray.random_state import state
from tests.lab.conftest import Page, make_net, same, weights

pytestmark = pytest.mark.filterwarnings("ignore:.* encountered in:RuntimeWarning")
KINDS = ["time", "memory", "values", "gradients", "engine"]
ENGINES = ["numpy", "onnxruntime", "torch"]


class Image(gluon.HybridBlock):
    """Blocks with every kind of step: a view, statistics, draws, a parameter that changes the prologue."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.body = nn.HybridSequential()
            self.body.add(nn.Conv2D(4, 3, activation="relu"), nn.BatchNorm(), nn.Dropout(0.3))
            self.head = nn.Dense(3)

    def hybrid_forward(self, F, x):
        return F.softmax(self.head(self.body(x)))


def trained(engine="numpy", kind=Image):
    net = kind()
    net.initialize(mx.init.Normal(0.3))
    x = nd.array(np.random.RandomState(0).normal(size=(4, 2, 6, 6)))
    net.hybridize(engine=engine)
    net(x)
    x.attach_grad()
    with autograd.record():
        loss = (net(x) ** 2).sum()
    loss.backward()
    return net, x


def overlay(page, net, kind, program, data="", path=""):
    (model,) = page.ok("models")["models"]
    reply = page.ok("overlay", model=model["id"], path=path, program=program, kind=kind, data=data)
    json.dumps(reply, allow_nan=False)
    return reply


def graph(page, program="", path=""):
    (model,) = page.ok("models")["models"]
    return page.ok("graph", model=model["id"], path=path, program=program)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_overlay_of_every_program(page, namespace, engine):
    net, x = trained(engine)
    namespace |= {"net": net, "x": x}
    before, draws, gradient = weights(net), state.get_state(), net.head.weight.grad().asnumpy()
    programs = [entry["id"] for entry in graph(page)["programs"]]
    assert programs == ["traced", "p0:forward", "p1:forward", "p1:backward"]
    for program in programs:
        picture = graph(page, program)
        boxes = {box["id"]: box for box in picture["boxes"]}
        operators = {node["id"]: node for node in picture["nodes"] if node["kind"] == "operator"}
        ids = {*boxes, *(node["id"] for node in picture["nodes"])}
        for kind in KINDS:
            reply = overlay(page, net, kind, program, "x" if kind == "values" else "")
            assert reply["program"] == program and reply["kind"] == kind
            items = {item["id"]: item for item in reply["items"]}
            assert len(items) == len(reply["items"]) and set(items) <= ids and set(reply["marked"]) <= set(items)
            if kind == "engine" and program == "traced":
                assert "runs on no engine" in reply["missing"]
                continue
            assert not reply["missing"] and reply["headline"] and items
            assert all(0 <= item["share"] <= 1 + 1e-9 for item in items.values())
            assert not any(item["bad"] for item in items.values())
            covered = [each for each in operators if each in items]
            if kind in ("memory", "values"):
                prologue = {box["id"] for box in picture["boxes"] if box["kind"] == "prologue"}
                outside = [each for each, node in operators.items() if not prologue & set(above(node, boxes))]
                assert set(outside) <= set(covered)
            if kind == "time":
                top = [items[each] for each in members(picture, "") if each in items]
                assert sum(item["share"] for item in top) == pytest.approx(1)
                assert len(reply["marked"]) == min(5, len(covered))
            if kind == "memory" and program != "traced":
                assert reply["timeline"] and all(moment["id"] in ids for moment in reply["timeline"])
    assert same(weights(net), before) and state.get_state() == draws
    np.testing.assert_array_equal(net.head.weight.grad().asnumpy(), gradient)


def above(node, boxes):
    """Ids of the boxes around a node."""
    box = node["box"]
    while box:
        yield box
        box = boxes[box]["parent"]


def members(picture, box):
    """Ids of what stands directly in a box."""
    nodes = [node["id"] for node in picture["nodes"] if node["box"] == box]
    return [*nodes, *(each["id"] for each in picture["boxes"] if each["parent"] == box)]


@pytest.mark.parametrize("program", ["traced", "p0:forward"])
@pytest.mark.parametrize("engine", ENGINES)
def test_values_are_those_of_the_call(page, namespace, engine, program):
    net, x = trained(engine)
    namespace |= {"net": net, "x": x}
    with mx.capture(net, "head") as seen:
        y = net(x)
    reply, picture = overlay(page, net, "values", program, "x"), graph(page, program)
    items = {item["id"]: item for item in reply["items"]}
    box = next(box["id"] for box in picture["boxes"] if box["block"] == "head")
    found = [items[node["id"]] for node in picture["nodes"] if node["box"] == box and node["kind"] == "operator"]
    found += [item for each in members(picture, box) for item in (items.get(each),) if item and item not in found]
    assert max(item["value"] for item in found) == pytest.approx(abs(seen["head"].asnumpy()).max(), rel=1e-4)
    last = [node["id"] for node in picture["nodes"] if node["op"] == "softmax"]
    largest = [items[each]["value"] for each in last if each in items]
    assert not largest or largest[-1] == pytest.approx(y.asnumpy().max(), rel=1e-4)
    assert "on x" in reply["headline"] and "all are finite" in reply["headline"]


class Bad(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.relu(F.sqrt(F.log(F.exp(x) - 1)) * 2)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_first_value_that_is_not_finite_is_marked(page, namespace, engine):
    net, x = trained(engine, Bad)
    namespace |= {"net": net, "x": x * 0 + 0.1}
    for program in ("traced", "p0:forward", "p1:forward"):
        reply, picture = overlay(page, net, "values", program, "x"), graph(page, program)
        (marked,) = reply["marked"]
        node = next(node for node in picture["nodes"] if node["id"] == marked)
        assert node["op"] == "sqrt"
        item = next(item for item in reply["items"] if item["id"] == marked)
        assert item["bad"] and "NaN 288" in item["text"] and "with NaN or infinities" in reply["headline"]


def test_gradient_norms(page, namespace):
    net, _ = trained()
    namespace["net"] = net
    wanted = {
        path: np.linalg.norm(p.grad().asnumpy().astype(np.float64))
        for path, p in net._collect_params_with_prefix().items()
        if p.grad_req != "null"
    }
    reply, picture = overlay(page, net, "gradients", "p1:forward"), graph(page, "p1:forward")
    items = {item["id"]: item for item in reply["items"]}
    head = next(box["id"] for box in picture["boxes"] if box["block"] == "head")
    inside = [items[each] for each in members(picture, head) if each in items] + [items[head]]
    norm = np.hypot(wanted["head.weight"], wanted["head.bias"])
    assert any(item["value"] == pytest.approx(norm) for item in inside)
    text = " ".join(item["text"] for item in items.values())
    assert all(path in text for path in wanted)
    fresh = make_net()
    namespace["net"] = fresh
    assert overlay(page, fresh, "gradients", "")["items"]  # zeros
    fresh.collect_params().setattr("grad_req", "null")
    assert "call backward()" in overlay(page, fresh, "gradients", "")["missing"]


def test_memory_is_that_of_the_plan(page, namespace):
    net, _ = trained("numpy")
    namespace["net"] = net
    reply = overlay(page, net, "memory", "p0:forward")
    picture = {node["id"]: node for node in graph(page, "p0:forward")["nodes"]}
    for item in reply["items"]:
        if item["id"] in picture:
            (output, *_) = picture[item["id"]]["outputs"]
            assert item["value"] == np.prod(output["shape"]) * np.dtype(output["dtype"]).itemsize
    peak = max(moment["bytes"] for moment in reply["timeline"])
    assert peak > 0 and "in use at once" in reply["headline"] and reply["marked"]
    assert "step" not in reply  # of a call that is not recorded
    assert "kept for the backward" in overlay(page, net, "memory", "p1:forward")["headline"]


@pytest.mark.parametrize("engine", ENGINES)
def test_the_memory_of_a_training_step_is_that_of_the_shared_arena(page, namespace, engine):
    """Forward and backward one after the other: what the forward keeps lies there until its last use."""
    pytest.importorskip(engine)
    net, _ = trained(engine)
    namespace["net"] = net
    (program,) = (item.program for item in net._graph_calls.compilations if item.backward is not None)
    if engine == "numpy":
        assert program.forward.report.shared_arena
    halves = {half: overlay(page, net, "memory", f"p1:{half}") for half in ("forward", "backward")}
    if not program.forward.report.shared_arena:
        assert all("step" not in reply for reply in halves.values())
        return
    step = halves["forward"]["step"]
    assert step == halves["backward"]["step"]
    assert max(moment["bytes"] for moment in step) == program.forward.report.ideal_bytes
    assert all(moment["bytes"] >= moment["kept"] >= 0 for moment in step)
    for half, reply in halves.items():
        own = [moment["bytes"] for moment in step if moment["half"] == half]
        executable = program.forward if half == "forward" else program.backward
        assert len(own) == len(executable.report.memory.steps)
        assert {moment["bytes"] for moment in reply["timeline"]} <= set(own)
        assert f"for forward and backward, at most {format_bytes(max(own))} in use" in reply["headline"]
    kept = [moment["kept"] for moment in step]
    before = [moment["kept"] for moment in step if moment["half"] == "forward"]
    assert before == sorted(before) and max(kept) == before[-1] == kept[len(before)]
    assert kept[len(before) :] == sorted(kept[len(before) :], reverse=True)


def test_engines_of_a_call_and_of_what_is_computed_when_parameters_change_are_counted_apart(page, namespace):
    net = nn.HybridSequential()
    net.add(nn.Dense(4), nn.BatchNorm())
    net.initialize()
    net.hybridize(engine="numpy")
    net(nd.ones((2, 3)))
    namespace["net"] = net
    headline = overlay(page, net, "engine", "")["headline"]
    own, once = headline.split("; when parameters change, ")
    assert own == "numpy: 1 operator" and once.startswith("numpy: ")


def test_what_cannot_be_shown(page, namespace):
    net = make_net(called=False)
    net.hybridize(False)
    namespace["net"] = net
    for kind in ("time", "values"):
        assert "call the model once" in overlay(page, net, kind, "")["missing"]
    assert "Shapes are not known yet" in overlay(page, net, "memory", "")["missing"]
    namespace["net"] = nn.Sequential()
    assert "not a HybridBlock" in overlay(page, net, "time", "")["missing"]


def test_data_are_variables_of_the_right_types(page, namespace):
    net, x = trained()
    namespace |= {"net": net, "x": x, "pair": [x, x], "other": nd.ones((4, 2)), "__class__": 3}
    (model,) = page.ok("models")["models"]
    for data, words in (
        ("y", "there is no variable y"),
        ("other", r"other is float32[4, 2]; this program takes float32[4, 2, 6, 6]"),
        ("pair", "pair is float32[4, 2, 6, 6], float32[4, 2, 6, 6]"),
        ("x.shape", "there is no variable x.shape"),
        ("__class__", "is no array"),
    ):
        body = {"model": model["id"], "path": "", "program": "p0:forward", "kind": "values", "data": data}
        error = page.error("overlay", **body)
        assert error["code"] == "failed" and words in error["message"]
    error = page.error("overlay", model=model["id"], path="nope", program="", kind="time", data="")
    assert error["code"] == "unknown-block"
    error = page.error("overlay", model=model["id"], path="", program="", kind="speed", data="")
    assert error["code"] == "bad-request"


def test_nothing_is_measured_while_a_cell_runs(namespace):
    net, _ = trained()
    namespace["net"] = net
    page = Page(Session(lambda: namespace, busy=lambda: True))
    (model,) = page.ok("models")["models"]
    for kind in KINDS:
        body = {"model": model["id"], "path": "", "program": "p0:forward", "kind": kind, "data": ""}
        if kind in ("time", "values"):
            error = page.error("overlay", **body)
            assert error["code"] == "busy" and "a cell is running" in error["message"] and error["next"]
        else:
            assert page.ok("overlay", **body)["items"]


# -- values and the watch ----------------------------------------------------------------------------------------------


def test_the_values_of_parameters_gradients_and_outputs(page, namespace):
    net, x = trained()
    namespace["net"] = net
    (model,) = page.ok("models")["models"]

    def ask(path, name, what):
        return page.ok("values", model=model["id"], path=path, name=name, what=what)

    reply = ask("head", "weight", "data")
    assert reply["type"] == "3 x 64, float32, cpu(0)" and not reply["missing"] and sum(reply["bars"]) == 192
    assert reply["picture"].startswith("data:image/png;base64,") and {"name": "zeros", "text": "0"} in reply["facts"]
    assert ask("head", "weight", "grad")["title"] == "gradient of weight"
    assert "grad_req is 'null'" in ask("body.1", "running_mean", "grad")["missing"]
    assert "has no parameter" in ask("head", "<b>\u202e", "data")["missing"]
    assert "mx.capture(net, 'head')" in ask("head", "0", "output")["missing"]
    with capture(net, "head") as seen:
        net(x)
    assert ask("head", "0", "output")["type"] == "4 x 3, float32, cpu(0)"
    assert "there is no output 5" in ask("head", "5", "output")["missing"]
    del seen
    assert "mx.capture" in ask("head", "0", "output")["missing"]
    assert page.error("values", model=model["id"], path="no", name="x", what="data")["code"] == "unknown-block"


def test_watching_for_nan_is_switched(page, namespace):
    net, x = trained("numpy", Bad)
    namespace |= {"net": net}
    (model,) = page.ok("models")["models"]
    ask = lambda **on: page.ok("watch_nan", model=model["id"], **on)["on"]
    assert not ask() and ask(on=True) and ask(on=True) and ask()
    with pytest.raises(NonFiniteError):
        net(x * 0 - 1)
    assert not ask(on=False) and not ask(on=False)
    assert np.isnan(net(x * 0 - 1).asnumpy()).all() and not net._forward_hooks


class Chain(gluon.HybridBlock):
    """So many operators, which read no whole numbers."""

    def __init__(self, count):
        super().__init__()
        self.count = count

    def forward(self, x):
        for number in range(self.count):
            x = x * 0.9 if number % 2 else x + 0.5
        return x


def calls_of(action):
    """How many functions `action` calls, in Python and in C."""
    calls = 0

    def note(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("kind", ["memory", "values", "engine"])
def test_an_overlay_costs_little_and_the_same_for_each_operator(page, namespace, kind):
    """Calls of functions, not seconds: they are the same on each machine, and most of the time of large graphs."""
    calls = {}
    for count in (400, 800, 1600):
        namespace.clear()
        net = namespace["net"] = Chain(count)
        net.hybridize(engine="numpy")
        net(nd.ones((4, 4))).wait_to_read()
        program = graph(page)["program"]
        assert len(overlay(page, net, kind, program)["items"]) >= count
        calls[count] = calls_of(lambda net=net, program=program: overlay(page, net, kind, program))
    assert calls[1600] - calls[800] < 2.1 * (calls[800] - calls[400])  # linear
    assert (calls[1600] - calls[800]) / 800 < 230  # each array read alone would be 90 more


def test_shapes_are_inferred_for_random_inputs_only_where_operators_read_whole_numbers(page, namespace, monkeypatch):
    inferred = []
    original = source.infer
    monkeypatch.setattr(source, "infer", lambda *arguments: (inferred.append(True), original(*arguments))[1])
    for net, x, wanted in ((Chain(5), nd.ones((2, 2)), 0), (nn.Embedding(7, 3), nd.array([[1, 6]]), 1)):
        namespace["net"] = net
        net.initialize()
        net.hybridize(engine="numpy")
        net(x)
        inferred.clear()
        assert "all are finite" in overlay(page, net, "values", graph(page)["program"])["headline"]
        assert len(inferred) == wanted
