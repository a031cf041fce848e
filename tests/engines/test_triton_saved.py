"""What the forward keeps for the backward on a GPU: no views, which would be copies there."""

import numpy as np
import pytest

pytest.importorskip("triton")
torch = pytest.importorskip("torch")

import hybrid_lab as mx  # noqa: E402
from hybrid_lab import autograd, gluon, nd  # noqa: E402
from hybrid_lab.engines.triton.plan.saved import without_views  # noqa: E402
from hybrid_lab.engines.triton.plan.training import with_less_saved  # noqa: E402
from hybrid_lab.engines.triton.run import availability  # noqa: E402
from hybrid_lab.engines.triton.run.view_step import ViewStep  # noqa: E402
from hybrid_lab.gluon import nn  # noqa: E402
from hybrid_lab.graph.builder import make_node  # noqa: E402
from hybrid_lab.graph.call_graphs import Split  # noqa: E402
from hybrid_lab.graph.graph import Graph  # noqa: E402
from hybrid_lab.graph.node import input_node  # noqa: E402
from hybrid_lab.graph.specialize import specialize_call  # noqa: E402
from hybrid_lab.ops.framework.operator import get as operator  # noqa: E402
from tests.triton_device import use_triton  # noqa: E402


@pytest.fixture(autouse=True)
def on_triton(monkeypatch):
    use_triton(monkeypatch)


def op(name, *inputs, **attributes):
    return make_node(operator(name).bind(**attributes), list(inputs)).outputs[0]


