"""The picture of a plain Block: what its last call called, in order, with the graphs of its Blocks and what flowed."""

import gc
import threading
import weakref
import zipfile

import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.formats.archive.container import Container
from hybrid_lab.gluon import nn
from hybrid_lab.gluon.call_record import last_record
from hybrid_lab.lab.documents.contents import Document
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.picture import plain_block
from hybrid_lab.lab.picture.graph_view import graph_view
from hybrid_lab.lab.picture.overlays import overlay
from hybrid_lab.lab.picture.overlays.source import Data
from tests.hostile.test_hostile_archive import rewritten

X = nd.ones((2, 3))


class Plain(gluon.Block):
    """A plain Block with the children that it gets by name, which calls what `code(self, *args)` calls."""

    def __init__(self, code, **children):
        super().__init__()
        self.code = code
        for name, child in children.items():
            setattr(self, name, child)

    def forward(self, *args):
        return self.code(self, *args)


def mlp(*units):
    net = nn.HybridSequential()
    net.add(*[nn.Dense(unit) for unit in units])
    return net


def ready(net, hybrid=True):
    net.initialize()
    if hybrid:
        net.hybridize(engine="numpy")
    return net


class Drawn:
    """A reply in the words of the tests. boxes : labels at the top; flows : pairs of the labels that edges join"""

    def __init__(self, net, path="", program=""):
        self.reply = graph_view(net, path, program)
        parent = {box["id"]: box["parent"] for box in self.reply["boxes"]}
        names = {box["id"]: box["label"] for box in self.reply["boxes"]}
        names |= {node["id"]: node["label"] for node in self.reply["nodes"]}
        self.boxes = [box["label"] for box in self.reply["boxes"] if not box["parent"]]
        self.inputs = [node["label"] for node in self.reply["nodes"] if node["kind"] == "input" and not node["box"]]
        self.outputs = [node for node in self.reply["nodes"] if node["kind"] == "output"]

        def top(node):
            identity = node["box"] or node["id"]
            while parent.get(identity):
                identity = parent[identity]
            return names[identity]

        of = {node["id"]: top(node) for node in self.reply["nodes"]}
        edges = [(of[read["node"]], of[node["id"]]) for node in self.reply["nodes"] for read in node["inputs"]]
        self.flows = [pair for pair in dict.fromkeys(edges) if pair[0] != pair[1]]
        ids = [box["id"] for box in self.reply["boxes"]] + [node["id"] for node in self.reply["nodes"]]
        assert len(ids) == len({*ids})
        assert all(node["location"] is None or node["location"] < len(self.reply["locations"])
                   for node in self.reply["nodes"])  # fmt: skip

    def box(self, label):
        (found,) = (box for box in self.reply["boxes"] if box["label"] == label)
        return found


@pytest.mark.parametrize("hybrid", [True, False])
@pytest.mark.parametrize("program", ["calls", "traced"])
def test_a_plain_block_over_hybrid_blocks(hybrid, program):
    net = ready(Plain(lambda self, x: self.second(self.first(x)), first=mlp(8, 8), second=nn.Dense(4)), hybrid)
    net(X)
    drawn = Drawn(net, program=program)
    assert drawn.boxes == ["first", "second"] and drawn.reply["missing"] == ""
    assert drawn.flows == [("input", "first"), ("first", "second"), ("second", "output")]
    assert drawn.box("first")["outputs"] == [{"shape": [2, 8], "dtype": "float32"}]
    assert drawn.reply["summary"] == "2 calls of 2 graphs, 3 operators"
    assert (drawn.box("first")["block"], drawn.box("first")["class"]) == ("first", "HybridSequential")
    assert {node["block"] for node in drawn.reply["nodes"] if node["op"]} == {"first.0", "first.1", "second"}


def test_operators_between_the_blocks_and_views_are_followed():
    def code(self, x):
        hidden = nd.relu(self.first(x) + 1).reshape((4, 4))
        return self.second(hidden[1:3]) * 2

    net = ready(Plain(code, first=mlp(8), second=nn.Dense(4)))
    net(X)
    drawn = Drawn(net)
    labels = [node["label"] for node in drawn.reply["nodes"] if node["op"]]
    assert labels == ["FullyConnected", "broadcast_add", "relu", "FullyConnected", "broadcast_mul"]
    assert ("first", "broadcast_add") in drawn.flows and ("relu", "second") in drawn.flows
    assert drawn.reply["summary"] == "2 calls of 2 graphs, 2 operators; 3 operators between them in eager mode"
    (relu,) = (node for node in drawn.reply["nodes"] if node["op"] == "relu")
    line = code.__code__.co_firstlineno + 1
    assert drawn.reply["locations"][relu["location"]]["label"].endswith(f"test_call_picture.py, line {line}")


