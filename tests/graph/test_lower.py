"""Operators written in primitives, where an engine wants the parts apart."""

from __future__ import annotations

import numpy as np

from hybrid_lab.graph import Graph
from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.lower import lower_random, lower_where
from hybrid_lab.ops.operator import get
from tests.graph.building import evaluate, graph_of, names, program, uniform


def dropout() -> Graph:
    (x,) = graph_of(lambda F, x: x, (4,)).inputs
    node = make_node(get("Dropout").bind(p=0.5), [x], draw=2).replace(scope="net.drop")
    return Graph([x], node.outputs[:1], draws=3, name="net")


def test_before_and_after():
    assert str(lower_random(dropout())) == program("""
        graph net(%x0: f32[4]):
          %0: bool[4] = _dropout_mask(%x0)  draw 2         # net.drop
          %1: f32[4] = _masked_scale(%x0, %0, scale=2.0)   # net.drop
          return %1
    """)
    graph = graph_of(lambda F, x: F.softmax(x), (2, 3))
    assert str(lower_where(graph, lambda node: node.op.name != "softmax")) == program("""
        graph net(%x0: f32[2,3]):
          %0: f32[2,1] = max(%x0, axis=-1, keepdims=True)
          %1: f32[2,3] = broadcast_sub(%x0, %0)
          %2: f32[2,3] = exp(%1)
          %3: f32[2,1] = sum(%2, axis=-1, keepdims=True)
          %4: f32[2,3] = broadcast_div(%2, %3)
          return %4
    """)


def test_the_same_random_numbers():
    arrays, rng = uniform((4,)), (5, 7)
    assert np.array_equal(
        evaluate(dropout(), arrays, rng),
        evaluate(lower_random(dropout()), arrays, rng),
    )


def test_operators_stay_whole_where_a_part_is_not_wanted():
    graph = graph_of(lambda F, x: F.softmax(x), (2, 3))
    assert names(lower_where(graph, lambda node: node.op.name not in ("softmax", "max"))) == ["softmax"]


def test_what_is_wanted_itself_stays():
    graph = graph_of(lambda F, x: F.softmax(x), (2, 3))
    assert names(lower_where(graph, lambda node: True)) == ["softmax"]
