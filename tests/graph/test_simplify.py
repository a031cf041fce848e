"""What simplify removes, and what it must not."""

from __future__ import annotations

import numpy as np

from hybrid_lab.graph import Graph
from hybrid_lab.graph.passes.simplify import simplify
from tests.graph.building import evaluate, graph_of, names, program, uniform


def test_before_and_after():
    def function(F, x):
        return F.identity(F.exp(x)) + F.Reshape(F.exp(x), shape=(0, -1)) + F.broadcast_like(F.sum(x), F.log(x))

    graph = graph_of(function, (2, 3))
    assert str(graph) == program("""
        graph net(%x0: f32[2,3]):
          %0: f32[2,3] = exp(%x0)
          %1: f32[2,3] = identity(%0)
          %2: f32[2,3] = exp(%x0)
          %3: f32[2,3] = Reshape(%2, shape=(0, -1))
          %4: f32[2,3] = broadcast_add(%1, %3)
          %5: f32[1] = sum(%x0)
          %6: f32[2,3] = log(%x0)
          %7: f32[2,3] = broadcast_like(%5, %6)
          %8: f32[2,3] = broadcast_add(%4, %7)
          return %8
    """)
    assert str(simplify(graph)) == program("""
        graph net(%x0: f32[2,3]):
          %0: f32[2,3] = exp(%x0)
          %1: f32[1] = sum(%x0)
          %2: f32[2,3] = broadcast_add(%0, %0)
          %3: f32[2,3] = broadcast_like(%1, shape(2, 3))
          %4: f32[2,3] = broadcast_add(%2, %3)
          return %4
    """)


def test_equal_computations_become_one():
    graph = graph_of(lambda F, x: F.exp(x) + F.exp(x), (2, 3))
    assert names(simplify(graph)) == ["exp", "broadcast_add"]


def test_attributes_and_scalars_keep_computations_apart():
    graph = graph_of(lambda F, x: (x * 2.0, x * 3.0, F.clip(x, a_min=0, a_max=1), F.clip(x, a_min=0, a_max=2)), (3,))
    assert len(names(simplify(graph))) == 4


def test_minus_zero_is_not_zero():
    graph = graph_of(lambda F, x: (x * 0.0, x * -0.0), (3,))
    assert len(names(simplify(graph))) == 2


def test_identities_and_reshapes_to_the_same_shape_go():
    graph = graph_of(lambda F, x: F.exp(F.identity(F.Reshape(x, shape=(2, -1)))), (2, 3))
    assert names(simplify(graph)) == ["exp"]
    assert names(simplify(graph_of(lambda F, x: F.Reshape(x, shape=(3, 2)), (2, 3)))) == ["Reshape"]


def test_dead_code_goes_but_inputs_stay():
    graph = graph_of(lambda F, x, y: (F.exp(x), F.log(y)), (3,), (3,))
    alive = simplify(Graph(graph.inputs, graph.outputs[:1]))
    assert names(alive) == ["exp"]
    assert len(alive.inputs) == 2


def test_a_value_of_which_only_the_shape_is_read_is_not_kept_alive():
    graph = simplify(graph_of(lambda F, x, y: F.zeros_like(F.exp(y)) + F.broadcast_like(x, F.exp(y)), (1,), (3,)))
    assert "exp" not in names(graph)
    x, y = uniform((1,), (3,))
    assert np.array_equal(evaluate(graph, [x, y])[0], np.broadcast_to(x, 3))


def test_random_numbers_are_never_merged():
    from hybrid_lab.graph.builder import make_node
    from hybrid_lab.ops.framework.operator import get

    draw = get("Dropout").bind(p=0.5).bind_mode(True)
    source = graph_of(lambda F, x: x, (3,)).inputs[0]
    nodes = [make_node(draw, [source], draw=number) for number in (0, 1)]
    graph = Graph([source], [node.outputs[0] for node in nodes], draws=2)
    assert names(simplify(graph)) == ["Dropout", "Dropout"]


def test_numbers_stay_the_same():
    graph = graph_of(lambda F, x, y: F.Flatten(x) * F.Flatten(y) + F.Flatten(x) * F.Flatten(y), (2, 3), (2, 3))
    arrays = uniform((2, 3), (2, 3))
    assert np.array_equal(evaluate(graph, arrays)[0], evaluate(simplify(graph), arrays)[0])
