"""Layers of equal structure that changed places: said so, where the numbers show it."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.gluon import nn


def dense(value, units=3, bias=0.0):
    layer = nn.Dense(units, in_units=3)
    layer.initialize(mx.init.Normal(1))
    layer.weight.set_data(nd.array(np.arange(3 * units).reshape(units, 3) + value))
    layer.bias.set_data(nd.ones((units,)) * bias)
    return layer


def stack(*layers):
    net = nn.HybridSequential()
    net.add(*layers)
    return net


class Named(gluon.HybridBlock):
    """Two layers with names that are words."""

    def __init__(self, query, key):
        super().__init__()
        self.query, self.key = query, key

    def hybrid_forward(self, F, x):
        return self.key(self.query(x))


def exchanges(one, two):
    difference = mx.diff(one, two)
    blocks = {block.path: block.exchange for block in difference.blocks if block.exchange}
    return blocks, difference.summary


def test_two_layers():
    blocks, summary = exchanges(stack(dense(0), dense(1), dense(2)), stack(dense(0), dense(2), dense(1)))
    assert blocks == {"1": "exchanged with 2", "2": "exchanged with 1"}
    assert summary == "2 Blocks exchanged"
    difference = mx.diff(stack(dense(0), dense(1)), stack(dense(1), dense(0)))
    assert {tensor.name: tensor.text for tensor in difference.tensors} == {
        "0.weight": "exchanged: the numbers of 1.weight",
        "1.weight": "exchanged: the numbers of 0.weight",
    }
    assert "exchanged with 1" in str(difference) and "exchanged with 1" in str(difference.data())
    assert difference.same_graphs and len(difference) == 2
    assert "exchanged with 1" in difference._repr_html_()


def test_files(tmp_path):
    x = nd.ones((2, 3))
    for name, layers in (("a", (dense(0), dense(1, bias=2))), ("b", (dense(1, bias=2), dense(0)))):
        net = stack(*layers)
        net.hybridize(engine="numpy")
        net(x)
        net.save(tmp_path / name)
    blocks, summary = exchanges(tmp_path / "a.hlab", tmp_path / "b.hlab")
    assert blocks == {"0": "exchanged with 1", "1": "exchanged with 0"} and summary == "2 Blocks exchanged"
    blocks, summary = exchanges(tmp_path / "a.hlab", stack(dense(1, bias=2), dense(0)))
    assert blocks == {"0": "exchanged with 1", "1": "exchanged with 0"}


WAYS = {
    "by names that are words": (
        lambda: Named(dense(0), dense(1)), lambda: Named(dense(1), dense(0)),
        {"query": "exchanged with key", "key": "exchanged with query"}, "2 Blocks exchanged",
    ),
    "of whole layers": (
        lambda: stack(stack(dense(0), dense(1)), stack(dense(2), dense(3))),
        lambda: stack(stack(dense(2), dense(3)), stack(dense(0), dense(1))),
        {"0": "exchanged with 1", "1": "exchanged with 0"}, "2 Blocks exchanged",
    ),
    "across two layers": (
        lambda: stack(stack(dense(0), dense(1)), stack(dense(2), dense(3))),
        lambda: stack(stack(dense(2), dense(1)), stack(dense(0), dense(3))),
        {"0.0": "exchanged with 1.0", "1.0": "exchanged with 0.0"}, "2 Blocks exchanged",
    ),
    "of three in a ring": (
        lambda: stack(dense(0), dense(1), dense(2)), lambda: stack(dense(1), dense(2), dense(0)),
        {"0": "has the numbers that 1 had", "1": "has the numbers that 2 had", "2": "has the numbers that 0 had"},
        "3 Blocks exchanged",
    ),
    "and another one trained": (
        lambda: stack(dense(0), dense(1), dense(2)), lambda: stack(dense(1), dense(0), dense(5)),
        {"0": "exchanged with 1", "1": "exchanged with 0"}, "2 Blocks exchanged, 1 tensor changed",
    ),
    "with a Dropout between": (
        lambda: stack(dense(0), nn.Dropout(0.5), dense(1)), lambda: stack(dense(1), nn.Dropout(0.5), dense(0)),
        {"0": "exchanged with 2", "2": "exchanged with 0"}, "2 Blocks exchanged",
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_ways_to_exchange(way):
    one, two, blocks, summary = WAYS[way]
    assert exchanges(one(), two()) == (blocks, summary)


OTHERS = {
    "numbers of its own": (lambda: stack(dense(0), dense(1)), lambda: stack(dense(2), dense(3))),
    "a copy": (lambda: stack(dense(0), dense(1)), lambda: stack(dense(1), dense(1))),
    "almost": (lambda: stack(dense(0), dense(1)), lambda: stack(dense(1), dense(0, bias=1e-7))),
    "the sign of a zero": (lambda: stack(dense(0), dense(1)), lambda: stack(dense(1), dense(0, bias=-0.0))),
    "nothing": (lambda: stack(dense(0), dense(0)), lambda: stack(dense(0), dense(0))),
    "shifted, and one is new": (
        lambda: stack(dense(0), dense(1), dense(2)),
        lambda: stack(dense(1), dense(2), dense(3)),
    ),
}


@pytest.mark.parametrize("way", OTHERS)
def test_what_is_no_exchange(way):
    one, two = OTHERS[way]
    blocks, summary = exchanges(one(), two())
    assert blocks == {} and "exchanged" not in summary
