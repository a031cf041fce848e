"""Graphs side by side: every node and box of both pictures is told once, with how it differs."""

import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.gluon import nn
from hybrid_lab.lab.documents.contents import Document
from hybrid_lab.lab.kernel.session import Session
from tests.lab.conftest import Page

WIDTH = 6


def sequence(*layers):
    net = nn.HybridSequential()
    net.add(*layers)
    return net


def dense(units=WIDTH, **options):
    return nn.Dense(units, in_units=WIDTH, **options)


def started(net):
    if any(parameter._data is None for parameter in net.collect_params().values()):
        net.initialize(mx.init.Xavier())
    net.hybridize(engine="numpy")
    net(nd.ones((2, WIDTH)))
    return net


class Top(gluon.Block):
    """A plain Block over two nets, each with a graph of its own."""

    def __init__(self, body, head, **options):
        super().__init__(**options)
        self.body, self.head = body, head

    def forward(self, x):
        return self.head(self.body(x) + 1)


def layers():
    return sequence(dense(), dense(activation="relu"), nn.BatchNorm(in_channels=WIDTH), dense(3))


def inserted(net):
    a, b, c, d = net._children.values()
    return sequence(a, b, nn.Dropout(0.5), c, d)


def trained(net):
    weight = net[1].weight
    weight.set_data(weight.data() + 1)
    return net


CASES = {
    "a layer inserted": (layers, inserted, {"added": ["Dropout"]}),
    "a layer removed": (
        layers, lambda net: sequence(*[net[place] for place in (0, 2, 3)]),
        {"removed": ["1", "Activation", "FullyConnected", "act"]},
    ),
    "numbers changed": (layers, trained, {"values": ["FullyConnected"]}),
    "inserted and trained": (
        layers, lambda net: inserted(trained(net)), {"added": ["Dropout"], "values": ["FullyConnected"]}
    ),
    "a setting changed": (
        lambda: sequence(dense(), nn.Activation("relu")), lambda net: sequence(net[0], nn.Activation("tanh")),
        {"changed": ["1", "Activation"]},
    ),
    "wrapped": (
        layers, lambda net: sequence(net[0], sequence(net[1], net[2]), net[3]),
        {"added": ["1"], "changed": ["0", "1"]},
    ),
    "a plain top": (
        lambda: Top(layers(), sequence(nn.Dense(3, in_units=3))),
        lambda net: Top(inserted(trained(net.body)), net.head), {"added": ["Dropout"], "values": ["FullyConnected"]},
    ),
    "nothing": (layers, lambda net: net, {}),
}  # fmt: skip


@pytest.fixture
def page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def ask(first, edit):
        """The reply to `compare` with graphs, of the file and the model after the edit."""
        one = started(first())
        one.save("net")
        namespace = {"net": started(edit(one))}
        page = Page(Session(lambda: namespace))
        page.model = page.ok("models")["models"][0]["id"]
        page.found = page.ok("compare", model=page.model, file="net.hlab", graphs=True)
        return page

    return ask


def names(graphs, item):
    """The label of the second node or box of an item, else of the first."""
    side = "first" if item["second"] is None else "second"
    rows = {row["id"]: row for kind in ("nodes", "boxes") for row in graphs[side][kind]}
    row = rows[item[side]]
    return row.get("op") or row["label"].partition(" ")[0]


def told(graphs):
    """What differs: the names by kind, each Block that is one operator once."""
    found = {}
    for item in graphs["items"]:
        if item["kind"] != "same":
            found.setdefault(item["kind"], set()).add(names(graphs, item))
    numbers = {str(number) for number in range(9)}
    return {kind: sorted(own if own <= numbers or kind in ("changed", "removed") else own - numbers)
            for kind, own in found.items()}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_differs_is_what_was_done(page, name):
    first, edit, expected = CASES[name]
    asked = page(first, edit)
    assert told(asked.found["graphs"]) == expected


@pytest.mark.parametrize("name", CASES)
def test_each_node_and_call_is_in_one_item(page, name):
    first, edit, _ = CASES[name]
    graphs = page(first, edit).found["graphs"]
    for side in ("first", "second"):
        told = [item[side] for item in graphs["items"] if item[side] is not None]
        drawn = [node["id"] for node in graphs[side]["nodes"]]
        drawn += [box["id"] for box in graphs[side]["boxes"] if box["kind"] == "block"]
        if name == "a plain top":  # what flowed between the graphs is not known of a model in a file
            drawn = [each for each in drawn if each in told]
        assert sorted(told) == sorted(drawn)
    for item in graphs["items"]:
        missing = {"added": "first", "removed": "second"}.get(item["kind"])
        assert [side for side in ("first", "second") if item[side] is None] == ([missing] if missing else [])


def test_items_come_in_the_order_of_reading(page):
    first, edit, _ = CASES["a layer removed"]
    graphs = page(first, edit).found["graphs"]
    order = [names(graphs, item) for item in graphs["items"]]
    operators = [name for name in order if name in ("FullyConnected", "Activation", "BatchNorm")]
    assert operators == ["FullyConnected", "FullyConnected", "Activation", "BatchNorm", "FullyConnected"]


def test_graphs_are_left_out_unless_they_are_asked_for(page):
    first, edit, _ = CASES["nothing"]
    asked = page(first, edit)
    assert "graphs" not in asked.ok("compare", model=asked.model, file="net.hlab")


def test_one_side_without_a_graph_is_shown_all_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    class Silent(gluon.Block):
        def forward(self, x):
            return x

    net = Silent()
    net.save("net")
    page = Page(Session(lambda: {"net": net}))
    graphs = page.ok("compare", model=page.ok("models")["models"][0]["id"], file="net.hlab", graphs=True)["graphs"]
    assert graphs["items"] == [] and graphs["first"]["missing"] and graphs["second"]["missing"]


def test_two_saves_and_two_files(page):
    first, edit, expected = CASES["a layer inserted"]
    asked = page(first, edit)
    asked.ok("save", model=asked.model, file="b.hlab", overwrite=False)
    found = asked.ok("compare", model=asked.model, file="net.hlab", other="b.hlab", graphs=True)
    assert told(found["graphs"]) == expected
    reply = Document("net.hlab").answer("difference", {"other": "b.hlab"})
    assert told(reply["graphs"]) == expected


def test_numbers_of_both_sides(page):
    first, edit, _ = CASES["inserted and trained"]
    asked = page(first, edit)
    (tensor,) = [row for block in asked.found["difference"]["blocks"] for row in block["tensors"]]
    assert tensor["name"] == "1.weight"
    body = {"model": asked.model, "file": "net.hlab"}
    both = asked.ok("compared_values", **body, first="1.weight", second="1.weight")
    assert both["first"]["facts"] != both["second"]["facts"]
    assert asked.ok("compared_values", **body, first="3.bias", second="4.bias")["second"]["type"].startswith(
        "3, float32"
    )
    assert asked.ok("compared_values", **body, first="", second="none") == {"first": None, "second": None}
    asked.ok("save", model=asked.model, file="b.hlab", overwrite=False)
    values = Document("net.hlab").answer("differing_values", {"other": "b.hlab", "first": "1.weight", "second": ""})
    assert values["first"]["title"] == "1.weight" and values["second"] is None
