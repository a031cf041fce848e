"""Random operators become a draw and arithmetic, with the same numbers."""

from __future__ import annotations

import numpy as np

from hybrid_lab.graph import Graph
from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.passes.decompose import lower_random
from hybrid_lab.ops.framework.operator import get
from tests.graph.building import evaluate, graph_of, program, uniform


def dropout() -> Graph:
    (x,) = graph_of(lambda F, x: x, (4,)).inputs
    node = make_node(get("Dropout").bind(p=0.5), [x], draw=2).replace(scope="net.drop")
    return Graph([x], node.outputs[:1], draws=3, name="net")


def test_before_and_after():
    assert str(dropout()) == program("""
        graph net(%x0: f32[4]):
          %0: f32[4], bool[4] = Dropout(%x0)  draw 2   # net.drop
          return %0.0
    """)
    assert str(lower_random(dropout())) == program("""
        graph net(%x0: f32[4]):
          %0: bool[4] = _dropout_mask(%x0)  draw 2         # net.drop
          %1: f32[4] = _masked_scale(%x0, %0, scale=2.0)   # net.drop
          return %1
    """)


def test_the_same_random_numbers():
    arrays, rng = uniform((4,)), (5, 7)
    assert np.array_equal(
        evaluate(dropout(), arrays, rng),
        evaluate(lower_random(dropout()), arrays, rng),
    )
