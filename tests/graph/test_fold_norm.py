"""BatchNorm in prediction becomes part of the layer before it, and numbers stay the same."""

from __future__ import annotations

import numpy as np
import pytest

from hybrid_lab.graph import Graph
from hybrid_lab.graph.passes.fold_norm import fold_norm
from hybrid_lab.graph.passes.hoist import hoist
from hybrid_lab.graph.passes.simplify import simplify
from hybrid_lab.ops import find
from tests.graph.building import body, evaluate, graph_of, names, program

ROLES = "data param param param param aux aux"


def arrays_of(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    """Uniform numbers; variances (the last input) are positive."""
    random = np.random.RandomState(seed)
    made = [random.uniform(-1, 1, value.shape).astype(value.dtype) for value in graph.inputs]
    made[-1] = np.abs(made[-1]) + made[-1].dtype.type(0.1)
    return made


def check(graph: Graph, *left: str) -> Graph:
    """The folded graph, after comparing its numbers; `left` are the operators in it that run at every call."""
    folded = simplify(fold_norm(graph))
    arrays = arrays_of(graph)
    for one, two in zip(evaluate(folded, arrays), evaluate(graph, arrays), strict=True):
        assert one.dtype == two.dtype
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-5 * np.abs(two).max())
    if left:
        assert names(hoist(folded).forward) == list(left)
    return folded


def test_before_and_after():
    def function(F, x, w, b, gamma, beta, mean, var):
        y = F.Convolution(x, w, b, kernel=(1, 1), num_filter=4)
        return F.relu(F.BatchNorm(y, gamma, beta, mean, var, fix_gamma=False))

    graph = graph_of(function, (2, 3, 5, 5), (4, 3, 1, 1), *[(4,)] * 5, roles=ROLES)
    assert body(graph) == program("""
        %0: f32[2,4,5,5] = Convolution(%x0, %x1, %x2, kernel=(1, 1), num_filter=4)
        %1: f32[2,4,5,5], f32[4], f32[4] = BatchNorm(%0, %x3, %x4, %x5, %x6, fix_gamma=False)
        %2: f32[2,4,5,5] = relu(%1.0)
        return %2
    """)
    found = hoist(check(graph))
    assert found.prologue is not None
    assert body(found.prologue) == program("""
        %0: f32[4] = broadcast_add(%x6, 0.001)
        %1: f32[4] = rsqrt(%0)
        %2: f32[4] = broadcast_mul(%1, %x3)
        %3: f32[4] = broadcast_mul(%x5, %2)
        %4: f32[4] = broadcast_sub(%x4, %3)
        %5: f32[4] = broadcast_mul(%x2, %2)
        %6: f32[4] = broadcast_add(%5, %4)
        %7: f32[4,1,1,1] = _channel_like(%2, shape(4, 3, 1, 1), axis=0)
        %8: f32[4,3,1,1] = broadcast_mul(%x1, %7)
        return %6, %8
    """)
    assert str(found.forward) == program("""
        graph net(%x0: f32[2,3,5,5], %x1_folded_bias: f32[4], %x1_folded: f32[4,3,1,1]):
          %0: f32[2,4,5,5] = Convolution(%x0, %x1_folded, %x1_folded_bias, kernel=(1, 1), num_filter=4)
          %1: f32[2,4,5,5] = relu(%0)
          return %1
    """)


def normed(layer, *shapes, count=4, roles="data param", axis=1, fix_gamma=False, dtype="float32", **more) -> Graph:
    """A graph of `layer(F, x, ...)` and a BatchNorm over `count` channels behind it."""

    def function(F, *inputs):
        *given, gamma, beta, mean, var = inputs
        return F.BatchNorm(layer(F, *given), gamma, beta, mean, var, axis=axis, fix_gamma=fix_gamma, **more)

    return graph_of(function, *shapes, *[(count,)] * 4, roles=f"{roles} param param aux aux", dtype=dtype)