def test_flow_that_is_not_known_has_no_arrow():
    def code(self, x):
        return self.second(nd.array(self.first(x).asnumpy()))

    net = ready(Plain(code, first=mlp(8), second=mlp(4)))
    net(X)
    drawn = Drawn(net)
    assert drawn.boxes == ["first", "second"] and not [pair for pair in drawn.flows if pair == ("first", "second")]


def test_a_number_of_another_array_is_no_arrow():
    """Python gives the ids of arrays that are gone to new ones."""

    def code(self, x):
        for _ in range(50):
            self.first(x)
            x = nd.array(x.asnumpy())
        return self.second(nd.array(x.asnumpy()))

    net = ready(Plain(code, first=mlp(3), second=mlp(3)))
    net(X)
    assert not [pair for pair in Drawn(net).flows if pair[1] == "second"]


def test_a_plain_block_over_a_plain_block():
    inner = Plain(lambda self, x: self.b(self.a(x)), a=mlp(5), b=mlp(6))
    net = ready(Plain(lambda self, x: self.head(self.body(x)), body=inner, head=nn.Dense(2)))
    net(X)
    drawn = Drawn(net)
    assert drawn.boxes == ["body", "head"] and ("body", "head") in drawn.flows
    parents = {box["label"]: box["parent"] for box in drawn.reply["boxes"]}
    assert parents["a"] == parents["b"] == drawn.box("body")["id"]
    assert drawn.box("a")["block"] == "body.a"
    below = Drawn(net, "body")
    assert below.boxes == ["a", "b"] and ("a", "b") in below.flows and below.box("a")["block"] == "body.a"


def test_two_calls_are_two_boxes_and_many_are_one():
    net = ready(Plain(lambda self, x: self.cell(self.cell(x)), cell=mlp(3)))
    net(X)
    drawn = Drawn(net)
    assert [box["label"] for box in drawn.reply["boxes"] if box["kind"] == "block" and box["block"] == "cell"] == [
        "cell", "cell (2)",
    ]  # fmt: skip

    def loop(self, x):
        for _ in range(100):
            x = nd.relu(self.cell(x))
        return x

    net = ready(Plain(loop, cell=mlp(3)))
    net(X)
    drawn = Drawn(net)
    assert drawn.boxes == ["cell, 100 calls"] and len(drawn.reply["nodes"]) == 4
    assert drawn.flows[-2:] == [("cell, 100 calls", "relu"), ("relu", "output")]


def test_a_branch_shows_the_last_call():
    def code(self, x, first):
        return self.a(x) if first else self.b(x)

    net = ready(Plain(code, a=mlp(3), b=mlp(3)))
    for _ in range(30):
        net(X, True)
    assert Drawn(net).boxes == ["a"]
    net(X, False)
    assert Drawn(net).boxes == ["b"], "after many equal calls, which are only listed"
    net(X, False)
    assert ("b", "output") in Drawn(net).flows
    net(X, True)
    assert Drawn(net).boxes == ["a"] and ("a", "output") in Drawn(net).flows


def test_another_shape_and_mode_is_another_call():
    net = ready(Plain(lambda self, x: self.a(x), a=mlp(4)))
    for _ in range(30):
        net(X)
    net(nd.ones((5, 3)))
    assert Drawn(net).outputs[0]["outputs"] == [{"shape": [5, 4], "dtype": "float32"}]
    with autograd.record():
        net(X)
    programs = {item["id"]: item for item in Drawn(net).reply["programs"]}
    assert (programs["calls"]["label"], programs["calls"]["half"]) == ("last call, training (2, 3)", "forward")


def test_a_shared_child_stands_where_it_was_called():
    shared = mlp(3)
    inner = Plain(lambda self, x: self.again(x), again=shared)
    net = ready(Plain(lambda self, x: self.inner(self.own(x)), own=shared, inner=inner))
    net(X)
    drawn = Drawn(net)
    assert drawn.boxes == ["own", "inner"] and drawn.box("again")["block"] == "inner.again"