class Heads(gluon.HybridBlock):
    """Three views of a product, turned, of which the backward needs all."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.dense = nn.Dense(12, in_units=6, flatten=False)

    def hybrid_forward(self, F, x):
        parts = [
            F.transpose(F.slice_axis(self.dense(x), axis=2, begin=4 * at, end=4 * at + 4), axes=(0, 2, 1))
            for at in range(3)
        ]
        return F.batch_dot(parts[0], parts[1], transpose_b=True) * F.sum(F.exp(parts[2]))


def trained(net, x, engine):
    net.hybridize(engine=engine)
    with autograd.record():
        y = net(x)
    y.backward()
    program = net._graph_calls.compilations[-1].program
    return [y.asnumpy(), *(item.grad().asnumpy() for item in net.collect_params().values())], program


def test_a_product_is_kept_and_not_three_views_of_it():
    net, x = Heads(), nd.array(np.random.RandomState(0).randn(5, 7, 6).astype("float32"))
    net.initialize(mx.init.Xavier())
    expected, _ = trained(net, x, "numpy")
    found, program = trained(net, x, "triton")
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * np.abs(other).max())
    kept = program.forward.graph.outputs[1:]
    assert (5, 7, 12) in [value.shape for value in kept]
    assert not any(value.node.op.view for value in kept), "a copy each"
    assert not program.forward.report.host_copies and program.forward.report.operators["numpy"] == 0


def graph_pair(*views):
    """A forward that keeps views of exp(x), and a backward that adds them up; x and exp(x) are (4, 6)."""
    x = input_node("x", shape=(4, 6), dtype="float32")
    e = op("exp", x)
    kept = [view(e) for view in views]
    saved = [input_node(f"saved{at}", "saved", shape=value.shape, dtype=value.dtype) for at, value in enumerate(kept)]
    gradients = [op("square", value) for value in saved]
    forward = Graph([x], [op("sum", e), *kept])
    return Split(forward, Graph(saved, gradients), tuple(("saved", at) for at in range(len(saved))))


def test_what_would_keep_more_stays():
    """One turned third of an array takes a third of its memory."""
    pair = graph_pair(lambda e: op("transpose", op("slice_axis", e, axis=1, begin=0, end=2)))
    assert without_views(pair) is pair


def test_two_halves_and_a_whole_one():
    halves = [lambda e, at=at: op("transpose", op("slice_axis", e, axis=1, begin=at, end=at + 3)) for at in (0, 3)]
    for views in (halves, [halves[0], lambda e: e], [halves[0], lambda e: op("reshape", e, shape=(24,))]):
        found = without_views(graph_pair(*views))
        assert len(found.forward.outputs) == 2 and found.forward.outputs[1].node.op.name == "exp"
        assert found.sources == (("saved", 0),) and len(found.backward.inputs) == 1
        assert [value.shape for value in found.backward.outputs] == [
            value.shape for value in graph_pair(*views).backward.outputs
        ]


def test_what_an_effect_writes_over_is_not_read_later():
    x, state = (input_node(name, shape=(4, 6), dtype="float32") for name in ("x", "state"))
    kept = op("transpose", state)
    saved = input_node("saved0", "saved", shape=kept.shape, dtype=kept.dtype)
    forward = Graph([x, state], [op("exp", x), kept], [(state, op("broadcast_add", state, x))])
    pair = Split(forward, Graph([saved], [op("square", saved)]), (("saved", 0),))
    assert without_views(pair) is pair


def test_it_is_found_out_once_for_all_batches(monkeypatch):
    net, counted = Heads(), []
    net.initialize()
    monkeypatch.setattr(
        "hybrid_lab.engines.triton.plan.training.without_views",
        lambda split: counted.append(split) or without_views(split),
    )
    specializations, x = {}, input_node("data")
    w = input_node("w", "param")
    y = op("FullyConnected", x, w, num_hidden=6, no_bias=True, flatten=False)
    left, right = (op("transpose", op("slice_axis", y, axis=2, begin=at, end=at + 3), axes=(0, 2, 1)) for at in (0, 3))
    graph = Graph([x, w], [op("batch_dot", left, right, transpose_b=True)])
    for batch in (5, 8, 2):
        special = specialize_call(specializations, graph, [(batch, 7, 6), (6, 6)], ["float32"] * 2, True, [0, 1], 1)
        pair = with_less_saved(special.split)
        assert pair.forward.outputs[1].shape == (batch, 7, 6)
    assert len(counted) == 1


@pytest.mark.parametrize("name, attributes", [
    ("transpose", {}), ("transpose", {"axes": (1, 0, 2)}), ("slice_axis", {"axis": 1, "begin": 1, "end": 3}),
    ("slice_axis", {"axis": 0, "begin": 1, "end": 2}), ("reshape", {"shape": (-1, 4)}), ("reverse", {"axis": 1}),
    ("expand_dims", {"axis": 1}),
    ("slice", {"begin": (None, None, None), "end": (None, None, None), "step": (1, 2, -1)}),
])  # fmt: skip
@pytest.mark.parametrize("shape", [(2, 5, 4), (1, 5, 4), (3, 5, 1)])
def test_views_of_tensors_are_those_of_arrays(name, attributes, shape):
    if shape[0] < 2 and attributes.get("axis") == 0 or (name == "reshape" and shape[2] == 1):
        pytest.skip("not for this shape")
    x = input_node("x", shape=shape, dtype="float32")
    node = op(name, x, **attributes).node
    array = np.random.RandomState(0).randn(2, *shape).astype("float32")[1]
    expected = getattr(mx.nd, name)(mx.nd.array(array), **attributes).asnumpy()
    device = availability.torch_device()
    tensor = torch.from_numpy(np.stack([array, array])).to(device)[1]  # it does not start where its memory does
    step = ViewStep(node)
    np.testing.assert_array_equal(step(tensor).cpu().numpy(), expected)
    copy = step.copied(tensor)
    np.testing.assert_array_equal(copy.cpu().numpy(), expected)
    assert copy.is_contiguous() and copy.data_ptr() != tensor.data_ptr()
    turned = torch.from_numpy(np.ascontiguousarray(array.transpose(2, 1, 0))).to(device).permute(2, 1, 0)
    np.testing.assert_array_equal(step(turned).cpu().numpy(), expected)
