"""Gradients of attention: tiles of weights that are computed again, with ragged tiles of all axes."""

import numpy as np
import pytest

pytest.importorskip("triton")
pytest.importorskip("torch")

import hybrid_lab as mx
from benchmarks import traffic
from hybrid_lab import autograd, gluon
from hybrid_lab.engines.triton.build.compiling import compile_all
from hybrid_lab.engines.triton.plan.other_batches import kernels_of
from hybrid_lab.gluon import ahead
from tests.engines.test_triton import interpreter  # noqa: F401
from tests.engines.test_triton_attention import Attention, Interleaved, small_tiles  # noqa: F401
from tests.engines.test_triton_rows import data

PARTS = ["attention_key_grad", "attention_query_grad"]


class Heads(gluon.HybridBlock):
    """softmax(q k^T / 2 + mask) v of arrays of their own, with what `change` does to the weights."""

    def __init__(self, change=lambda F, weights: weights, **keywords):
        super().__init__(**keywords)
        self.change = change

    def hybrid_forward(self, F, q, k, v, mask=None):
        scores = F.batch_dot(q, k, transpose_b=True) * 0.5
        if mask is not None:
            scores = F.broadcast_add(scores, mask)
        return F.batch_dot(self.change(F, F.softmax(scores)), v)


def gradients(net, arrays, engine, dtype="float32"):
    """The result, and the gradients of all arrays, for a gradient that is no constant."""
    if engine:
        net.hybridize(engine=engine)
    inputs = [mx.nd.array(array, dtype=dtype) for array in arrays]
    for item in inputs:
        item.attach_grad()
    mx.random.seed(3)
    with autograd.record():
        y = net(*inputs)
    y.backward(mx.nd.array(data(y.shape, 9), dtype=dtype))
    return [y.asnumpy(), *(item.grad.asnumpy() for item in inputs)]


def kernels(net):
    special = net._graph_calls.compilations[-1].program.special
    return [source.name for graph in (special.forward, special.backward) for source in kernels_of(graph)[2]]


def agree(make, arrays, dtype="float32", most=1e-4):
    """The names of the kernels; results and gradients are those of eager mode in float32."""
    net, arrays = make(), [array.astype(dtype) for array in arrays]
    found, wanted = gradients(net, arrays, "triton", dtype), gradients(make(), arrays, None)
    for a, b in zip(found, wanted, strict=True):
        assert np.abs(a - b).max() <= most * max(np.abs(b).max(), 1e-3)
    return kernels(net)


SIZES = [(19, 37, 5, 7), (37, 18, 20, 3), (17, 33, 1, 1), (18, 5, 4, 1)]


@pytest.mark.parametrize("queries, keys, width, values", SIZES)
def test_three_gradients_are_two_kernels(queries, keys, width, values):
    shapes = (2, queries, width), (2, keys, width), (2, keys, values)
    names = agree(Heads, [2 * data(shape, seed) for seed, shape in enumerate(shapes)])
    assert names[0] == "attention" and sorted(name for name in names if "_grad" in name) == PARTS
    assert len(names) == 4


