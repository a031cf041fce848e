"""The protocol's kernel half: each request validated, exactly one reply, whatever comes."""

import json

import pytest

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.gluon import nn
from hybrid_lab.lab import schema
from hybrid_lab.lab.kernel.comm import Comms, finite, handle
from hybrid_lab.lab.kernel.session import Session
from hybrid_lab.lab.messages.connection import PROTOCOL
from tests.lab.conftest import Net, Stubborn, inputs, make_net

HELLO = {"front_end": "9.9", "protocol": PROTOCOL, "notebook": "a.ipynb"}

MODEL = {
    "id", "name", "block", "class", "hybrid", "hybridized", "blocks", "graphs", "findings", "parameters", "engine",
    "file", "undo", "undoes", "revision", "summary", "held", "also", "failed",
}  # fmt: skip
BLOCK = {
    "path", "attr", "name", "class", "hybrid", "state", "why", "failed_in", "repr", "parameters", "parameter_count",
    "output", "graphs", "engine", "findings", "shared_with", "location", "codes", "group", "children",
}  # fmt: skip
GRAPH = {
    "path",
    "program",
    "programs",
    "boxes",
    "nodes",
    "locations",
    "text",
    "dot",
    "summary",
    "missing",
    "variants",
    "failed",
}
NODE = {
    "id", "box", "kind", "label", "op", "attributes", "inputs", "outputs", "badges", "block", "location", "engine",
}  # fmt: skip
BOX = {
    "id", "parent", "kind", "label", "class", "block", "copies", "operators", "summary", "text", "notes", "outputs",
    "location",
}  # fmt: skip
DIAGNOSTIC = {
    "code", "name", "severity", "message", "help", "rewrite", "tensor", "block", "line", "col", "end_line", "end_col",
    "location", "fix",
}  # fmt: skip


def request(kind, body, **more):
    return {"hybrid_lab": PROTOCOL, "kernel_id": "", "id": "r1", "type": kind, "body": body, **more}


# -- envelopes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, PROTOCOL - 1, PROTOCOL, PROTOCOL + 1, 99])
def test_hello_is_answered_to_every_version(page, version):
    (reply,) = page.send(request("hello", HELLO, hybrid_lab=version))
    assert reply["type"] == "ok" and reply["hybrid_lab"] == PROTOCOL
    assert set(reply["body"]) == {"kernel", "kernel_id", "protocol", "python", "host", "folder", "engine", "subshells"}
    assert reply["body"]["protocol"] == PROTOCOL


def test_hello_of_a_later_version_may_say_more(page):
    (reply,) = page.send(request("hello", HELLO | {"theme": "dark"}, hybrid_lab=PROTOCOL + 1))
    assert reply["type"] == "ok"
    (reply,) = page.send(request("hello", HELLO | {"theme": "dark"}))
    assert reply["body"]["code"] == "bad-request" and "theme" in reply["body"]["message"]


@pytest.mark.parametrize("kind", ["models", "a-request-of-the-future"])
def test_other_requests_of_another_version_are_refused_with_what_to_do(page, kind):
    (reply,) = page.send(request(kind, {}, hybrid_lab=PROTOCOL + 1))
    assert reply["type"] == "error" and reply["id"] == "r1"
    assert reply["body"]["code"] == "protocol"
    assert "pip install" in reply["body"]["next"]


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "hello",
        {},
        request("hello", HELLO, id=7),
        request("hello", HELLO, id=""),
        request("hello", HELLO, id="x" * 65),
        request("hello", HELLO, id="\ud800"),
        request("hello", HELLO, hybrid_lab="1"),
        request("hello", HELLO, hybrid_lab=True),
        request("nonsense", {}),
        request(None, {}),
        request(["hello"], {}),
        request("_reply", {}),
        request("models", None),
        request("models", []),
        request("models", {"extra": 1}),
        request("models", {"\ud800": 1}),
        request("tree", {}),
        request("tree", {"model": 3}),
        request("tree", {"model": None}),
        request("tree", {"model": "\ud800"}),
        request("tree", {"model": "m" * 1025}),
        request("graph", {"model": "m1", "path": "", "form": "compiled"}),
        request("graph", {"model": "m1", "path": "", "program": ["traced"]}),
        request("save", {"model": "m1", "file": "", "overwrite": 1}),
        request("save", {"model": "m1", "file": "", "overwrite": None}),
        request("lint", {"cells": {}, "only": []}),
        request("lint", {"cells": [{"id": "a"}], "only": []}),
        request("lint", {"cells": [{"id": "a", "source": 1}], "only": []}),
        request("lint", {"cells": [{"id": "a", "source": "", "x": 1}], "only": []}),
        request("lint", {"cells": [], "only": [1]}),
        request("asset", {"name": "../view"}),
    ],
)
def test_what_is_not_in_the_protocol_is_a_bad_request(page, data):
    replies = page.send(data)
    assert [reply["type"] for reply in replies] == ["error"]
    (reply,) = replies
    assert reply["body"]["code"] == "bad-request"
    json.dumps(reply).encode()
    json.dumps(reply, ensure_ascii=False).encode()  # what the kernel's session sends
    known = isinstance(data, dict) and data.get("id") == "r1"
    assert reply["id"] == ("r1" if known else "")


