"""What depends on parameters alone is computed once: the prologue, and what stays."""

from __future__ import annotations

import numpy as np

from hybrid_lab import nd
from hybrid_lab.gluon import HybridBlock, nn
from hybrid_lab.graph import Graph
from hybrid_lab.graph.passes.hoist import hoist
from hybrid_lab.graph.specialize import specialize
from tests.graph.building import evaluate, graph_of, names, program, uniform


def run(found, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """As a caller runs it: the prologue first, then the rest on inputs and hoisted values."""
    held = evaluate(found.prologue, [arrays[index] for index in found.prologue_sources]) if found.prologue else []
    return evaluate(found.forward, [(arrays if kind == "input" else held)[i] for kind, i in found.forward_sources])


def test_before_and_after():
    graph = graph_of(
        lambda F, x, w, g: F.dot(x, F.transpose(w) * F.exp(g)) + g,
        (2, 3), (3, 3), (3,),
        roles="data param param",
    )  # fmt: skip
    found = hoist(graph)
    assert str(found) == program("""
        graph net prologue(%x1: f32[3,3], %x2: f32[3]):
          %0: f32[3,3] = transpose(%x1)
          %1: f32[3] = exp(%x2)
          %2: f32[3,3] = broadcast_mul(%0, %1)
          return %2

        graph net(%x0: f32[2,3], %x2: f32[3], %broadcast_mul: f32[3,3]):
          %0: f32[2,3] = dot(%x0, %broadcast_mul)
          %1: f32[2,3] = broadcast_add(%0, %x2)
          return %1
    """)
    assert found.forward_sources == (("input", 0), ("input", 2), ("hoisted", 0))
    assert found.prologue_sources == (1, 2)
    assert [value.node.op.role for value in found.forward.inputs] == ["data", "param", "hoisted"]
    arrays = uniform((2, 3), (3, 3), (3,))
    assert np.array_equal(run(found, arrays)[0], evaluate(graph, arrays)[0])


def test_without_parameters_nothing_changes():
    graph = graph_of(lambda F, x, y: F.exp(x) + y, (3,), (3,))
    found = hoist(graph)
    assert found.forward is graph and found.prologue is None
    assert found.forward_sources == (("input", 0), ("input", 1)) and found.prologue_sources == ()


def test_all_data_inputs_stay_and_unread_parameters_go():
    graph = graph_of(lambda F, x, w, y: F.exp(w) + y, (3,), (3,), (3,), roles="data param data")
    found = hoist(graph)
    assert [value.node.name for value in found.forward.inputs] == ["x0", "x2", "exp"]


def test_a_view_of_a_parameter_stays_and_so_does_a_large_repetition():
    def function(F, x, w):
        return F.dot(x, F.Reshape(w, shape=(3, 2))), F.broadcast_to(F.exp(w), shape=(40000, 6)) * F.sum(x)

    found = hoist(graph_of(function, (2, 3), (1, 6), roles="data param"))
    assert names(found.prologue) == ["exp"]
    assert "Reshape" in names(found.forward) and "broadcast_to" in names(found.forward)


def test_random_numbers_are_drawn_at_every_call():
    from hybrid_lab.graph.builder import make_node
    from hybrid_lab.ops.framework.operator import get

    graph = graph_of(lambda F, x, w: F.exp(w), (3,), (3,), roles="data param")
    draw = make_node(get("Dropout").bind(p=0.5, mode="always").bind_mode(True), [graph.outputs[0]], draw=0)
    found = hoist(Graph(graph.inputs, [draw.outputs[0]], draws=1))
    assert names(found.forward) == ["Dropout"] and names(found.prologue) == ["exp"]


def test_a_parameter_that_the_graph_updates_is_not_steady():
    graph = graph_of(lambda F, x, w: (x * F.exp(w), w + 1.0), (3,), (3,), roles="data param")
    found = hoist(Graph(graph.inputs, graph.outputs[:1], [(graph.inputs[1], graph.outputs[1])]))
    assert found.prologue is None


def test_an_output_that_only_parameters_decide():
    graph = graph_of(lambda F, x, w: (F.exp(w), F.Flatten(w), w), (3,), (3, 2), roles="data param")
    found = hoist(graph)
    arrays = uniform((3,), (3, 2))
    for one, two in zip(run(found, arrays), evaluate(graph, arrays), strict=True):
        assert np.array_equal(one, two)


def test_training_keeps_everything_where_it_is():
    graph = graph_of(lambda F, x, w: x * F.exp(w), (3,), (3,), roles="data param")
    parts = specialize(graph, [(3,)] * 2, ["float32"] * 2, True, [1])
    assert parts.prologue is None and parts.forward_sources == (("input", 0), ("input", 1))


def test_the_position_of_parameters_tells_where_roles_do_not():
    graph = graph_of(lambda F, x, w: x * F.exp(w), (3,), (3,))
    assert specialize(graph, [(3,)] * 2, ["float32"] * 2, False).prologue is None
    parts = specialize(graph, [(3,)] * 2, ["float32"] * 2, False, num_data=1)
    assert names(parts.prologue) == ["exp"]


class Scaled(HybridBlock):
    """A dense layer whose weight is computed from two parameters (weight normalization)."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.direction = self.params.get("direction", shape=(4, 3))
            self.size = self.params.get("size", shape=(4, 1))
            self.first = nn.Dense(3, in_units=3)

    def hybrid_forward(self, F, x, direction, size):
        weight = size * direction / F.sqrt(F.sum(F.square(direction), axis=1, keepdims=True))
        return F.FullyConnected(self.first(x), weight, no_bias=True, num_hidden=4)


def test_a_changed_parameter_runs_the_prologue_again():
    net = Scaled()
    net.initialize()
    x = nd.array(np.random.RandomState(0).rand(2, 3))
    net.hybridize(engine="numpy")
    first = net(x).asnumpy()
    program = net._graph_calls.compilations[-1].program
    assert program.prologue is not None
    assert np.array_equal(net(x).asnumpy(), first)
    net.size.set_data(net.size.data() * 2)
    assert np.allclose(net(x).asnumpy(), first * 2)
    net.direction.data()[:] = net.direction.data() * -1
    assert np.allclose(net(x).asnumpy(), first * -2)


def test_every_pass_is_kept_on_request():
    graph = graph_of(lambda F, x, w: x * F.exp(F.identity(w)), (3,), (3,), roles="data param")
    assert specialize(graph, [(3,)] * 2, ["float32"] * 2, False).stages == ()
    stages = specialize(graph, [(3,)] * 2, ["float32"] * 2, False, keep=True).stages
    by_name = {stage.name: stage for stage in stages}
    assert list(by_name)[:2] == ["infer", "bind_mode"] and list(by_name)[-1] == "hoist"
    simplified = by_name["simplify"]
    assert simplified.changed and "identity" in str(simplified.before) and "identity" not in str(simplified.after)
    assert "-  %0: f32[3] = identity(%x1)" in simplified.diff()
