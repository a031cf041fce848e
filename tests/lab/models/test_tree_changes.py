"""What `changes` sends, put into the tree that a page has, gives the tree that the kernel would send."""

import contextlib
import random

import pytest

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.gluon import access, nn
from hybrid_lab.lab.models.rows import Rows
from tests.lab.conftest import Stubborn, make_net


class Own(gluon.HybridBlock):
    """A Block of one's own, with a finding in its code."""

    def hybrid_forward(self, F, x):
        return x + float(x.sum().asscalar()) if self.prefix == "never" else x + 1


class Parts:
    """A model of a few parts, and what a notebook may do with it."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.net = nn.HybridSequential()
        for _ in range(3):
            self.net.add(nn.HybridSequential())
            self.add()

    def part(self):
        return self.rng.choice(list(self.net))

    def leaf(self):
        return self.rng.choice([lambda: nn.Dense(3, in_units=3), nn.BatchNorm, lambda: nn.Activation("tanh"), Own])()

    def place(self):
        """(part, name of a child of it)"""
        part = self.part()
        return part, self.rng.choice([*part._children, "0"])

    def add(self):
        self.part().register_child(self.leaf(), f"new{self.rng.randrange(100)}")

    def replace(self):
        part, name = self.place()
        part.register_child(self.leaf(), name)

    def remove(self):
        part, name = self.place()
        if name in part._children:
            setattr(part, name, part._children[name])
            delattr(part, name)

    def swap(self):
        """The same Blocks at other places."""
        (one, first), (two, second) = self.place(), self.place()
        if first in one._children and second in two._children:
            a, b = one._children[first], two._children[second]
            one.register_child(b, first)
            two.register_child(a, second)

    def share_a_block(self):
        part, name = self.place()
        if name in part._children:
            self.part().register_child(part._children[name], "again")

    def share_weights(self):
        part = self.part()
        for dense in [block for block in part if isinstance(block, nn.Dense)][:1]:
            self.part().register_child(nn.Dense(3, in_units=3, dtype=dense.weight.dtype, params=dense.params), "tied")

    def add_a_part(self):
        part = nn.HybridSequential()
        part.add(self.leaf(), self.leaf())
        self.net.register_child(part, self.rng.choice(["0", "more"]))

    def initialize(self):
        self.net.initialize()

    def call(self):
        with contextlib.suppress(HybridLabError, ValueError, TypeError):  # dtypes that do not fit, a missing value
            self.net(mx.nd.ones((self.rng.randrange(1, 4), 3)))

    def fail(self):
        part = self.part()
        part.register_child(Stubborn(), "wrong")
        part.wrong = part._children["wrong"]
        part.wrong.hybridize()
        with pytest.raises(HybridLabError):
            part.wrong(mx.nd.ones((2, 3)))

    def hybridize(self):
        block = self.rng.choice([self.net, self.part()])
        block.hybridize(self.rng.random() < 0.7, engine="numpy")

    def freeze(self):
        self.part().collect_params().setattr("grad_req", self.rng.choice(["null", "write"]))

    def cast(self):
        self.part().cast(self.rng.choice(["float16", "float32"]))


ACTIONS = [
    name for name, item in vars(Parts).items() if callable(item) and name not in ("__init__", "part", "leaf", "place")
]


def flat(node, into):
    """The nodes of a tree by path, each with the paths of its children."""
    into[node["path"]] = {**node, "children": None, "below": [child["path"] for child in node["children"]]}
    for child in node["children"]:
        flat(child, into)
    return into


def merged(known, blocks):
    """The nodes that the root leads to, with what changed put in."""
    nodes = known | {block["path"]: {**block, "children": None} for block in blocks}
    reached, pending = {}, [""]
    while pending:
        path = pending.pop()
        reached[path] = nodes[path]
        pending += nodes[path]["below"]
    return reached


@pytest.mark.filterwarnings("ignore:.*already initialized")
@pytest.mark.parametrize("seed", range(30))
def test_a_page_that_is_told_of_changes_has_the_tree(page, namespace, seed):
    parts = Parts(seed)
    namespace["net"] = parts.net
    tree = page.ok("tree", model="m1")
    known, revision = flat(tree["root"], {}), tree["model"]["revision"]
    for _ in range(12):
        for _ in range(parts.rng.randrange(1, 3)):
            getattr(parts, parts.rng.choice(ACTIONS))()
        reply, tree = page.ok("changes", model="m1", since=revision), page.ok("tree", model="m1")
        now, revision = flat(tree["root"], {}), tree["model"]["revision"]
        assert reply["model"] == tree["model"]
        assert now == (merged(known, reply["blocks"]) if not reply["whole"] else now)
        known = now


def test_one_block_in_a_large_model(page, namespace):
    """Only the rows of that Block and of those around it are sent, and nothing else is looked at."""
    net = namespace["net"] = nn.HybridSequential()
    for _ in range(20):
        part = nn.HybridSequential()
        part.add(*(nn.Dense(2, in_units=2) for _ in range(20)))
        net.add(part)
    net.initialize()
    revision = page.ok("tree", model="m1")["model"]["revision"]
    net[3].register_child(nn.Activation("relu"), "7")
    reply = page.ok("changes", model="m1", since=revision)
    assert not reply["whole"] and [block["path"] for block in reply["blocks"]] == ["", "3", "3.7"]
    assert [block["parameter_count"] for block in reply["blocks"]] == [6 * 399, 6 * 19, 0]
    assert [len(block["below"]) for block in reply["blocks"]] == [20, 20, 0]
    assert page.ok("changes", model="m1", since=reply["model"]["revision"])["blocks"] == []


def test_another_name_of_the_model_is_a_change_of_its_first_row(page, namespace):
    net = namespace["net"] = make_net()
    tree = page.ok("tree", model="m1")
    namespace["other"] = namespace.pop("net")
    reply = page.ok("changes", model="m1", since=tree["model"]["revision"])
    assert [(block["path"], block["attr"]) for block in reply["blocks"]] == [("", "other")]
    assert net is namespace["other"]


@pytest.mark.parametrize("moment", ["own_parameters", "parameter_types", "last_change"])
def test_blocks_that_a_cell_adds_while_the_panel_looks_are_found_by_the_next_look(monkeypatch, moment):
    """A page may look at a model while a cell is still building it."""
    net = nn.HybridSequential()
    net.add(nn.Dense(2))
    rows, original = Rows(), getattr(access, moment)

    def adds_a_child(block):
        monkeypatch.setattr(access, moment, original)
        net.add(nn.Dense(3))
        return original(block)

    monkeypatch.setattr(access, moment, adds_a_child)
    rows.look(net)
    rows.look(net)
    assert [row.path for row in rows] == ["", "0", "1"]
