"""Cutting the joint graph: what is kept, what is computed twice, and where the backward's inputs come from."""

from __future__ import annotations

import numpy as np

from hybrid_lab.graph import Graph
from hybrid_lab.graph.passes.differentiate import differentiate
from hybrid_lab.graph.passes.simplify import simplify
from hybrid_lab.graph.passes.split import split
from tests.graph.building import evaluate, graph_of, names, program, uniform


def parts(graph: Graph, wrt=None):
    wrt = range(len(graph.inputs)) if wrt is None else wrt
    joint = simplify(differentiate(graph, [graph.inputs[index] for index in wrt]))
    return joint, split(joint, len(graph.inputs), len(graph.outputs))


def run_both(graph, arrays, heads):
    """Gradients by the two parts, and by the joint graph."""
    joint, found = parts(graph)
    count = len(graph.outputs)
    forward = evaluate(found.forward, arrays)
    given = {"input": arrays, "output": forward[:count], "saved": forward[count:], "head": heads}
    backward = evaluate(found.backward, [given[kind][index] for kind, index in found.sources])
    return backward, evaluate(joint, [*arrays, *heads])[count:]


def test_before_and_after():
    graph = graph_of(lambda F, x, w: F.square(F.dot(x, w)), (2, 3), (3, 4))
    joint, found = parts(graph, [1])
    assert str(joint) == program("""
        graph net(%x0: f32[2,3], %x1: f32[3,4], %head_grad0: f32[2,4]):
          %0: f32[2,4] = dot(%x0, %x1)
          %1: f32[2,4] = square(%0)
          %2: f32[2,4] = broadcast_mul(%0, 2.0)
          %3: f32[2,4] = broadcast_mul(%head_grad0, %2)
          %4: f32[3,4] = _dot_rhs_grad(%3, %x0, shape(3, 4))
          return %1, %4
    """)
    assert str(found) == program("""
        graph net(%x0: f32[2,3], %x1: f32[3,4]):
          %0: f32[2,4] = dot(%x0, %x1)
          %1: f32[2,4] = square(%0)
          return %1, %0

        graph net backward(%x0: f32[2,3], %saved0: f32[2,4], %head_grad0: f32[2,4]):
          %0: f32[2,4] = broadcast_mul(%saved0, 2.0)
          %1: f32[2,4] = broadcast_mul(%head_grad0, %0)
          %2: f32[3,4] = _dot_rhs_grad(%1, %x0, shape(3, 4))
          return %2
          inputs: input 0, saved 0, head 0; 32 bytes are kept
    """)


def test_inputs_and_outputs_are_kept_for_nothing():
    _, found = parts(graph_of(lambda F, x, w: F.FullyConnected(x, w, num_hidden=3, no_bias=True), (2, 4), (3, 4)))
    assert found.saved_bytes == 0
    assert {kind for kind, _ in found.sources} == {"input", "head"}
    _, found = parts(graph_of(lambda F, x: F.tanh(x), (5,)))
    assert set(found.sources) == {("output", 0), ("head", 0)}


def test_a_product_is_never_computed_twice():
    _, found = parts(graph_of(lambda F, x, w: F.square(F.dot(x, w)), (2, 4), (4, 3)))
    assert "dot" not in names(found.backward)[:-2]
    assert ("saved", 0) in found.sources


def test_cheap_arithmetic_is_computed_twice_rather_than_kept():
    graph = graph_of(lambda F, x: F.square(x * 2.0 + 1.0) * x, (100,))
    _, found = parts(graph)
    assert found.saved_bytes == 0


def test_the_smaller_value_is_kept():
    # square's gradient needs the product's row sums only: 4 numbers instead of 400.
    graph = graph_of(lambda F, x, w: F.square(F.sum(F.dot(x, w), axis=1, keepdims=True)), (4, 3), (3, 100))
    _, found = parts(graph)
    assert found.saved_bytes == 16


def test_a_state_that_an_effect_overwrites_is_kept_as_a_copy():
    graph = graph_of(lambda F, x, s: (x * s, s * 0.9), (3,), (3,), roles="data aux")
    graph = Graph(graph.inputs, graph.outputs[:1], [(graph.inputs[1], graph.outputs[1])])
    joint = simplify(differentiate(graph, graph.inputs[:1]))
    found = split(joint, 2, 1)
    assert ("input", 1) not in found.sources
    assert found.forward.outputs[1] is found.forward.inputs[1]


def test_effects_and_draws_stay_with_the_forward():
    graph = graph_of(lambda F, x, s: (x * s, s * 0.9), (3,), (3,), roles="data aux")
    graph = Graph(graph.inputs, graph.outputs[:1], [(graph.inputs[1], graph.outputs[1])], draws=2)
    found = split(simplify(differentiate(graph, graph.inputs[:1])), 2, 1)
    assert (len(found.forward.effects), len(found.backward.effects)) == (1, 0)
    assert found.forward.draws == found.backward.draws == 2


def test_the_backward_has_inputs_of_its_own():
    _, found = parts(graph_of(lambda F, x, w: F.relu(F.dot(x, w)), (2, 3), (3, 4)))
    roles = [value.node.op.role for value in found.backward.inputs]
    assert set(roles) == {"saved", "head_grad"}
    assert not set(found.backward.inputs) & set(found.forward.inputs)


def test_two_parts_give_the_gradients_of_the_joint_graph():
    graph = graph_of(
        lambda F, x, w, b: F.log_softmax(F.relu(F.FullyConnected(x, w, b, num_hidden=5)) * F.sigmoid(b), axis=-1),
        (4, 3),
        (5, 3),
        (5,),
    )
    arrays = uniform((4, 3), (5, 3), (5,))
    found, wanted = run_both(graph, arrays, uniform((4, 5), seed=1))
    assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_the_same_graph_is_always_cut_the_same_way():
    def build():
        graph = graph_of(lambda F, x, w: F.softmax(F.dot(F.relu(F.dot(x, w)), w) * 0.5, axis=1), (4, 4), (4, 4))
        found = parts(graph)[1]
        return str(found.forward), str(found.backward), found.sources

    assert build() == build()


def test_an_unused_input_gets_zeros_without_keeping_anything():
    _, found = parts(graph_of(lambda F, x, y: F.exp(x), (3,), (1000,)))
    assert found.saved_bytes == 0
    assert found.backward.outputs[1].shape == (1000,)


def test_what_is_compared_with_a_kept_maximum_is_not_computed_again():
    """A maximum is found by equality: no number that another engine rounds otherwise equals it."""
    graph = graph_of(lambda F, x, w: F.max(F.broadcast_mul(w, F.tanh(x)), axis=0), (3, 4), (50, 3, 4))
    _, found = parts(graph)
    (places,) = [node for node in found.backward.nodes if node.op.name == "broadcast_equal"]
    sides = [value.node.values_in[0] if value.node.op.view else value for value in places.values_in]
    assert all(value.is_input for value in sides)


def test_both_sides_of_a_comparison_may_be_computed_again():
    graph = graph_of(lambda F, x, y: F.broadcast_maximum(x * 2.0, y * 3.0), (50, 4), (50, 4))
    _, found = parts(graph)
    assert found.saved_bytes <= 50 * 4 and {kind for kind, _ in found.sources} <= {"input", "saved", "head"}