@pytest.mark.parametrize("calls", [0, 30])
def test_an_error_leaves_what_was_called_until_then(calls):
    class Fails(nn.HybridSequential):
        fails = False

        def forward(self, x):
            if self.fails:
                raise ValueError("no <b>luck</b>")
            return x

    net = ready(Plain(lambda self, x: self.c(self.b(self.a(x))), a=mlp(4), b=Fails(), c=mlp(2)), hybrid=False)
    for _ in range(calls):
        net(X)
    net.b.fails = True
    with pytest.raises(ValueError, match="luck"):
        net(X)
    drawn = Drawn(net)
    assert drawn.boxes[0] == "a" and "c" not in drawn.boxes
    assert "failed: ValueError: no <b>luck</b>" in drawn.reply["summary"]
    labels = [box["label"] for box in drawn.reply["boxes"]] + [node["label"] for node in drawn.reply["nodes"]]
    assert "b: failed" in labels and drawn.reply["failed"] is not None
    net.b.fails = False
    net(X)
    drawn = Drawn(net)
    assert "failed" not in drawn.reply["summary"] and "c" in drawn.boxes


def test_an_error_of_its_own_code():
    def code(self, x):
        self.a(x)
        raise KeyError("mine")

    net = ready(Plain(code, a=mlp(4)))
    with pytest.raises(KeyError):
        net(X)
    drawn = Drawn(net)
    assert drawn.boxes == ["a"] and drawn.reply["summary"].endswith("failed: KeyError: 'mine'")


def test_without_a_call_the_children_stand_in_the_order_of_the_tree():
    net = Plain(lambda self, x: self.a(self.b(x)), a=nn.Dense(4, in_units=3), b=nn.Dense(3, in_units=3))
    net = ready(net)
    drawn = Drawn(net)
    assert [box["block"] for box in drawn.reply["boxes"]] == ["a", "b"] and drawn.flows == []
    assert "not called yet: the children in the order of the tree, without arrows" in drawn.reply["summary"]


def test_a_block_without_a_graph_and_one_that_is_no_child():
    other = ready(mlp(3))

    class Leaf(gluon.Block):
        def forward(self, x):
            return mx.nd.array(x.asnumpy())

    net = ready(Plain(lambda self, x: other(self.leaf(x)), leaf=Leaf()))
    net(X)
    drawn = Drawn(net)
    assert [node["label"] for node in drawn.reply["nodes"] if node["attributes"].get("class")] == ["leaf"]
    assert drawn.box(other.name)["block"] is None
    assert all(badge["path"] == "" for node in drawn.reply["nodes"] for badge in node["badges"])


def test_a_block_that_nothing_is_known_of():
    class Leaf(gluon.Block):
        def forward(self, x):
            return x

    net = Leaf()
    assert "not a HybridBlock: it has no graph" in graph_view(net, "")["missing"]
    net(X)
    assert "called no Block and no operator" not in graph_view(net, "")["summary"]


def saved_and_opened(net, folder):
    net.save(folder / "net.hlab")
    return gluon.load(folder / "net.hlab")


def test_a_model_without_its_code_has_the_picture_of_the_call_before_the_save(tmp_path):
    def code(self, x):
        return other(self.body(nd.relu(self.first(x)) * 2))

    other = ready(nn.Dense(2))
    body = Plain(lambda self, x: self.b(self.b(x)), b=mlp(4))
    net = ready(Plain(code, first=mlp(4), body=body))
    net(X)
    live, opened = Drawn(net, program="calls"), saved_and_opened(net, tmp_path)
    drawn = Drawn(opened, program="calls")
    assert drawn.boxes == ["first", "body"] and live.boxes == [*drawn.boxes, other.name]
    assert ("first", "relu") in drawn.flows and ("broadcast_mul", "body") in drawn.flows
    assert ("body", "Dense, no part of the model") in drawn.flows
    inside = [box["label"] for box in drawn.reply["boxes"] if box["parent"] == drawn.box("body")["id"]]
    assert inside == [box["label"] for box in live.reply["boxes"] if box["parent"] == live.box("body")["id"]]
    assert drawn.outputs[0]["outputs"] == live.outputs[0]["outputs"] == [{"shape": [2, 2], "dtype": "float32"}]
    assert "as last called before it was saved" in drawn.reply["summary"]
    assert drawn.reply["programs"][1]["label"] == "last call before the save, predict (2, 3)"

    # It is saved again as it is, and the file's document has it too.
    assert Drawn(saved_and_opened(opened, tmp_path), program="calls").reply["text"] == drawn.reply["text"]
    document = Document(str(tmp_path / "net.hlab"))
    model = document.answer("models", {})["models"][0]["id"]
    reply = document.answer("graph", {"model": model, "path": "", "program": "calls"})
    assert reply["text"] == drawn.reply["text"] and reply["missing"] == ""


