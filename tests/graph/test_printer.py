"""A printed graph is a program a person can read."""

from __future__ import annotations

from hybrid_lab.diagnostics.location import capture
from hybrid_lab.graph import Graph
from hybrid_lab.graph.passes.simplify import simplify
from tests.graph.building import graph_of


def test_exact_text():
    graph = graph_of(lambda F, x, w: F.softmax(F.relu(x * 2.0) + w, axis=1), (2, 3), (3,))
    assert str(graph) == "\n".join(
        [
            "graph net(%x0: f32[2,3], %x1: f32[3]):",
            "  %0: f32[2,3] = broadcast_mul(%x0, 2.0)",
            "  %1: f32[2,3] = relu(%0)",
            "  %2: f32[2,3] = broadcast_add(%1, %x1)",
            "  %3: f32[2,3] = softmax(%2, axis=1)",
            "  return %3",
        ]
    )


def test_a_neutral_graph_has_no_types():
    assert "%0: ?[?] = exp(%x0)" in str(graph_of(lambda F, x: F.exp(x), None))


def test_several_outputs_are_numbered():
    text = str(graph_of(lambda F, x: F.SliceChannel(x, num_outputs=2, axis=0), (4,)))
    assert "%0: f32[2], f32[2] = SliceChannel(%x0, num_outputs=2, axis=0)" in text
    assert "return %0.0, %0.1" in text


def test_scope_and_source_line_stand_behind():
    graph = graph_of(lambda F, x: F.exp(x), (3,))
    node = graph.outputs[0].node.replace(scope="net.fc1", location=capture())
    assert "# net.fc1   " in str(Graph(graph.inputs, node.outputs))
    assert "test_printer.py:" in str(Graph(graph.inputs, node.outputs))


def test_effects_are_shown():
    graph = graph_of(lambda F, x, s: (x, s * 0.9), (3,), (3,))
    updating = Graph(graph.inputs, graph.outputs[:1], [(graph.inputs[1], graph.outputs[1])])
    assert "update %x1 <- %0" in str(updating)


def test_constants_stand_where_they_are_read():
    graph = graph_of(lambda F, x: F.broadcast_like(F.sum(x, keepdims=True), F.exp(x)), (5, 2))
    assert "%1: f32[5,2] = broadcast_like(%0, shape(5, 2))" in str(simplify(graph))
