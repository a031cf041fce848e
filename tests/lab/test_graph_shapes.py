"""The picture of a graph that ran tells the shapes of its last compile; nested Blocks are named by their full path."""

import hybrid_lab as mx
from hybrid_lab.gluon import nn
from hybrid_lab.lab.graph_view import graph_view


def network():
    net, inner = nn.HybridSequential(), nn.HybridSequential()
    inner.add(nn.Dense(8, activation="relu"), nn.Dense(3))
    net.add(nn.Conv2D(6, 5), inner)
    net.initialize()
    net.hybridize()
    return net


def test_shapes_appear_with_the_first_call():
    net = network()
    before = {node["label"]: node["outputs"] for node in graph_view(net, "", "neutral")["nodes"]}
    assert before["0: Conv2D"] == [{"shape": None, "dtype": ""}]
    net(mx.nd.ones((2, 1, 28, 28)))
    after = {node["label"]: node["outputs"] for node in graph_view(net, "", "neutral")["nodes"]}
    assert after["0: Conv2D"] == [{"shape": [2, 6, 24, 24], "dtype": "float32"}]
    assert after["1: HybridSequential"] == [{"shape": [2, 3], "dtype": "float32"}]


def test_nested_blocks_have_full_paths():
    net = network()
    net(mx.nd.ones((2, 1, 28, 28)))
    blocks = [node["block"] for node in graph_view(net, "1", "neutral")["nodes"] if node["kind"] == "block"]
    assert blocks == ["1.0", "1.1"]