def test_a_loaded_model_has_the_saved_picture_until_it_is_called(tmp_path):
    build = lambda: ready(Plain(lambda self, x: self.second(self.first(x)), first=mlp(8), second=mlp(4)))
    net, again = build(), build()
    net(X)
    net.save(tmp_path / "net.hlab")
    again.load(tmp_path / "net.hlab")
    assert ("first", "second") in Drawn(again).flows and "before it was saved" in Drawn(again).reply["summary"]
    again(nd.ones((5, 3)))
    assert "before it was saved" not in Drawn(again).reply["summary"]
    again.load(tmp_path / "net.hlab")
    assert "before it was saved" not in Drawn(again).reply["summary"], "what was called in this process counts"


def test_a_model_that_was_not_called_has_no_record_in_its_file(tmp_path):
    net = ready(Plain(lambda self, x: self.a(x), a=mlp(4)))
    opened = saved_and_opened(net, tmp_path)
    assert "calls.json" not in zipfile.ZipFile(tmp_path / "net.hlab").namelist()
    assert last_record(opened) is None and "not called yet" in Drawn(opened).reply["summary"]


def test_a_saved_call_that_failed_is_drawn_as_failed(tmp_path):
    def code(self, x):
        self.a(x)
        raise ValueError("no <b>luck</b>")

    net = ready(Plain(code, a=mlp(4)))
    with pytest.raises(ValueError, match="luck"):
        net(X)
    assert Drawn(saved_and_opened(net, tmp_path)).reply["summary"].endswith("failed: ValueError: no <b>luck</b>")


def test_calls_that_call_many_others_are_drawn_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(plain_block, "_DRAWN", 40)
    net = mlp(3)
    for _ in range(8):
        net = Plain(lambda self, x: self.b(self.a(x)), a=net, b=Plain(lambda self, x: self.a(x), a=net))
    net = ready(net)
    net(X)
    drawn = Drawn(net)
    assert len(drawn.reply["boxes"]) < 500
    assert any("not drawn" in node["attributes"].get("no graph", "") for node in drawn.reply["nodes"])


def test_the_record_keeps_no_array_and_no_block():
    class Output(gluon.Block):
        def forward(self, x):
            hidden = nn.Dense(3, in_units=3)
            hidden.initialize()
            seen.append(weakref.ref(hidden))
            result = hidden(x)
            arrays.append(weakref.ref(result))
            return result * 2

    seen, arrays = [], []
    net = Output()
    for _ in range(12):
        net(X)
    gc.collect()
    assert not any(reference() for reference in seen + arrays)
    assert "a Block that is gone" in Drawn(net).reply["text"]
    net.child = child = mlp(3)
    reference = weakref.ref(child)
    net.child = mlp(3)
    del child
    gc.collect()
    assert reference() is None


def test_replaced_children_are_let_go():
    net = ready(Plain(lambda self, x: self.a(x), a=mlp(3)))
    for _ in range(20):
        net(X)
    reference = weakref.ref(net.a)
    net.a = ready(mlp(3))
    gc.collect()
    assert reference() is None