@pytest.mark.parametrize("fix_gamma", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_groups_strides_and_no_bias(fix_gamma, dtype):
    def layer(F, x, w):
        return F.Convolution(x, w, kernel=(3, 3), num_filter=4, num_group=2, stride=(2, 2), pad=(1, 1), no_bias=True)

    graph = normed(layer, (2, 6, 7, 7), (4, 3, 3, 3), fix_gamma=fix_gamma, dtype=dtype, eps=1e-5)
    check(graph, "Convolution")


def test_dense_layers_with_channels_at_the_end():
    check(normed(lambda F, x, w: F.FullyConnected(x, w, num_hidden=4, no_bias=True), (2, 3), (4, 3)), "FullyConnected")

    def wide(F, x, w):
        return F.FullyConnected(x, w, num_hidden=4, no_bias=True, flatten=False)

    check(normed(wide, (2, 5, 3), (4, 3), axis=-1), "FullyConnected")
    # Over another axis the weights cannot do it.
    check(normed(wide, (2, 5, 3), (4, 3), count=5, axis=1), "FullyConnected", "_channel_affine")


@pytest.mark.skipif(find("Deconvolution") is None, reason="the operator Deconvolution is not there")
@pytest.mark.parametrize("groups", [1, 2])
def test_deconvolution(groups):
    def layer(F, x, w):
        return F.Deconvolution(x, w, kernel=(3, 3), num_filter=4, num_group=groups, stride=(2, 2), no_bias=True)

    check(normed(layer, (2, 6, 4, 4), (6, 4 // groups, 3, 3)), "Deconvolution")


def test_two_in_a_row():
    def layer(F, x, w, *vectors):
        y = F.Convolution(x, w, kernel=(1, 1), num_filter=4, no_bias=True)
        return F.BatchNorm(y, *vectors[:3], F.square(vectors[3]))

    graph = normed(layer, (2, 3, 5, 5), (4, 3, 1, 1), *[(4,)] * 4, roles="data param param param aux aux")
    check(graph, "Convolution")


def test_a_convolution_that_others_read_stays_and_the_norm_is_a_scale_and_shift():
    def function(F, x, w, gamma, beta, mean, var):
        y = F.Convolution(x, w, kernel=(1, 1), num_filter=4, no_bias=True)
        return F.BatchNorm(y, gamma, beta, mean, var), F.relu(y)

    graph = graph_of(function, (2, 3, 5, 5), (4, 3, 1, 1), *[(4,)] * 4, roles="data param param param aux aux")
    assert sorted(names(hoist(check(graph)).forward)) == ["Convolution", "_channel_affine", "relu"]
    output = Graph(graph.inputs, [graph.outputs[0], graph.outputs[0].node.inputs[0]])
    assert sorted(names(hoist(check(output)).forward)) == ["Convolution", "_channel_affine"]


@pytest.mark.parametrize(
    "graph",
    [
        normed(lambda F, x: F.relu(x), (2, 4, 5), roles="data"),  # nothing was rounded yet
        normed(lambda F, x, w: F.FullyConnected(x, w, num_hidden=4, no_bias=True), (2, 3), (4, 3), dtype="float16"),
        normed(lambda F, x, w: F.Convolution(x, w, kernel=(1,), num_filter=4, no_bias=True),
               (2, 3, 5), (4, 3, 1), output_mean_var=True),
    ],
    ids=["data of the caller", "float16", "statistics are read"],
)  # fmt: skip
def test_what_stays(graph: Graph):
    if len(graph.outputs[0].node.outputs) == 3 and graph.outputs[0].node.op.output_mean_var:
        graph = Graph(graph.inputs, graph.outputs[0].node.outputs)
    assert "BatchNorm" in names(fold_norm(graph))


def test_a_graph_in_8_bits_stays():
    def function(F, x, w, gamma, beta, mean, var):
        y = F.FullyConnected(x, w, num_hidden=4, no_bias=True)
        return F._contrib_quantize_v2(F.BatchNorm(y, gamma, beta, mean, var))[0]

    graph = graph_of(function, (2, 3), (4, 3), *[(4,)] * 4, roles="data param param param aux aux")
    assert "BatchNorm" in names(fold_norm(graph))


def test_numbers_from_the_caller_are_not_folded():
    def layer(F, x, w):
        return F.FullyConnected(x, w, num_hidden=4, no_bias=True)

    dynamic = normed(layer, (2, 3), (4, 3), roles="data data")  # the weight is data
    assert names(fold_norm(dynamic)).count("_channel_affine") == 1
    given = normed(layer, (2, 3), (4, 3))
    swapped = graph_of(
        lambda F, x, w, gamma, beta, mean, var: F.BatchNorm(layer(F, x, w), gamma, beta, mean, var),
        (2, 3), (4, 3), *[(4,)] * 4,
        roles="data param data param aux aux",
    )  # fmt: skip
    assert "BatchNorm" in names(fold_norm(swapped)) and "BatchNorm" not in names(fold_norm(given))


def test_training_mode_statistics_stay():
    from hybrid_lab.graph.passes.bind_mode import bind_mode

    graph = normed(lambda F, x, w: F.FullyConnected(x, w, num_hidden=4, no_bias=True), (2, 3), (4, 3))
    assert "BatchNorm" in names(fold_norm(bind_mode(graph, True)))
    assert "BatchNorm" not in names(fold_norm(bind_mode(graph, False)))
