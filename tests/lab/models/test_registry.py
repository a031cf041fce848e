"""The lab looks at models again when something that it shows changed, and at no other time."""

import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon
from hybrid_lab.diagnostics.hybridize_error import HybridizeError
from hybrid_lab.gluon import access, nn
from hybrid_lab.lab.models.registry import Registry
from hybrid_lab.lab.models.revisions import looks_count
from hybrid_lab.lab.models.rows import Rows
from hybrid_lab.lab.models.tree import block_tree
from tests.lab.conftest import Net, Stubborn, inputs


def train(net):
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    with autograd.record():
        loss = net(inputs()).sum()
    loss.backward()
    trainer.step(4)


def fail(net):
    net.wrong = Stubborn()
    net.wrong.hybridize()
    with pytest.raises(HybridizeError):
        net.wrong(inputs())


def load(net, folder):
    mx.save_cached_graphs(net, folder / "net.hlab")
    mx.load_cached_graphs(net, folder / "net.hlab", graphs="file")


ACTIONS = {
    "initialize": lambda net, folder: net.initialize(),
    "call": lambda net, folder: net(inputs()),
    "the same call": lambda net, folder: net(inputs()),
    "call of another shape": lambda net, folder: net(inputs(7)),
    "train": lambda net, folder: train(net),
    "hybridize": lambda net, folder: net.hybridize(),
    "traced call": lambda net, folder: net(inputs()),
    "the same traced call": lambda net, folder: net(inputs()),
    "compiled for another shape": lambda net, folder: net(inputs(9)),
    "trained as graphs": lambda net, folder: train(net),
    "freeze": lambda net, folder: net.head.collect_params().setattr("grad_req", "null"),
    "add a child": lambda net, folder: setattr(net, "extra", nn.Dense(2)),
    "remove a child": lambda net, folder: delattr(net, "extra"),
    "replace a child": lambda net, folder: setattr(net, "head", nn.Dense(3)),
    "initialize the child": lambda net, folder: net.head.initialize(),
    "call after that": lambda net, folder: net(inputs()),
    "graphs from a file": load,
    "cast": lambda net, folder: net.cast("float64"),
    "switch off": lambda net, folder: net.hybridize(False),
    "switch a Block by hand": lambda net, folder: access.set_active(net.body, True),
    "fail": lambda net, folder: fail(net),
}


def test_the_revision_grows_with_every_change_and_with_nothing_else(tmp_path):
    net = Net()
    models = Registry(lambda: {"net": net})
    (entry,) = models.refresh()
    changed = []
    for name, action in ACTIONS.items():
        revision = entry.revision
        action(net, tmp_path)
        models.refresh()
        changed += [name] if entry.revision > revision else []
    same = {"initialize", "the same call", "the same traced call", "initialize the child"}
    assert set(changed) == ACTIONS.keys() - same


def test_a_model_that_did_not_change_is_not_looked_at(monkeypatch):
    net = Net()
    net.initialize()
    net.hybridize()
    net(inputs())
    models = Registry(lambda: {"net": net})
    models.refresh()
    monkeypatch.setattr(Rows, "look", None)
    net(inputs())
    assert len(models.refresh()) == 1


def test_a_cast_is_no_new_structure():
    """The classes are not checked again after it."""
    net = Net()
    net.initialize()
    net(inputs())
    version, before = access.structure_version(net), looks_count()
    net.cast("float64")
    assert access.structure_version(net) == version and looks_count() != before


def test_hybridize_with_nothing_to_drop_changes_nothing():
    net = Net()
    net.initialize()
    net.hybridize()
    before = looks_count()
    net.hybridize()
    assert looks_count() == before


def test_parameters_are_counted_once_at_every_level():
    net, shared = nn.HybridSequential(), nn.Dense(2, in_units=3)
    inner = nn.HybridSequential()
    inner.add(shared, nn.Dense(4, in_units=2))
    net.add(inner, shared, nn.Dense(3, in_units=4, params=nn.Dense(3, in_units=4).params), nn.Dense(5))
    assert block_tree(net, "net")["parameter_count"] is None
    net[3].weight.shape = (5, 3)
    root = block_tree(net, "net")
    assert [node["parameter_count"] for node in (root, *root["children"])] == [8 + 12 + 15 + 20, 8 + 12, 8, 15, 20]
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=3), nn.Dense(4, in_units=2))
    assert block_tree(net, "net")["parameter_count"] == 8 + 12


def names(**variables):
    return [entry.name for entry in Registry(lambda: variables).refresh()]


def test_parts_of_models_and_circles():
    one, two = Net(), Net()
    assert names(part=one.body, one=one, two=two) == ["one", "two"]
    one.extra = two
    assert names(one=one, two=two) == ["one"]
    del one.extra
    assert names(one=one, two=two) == ["one", "two"]
    circle, inner = gluon.Block(), gluon.Block()
    circle.inner, inner.outer = inner, circle
    assert names(inner=inner, circle=circle) == ["inner"]
