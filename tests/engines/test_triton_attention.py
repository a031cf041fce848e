"""Attention kernels: scores, softmax and their product with the values in one loop, with ragged tiles of all axes."""

import numpy as np
import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

import hybrid_lab as mx
from hybrid_lab import autograd, gluon
from hybrid_lab.engines.triton.build.compiling import compile_all
from hybrid_lab.engines.triton.plan.other_batches import kernels_of
from hybrid_lab.engines.triton.run import kernel
from hybrid_lab.engines.triton.write.special import attention as attention_kernels
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import input_node
from tests.engines.test_triton import interpreter  # noqa: F401
from tests.engines.test_triton_rows import agree, data, op


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Tiles of 16 queries and 16 keys."""
    usual = kernel.tile_sizes

    def tile_sizes(source):
        if source.kind.endswith("attention"):
            return {**source.blocks, **dict.fromkeys(source.tiled, 16)}
        return usual(source)

    monkeypatch.setattr(kernel, "tile_sizes", tile_sizes)


def inputs(dtype="float32", **shapes):
    return [input_node(name, shape=shape, dtype=dtype) for name, shape in shapes.items()]


def attention(q, k, v, change=lambda scores: scores):
    """softmax(q k^T / 2) v, with `change` on the scores."""
    scores = op("broadcast_mul", op("batch_dot", q, k, transpose_b=True), 0.5)
    return op("batch_dot", op("softmax", change(scores)), v)


def kinds(graph):
    return [source.kind for source in kernels_of(graph)[2]]


@pytest.mark.parametrize("queries, keys, width, values", [(19, 37, 5, 7), (1, 17, 20, 1), (18, 1, 1, 18), (1, 1, 3, 3)])
def test_one_kernel(queries, keys, width, values):
    q, k, v = inputs(q=(2, queries, width), k=(2, keys, width), v=(2, keys, values))
    graph = Graph([q, k, v], [attention(q, k, v)])
    assert kinds(graph) == ["attention"] or keys == 1  # a softmax of one is two products
    agree(graph, q=3 * data(q.shape), k=3 * data(k.shape, 1), v=data(v.shape, 2))


def test_large_scores_come_late():
    """Every tile of keys has a larger maximum than those before."""
    q, k, v = inputs(q=(1, 17, 1), k=(1, 50, 1), v=(1, 50, 2))
    graph = Graph([q, k, v], [attention(q, k, v)])
    agree(graph, q=np.ones(q.shape, "float32"), k=np.arange(50, dtype="float32")[None, :, None], v=data(v.shape))


def test_a_mask_and_what_is_fused_around():
    """The mask is computed of a shorter array; queries are scaled before, a residual is added after."""
    q, k, v, m, r = inputs(q=(4, 18, 6), k=(4, 19, 6), v=(4, 19, 5), m=(4, 1, 19), r=(4, 18, 5))
    y = attention(
        op("relu", q), k, v,
        lambda scores: op("broadcast_add", scores, op("broadcast_mul", op("broadcast_sub", 1.0, m), -1e4)),
    )  # fmt: skip
    graph = Graph([q, k, v, m, r], [op("broadcast_add", y, r)])
    assert [source.name for source in kernels_of(graph)[2]] == ["attention_relu_sub_mul_add"]
    mask = (data(m.shape, 3) > 0).astype("float32")
    agree(graph, q=data(q.shape), k=data(k.shape, 1), v=data(v.shape, 2), m=mask, r=data(r.shape, 4))


def test_scores_by_hundreds_of_operators_are_no_attention():
    q, k, v = (input_node(name, shape=(2, 5, 4), dtype="float32") for name in "qkv")
    scores = op("batch_dot", q, k, transpose_b=True)
    for number in range(400):
        scores = op("broadcast_maximum", scores, 0.01 * (number % 7))
    graph = Graph([q, k, v], [op("batch_dot", op("softmax", scores), v)])
    assert "attention" not in {source.name for source in kernels_of(graph)[2]}
    agree(graph, q=data((2, 5, 4)), k=data((2, 5, 4), 1), v=data((2, 5, 4), 2))


def test_masked_keys_count_nothing_and_a_row_without_keys_is_nan():
    """-inf for the first 20 keys, so that a whole tile has no finite score, and for all keys of one query."""
    q, k, v, m = inputs(q=(1, 18, 4), k=(1, 40, 4), v=(1, 40, 3), m=(1, 18, 40))
    graph = Graph([q, k, v, m], [attention(q, k, v, lambda scores: op("broadcast_add", scores, m))])
    mask = np.zeros(m.shape, "float32")
    mask[..., :20] = mask[0, 5] = -np.inf
    assert kinds(graph) == ["attention"]
    agree(graph, q=data(q.shape), k=data(k.shape, 1), v=data(v.shape, 2), m=mask)


def test_not_a_number_in_a_row_stays_in_its_row():
    q, k, v = inputs(q=(1, 18, 4), k=(1, 20, 4), v=(1, 20, 3))
    query = data(q.shape)
    query[0, 3, 1] = np.nan
    agree(Graph([q, k, v], [attention(q, k, v)]), q=query, k=data(k.shape, 1), v=data(v.shape, 2))


def test_float16():
    q, k, v = inputs("float16", q=(2, 18, 16), k=(2, 19, 16), v=(2, 19, 16))
    graph = Graph([q, k, v], [attention(q, k, v)])
    assert kinds(graph) == ["attention"]
    agree(graph, **{name: data(shape.shape, seed).astype("float16") for seed, (name, shape) in enumerate(
        {"q": q, "k": k, "v": v}.items())})  # fmt: skip


@pytest.mark.parametrize("keys", [5, 19])
def test_weights_that_the_backward_needs_are_stored_on_the_way(keys):
    """All keys are one tile; the scores can be stored as well."""
    q, k, v = inputs(q=(2, 19, 3), k=(2, keys, 3), v=(2, keys, 4))
    scores = op("batch_dot", q, k, transpose_b=True)
    weights = op("softmax", op("broadcast_mul", scores, 0.7))
    graph = Graph([q, k, v], [op("relu", op("batch_dot", weights, v)), weights, scores])
    assert kinds(graph) == ["whole attention"]
    agree(graph, q=5 * data(q.shape), k=5 * data(k.shape, 1), v=data(v.shape, 2))


def test_many_weights_are_made_one_by_one(monkeypatch):
    monkeypatch.setattr(attention_kernels, "MOST_KEYS", 32)
    q, k, v = inputs(q=(1, 3, 2), k=(1, 17, 2), v=(1, 17, 2))
    weights = op("softmax", op("batch_dot", q, k, transpose_b=True))
    graph = Graph([q, k, v], [op("batch_dot", weights, v), weights])
    assert sorted(kinds(graph)) == ["product", "product", "rows"]
    agree(graph, q=data(q.shape), k=data(k.shape, 1), v=data(v.shape, 2))


def test_weights_that_another_operator_reads_are_made_one_by_one():
    q, k, v = inputs(q=(1, 3, 2), k=(1, 4, 2), v=(1, 4, 2))
    weights = op("softmax", op("batch_dot", q, k, transpose_b=True))
    graph = Graph([q, k, v], [op("batch_dot", weights, v), op("sort", weights)])
    assert not any("attention" in kind for kind in kinds(graph))
    agree(graph, q=data(q.shape), k=data(k.shape, 1), v=data(v.shape, 2))


class Attention(gluon.HybridBlock):
    """Multi-head attention with dropout on the weights."""

    def __init__(self, **keywords):
        super().__init__(**keywords)
        with self.name_scope():
            self.drop = gluon.nn.Dropout(0.3)

    def hybrid_forward(self, F, x, mask):
        q, k, v = (F.slice_axis(x, axis=2, begin=5 * part, end=5 * part + 5) for part in range(3))
        scores = F.broadcast_add(F.batch_dot(q, k, transpose_b=True) * 0.4, mask)
        return F.batch_dot(self.drop(F.softmax(scores)), v)


def test_training_with_a_mask_and_dropout_equals_eager():
    """The forward draws a mask and is one kernel, which leaves two numbers a query for the backward."""

    def run(engine):
        net = Attention()
        if engine:
            net.hybridize(engine=engine)
        x, mask = mx.nd.array(data((2, 21, 15))), mx.nd.array(-3 * (data((2, 1, 21), 1) > 0))
        x.attach_grad()
        mx.random.seed(3)
        with autograd.record():
            y = net(x, mask)
        y.backward(mx.nd.array(data((2, 21, 5), 2)))
        return net, y.asnumpy(), x.grad.asnumpy()

    net, *found = run("triton")
    for a, b in zip(found, run(None)[1:], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    special = net._graph_calls.compilations[-1].program.special
    assert sorted(kinds(special.forward)) == ["attention", "pointwise"]


@pytest.mark.parametrize("axis", [1, 2])
def test_another_axis_or_the_other_side_is_no_attention(axis):
    """A softmax over the queries, and weights that are the second factor."""
    q, k, v = inputs(q=(1, 4, 2), k=(1, 4, 2), v=(1, 4, 4))
    weights = op("softmax", op("batch_dot", q, k, transpose_b=True), axis=axis)
    y = op("batch_dot", weights, v) if axis == 1 else op("batch_dot", v, weights)
    graph = Graph([q, k, v], [y])
    assert "attention" not in kinds(graph)
    agree(graph, q=data(q.shape), k=data(k.shape, 1), v=data(v.shape, 2))


class Interleaved(gluon.HybridBlock):
    """GluonNLP's self attention."""

    def hybrid_forward(self, F, x):
        scores = F.contrib.interleaved_matmul_selfatt_qk(x, heads=2)
        return F.contrib.interleaved_matmul_selfatt_valatt(x, F.softmax(scores), heads=2)


