"""Gradients of gradients as graphs: differentiate(differentiate(g)), against differences of the first gradient."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab.diagnostics.errors import AutogradError
from hybrid_lab.graph import Graph, Input
from hybrid_lab.graph.passes.bind_mode import bind_mode
from hybrid_lab.graph.passes.differentiate import differentiate
from hybrid_lab.graph.passes.simplify import simplify
from hybrid_lab.graph.specialize import specialize
from hybrid_lab.ops import get
from tests.graph.building import evaluate, graph_of, names, program


def gradients(graph: Graph) -> Graph:
    """The gradients alone, as a function of inputs and head gradients."""
    joint = simplify(differentiate(graph, graph.inputs))
    return Graph(joint.inputs, joint.outputs[len(graph.outputs) :], name="gradients")


def check(function, *shapes, train: bool = False, low: float = -1.0, high: float = 1.0) -> None:
    """Every second derivative along one random direction per input."""
    graph = bind_mode(graph_of(function, *shapes, dtype="float64"), train)
    first = gradients(graph)
    second = gradients(first)
    random = np.random.RandomState(0)
    arrays = [random.uniform(low, high, value.shape) for value in first.inputs]
    heads = [random.uniform(-1, 1, value.shape) for value in first.outputs]
    found = evaluate(second, [*arrays, *heads])

    def pairing(point: list[np.ndarray]) -> float:
        return sum(float((head * value).sum()) for head, value in zip(heads, evaluate(first, point), strict=True))

    step = 1e-6
    for index, (array, gradient) in enumerate(zip(arrays, found, strict=True)):
        direction = random.uniform(-1, 1, array.shape)
        ahead = [*arrays[:index], array + step * direction, *arrays[index + 1 :]]
        behind = [*arrays[:index], array - step * direction, *arrays[index + 1 :]]
        wanted = (pairing(ahead) - pairing(behind)) / (2 * step)
        np.testing.assert_allclose((gradient * direction).sum(), wanted, rtol=1e-5, atol=1e-7, err_msg=str(index))


def test_before_and_after():
    graph = graph_of(lambda F, x: F.tanh(x), (3,))
    first = gradients(graph)
    assert str(first) == program("""
        graph gradients(%x0: f32[3], %head_grad0: f32[3]):
          %0: f32[3] = tanh(%x0)
          %1: f32[3] = broadcast_mul(%0, %0)
          %2: f32[3] = broadcast_sub(1.0, %1)
          %3: f32[3] = broadcast_mul(%head_grad0, %2)
          return %3
    """)
    second = gradients(first)
    assert [value.node.name for value in second.inputs] == ["x0", "head_grad0", "head_grad0_2"]
    assert len(second.outputs) == 2


def test_pointwise_and_products():
    check(lambda F, x, w, b: F.sigmoid(F.tanh(F.dot(x, w) + b) * 2.0) / (1.0 + F.square(x)), (4, 3), (3, 3), (3,))


def test_softmax_and_a_loss():
    check(lambda F, x, w: F.log_softmax(F.FullyConnected(x, w, num_hidden=4, no_bias=True)), (5, 3), (4, 3))
    check(lambda F, x: F.softmax(x, axis=1), (3, 4))


def test_convolution_and_average_pooling():
    def function(F, x, w, b):
        y = F.Convolution(x, w, b, kernel=(3, 3), num_filter=2, pad=(1, 1), stride=(2, 2))
        return F.Pooling(F.tanh(y), kernel=(2, 2), stride=(2, 2), pool_type="avg")

    check(function, (2, 2, 8, 8), (2, 2, 3, 3), (2,))


def test_norms():
    check(lambda F, x, g, b: F.LayerNorm(x, g, b), (3, 5), (5,), (5,))
    check(lambda F, x, g, b: F.GroupNorm(x, g, b, num_groups=2), (3, 4, 2), (2,), (2,))
    check(lambda F, x, g, b: F.InstanceNorm(x, g, b), (2, 3, 4), (3,), (3,))
    check(lambda F, x: F.LRN(x, nsize=3, alpha=0.5), (2, 4, 3))
    for train in (True, False):
        check(lambda F, *inputs: F.BatchNorm(*inputs, fix_gamma=False), (6, 3), *[(3,)] * 4, train=train, low=0.5)


def test_movement_and_broadcasting():
    def function(F, x, y):
        turned = F.transpose(F.Concat(x, F.square(x), dim=1))
        return F.sum(turned * F.exp(y), axis=1), F.slice_axis(turned, axis=0, begin=1, end=3) ** 3

    check(function, (2, 3), (6, 1))


def test_a_gradient_penalty_is_specialized_like_any_graph():
    """The norm of a gradient as part of a loss, trained by forward and backward graphs of its own."""

    def function(F, x, w):
        return F.sum(F.tanh(F.dot(x, w)))

    first = gradients(graph_of(function, (4, 3), (3, 2), roles="data param"))
    penalty = Graph(first.inputs[:2], [first.outputs[0]])
    ones = np.ones(1, np.float32)
    assert any(isinstance(node.op, Input) and node.name == "head_grad0" for node in first.nodes)
    shapes = [value.shape for value in first.inputs]
    parts = specialize(Graph(first.inputs, penalty.outputs), shapes, ["float32"] * 3, True, [1])
    assert parts.backward is not None and "tanh" in names(parts.forward)
    random = np.random.RandomState(1)
    x, w = (random.uniform(-1, 1, shape).astype(np.float32) for shape in shapes[:2])
    results = evaluate(parts.forward, [x, w, ones])
    given = {"input": [x, w, ones], "output": results, "saved": results[1:], "head": [np.ones((4, 3), np.float32)]}
    (dw,) = evaluate(parts.backward, [given[kind][index] for kind, index in parts.sources])
    assert dw.shape == w.shape and np.abs(dw).max() > 0


def test_an_operator_whose_gradient_has_none_is_an_error():
    record = get("RNN")
    sample = next(item for item in record.samples if item.gradient)
    arrays = sample.arrays(record.name)
    graph = graph_of(lambda F, *inputs: F.RNN(*inputs, **sample.attributes), *(array.shape for array in arrays))
    graph = Graph(graph.inputs, graph.outputs[0].node.outputs[:1])
    with pytest.raises(AutogradError, match="the gradient of rnn has no gradient"):
        gradients(gradients(bind_mode(graph, True)))
