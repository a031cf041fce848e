"""The joint forward and backward graph."""

from __future__ import annotations

import numpy as np

from hybrid_lab.graph import Graph
from hybrid_lab.graph.passes.differentiate import differentiate
from hybrid_lab.graph.passes.simplify import simplify
from tests.graph.building import evaluate, graph_of, names, program, uniform


def gradients(function, *arrays, wrt=None, heads=None):
    """Gradients by the joint graph, one per input in `wrt`."""
    graph = graph_of(function, *(array.shape for array in arrays))
    wrt = range(len(arrays)) if wrt is None else wrt
    joint = simplify(differentiate(graph, [graph.inputs[index] for index in wrt]))
    heads = heads or [np.ones(value.shape, value.dtype) for value in graph.outputs]
    return evaluate(joint, [*arrays, *heads])[len(graph.outputs) :]


def test_before_and_after():
    graph = graph_of(lambda F, x, w: F.tanh(F.dot(x, w)), (2, 3), (3, 4))
    assert str(differentiate(graph, graph.inputs[1:])) == program("""
        graph net(%x0: f32[2,3], %x1: f32[3,4], %head_grad0: f32[2,4]):
          %0: f32[2,4] = dot(%x0, %x1)
          %1: f32[2,4] = tanh(%0)
          %2: f32[2,4] = broadcast_mul(%1, %1)
          %3: f32[2,4] = broadcast_sub(1.0, %2)
          %4: f32[2,4] = broadcast_mul(%head_grad0, %3)
          %5: f32[3,4] = _dot_rhs_grad(%4, %x0, %x1)
          return %1, %5
    """)


def test_product_rule_with_broadcasting():
    x, y = uniform((2, 3), (3,))
    dx, dy = gradients(lambda F, x, y: x * y, x, y)
    assert np.allclose(dx, np.broadcast_to(y, (2, 3)))
    assert np.allclose(dy, x.sum(axis=0))


def test_several_readers_add_up():
    (x,) = uniform((4,))
    (dx,) = gradients(lambda F, x: F.square(x) + x * 3.0 + x, x)
    assert np.allclose(dx, 2 * x + 4)


def test_the_same_output_twice_gets_both_head_gradients():
    (x,) = uniform((4,))

    def twice(F, x):
        y = F.square(x)
        return y, y

    (dx,) = gradients(twice, x)
    assert np.allclose(dx, 4 * x)


def test_an_input_that_no_output_reads_has_zero_gradient():
    x, y = uniform((4,), (2, 2))
    dx, dy = gradients(lambda F, x, y: F.exp(x), x, y)
    assert np.allclose(dx, np.exp(x))
    assert np.array_equal(dy, np.zeros((2, 2), np.float32))


def test_nothing_flows_through_a_block_gradient():
    (x,) = uniform((4,))
    (dx,) = gradients(lambda F, x: x * F.BlockGrad(x), x)
    assert np.allclose(dx, x)


def test_only_what_is_wanted_is_computed():
    graph = graph_of(lambda F, x, w: F.FullyConnected(x, w, num_hidden=3, no_bias=True), (2, 4), (3, 4))
    joint = simplify(differentiate(graph, graph.inputs[1:]))
    full = simplify(differentiate(graph, graph.inputs))
    assert len(names(joint)) < len(names(full))


def test_matrix_products_against_finite_differences():
    x, w = uniform((3, 4), (4, 2))
    dx, dw = gradients(lambda F, x, w: F.tanh(F.dot(x, w)), x, w)

    def loss(x, w):
        return np.tanh(x.astype(np.float64) @ w.astype(np.float64)).sum()

    for array, found in ((x, dx), (w, dw)):
        index = (1, 1)
        changed = [array.astype(np.float64).copy() for _ in range(2)]
        changed[0][index] += 1e-5
        changed[1][index] -= 1e-5
        pair = [loss(c, w) if array is x else loss(x, c) for c in changed]
        assert abs((pair[0] - pair[1]) / 2e-5 - found[index]) < 1e-4


def test_zeros_for_an_input_without_gradient_belong_to_its_reader():
    graph = graph_of(lambda F, x, y: F.where(F.BlockGrad(y), x, x), (3,), (3,))
    graph = graph.map(lambda node, inputs: node.replace(inputs=inputs, scope=f"net.{node.op.name}").outputs)
    joint = differentiate(graph, graph.inputs)
    assert all(node.scope for node in joint.operators)


def test_gradients_carry_scope_and_line_of_their_operator():
    graph = graph_of(lambda F, x: F.tanh(x), (3,))
    node = graph.outputs[0].node.replace(scope="net.head")
    joint = differentiate(Graph(graph.inputs, node.outputs), graph.inputs)
    assert {node.scope for node in joint.operators} == {"net.head"}