def test_a_bad_request_names_the_field(page):
    (reply,) = page.send(request("lint", {"cells": [{"id": "a", "source": ""}, {"id": "b"}], "only": []}))
    assert "cells[1].source" in reply["body"]["message"]


def test_oversized_requests_are_refused(page):
    source = "x" * (schema.MAX_BYTES + 1)
    assert page.error("lint", cells=[{"id": "a", "source": source}], only=[])["code"] == "too-large"


def test_deeply_nested_data_gets_its_one_reply(page):
    deep = []
    for _ in range(100_000):
        deep = [deep]
    (reply,) = page.send(request("tree", {"model": deep}))
    assert reply["type"] == "error" and reply["id"] == "r1"


def test_a_fault_of_the_kernel_half_is_one_reply_without_a_traceback(page, monkeypatch):
    monkeypatch.setattr(page.session, "models", lambda: 1 / 0)
    error = page.error("models")
    assert error["code"] == "failed" and error["message"] == "ZeroDivisionError: division by zero"


def test_a_reply_that_cannot_be_sent_becomes_an_error(page, monkeypatch):
    sent = []

    def send(message):
        json.dumps(message)
        sent.append(message)

    monkeypatch.setattr(page.session, "models", lambda: {"models": object()})
    handle(page.session, request("models", {}), send)
    assert [message["type"] for message in sent] == ["error"]


