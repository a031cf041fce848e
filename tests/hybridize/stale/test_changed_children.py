"""Children and parameters that come, go and move, by the Block's methods or in the dicts that hold them: hybrid calls
follow.
"""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from typing import Any

import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.gluon import Block, HybridBlock, nn


def dense() -> HybridBlock:
    layer = nn.Dense(3, in_units=3)
    layer.initialize(mx.init.One())
    return layer


class InOrder(HybridBlock):
    """Runs what it finds among its children."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Dense(3, in_units=3), nn.Dense(3, in_units=3)

    def hybrid_forward(self, F, x):
        for child in self._children.values():
            x = child(x)
        return x


class InOrderArrays(InOrder):
    def forward(self, x):
        return self.hybrid_forward(nd, x)


def sequential() -> HybridBlock:
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=3), nn.Dense(3, in_units=3))
    return net


class Around(HybridBlock):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def hybrid_forward(self, F, x):
        return self.inner(x) * 2


class PlainAround(Block):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) * 2


def first(net: Any) -> str:
    return next(iter(net._children))


def swapped(net: Any) -> None:
    (one, a), (other, b) = net._children.items()
    net._children[one], net._children[other] = b, a


def replaced_by_a_dict(net: Any) -> None:
    net._children = OrderedDict(list(net._children.items())[:1])


CHANGES = {
    "pop": lambda net: net._children.pop(first(net)),
    "pop of what may be missing": lambda net: (net._children.pop("none", None), net._children.pop(first(net), None)),
    "popitem": lambda net: net._children.popitem(),
    "popitem of the first": lambda net: net._children.popitem(last=False),
    "del": lambda net: net._children.__delitem__(first(net)),
    "another one": lambda net: net._children.__setitem__(first(net), dense()),
    "one more": lambda net: net._children.__setitem__("more", dense()),
    "setdefault": lambda net: net._children.setdefault("more", dense()),
    "update": lambda net: net._children.update({first(net): dense()}),
    "|=": lambda net: net._children.__ior__({first(net): dense()}),
    "move_to_end": lambda net: net._children.move_to_end(first(net)),
    "clear and update": lambda net: (net._children.clear(), net._children.update(a=dense())),
    "swapped": swapped,
    "a dict in its place": replaced_by_a_dict,
    "register_child": lambda net: net.register_child(dense()),
    "an attribute": lambda net: setattr(net, first(net), dense()),
}
NETS = {"sequential": sequential, "1.x": InOrder, "2.x": InOrderArrays}
ABOVE = {"top": lambda net: net, "below": Around, "two below": lambda net: Around(Around(net)), "plain": PlainAround}
COPIES = {
    "itself": lambda net: net,
    "deepcopy": copy.deepcopy,
    "pickle": lambda net: pickle.loads(pickle.dumps(net)),
    "copy": copy.copy,
}


def result(kind: str, above: str, how: str, change: str, hybrid: bool) -> Any:
    mx.random.seed(0)
    inner = COPIES[how](NETS[kind]())
    net = ABOVE[above](inner)
    net.initialize()
    if hybrid:
        net.hybridize(engine="numpy")
    x = nd.array([[1, -2, 3]])
    before = net(x).asnumpy()
    CHANGES[change](inner)
    after = net(x).asnumpy()
    assert abs(after - before).max() > 1e-3
    return after.round(5).tolist()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("above", ABOVE)
@pytest.mark.parametrize("kind", NETS)
def test_hybrid_calls_follow_the_children(kind, above, change):
    assert result(kind, above, "itself", change, True) == result(kind, above, "itself", change, False)


@pytest.mark.parametrize("change", ["popitem", "another one", "swapped"])
@pytest.mark.parametrize("how", COPIES)
def test_children_of_a_copy_are_followed(how, change):
    assert result("1.x", "below", how, change, True) == result("1.x", "below", how, change, False)


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_has_children_of_its_own(how):
    net = sequential()
    other = COPIES[how](net)
    other._children.popitem()
    assert len(net._children) == (1 if how == "itself" else 2)


def test_what_was_removed_is_in_no_file(tmp_path):
    net = sequential()
    net.initialize()
    net.hybridize(engine="numpy")
    x = nd.ones((1, 3))
    net(x)
    net._children.popitem()
    loaded = gluon.load(net.save(tmp_path / "m"))
    assert len(loaded.collect_params()) == 2 and (loaded(x).asnumpy() == net(x).asnumpy()).all()


@pytest.mark.parametrize(("name", "child", "error"), [("a", 5, TypeError), ("", nn.Dense(2), ValueError)])
def test_only_blocks_with_names_are_children(name, child, error):
    net = sequential()
    with pytest.raises(error, match="a child of hybridsequential"):
        net._children[name] = child
    assert len(net._children) == 2


class Affine(HybridBlock):
    def __init__(self):
        super().__init__()
        self.weight = self.params.get("weight", shape=(3, 3))
        self.bias = self.params.get("bias", shape=(3,), init="ones")

    def hybrid_forward(self, F, x, weight, bias=None):
        y = F.FullyConnected(x, weight, no_bias=True, num_hidden=3)
        return y if bias is None else F.broadcast_add(y, bias)


def changed_as_by_gluonnlp(net: Any) -> None:
    """apply_weight_drop: the dict, then the attribute past `__setattr__`."""
    other = dense().weight
    net._reg_params["weight"] = other
    object.__setattr__(net, "weight", other)


PARAMETERS = {
    "another one": lambda net: net._reg_params.__setitem__("weight", dense().weight),
    "del": lambda net: net._reg_params.__delitem__("bias"),
    "pop": lambda net: net._reg_params.pop("bias"),
    "popitem": lambda net: net._reg_params.popitem(),
    "update": lambda net: net._reg_params.update(weight=dense().weight),
    "a dict in its place": lambda net: setattr(net, "_reg_params", {"weight": net._reg_params["weight"]}),
    "as GluonNLP's weight drop": changed_as_by_gluonnlp,
    "del of the attribute": lambda net: delattr(net, "bias"),
}


def of_parameters(kind: Any, above: str, how: str, change: str, hybrid: bool) -> Any:
    mx.random.seed(0)
    inner = COPIES[how](kind())
    net = ABOVE[above](inner)
    net.initialize()
    if hybrid:
        net.hybridize(engine="numpy")
    x = nd.array([[1, -2, 3]])
    before = net(x).asnumpy()
    PARAMETERS[change](inner)
    after = net(x).asnumpy()
    assert abs(after - before).max() > 1e-3
    return after.round(5).tolist()


@pytest.mark.parametrize("change", PARAMETERS)
@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("above", ["top", "two below", "plain"])
@pytest.mark.parametrize(
    "kind", [Affine, lambda: nn.Dense(3, in_units=3, bias_initializer="ones")], ids=["own", "Dense"]
)
def test_hybrid_calls_follow_which_parameters_there_are(kind, above, how, change):
    assert of_parameters(kind, above, how, change, True) == of_parameters(kind, above, how, change, False)
