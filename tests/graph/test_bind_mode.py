"""Binding training or prediction."""

from __future__ import annotations

import numpy as np

from hybrid_lab.graph import Graph
from hybrid_lab.graph.passes.bind_mode import bind_mode
from hybrid_lab.graph.passes.simplify import simplify
from tests.graph.building import evaluate, graph_of, names, program, uniform


def batch_norm(calls=1):
    def function(F, x, gamma, beta, mean, var):
        for _ in range(calls):
            x = F.BatchNorm(x, gamma, beta, mean, var, fix_gamma=False, momentum=0.9)
        return x

    return graph_of(function, (4, 3), (3,), (3,), (3,), (3,), roles="data param param aux aux")


def test_before_and_after():
    graph = graph_of(
        lambda F, x, mean, var: F.Dropout(F.BatchNorm(x, F.ones_like(mean), F.zeros_like(mean), mean, var)),
        (4, 3),
        (3,),
        (3,),
        roles="data aux aux",
    )
    assert str(bind_mode(graph, train=False)) == program("""
        graph net(%x0: f32[4,3], %x1: f32[3], %x2: f32[3]):
          %0: f32[3] = ones_like(%x1)
          %1: f32[3] = zeros_like(%x1)
          %2: f32[4,3], f32[3], f32[3] = BatchNorm(%x0, %0, %1, %x1, %x2)
          %3: f32[4,3] = identity(%2.0)
          return %3
    """)
    assert str(bind_mode(graph, train=True)) == program("""
        graph net(%x0: f32[4,3], %x1: f32[3], %x2: f32[3]):
          %0: f32[3] = ones_like(%x1)
          %1: f32[3] = zeros_like(%x1)
          %2: f32[4,3], f32[3], f32[3] = BatchNorm(%x0, %0, %1, %x1, %x2, training=True)
          %3: f32[3] = square(%2.2)
          %4: f32[3] = broadcast_div(1.0, %3)
          %5: f32[3] = broadcast_sub(%4, 0.001)
          %6: f32[3] = broadcast_maximum(%5, 0.0)
          %7: f32[3] = broadcast_mul(%x1, 0.9)
          %8: f32[3] = broadcast_mul(%2.1, 0.09999999999999998)
          %9: f32[3] = broadcast_add(%7, %8)
          %10: f32[3] = broadcast_mul(%x2, 0.9)
          %11: f32[3] = broadcast_mul(%6, 0.09999999999999998)
          %12: f32[3] = broadcast_add(%10, %11)
          %13: f32[4,3], bool[4,3] = Dropout(%2.0)
          update %x1 <- %9
          update %x2 <- %12
          return %13.0
    """)


def test_dropout_is_nothing_in_prediction():
    graph = graph_of(lambda F, x: F.exp(F.Dropout(x, p=0.5)), (3,))
    assert names(simplify(bind_mode(graph, train=False))) == ["exp"]


def test_batch_norm_updates_its_states_in_training_only():
    graph = batch_norm()
    assert bind_mode(graph, train=False).effects == ()
    trained = bind_mode(graph, train=True)
    assert [target for target, _ in trained.effects] == list(trained.inputs[3:])
    x, gamma, beta, mean, var = uniform((4, 3), (3,), (3,), (3,), (3,))
    _, new_mean, _ = evaluate(trained, [x, gamma, beta, mean, np.abs(var)])
    assert np.allclose(new_mean, 0.9 * mean + 0.1 * x.mean(axis=0), atol=1e-6)


def test_a_block_called_twice_updates_its_states_twice_in_order():
    trained = bind_mode(batch_norm(calls=2), train=True)
    assert len(trained.effects) == 2
    x, gamma, beta, mean, var = uniform((4, 3), (3,), (3,), (3,), (3,))
    var = np.abs(var)
    first = evaluate(bind_mode(batch_norm(), train=True), [x, gamma, beta, mean, var])
    _, new_mean, _ = evaluate(trained, [x, gamma, beta, mean, var])
    assert np.allclose(new_mean, 0.9 * first[1] + 0.1 * first[0].mean(axis=0), atol=1e-6)


def test_who_reads_a_state_behind_its_update_reads_the_new_value():
    def function(F, x, gamma, beta, mean, var):
        y = F.BatchNorm(x, gamma, beta, mean, var, fix_gamma=False)
        return y, mean * 1.0, mean

    graph = graph_of(function, (4, 3), (3,), (3,), (3,), (3,), roles="data param param aux aux")
    arrays = [np.abs(array) for array in uniform((4, 3), (3,), (3,), (3,), (3,))]
    _, read, returned, new_mean, _ = evaluate(bind_mode(graph, train=True), arrays)
    assert np.array_equal(read, new_mean) and np.array_equal(returned, new_mean)


def test_the_neutral_graph_stays_as_it_was():
    graph = batch_norm()
    before = str(graph)
    bind_mode(graph, train=True)
    assert str(graph) == before


def test_names_and_draws_survive():
    graph = graph_of(lambda F, x: F.exp(x), (3,))
    renamed = Graph(graph.inputs, graph.outputs[0].node.replace(name="act0").outputs, draws=3, name="net")
    bound = bind_mode(renamed, train=True)
    assert (bound.outputs[0].node.name, bound.draws, bound.name) == ("act0", 3, "net")


def test_a_computed_state_is_not_updated():
    def function(F, x, gamma, beta, mean, var):
        return F.BatchNorm(x, gamma, beta, F.negative(mean), var)

    graph = graph_of(function, (4, 3), (3,), (3,), (3,), (3,), roles="data param param aux aux")
    assert [target for target, _ in bind_mode(graph, train=True).effects] == [graph.inputs[4]]


def test_a_state_is_updated_in_program_order_where_an_earlier_pass_made_some_nodes_anew():
    def function(F, x, gamma, beta, mean, var):
        def norm(x):
            return F.BatchNorm(x, gamma, beta, mean, var, fix_gamma=False, momentum=0.5)

        return F.broadcast_add(norm(F.square(x)), norm(F.tanh(x))), F.identity(mean)

    graph = graph_of(function, (4, 3), (3,), (3,), (3,), (3,), roles="data param param aux aux")
    arrays = [*uniform((4, 3), (3,), (3,)), np.zeros(3, "float32"), np.ones(3, "float32")]
    wanted = evaluate(bind_mode(graph, train=True), arrays)
    anew = graph.map(lambda node, inputs: node.replace().outputs if node.op.name == "square" else None)
    assert anew.nodes != graph.nodes
    for found, expected in zip(evaluate(bind_mode(anew, train=True), arrays), wanted, strict=True):
        np.testing.assert_array_equal(found, expected)