def test_attention_on_interleaved_projections():
    net, x = Interleaved(), mx.nd.array(data((18, 3, 24)))
    expected = net(x).asnumpy()
    net.hybridize(engine="triton")
    np.testing.assert_allclose(net(x).asnumpy(), expected, rtol=1e-5, atol=1e-6)
    report = mx.explain(net)
    assert "attention" in str(report) and not report.fallbacks


def kernels():
    """A matrix product, a convolution with its gradients, and attention, of usual sizes."""
    x, w = inputs(x=(512, 1024), w=(1000, 1024))
    yield Graph([x, w], [op("relu", op("FullyConnected", x, w, num_hidden=1000, no_bias=True))])
    attributes = {"kernel": (3, 3), "pad": (1, 1), "num_filter": 128}
    x, w = inputs(x=(32, 64, 28, 28), w=(128, 64, 3, 3))
    y = op("Convolution", x, w, no_bias=True, **attributes)
    dy = input_node("dy", shape=y.shape, dtype="float32")
    gradients = [op(name, dy, x, w, **attributes) for name in ("_conv_data_grad", "_conv_weight_grad")]
    yield Graph([x, w, dy], [op("relu", y), *gradients])
    for dtype, stored in (("float32", False), ("float16", False), ("float16", True)):
        q, k, v = inputs(dtype, q=(64, 128, 64), k=(64, 128, 64), v=(64, 128, 64))
        weights = op("softmax", op("broadcast_mul", op("batch_dot", q, k, transpose_b=True), 0.125))
        yield Graph([q, k, v], [op("batch_dot", weights, v), *([weights] if stored else [])])


@pytest.mark.long
@pytest.mark.parametrize("target, most_shared", [("gfx90a", 65536), ("sm80", 99 * 1024)])
def test_products_and_attention_fit_into_gpus_that_are_not_here(target, most_shared):
    sources = [source for graph in kernels() for source in kernels_of(graph)[2]]
    assert {source.kind for source in sources} == {
        "product", "parts of a product", "product of parts", "attention", "whole attention",
    }  # fmt: skip
    for source, binary in zip(sources, compile_all(sources, target), strict=True):
        assert binary.resources.shared <= most_shared and binary.resources.spills == 0, (source.name, binary.resources)