def test_an_interrupt_answers_and_goes_on(page, monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(page.session, "models", interrupted)
    sent = []
    with pytest.raises(KeyboardInterrupt):
        handle(page.session, request("models", {}), sent.append)
    assert [message["body"]["code"] for message in sent] == ["failed"]


def test_numbers_that_are_not_finite_are_null():
    assert finite({"a": [float("nan"), (1.5, float("inf"))]}) == {"a": [None, [1.5, None]]}


# -- reading -----------------------------------------------------------------------------------------------------------


def test_models_are_top_level_blocks_of_the_namespace(page, namespace):
    net = make_net()
    namespace |= {"net": net, "again": net, "head": net.head, "_hidden": nn.Dense(2), "number": 3}
    namespace["other"] = nn.Dense(2)
    models = page.ok("models")["models"]
    assert [model["name"] for model in models] == ["net", "other"]
    assert set(models[0]) == MODEL
    assert models[0]["blocks"] == 6 and models[0]["hybridized"] and models[0]["file"] == "net.hlab"
    assert models[1]["parameters"] is None
    assert "1 graph, " in models[0]["summary"]


def test_ids_are_stable_and_revisions_grow_with_what_changed(page, namespace):
    net = namespace["net"] = make_net(called=False)
    first = page.ok("models")["models"][0]
    assert page.ok("models")["models"][0] == first
    net(inputs())
    second = page.ok("models")["models"][0]
    assert second["id"] == first["id"] and second["revision"] > first["revision"]
    net(inputs())
    assert page.ok("models")["models"][0]["revision"] == second["revision"]
    namespace["renamed"] = namespace.pop("net")
    third = page.ok("models")["models"][0]
    assert (third["id"], third["name"]) == (first["id"], "renamed") and third["revision"] > second["revision"]


def test_tree(page, namespace):
    namespace["net"] = make_net()
    body = page.ok("tree", model="m1")
    root = body["root"]
    assert set(root) == BLOCK and (root["path"], root["attr"], root["state"]) == ("", "net", "active")
    assert [child["path"] for child in root["children"]] == ["body", "head"]
    dense = root["children"][0]["children"][0]
    assert dense["repr"].startswith("Dense(") and dense["output"] == [{"shape": [4, 8], "dtype": "float32"}]
    assert dense["parameters"][0] == {
        "name": "weight", "shape": [8, 5], "dtype": "float32", "grad_req": "write", "shared": False,
    }  # fmt: skip
    json.dumps(body)


def test_a_graph_has_a_box_for_each_block_call(page, namespace):
    namespace["net"] = make_net()
    body = page.ok("graph", model="m1", path="", program="traced")
    assert set(body) == GRAPH and all(set(node) == NODE for node in body["nodes"])
    assert all(set(box) == BOX for box in body["boxes"])
    blocks = {(box["parent"], box["label"], box["class"], box["block"]) for box in body["boxes"]}
    ids = {box["block"]: box["id"] for box in body["boxes"]}
    assert blocks >= {("", "body", "HybridSequential", "body"), ("", "head", "Dense", "head")}
    assert (ids["body"], "0", "Dense", "body.0") in blocks
    dense = page.ok("graph", model="m1", path="body.0", program="traced")
    (operator,) = (node for node in dense["nodes"] if node["op"] == "FullyConnected")
    assert [(badge["name"], badge["path"]) for badge in operator["badges"]] == [
        ("weight", "body.0.weight"), ("bias", "body.0.bias"),
    ]  # fmt: skip
    assert operator["box"] == "" and operator["block"] == "body.0"
    compiled = page.ok("graph", model="m1", path="", program="")
    programs = {item["id"]: item for item in compiled["programs"]}
    assert list(programs) == ["traced", "p0:forward"] and compiled["program"] == "p0:forward"
    chosen = programs["p0:forward"]
    assert chosen["label"] == "predict (4, 5)" and chosen["half"] == "predict" and "first call" in chosen["reason"]


def test_the_compiled_graph_says_what_runs_only_when_parameters_change(page, namespace):
    namespace["net"] = net = make_net()
    net.hybridize(engine="numpy")
    net(mx.nd.ones((4, 5)))
    body = page.ok("graph", model="m1", path="", program="")
    boxes = {box["id"]: box for box in body["boxes"]}
    kinds = {node["op"]: boxes[node["box"]]["kind"] for node in body["nodes"] if node["kind"] == "operator"}
    assert kinds["rsqrt"] == "prologue" and kinds["FullyConnected"] == "block"
    assert "more when parameters change" in body["summary"]
    (affine,) = (node for node in body["nodes"] if node["op"] == "_channel_affine")
    assert len(affine["inputs"]) == 3  # the prologue's results are joined to their reader


def test_a_graph_s_dot_text_carries_nothing_active(page, namespace):
    class Evil(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.relu(x, name='x" URL="javascript:alert(1)\\')

    namespace["net"] = make_net(Evil)
    dot = page.ok("graph", model="m1", path="", program="traced")["dot"]
    outside_of_quotes = "".join(dot.replace('\\"', "").split('"')[::2])
    for word in ("URL", "href", "target", "tooltip", "image", "font", "color", "<"):
        assert word not in outside_of_quotes


def test_a_block_that_was_not_called_has_a_graph_and_prints_nothing(page, namespace, capsys):
    class Loud(Net):
        def hybrid_forward(self, F, x):
            print("I am traced")
            return super().hybrid_forward(F, x)

    net = namespace["net"] = make_net(Loud, called=False)
    body = page.ok("graph", model="m1", path="", program="traced")
    assert body["dot"] and body["variants"] == 1
    assert capsys.readouterr().out == ""
    assert not net._graphs.graphs() and not net.body._graphs.graphs()


def test_why_there_is_no_graph(page, namespace):
    namespace["plain"] = gluon.nn.Sequential()
    namespace["plain"].add(nn.Dense(2))
    namespace["bad"] = make_net(Stubborn, called=False)
    assert "not called yet" in page.ok("graph", model="m1", path="", program="traced")["summary"]
    namespace["alone"] = gluon.Block()
    assert "not a HybridBlock" in page.ok("graph", model="m3", path="", program="")["missing"]
    assert "HL101" in page.ok("graph", model="m2", path="", program="")["missing"]
    with pytest.raises(mx.HybridizeError):
        namespace["bad"](inputs())
    assert "does not hybridize" in page.ok("graph", model="m2", path="", program="traced")["missing"]


def test_unknown_models_and_blocks(page, namespace):
    namespace["net"] = make_net()
    assert page.error("tree", model="m77")["code"] == "unknown-model"
    assert page.error("graph", model="m1", path="body.9", program="traced")["code"] == "unknown-block"
    del namespace["net"]
    assert page.error("tree", model="m1")["code"] == "unknown-model"


def test_findings_are_lint_and_failed_traces_with_paths_in_the_model(page, namespace):
    class Outer(gluon.Block):
        def __init__(self):
            super().__init__()
            self.inner = Stubborn()

        def forward(self, x):
            return self.inner(x)

    net = namespace["net"] = make_net(Outer, called=False)
    with pytest.raises(mx.HybridizeError):
        net(inputs())
    findings = page.ok("findings", model="m1")["findings"]
    assert [(item["code"], item["block"]) for item in findings] == [("HL101", "net.inner")]
    assert set(findings[0]) == DIAGNOSTIC and findings[0]["location"]["file"].endswith("conftest.py")
    root = page.ok("tree", model="m1")["root"]
    assert (root["findings"], root["children"][0]["findings"]) == (0, 1)
    assert root["children"][0]["state"] == "failed" and "HL101" in root["children"][0]["why"]


def test_lint_of_cells_checks_them_together(page):
    checked = "class N(gluon.HybridBlock):\n    def hybrid_forward(self, F, x):\n        return len(x)"
    cells = [
        {"id": "a", "source": "from hybrid_lab import gluon"},
        {"id": "b", "source": "%matplotlib inline\n" + checked},
        {"id": "c", "source": "this does not parse"},
    ]
    found = page.ok("lint", cells=cells, only=[])["cells"]
    assert {key: [item["line"] for item in items] for key, items in found.items()} == {"a": [], "b": [4], "c": []}
    assert set(found["b"][0]) == DIAGNOSTIC and found["b"][0]["location"] is None
    assert list(page.ok("lint", cells=cells, only=["b"])["cells"]) == ["b"]


def test_a_call_in_another_cell_leads_to_a_finding(page):
    cells = [
        {"id": "a", "source": "from hybrid_lab import gluon\ndef size(t):\n    return t.size"},
        {"id": "b", "source": "class N(gluon.HybridBlock):\n    def hybrid_forward(self, F, x): return size(x)"},
    ]
    found = page.ok("lint", cells=cells, only=[])["cells"]
    assert found["b"] == []
    (call,) = found["a"][0]["calls"]
    assert call["message"].startswith("calls `size`, in which `.size` of the tensor `t`")
    place = [call["location"][part] for part in ("cell_id", "line", "col", "end_col")]
    assert place == ["b", 2, 43, 47]


def test_classes_are_checked_once_and_traces_do_not_change_that(page, namespace, monkeypatch):
    from hybrid_lab.lab.kernel import session

    checked = []
    real = session.lint_rows
    monkeypatch.setattr(session, "lint_rows", lambda rows, name: checked.append(name) or real(rows, name))
    net = namespace["net"] = make_net(called=False)
    for _ in range(3):
        net(inputs())
        page.ok("models")
    assert checked == ["net"]
    net.extra = nn.Dense(2)
    page.ok("models")
    assert checked == ["net", "net"]


def test_explain_and_asset(page, namespace):
    namespace["net"] = make_net()
    assert page.ok("explain", model="m1")["text"].startswith(namespace["net"].name + ": ")
    body = page.ask("asset", name="graphviz")["body"]
    assert body.get("text") or body["next"].startswith("Run `make install`")


# -- comms -------------------------------------------------------------------------------------------------------------


class FakeComm:
    def __init__(self, identity):
        self.comm_id, self.sent, self.closed, self.broken = identity, [], False, False

    def on_msg(self, handler):
        self.receive = handler

    def on_close(self, handler):
        self.gone = handler

    def send(self, message):
        if self.broken:
            raise OSError("gone")
        self.sent.append(message)
        self.__dict__["_reply_subshell_id"] = None

    def close(self):
        self.closed = True


@pytest.fixture
def comms(namespace):
    session = Session(lambda: namespace, lambda: made.push_models())
    made = Comms(session)
    return made


def test_two_pages_both_get_pushes_and_each_its_own_replies(comms, namespace):
    namespace["net"] = make_net()
    one, two = FakeComm("1"), FakeComm("2")
    comms.opened(one, {})
    comms.opened(two, {})
    one.receive({"content": {"data": request("models", {})}})
    assert [message["type"] for message in one.sent] == ["ok"] and not two.sent
    comms.push_models()
    assert one.sent[-1]["type"] == two.sent[-1]["type"] == "models"
    assert one.sent[-1]["id"] == ""
    one.receive({"content": {"data": request("save", {"model": "m1", "file": "", "overwrite": False})}})
    assert [message["type"] for message in one.sent[-3:]] == ["progress", "models", "ok"]
    assert two.sent[-1]["type"] == "models"  # a change is told to every page
    two.gone({})
    comms.push_models()
    assert len(two.sent) == 2


def test_a_page_that_is_gone_does_not_stop_the_others(comms):
    one, two = FakeComm("1"), FakeComm("2")
    comms.opened(one, {})
    comms.opened(two, {})
    one.broken = True
    comms.push_models()
    assert two.sent and comms.any_open
    one.broken = False
    comms.push_models()
    assert not one.sent


def test_a_push_from_the_main_thread_forgets_the_route(comms):
    one = FakeComm("1")
    comms.opened(one, {})
    comms.push_models()
    assert "_reply_subshell_id" not in one.__dict__


def test_unload_closes_the_pages(comms):
    one = FakeComm("1")
    comms.opened(one, {})
    comms.close()
    assert one.closed and not comms.any_open


def test_notes_are_told_once(comms):
    comms._session.note(["a graph was dropped"])
    one = FakeComm("1")
    comms.opened(one, {})
    comms.push_models()
    comms.push_models()
    assert [message["body"]["notes"] for message in one.sent] == [["a graph was dropped"], []]