def test_threads_have_records_of_their_own():
    net = ready(Plain(lambda self, x, n: [self.a(x) for _ in range(n)][-1], a=mlp(3)))
    net(X, 1)
    found = []

    def work(number):
        for _ in range(50):
            net(X, number)
            record = last_record(net)
            found.append(sum(item.block is not None for item in record.items))

    threads = [threading.Thread(target=work, args=(number,)) for number in (2, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {*found} <= {2, 5}


def test_hooks_and_gradients_are_as_before():
    net = ready(Plain(lambda self, x: self.b(nd.relu(self.a(x))), a=mlp(4), b=mlp(2)))
    seen = []
    net.register_forward_hook(lambda block, inputs, output: seen.append(output.shape))
    x = nd.ones((2, 3))
    x.attach_grad()
    with autograd.record():
        y = net(x).sum()
    y.backward()
    assert seen == [(2, 2)] and float(x.grad.abs().sum().asscalar()) > 0


@pytest.mark.parametrize("program", ["calls", "traced"])
@pytest.mark.parametrize("kind", ["time", "memory", "values", "gradients", "engine"])
def test_overlays_of_the_whole_are_those_of_its_graphs(kind, program):
    net = ready(Plain(lambda self, x: self.b(nd.relu(self.a(x))), a=mlp(4, 4), b=mlp(2)))
    with autograd.record():
        y = net(X).sum()
    y.backward()
    reply = graph_view(net, "", program)
    found = overlay(net, "", program, kind, Data(), False)
    if (kind, program) == ("engine", "traced"):
        assert "A traced graph runs on no engine" in found["missing"]
        return
    ids = {item["id"] for item in found["items"]}
    inside = {node["id"] for node in reply["nodes"] if node["op"] == "FullyConnected"}
    assert inside <= ids and "calls of its Blocks" in found["headline"] and found["missing"] == ""
    boxes = {box["id"]: box["block"] for box in reply["boxes"]}
    assert {"a", "b"} <= {boxes[identity] for identity in ids if identity in boxes}
    if kind == "time":
        assert found["marked"] and {*found["marked"]} <= ids
        operators = {node["id"] for node in reply["nodes"] if node["op"]}
        shares = [item["share"] for item in found["items"] if item["id"] in operators]
        assert sum(shares) == pytest.approx(1)
    if kind in ("time", "memory", "values"):
        (relu,) = (node["id"] for node in reply["nodes"] if node["op"] == "relu")
        assert relu in ids and "and 1 operator between them" in found["headline"]


def test_operators_between_the_graphs_are_timed():
    def code(self, x):
        y = nd.concat(self.a(x), 2 - x, x * 3)
        y = nd.Dropout(nd.take(y, nd.array([0, 1, 1])))
        return nd.one_hot(self.b(y).argmax(axis=1), 4) + nd.random.normal(shape=(3, 4))

    net = ready(Plain(code, a=mlp(4), b=mlp(2)))
    with autograd.record():
        net(X)
    draws = nd.random.uniform(shape=(1,)) if mx.random.seed(3) is None else None
    mx.random.seed(3)
    found = overlay(net, "", "calls", "time", Data(), False)
    assert float(nd.random.uniform(shape=(1,)).asscalar()) == float(draws.asscalar()), "no random number was used up"
    between = {node["id"]: node["op"] for node in graph_view(net, "", "calls")["nodes"] if node["op"]}
    timed = {between[item["id"]] for item in found["items"] if item["id"] in between}
    assert timed == {*between.values()}
    texts = {between[item["id"]]: item["text"] for item in found["items"] if item["id"] in between}
    assert "in eager mode" in texts["Concat"] and "in eager mode" in texts["take"]


def test_values_of_operators_between_the_graphs():
    def code(self, x):
        y = nd.concat(self.a(x), 2 - x, x * 3)
        return self.b(nd.log(0 - nd.abs(nd.Dropout(y)))) + nd.random.normal(shape=(2, 2))

    net = ready(Plain(code, a=mlp(4), b=mlp(2)))
    net(X)
    found = overlay(net, "", "calls", "values", Data(), False)
    between = {node["id"]: node["op"] for node in graph_view(net, "", "calls")["nodes"] if node["op"]}
    cells = {between[item["id"]]: item for item in found["items"] if item["id"] in between}
    assert {*cells} == {*between.values()}
    bad = {op for op, cell in cells.items() if cell["bad"]}
    assert bad == {"log"} and "random" in cells["log"]["short"] and "random" in cells["log"]["text"]
    assert between[found["marked"][0]] == "log" and found["measured_on"] == "random"


def test_the_first_nan_of_the_whole_is_in_the_first_call():
    net = ready(Plain(lambda self, x: self.b(self.a(x)), a=mlp(4), b=mlp(2)))
    net(X)
    net.a[0].weight.set_data(nd.full((4, 3), float("nan")))
    found = overlay(net, "", "calls", "values", Data(), False)
    (node,) = (node for node in graph_view(net, "", "calls")["nodes"] if node["id"] == found["marked"][0])
    assert node["block"] == "a.0" and "1 operator with NaN or infinities" in found["headline"]
    with pytest.raises(RequestError, match="runs as Python"):
        overlay(net, "", "calls", "values", Data("x", {"x": X}), False)


def test_the_text_has_a_line_for_each_call():
    net = ready(Plain(lambda self, x: self.b(nd.relu(self.a(x))), a=mlp(4), b=mlp(2)))
    net(X)
    assert [line.split("  ")[1] for line in graph_view(net, "")["text"].splitlines()] == [
        "a: HybridSequential", "relu", "b: HybridSequential",
    ]  # fmt: skip


def test_parts_of_many_blocks_have_the_names_of_the_first_and_the_last():
    children = {f"layer{number}": nn.Dense(3 + number % 2, in_units=3 + (number + 1) % 2) for number in range(200)}

    def code(self, x):
        for number in range(200):
            x = getattr(self, f"layer{number}")(x)
        return x

    net = ready(Plain(code, **children))
    net(nd.ones((2, 4)))
    parts = [box["label"] for box in graph_view(net, "")["boxes"] if box["kind"] == "part"]
    assert parts == ["layer0 to layer98", "layer99 to layer199"] or parts == [
        "layer0 to layer99",
        "layer100 to layer199",
    ]


def test_a_block_that_calls_itself():
    def code(self, x, times):
        return self(self.a(x), times - 1) if times else self.b(x)

    net = ready(Plain(code, a=mlp(3), b=mlp(2)))
    net(X, 3)
    blocks = [box["block"] for box in graph_view(net, "")["boxes"] if box["block"] in ("a", "b")]
    assert blocks == ["a", "a", "a", "b"]
    for _ in range(30):
        net(X, 3)
    assert graph_view(net, "")["missing"] == ""


def test_a_call_of_its_own_and_an_interrupt():
    class Halved(Plain):
        calls = 0

        def __call__(self, x):
            self.calls += 1
            return super().__call__(x / 2)

    inner = Halved(lambda self, x: self.a(x), a=mlp(3))
    net = ready(Plain(lambda self, x: self.inner(x), inner=inner))
    for _ in range(20):
        net(X)
    assert inner.calls == 20 and ("broadcast_div", "inner") in Drawn(net).flows

    def stop(self, x):
        self.a(x)
        raise KeyboardInterrupt

    net = ready(Plain(stop, a=mlp(3)))
    with pytest.raises(KeyboardInterrupt):
        net(X)
    assert Drawn(net).boxes == ["a"] and Drawn(net).reply["summary"].endswith("failed: KeyboardInterrupt")


def test_a_lying_record_in_a_file_is_drawn_up_to_a_limit(tmp_path, monkeypatch):
    """Places that do not exist have no arrow; of Blocks that call others twice, and so on, some are drawn."""
    monkeypatch.setattr(plain_block, "_DRAWN", 300)
    pairs = 20
    net = ready(Plain(lambda self, x: x, **{f"p{number}": Plain(lambda self, x: x) for number in range(2 * pairs)}))
    net.save(tmp_path / "net.hlab")
    blocks = Container.open(tmp_path / "net.hlab").read_json("tree.json")["blocks"]
    ids = [each["id"] for each in blocks]
    odd = {"items": [{"operator": "relu", "inputs": [[500, 9], [-1, 3]]}], "outputs": [[7, 9], [-1, 3]]}
    records, last = [odd | {"gives": [[[1], "float32"]] * 2}], {str(ids[-1]): 0, str(ids[-2]): 0}
    for number in range(pairs - 1, 0, -1):
        inner = [{"block": ids[2 * number + 1]}, {"block": ids[2 * number + 2]}]
        last |= {str(ids[2 * number - 1]): len(records), str(ids[2 * number]): len(records)}
        records.append({"items": inner})
    last["0"] = len(records)
    records.append({"items": [{"block": ids[1]}, {"block": ids[2]}]})
    edit = {"calls.json": lambda data: {"records": records, "last": last}}
    (tmp_path / "bad.hlab").write_bytes(rewritten(tmp_path / "net.hlab", edit))
    reply = Drawn(gluon.load(tmp_path / "bad.hlab")).reply
    assert 100 < len(reply["boxes"]) < 2000
    assert any("not drawn" in node["attributes"].get("no graph", "") for node in reply["nodes"])