def test_a_mask_that_hides_a_tile_of_keys_and_dropout():
    mask = np.zeros((2, 1, 37), "float32")
    mask[0, :, :20] = -1e4
    arrays = [data((2, 19, 5)), data((2, 37, 5), 1), data((2, 37, 7), 2)]
    make = lambda: Heads(lambda F, weights: F.Dropout(weights, p=0.3))  # noqa: E731
    net = make()
    with_mask = [*arrays, mask]

    def run(net, engine):
        if engine:
            net.hybridize(engine=engine)
        inputs = [mx.nd.array(array) for array in with_mask]
        for item in inputs[:3]:
            item.attach_grad()
        mx.random.seed(3)
        with autograd.record():
            y = net(*inputs)
        y.backward(mx.nd.array(data(y.shape, 9)))
        return [y.asnumpy(), *(item.grad.asnumpy() for item in inputs[:3])]

    for a, b in zip(run(net, "triton"), run(make(), None), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    names = kernels(net)
    assert sorted(name for name in names if "_grad" in name) == PARTS


def test_float16_keeps_float32_statistics():
    arrays = [3 * data((2, 19, 16)), 3 * data((2, 37, 16), 1), data((2, 37, 8), 2)]
    names = agree(Heads, arrays, "float16", 6e-3)
    assert sorted(name for name in names if "_grad" in name) == PARTS


@pytest.mark.parametrize("make, shapes", [(Attention, [(2, 21, 15), (2, 1, 21)]), (Interleaved, [(18, 3, 24)])])
def test_heads_cut_out_of_one_array(make, shapes):
    """The gradient of a mask wants those of all scores: then the weights are kept."""
    names = agree(make, [data(shapes[0]), *(np.zeros(shape, "float32") for shape in shapes[1:])])
    assert any(name.startswith("attention_key_grad") for name in names) == (make is Interleaved)


@pytest.mark.parametrize("what", ["weights", "sum"])
def test_weights_that_somebody_else_reads_are_kept(what):
    """The caller, or another operator."""

    class Read(Heads):
        def hybrid_forward(self, F, q, k, v):
            weights = F.softmax(F.batch_dot(q, k, transpose_b=True))
            read = F.mean(weights, axis=1) if what == "sum" else weights
            return F.concat(F.reshape(F.batch_dot(weights, v), shape=(2, -1)), F.reshape(read, shape=(2, -1)), dim=1)

    names = agree(Read, [data((2, 19, 5)), data((2, 18, 5), 1), data((2, 18, 7), 2)])
    assert not any("attention_" in name and "_grad" in name for name in names)


class Folded(Heads):
    """Of arrays whose every step reads the one before twice."""

    def hybrid_forward(self, F, q, k, v):
        for _ in range(30):
            q, v = (F.relu(q) + F.abs(q)) * 0.5, (F.relu(v) + F.abs(v)) * 0.5
        return super().hybrid_forward(F, q, k, v)


def test_what_queries_and_values_are_made_of_is_looked_at_once():
    names = agree(Folded, [data((1, 5, 4)), data((1, 7, 4), 1), data((1, 7, 3), 2)])
    assert all(any(name.startswith(part) for name in names) for part in PARTS)


def test_a_gradient_of_values_alone():
    """Then no sum over the keys is wanted, and one kernel does it."""
    net = Heads()
    net.hybridize(engine="triton")
    q, k, v = (mx.nd.array(data((2, 19, 6), seed)) for seed in range(3))
    v.attach_grad()
    results = []
    for _ in range(2):
        with autograd.record():
            y = net(q, k, v)
        y.backward(mx.nd.array(data(y.shape, 9)))
        results.append(v.grad.asnumpy())
        net.hybridize(active=False)
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-5)


def encoder_attention(width=64, length=128, dtype="float32"):
    """The graphs of a recorded call with 64 heads."""
    inputs = [mx.nd.zeros((64, length, width), dtype=dtype) for _ in range(3)]
    for item in inputs:
        item.attach_grad()
    graphs = ahead.graphs_of(Heads(), inputs, train=True)
    return [kernels_of(graphs[name]) for name in ("forward", "backward")]


def test_training_moves_no_weights():
    """Of 64 x 128 x 128 weights, 4 MiB, there is none in memory; queries, keys and values are 2 MiB each."""
    moved = [traffic.of(fusion).moved for _, fusion, _ in encoder_attention()]
    assert moved[0] <= 4.1 * 2**21 and moved[1] <= 14 * 2**21


@pytest.mark.long
@pytest.mark.parametrize("target", ["gfx90a", "sm80"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_gradients_fit_into_gpus_that_are_not_here(target, dtype):
    sources = [item for _, _, found in encoder_attention(dtype=dtype) for item in found if "attention" in item.name]
    assert [item.kind for item in sources] == ["attention", "gradient of attention", "gradient of attention"]
    for source, binary in zip(sources, compile_all(sources, target), strict=True):
        assert binary.resources.spills <= 8, (source.name, binary.resources)
