"""Shape and dtype inference, forwards and backwards."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab.diagnostics.errors import DTypeError, ShapeError
from hybrid_lab.graph.partial import PartialShapes
from hybrid_lab.graph.passes.infer import infer
from tests.graph.building import graph_of, program


def specialized(graph, *shapes, dtypes=None):
    dtypes = dtypes or ["float32"] * len(shapes)
    return infer(graph, dict(zip(graph.inputs, shapes)), dict(zip(graph.inputs, dtypes)))


def test_before_and_after():
    graph = graph_of(lambda F, x, w: F.softmax(F.dot(x, w), axis=1), None, None)
    assert str(graph) == program("""
        graph net(%x0: ?[?], %x1: ?[?]):
          %0: ?[?] = dot(%x0, %x1)
          %1: ?[?] = softmax(%0, axis=1)
          return %1
    """)
    assert str(specialized(graph, (4, 3), (3, 5))) == program("""
        graph net(%x0: f32[4,3], %x1: f32[3,5]):
          %0: f32[4,5] = dot(%x0, %x1)
          %1: f32[4,5] = softmax(%0, axis=1)
          return %1
    """)


def test_every_node_gets_shape_and_dtype():
    graph = graph_of(lambda F, x, y: F.exp(x) + y, None, None)
    assert graph.outputs[0].shape is None
    output = specialized(graph, (4, 1), (3,)).outputs[0]
    assert (output.shape, output.dtype) == ((4, 3), np.dtype("float32"))


def test_one_neutral_graph_serves_many_shapes():
    graph = graph_of(lambda F, x: F.Flatten(x), None)
    assert specialized(graph, (2, 3, 4)).outputs[0].shape == (2, 12)
    assert specialized(graph, (5, 7)).outputs[0].shape == (5, 7)


def test_shapes_that_do_not_fit_name_the_operator_and_both_shapes():
    graph = graph_of(lambda F, x, y: x + y, None, None)
    with pytest.raises(ShapeError, match=r"broadcast_add.*\(2,\) and \(3,\)"):
        specialized(graph, (2,), (3,))


def test_mixed_dtypes_are_an_error():
    graph = graph_of(lambda F, x, y: x * y, None, None)
    with pytest.raises(DTypeError, match="float32, float16"):
        specialized(graph, (2,), (2,), dtypes=["float32", "float16"])


def test_a_missing_input_shape_names_the_input():
    graph = graph_of(lambda F, x, y: x * y, None, None)
    with pytest.raises(ShapeError, match="'x1'"):
        infer(graph, {graph.inputs[0]: (2,)}, dict.fromkeys(graph.inputs, "float32"))


def test_deferred_parameters_are_completed_through_the_graph():
    graph = graph_of(
        lambda F, x, w1, b1, w2, b2: F.FullyConnected(
            F.relu(F.FullyConnected(x, w1, b1, num_hidden=8)), w2, b2, num_hidden=3
        ),
        *[None] * 5,
    )
    partial = PartialShapes(graph, {graph.inputs[0]: (4, 2, 5), graph.inputs[1]: (8, None)})
    shapes = [partial.shapes[value] for value in graph.inputs]
    assert shapes == [(4, 2, 5), (8, 10), (8,), (3, 8), (3,)]
    assert partial.shapes[graph.outputs[0]] == (4, 3)


def test_a_wrong_parameter_shape_is_found_while_completing():
    graph = graph_of(lambda F, x, w: F.FullyConnected(x, w, num_hidden=8, no_bias=True), None, None)
    with pytest.raises(ShapeError, match="x1|FullyConnected"):
        PartialShapes(graph, {graph.inputs[0]: (4, 5), graph.inputs[1]: (8, 6)})


def test_begin_states_take_the_shape_of_what_they_are_added_to():
    graph = graph_of(lambda F, state, x: x + F.negative(state), None, None)
    partial = PartialShapes(graph, {graph.inputs[1]: (4, 6)})
    assert partial.shapes[graph.inputs[0]] == (4, 6)
