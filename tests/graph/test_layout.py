"""Transposes and reshapes that cancel, merge or become flags, with the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab.graph.passes.layout import layout
from hybrid_lab.graph.passes.simplify import simplify
from hybrid_lab.ops import records
from hybrid_lab.ops.framework.pointwise import Elementwise
from tests.graph.building import evaluate, graph_of, names, program, uniform


def check(graph, *left: str) -> None:
    """Its operators after the pass, and the same numbers."""
    found = simplify(layout(graph))
    assert names(found) == list(left)
    arrays = uniform(*(value.shape for value in graph.inputs))
    for one, two in zip(evaluate(found, arrays), evaluate(graph, arrays), strict=True):
        assert np.array_equal(one, two)


def test_before_and_after():
    def function(F, x, y):
        turned = F.broadcast_maximum(F.transpose(x, axes=(0, 2, 1)), 0.0) * F.SwapAxis(y, dim1=1, dim2=2)
        return F.Reshape(F.Flatten(F.transpose(F.exp(turned), axes=(0, 2, 1))), shape=(0, 2, 6))

    graph = graph_of(function, (2, 3, 4), (2, 3, 4))
    assert str(graph) == program("""
        graph net(%x0: f32[2,3,4], %x1: f32[2,3,4]):
          %0: f32[2,4,3] = transpose(%x0, axes=(0, 2, 1))
          %1: f32[2,4,3] = broadcast_maximum(%0, 0.0)
          %2: f32[2,4,3] = SwapAxis(%x1, dim1=1, dim2=2)
          %3: f32[2,4,3] = broadcast_mul(%1, %2)
          %4: f32[2,4,3] = exp(%3)
          %5: f32[2,3,4] = transpose(%4, axes=(0, 2, 1))
          %6: f32[2,12] = Flatten(%5)
          %7: f32[2,2,6] = Reshape(%6, shape=(0, 2, 6))
          return %7
    """)
    assert str(layout(graph)) == program("""
        graph net(%x0: f32[2,3,4], %x1: f32[2,3,4]):
          %0: f32[2,3,4] = broadcast_maximum(%x0, 0.0)
          %1: f32[2,3,4] = broadcast_mul(%0, %x1)
          %2: f32[2,3,4] = exp(%1)
          %3: f32[2,2,6] = Reshape(%2, shape=(0, 2, 6))
          return %3
    """)


def test_transposes_merge_and_cancel():
    check(graph_of(lambda F, x: F.exp(F.transpose(F.transpose(x))), (2, 3)), "exp")
    check(graph_of(lambda F, x: F.transpose(F.transpose(x, axes=(2, 0, 1)), axes=(1, 0, 2)), (2, 3, 4)), "transpose")
    check(graph_of(lambda F, x: F.exp(F.transpose(x, axes=(0, 1))), (2, 3)), "exp")
    swapped = graph_of(lambda F, x: F.SwapAxis(F.SwapAxis(x, dim1=0, dim2=2), dim1=2, dim2=0) + 1, (2, 3, 4))
    check(swapped, "broadcast_add")


def test_a_transpose_stays_where_the_others_do_not_cancel():
    def half(F, x, y):
        return F.transpose(F.transpose(x) + y)

    check(graph_of(half, (2, 3), (3, 2)), "transpose", "broadcast_add", "transpose")


def test_a_value_that_others_read_is_not_computed_twice():
    def function(F, x):
        y = F.exp(F.transpose(x))
        return F.transpose(y), F.tanh(y)

    check(graph_of(function, (2, 3)), "transpose", "exp", "transpose", "tanh")


def test_broadcast_operands_move_with_their_axes():
    def function(F, x, y):
        return F.transpose(F.transpose(x, axes=(2, 0, 1)) * F.transpose(y, axes=(2, 0, 1)), axes=(1, 2, 0))

    check(graph_of(function, (2, 3, 4), (2, 1, 4)), "broadcast_mul")
    lower = graph_of(lambda F, x, y: F.transpose(F.transpose(x) * y), (2, 3), (2,))
    check(lower, "transpose", "broadcast_mul", "transpose")


def test_reshapes_merge_without_writing_the_batch_down():
    graph = graph_of(lambda F, x: F.expand_dims(F.Reshape(F.Flatten(x), shape=(0, 2, 6)), axis=1), (5, 3, 4))
    check(graph, "Reshape")
    (merged,) = layout(graph).operators
    assert merged.op.shape == (0, 1, 2, 6)
    moved = graph_of(lambda F, x: F.Flatten(F.Reshape(x, shape=(-3, 0))), (5, 3, 4))
    (merged,) = layout(moved).operators
    assert merged.op.shape == (-1, 4)
    check(graph_of(lambda F, x: F.exp(F.Reshape(F.Flatten(x), shape=(0, 3, 4))), (5, 3, 4)), "exp")
    check(graph_of(lambda F, x: F.Reshape(F.Flatten(x), shape=(0, 2, 6)), (0, 3, 4)), "Reshape")
    check(graph_of(lambda F, x: F.expand_dims(F.Flatten(x), axis=1), (5, 3, 0)), "reshape_like")


def test_products_take_transposes_as_flags():
    check(graph_of(lambda F, x, y: F.dot(F.transpose(x), F.transpose(y)), (4, 3), (5, 4)), "dot")
    swap = {"axes": (0, 2, 1)}
    check(graph_of(lambda F, x, y: F.batch_dot(x, F.transpose(y, **swap)), (2, 3, 4), (2, 5, 4)), "batch_dot")
    twice = graph_of(lambda F, x, y: F.batch_dot(F.transpose(x, **swap), y, transpose_a=True), (2, 3, 4), (2, 4, 5))
    check(twice, "batch_dot")
    assert not layout(twice).operators[0].op.transpose_a
    other = graph_of(lambda F, x, y: F.batch_dot(F.transpose(x, axes=(1, 0, 2)), y), (3, 2, 4), (2, 4, 5))
    check(other, "transpose", "batch_dot")


@pytest.mark.parametrize("record", [r for r in records() if issubclass(r, Elementwise)], ids=lambda r: r.name)
def test_pointwise_operators_know_no_axes(record):
    """What lets a transpose pass through them."""
    assert not {"axis", "axes", "dim", "dim1"} & set(record.fields)
