"""Products by the vendor's library: which they are, that they give what our kernels give, and where they write.

torch's calls on the CPU stand in for those of cuBLAS and cuDNN.
"""

from __future__ import annotations

import functools
import re
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch

import hybrid_lab as mx
from hybrid_lab import autograd, engines, nd
from hybrid_lab.diagnostics.errors import SettingError, Unmappable
from hybrid_lab.engines.launches import launches
from hybrid_lab.engines.triton.plan import by_vendor as by_vendor_rule
from hybrid_lab.engines.triton.plan.by_vendor import VendorRule, rule_here
from hybrid_lab.engines.triton.plan.other_batches import kernels_of
from hybrid_lab.engines.triton.run.calls import CALLS, CachedView, StridedView, view_of
from hybrid_lab.engines.triton.run.vendor import flag_of
from hybrid_lab.gluon import nn, rnn
from hybrid_lab.graph.specialize import specialize
from tests.engines import test_samples
from tests.engines.cudnn_on_cpu import cudnn
from tests.graph.building import graph_of
from tests.ops.cases import Case, close, each_sample
from tests.triton_device import ON_GPU, use_triton


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    use_triton(monkeypatch)


@pytest.fixture(params=["torch", "cudnn"])
def library(request, monkeypatch):
    """Once with torch's general calls, once with those that only cuDNN has."""
    if request.param == "torch":
        yield
    else:
        with cudnn(monkeypatch):
            yield


@pytest.fixture
def channels_last(monkeypatch):
    """Convolutions of float32 have channels last, too."""
    table = by_vendor_rule._table()
    kinds = ["half", "tf32", "float32"]
    monkeypatch.setitem(table, "nvidia", {**table["nvidia"], "channels_last": {"kinds": kinds, "channels": 1}})


def by_vendor(graph, rule):
    """The names of the operators that the rule gives to the vendor."""
    fusion = kernels_of(graph, rule.precision, rule)[1]
    return [region.nodes[-1].op.name for region in fusion.by_vendor]


# -- which products ----------------------------------------------------------------------------------------------------


def product(rows, inner, columns, dtype="float32", before=lambda F, x: x):
    return graph_of(lambda F, x, w: F.relu(F.dot(before(F, x), w)), (rows, inner), (inner, columns), dtype=dtype)


@pytest.mark.parametrize(
    ("graph", "precision", "is_vendors"),
    [
        (product(512, 600, 600), "ieee", True),  # 0.37 GFLOP
        (product(512, 600, 400), "ieee", False),  # 0.25
        (product(512, 600, 600), "tf32", False),
        (product(1024, 600, 1024), "tf32", True),
        (product(1024, 600, 1024, "float16"), "ieee", True),
        (product(512, 600, 600, "bfloat16"), "ieee", False),
        (product(2048, 256, 2048), "ieee", False),  # short sums
        (product(2048, 600, 600, "float64"), "ieee", False),
        (product(512, 600, 600, before=lambda F, x: F.relu(x)), "ieee", True),
        (product(4, 200_000, 300, before=lambda F, x: F.relu(x)), "ieee", True),
        (product(200_000, 600, 2, before=lambda F, x: F.relu(x)), "ieee", False),  # relu(x) would be written for it
        (product(200_000, 600, 2), "ieee", True),
    ],
)
def test_large_products_are_the_vendors(graph, precision, is_vendors):
    assert by_vendor(graph, VendorRule("nvidia", precision)) == ["dot"] * is_vendors


def convolution(channels, groups=1, grad=False, kernel=(3, 3)):
    def function(F, dy, x, w):
        call = F._conv_weight_grad(dy, x, w, kernel=kernel, num_filter=32, num_group=groups)
        return call if grad else F.Convolution(x, w, kernel=kernel, num_filter=32, num_group=groups, no_bias=True)

    return graph_of(function, (2, 32, 7, 7), (2, channels, 9, 9), (32, channels // groups, *kernel))


def test_convolutions_of_sixteen_channels_a_group_are_the_vendors():
    rule = VendorRule("nvidia", "ieee")
    assert by_vendor(convolution(16), rule) == ["Convolution"]
    assert by_vendor(convolution(8), rule) == by_vendor(convolution(16, 2), rule) == []
    assert by_vendor(convolution(32, 2), rule) == ["Convolution"]
    assert (
        by_vendor(convolution(3, grad=True), rule) == by_vendor(convolution(16, 2, True), rule) == ["_conv_weight_grad"]
    )
    assert by_vendor(convolution(32, 32), rule) == []  # one channel a group


def test_a_bias_is_added_behind_the_convolution():
    def function(F, x, w, b):
        return F.relu(F.Convolution(x, w, b, kernel=(3, 3), num_filter=32))

    graph = graph_of(function, (2, 16, 9, 9), (32, 16, 3, 3), (32,))
    fusion = kernels_of(graph, "ieee", VendorRule("nvidia", "ieee"))[1]
    (group,) = fusion.groups
    assert [node.op.name for node in group.nodes] == ["Reshape", "broadcast_add", "relu"]
    assert len(fusion.by_vendor) == 1


def test_the_first_version_of_convolution_stays_our_kernel():
    for dtype in ("float32", "float16"):
        graph = graph_of(
            lambda F, x, w, b: F.Convolution_v1(x, w, b, kernel=(3, 3), num_filter=32), (2, 16, 9, 9), (32, 16, 3, 3),
            (32,), dtype=dtype,
        )  # fmt: skip
        assert by_vendor(graph, VendorRule("nvidia", "ieee")) == by_vendor(graph, VendorRule(None, "ieee")) == []


def test_a_table_for_every_family():
    graph = product(4096, 600, 4096, "float16")
    for family in ("nvidia", "cdna", "rdna"):
        assert by_vendor(graph, VendorRule(family, "ieee")) == ["dot"]


def test_who_asks_for_our_own_kernels_gets_them(monkeypatch):
    if not ON_GPU:
        assert rule_here(None, False, "ieee") is None  # the interpreter
    assert rule_here("vendor", False, "ieee") == VendorRule(None, "ieee", True)
    monkeypatch.setattr(
        "hybrid_lab.engines.triton.run.availability.device",
        lambda: SimpleNamespace(name="sm90", interpreted=False, torch="cuda"),
    )
    assert rule_here(None, False, "tf32") == VendorRule("nvidia", "tf32")
    assert rule_here("own", False, "ieee") is rule_here(None, True, "ieee") is None
    with pytest.raises(SettingError, match="None, 'own' or 'vendor' for products, not 'cublas'"):
        nn.Dense(2).hybridize(products="cublas")


def test_a_plan_of_one_batch_does_not_decide_for_another():
    """A product that is too small in the first batch is the vendor's in a larger one."""
    net = nn.Dense(600, in_units=600)
    net.initialize()
    found = {}
    for batch in (8, 1024, 8):
        (graph,) = [graph for graph in _graphs(net, (batch, 600)).values() if graph is not None]
        found[batch] = by_vendor(graph, VendorRule("nvidia", "ieee"))
    assert found == {8: [], 1024: ["FullyConnected"]}


def _graphs(net, shape, train=False):
    from hybrid_lab.gluon.ahead import graphs_of

    parts = graphs_of(net, shape, train, VendorRule("nvidia", "ieee"))
    return {part: graph for part, graph in parts.items() if part in ("forward", "backward")}


# -- what they give ----------------------------------------------------------------------------------------------------


class Vendors:
    """The engine with every product that torch has a call for as the vendor's."""

    def __init__(self):
        self.counted = 0

    def compile(self, graph):
        executable = engines.get("triton").compile(graph, products="vendor")
        self.counted += executable.report.operators.get("vendor", 0)
        return executable


@each_sample(lambda case: case.record.name in CALLS)
def test_samples_and_their_gradients(case: Case, monkeypatch, library):
    runner = Vendors()
    monkeypatch.setattr(test_samples, "engine_named", lambda name: runner)
    test_samples.compare(case, "triton")


def arrays_of(graph, dtype):
    random = np.random.RandomState(0)
    return [random.uniform(-1, 1, value.shape).astype(np.dtype(dtype)) for value in graph.inputs]


CONVOLUTIONS = {
    "plain": ((2, 4, 8, 9), (6, 4, 3, 3), {"kernel": (3, 3)}),
    "padded, with strides": ((2, 4, 8, 9), (6, 4, 3, 2), {"kernel": (3, 2), "stride": (2, 3), "pad": (1, 2)}),
    "spread": ((2, 4, 9, 9), (6, 4, 3, 3), {"kernel": (3, 3), "dilate": (2, 3), "pad": (2, 0)}),
    "groups": ((2, 4, 8, 9), (6, 2, 3, 3), {"kernel": (3, 3), "num_group": 2}),
    "1 x 1": ((2, 4, 8, 9), (6, 4, 1, 1), {"kernel": (1, 1)}),
    "1 x 1, with strides": ((2, 4, 8, 9), (6, 4, 1, 1), {"kernel": (1, 1), "stride": (2, 2)}),
    "a line": ((2, 4, 13), (6, 4, 5), {"kernel": (5,), "stride": (2,), "pad": (3,)}),
    "a room": ((2, 4, 5, 6, 5), (6, 4, 3, 2, 3), {"kernel": (3, 2, 3), "stride": (1, 2, 1), "pad": (1, 0, 1)}),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("turned", [False, True], ids=["Convolution", "Deconvolution"])
def test_convolutions_of_every_kind_and_their_gradients(name, dtype, turned, library):
    data, weight, attributes = CONVOLUTIONS[name]
    attributes = {**attributes, "num_filter": 6}
    prefix, title = ("_deconv", "Deconvolution") if turned else ("_conv", "Convolution")
    if turned:
        weight = (4, weight[0] // attributes.get("num_group", 1), *weight[2:])

    def forward(F, x, w, b):
        return F.relu(getattr(F, title)(x, w, b, no_bias=False, **attributes))

    def backward(F, dy, x, w):
        return [getattr(F, f"{prefix}_{part}_grad")(dy, x, w, **attributes) for part in ("data", "weight")]

    first = graph_of(forward, data, weight, (6,), dtype=dtype)
    for graph in (first, graph_of(backward, first.outputs[0].shape, data, weight, dtype=dtype)):
        given = arrays_of(graph, dtype)
        executable = engines.get("triton").compile(graph, products="vendor")
        assert executable.report.operators["vendor"] == len(graph.outputs), executable.report
        for found, wanted in zip(executable(given), engines.get("numpy").compile(graph)(given), strict=True):
            close(found, wanted, 2e-5 if dtype == "float32" else 1e-12 if dtype == "float64" else 1e-2)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_matrix_products_read_through_views(dtype):
    def function(F, x, w, y):
        turned = F.dot(F.transpose(x), w)
        heads = F.batch_dot(
            F.transpose(F.Reshape(y, shape=(5, 2, 8)), axes=(1, 0, 2)),
            F.transpose(F.Reshape(y, shape=(5, 2, 8)), axes=(1, 0, 2)),
            transpose_b=True,
        )
        part = F.dot(F.slice_axis(y, axis=1, begin=4, end=12), F.Reshape(w, shape=(8, 5)))
        return turned, heads, part

    graph = graph_of(function, (4, 5), (4, 10), (5, 16), dtype=dtype)
    given = arrays_of(graph, dtype)
    executable = engines.get("triton").compile(graph, products="vendor")
    assert executable.report.operators["vendor"] == 3
    for found, wanted in zip(executable(given), engines.get("numpy").compile(graph)(given), strict=True):
        close(found, wanted)
    assert ".copy_(" not in executable.report.program and ".clone(" not in executable.report.program


def test_what_torch_would_copy_has_no_place():
    (value,) = graph_of(lambda F, x: x, (3, 4, 5)).inputs
    assert view_of(value, (), lambda tensor: tensor) is None
    assert view_of(value, (), lambda tensor: tensor.view(12, 5)) == StridedView((12, 5), (5, 1), 0)
    turned = graph_of(lambda F, x: F.transpose(x, axes=(1, 0, 2)), (3, 4, 5))
    (node,) = turned.operators
    assert view_of(turned.inputs[0], (node,), lambda tensor: tensor) == StridedView((4, 3, 5), (5, 20, 1), 0)
    with pytest.raises(Unmappable, match="would have to be copied"):
        view_of(turned.inputs[0], (node,), lambda tensor: tensor.view(12, 5))


LAYERS = {
    "an LSTM": (rnn.LSTM, {}),
    "a GRU": (rnn.GRU, {}),
    "tanh": (rnn.RNN, {"activation": "tanh"}),
    "relu": (rnn.RNN, {"activation": "relu"}),
    "two LSTMs, both ways": (rnn.LSTM, {"num_layers": 2, "bidirectional": True}),
    "two GRUs, both ways": (rnn.GRU, {"num_layers": 2, "bidirectional": True}),
    "three layers": (rnn.RNN, {"num_layers": 3, "activation": "tanh"}),
    "the batch first": (rnn.LSTM, {"layout": "NTC"}),
}
NOT_PLAIN = {
    "dropout": (rnn.LSTM, {"num_layers": 2, "dropout": 0.5}),
    "clipped": (rnn.LSTM, {"state_clip_min": -1, "state_clip_max": 1}),
    "projected": (rnn.LSTM, {"projection_size": 3}),
    "lengths": (rnn.LSTM, {"use_sequence_length": True}),
}


def recurrent(kind, options, engine, products, dtype="float32"):
    mx.random.seed(3)
    net = nn.HybridSequential()
    net.add(kind(5, **options), nn.Dense(3, flatten=False))
    net.initialize(mx.init.Xavier())
    net.cast(dtype)
    net.hybridize(engine=engine, products=products)
    random, found = np.random.RandomState(0), []
    for batch in (4, 4, 6):
        x = nd.array(random.randn(7, batch, 6), dtype=dtype)
        x.attach_grad()
        with autograd.record():
            loss = (net(x) ** 2).mean()
        for retain in (True, False):  # the second backward reads what the first has read
            loss.backward(retain_graph=retain)
            found += [loss.asnumpy(), x.grad.asnumpy(), *(each.grad().asnumpy() for each in _trained(net))]
    return [*found, net(x).asnumpy()], net


def _trained(net):
    return [each for each in net.collect_params().values() if each.grad_req != "null"]


@pytest.mark.parametrize(
    ("name", "dtype"),
    # Behind a relu what float16 rounds to 0 has another gradient.
    [
        pytest.param(name, dtype, marks=[pytest.mark.long] * (dtype == "float16" and name != next(iter(LAYERS))))
        for name in LAYERS
        for dtype in ("float32", "float16")
        if (name, dtype) != ("relu", "float16")
    ],
)
def test_recurrent_layers(name, dtype, library):
    kind, options = LAYERS[name]
    expected, _ = recurrent(kind, options, "numpy", None, dtype)
    found, net = recurrent(kind, options, "triton", "vendor", dtype)
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-5 if dtype == "float32" else 2e-2)
    report = " ".join(str(mx.explain(net)).split())
    assert f"1 x vendor_rnn in {dtype}" in report and f"1 x vendor_rnn_grad in {dtype}" in report


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_what_the_library_lacks_stays_our_kernels(name):
    kind, options = NOT_PLAIN[name]
    layer = kind(5, input_size=6, **options)
    layer.initialize()
    layer.hybridize(engine="triton", products="vendor")
    lengths = {"sequence_length": nd.array([3, 7], dtype="int32")} if name == "lengths" else {}
    with autograd.record():
        layer(nd.ones((7, 2, 6)), **lengths).sum().backward()
    assert "rnn" not in str(mx.explain(layer)).split("library computes")[-1].splitlines()[0]


class Attention(nn.HybridBlock):
    """Attention of 4 heads. kind : how its scores are scaled, or who else reads something"""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.both, self.out = (nn.Dense(units, flatten=False, in_units=32) for units in (96, 32))

    def hybrid_forward(self, F, x):
        projected = self.both(x)
        parts = [F.slice_axis(projected, axis=2, begin=32 * at, end=32 * at + 32) for at in range(3)]
        heads = [F.transpose(F.Reshape(part, shape=(0, 0, 4, -1)), axes=(0, 2, 1, 3)) for part in parts]
        q, k, v = (F.Reshape(head, shape=(-3, 0, 0)) for head in heads)
        scores = F.batch_dot(q, k, transpose_b=True)
        scores = {"times": scores * 0.35, "over": scores / 8, "masked": scores * F.ones_like(scores)}.get(
            self.kind, scores
        )
        weights = F.softmax(scores, axis=1 if self.kind == "down" else -1)
        dropped = F.Dropout(weights, p=0.5) if self.kind == "dropout" else weights
        heads = F.Reshape(F.batch_dot(dropped, v), shape=(-4, -1, 4, 0, 0))
        y = self.out(F.Reshape(F.transpose(heads, axes=(0, 2, 1, 3)), shape=(0, 0, -3)))
        return (y, weights) if self.kind == "kept" else y


def attending(kind, engine, products, dtype="float16"):
    mx.random.seed(7)
    net = Attention(kind) if kind == "kept" else nn.HybridSequential()
    if kind != "kept":
        net.add(*(Attention(kind) for _ in range(2)))
    net.initialize(mx.init.Xavier())
    net.cast(dtype)
    net.hybridize(engine=engine, products=products)
    random, found = np.random.RandomState(0), []
    for batch in (2, 3):
        x = nd.array(random.randn(batch, 20, 32), dtype=dtype)
        x.attach_grad()
        with autograd.record():
            y = net(x)
            loss = ((y[0] if kind == "kept" else y) ** 2).mean()
        for retain in (True, False):
            loss.backward(retain_graph=retain)
            found += [x.grad.asnumpy(), *(each.grad().asnumpy() for each in _trained(net))]
    y = net(x)
    return [*found, *(each.asnumpy() for each in (y if kind == "kept" else [y]))], net


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("times", "float16"),
        pytest.param("over", "bfloat16", marks=pytest.mark.long),
        pytest.param("plain", "float16", marks=pytest.mark.long),
    ],
)
def test_attention_whose_weights_nobody_reads(kind, dtype, library):
    expected, _ = attending(kind, "numpy", None, dtype)
    found, net = attending(kind, "triton", "vendor", dtype)
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-2 if dtype == "float16" else 6e-2)
    report = " ".join(str(mx.explain(net)).split())
    assert f"2 x vendor_attention in {dtype}" in report and f"2 x vendor_attention_grad in {dtype}" in report


@pytest.mark.parametrize(
    "kind", ["masked", "dropout", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("kept", "down"))]
)
def test_other_attention_is_not_torchs(kind):
    found, net = attending(kind, "triton", "vendor")
    name = "vendor_attention_grad" if kind == "dropout" else "vendor_attention"  # in prediction nothing is dropped
    assert name not in str(mx.explain(net))
    if kind != "dropout":
        expected, _ = attending(kind, "numpy", None)
        for one, other in zip(found, expected, strict=True):
            close(one, other, 1e-2)


def test_attention_of_many_keys_is_the_vendors():
    def graph(keys, dtype="float16", width=64):
        return graph_of(
            lambda F, q, k, v: F.batch_dot(F.softmax(F.batch_dot(q, k, transpose_b=True) * 0.1), v),
            (4, 8, width), (4, keys, width), (4, keys, width), dtype=dtype,
        )  # fmt: skip

    rule = VendorRule("nvidia", "ieee", True)
    assert by_vendor(graph(512), rule) == ["vendor_attention"]
    for other in (graph(511), graph(512, "float32"), graph(512, width=60), graph(512, width=264)):
        assert "vendor_attention" not in by_vendor(other, rule)
    assert by_vendor(graph(512), VendorRule("cdna", "ieee")) == []


@pytest.mark.parametrize("state_outputs", [False, True])
def test_layers_in_prediction(state_outputs, library):
    def function(F, x, w, h, c):
        return F.RNN(x, w, h, c, mode="lstm", state_size=3, num_layers=1, state_outputs=state_outputs)

    graph = graph_of(function, (4, 2, 5), (120,), (1, 2, 3), (1, 2, 3))
    graph = specialize(graph, [value.shape for value in graph.inputs], ["float32"] * 4, False, []).forward
    given = arrays_of(graph, "float32")
    executable = engines.get("triton").compile(graph, products="vendor")
    assert "1 x RNN in float32" in str(executable.report)
    for one, other in zip(executable(given), engines.get("numpy").compile(graph)(given), strict=True):
        close(one, other)


class Residual(nn.HybridSequential):
    def __init__(self, *layers):
        super().__init__()
        self.inner = nn.HybridSequential()
        self.inner.add(*layers)

    def hybrid_forward(self, F, x):
        return F.relu(x + self.inner(x))


CHAINS = {
    "a residual": lambda: [
        nn.Conv2D(8, 3, activation="relu"), nn.BatchNorm(),
        Residual(nn.Conv2D(8, 3, padding=1, use_bias=False), nn.BatchNorm(), nn.Activation("relu"),
                 nn.Conv2D(8, 3, padding=1), nn.BatchNorm()),
        nn.GlobalAvgPool2D(), nn.Flatten(),
    ],
    "pooling": lambda: [
        nn.Conv2D(6, 3), nn.MaxPool2D(2, 1), nn.Conv2D(5, 2, dilation=2), nn.AvgPool2D(2, 1, padding=1),
        nn.Conv2D(4, 1), nn.MaxPool2D(3, 2, padding=1), nn.GlobalMaxPool2D(),
    ],
    "groups": lambda: [nn.Conv2D(8, 1), nn.Conv2D(8, 3, groups=2, padding=(1, 0)), nn.LeakyReLU(0.1), nn.Conv2D(3, 1)],
    "in and out": lambda: [
        nn.Conv2D(6, 3), nn.HybridLambda(lambda F, x: F.softmax(x, axis=1) * F.sum(x, axis=(2, 3), keepdims=True)),
        nn.Conv2D(6, 3), nn.HybridLambda(lambda F, x: F.transpose(x, axes=(0, 2, 1, 3))), nn.Conv2D(4, 1),
        nn.HybridLambda(lambda F, x: F.sum(x, axis=1)),
    ],
    "a depthwise one": lambda: [nn.Conv2D(6, 1), nn.Conv2D(6, 3, groups=6, padding=1), nn.BatchNorm(), nn.Conv2D(4, 1)],
    "turned round": lambda: [nn.Conv2D(6, 1), nn.Conv2DTranspose(4, 2, strides=2), nn.Conv2D(3, 3), nn.Dropout(0.0)],
}  # fmt: skip


def chain(name, engine, products, dtype="float32"):
    mx.random.seed(5)
    net = nn.HybridSequential()
    net.add(*CHAINS[name]())
    net.initialize(mx.init.Xavier())
    net.cast(dtype)
    net.hybridize(engine=engine, products=products)
    random, found = np.random.RandomState(0), []
    for batch in (2, 2, 3):
        x = nd.array(random.randn(batch, 4, 9, 8), dtype=dtype)
        x.attach_grad()
        with autograd.record():
            y = net(x)
            loss = (y * y).mean()
        loss.backward()
        found += [y.asnumpy(), x.grad.asnumpy(), *(each.grad().asnumpy() for each in _trained(net))]
        found += [each.data().asnumpy() for each in net.collect_params().values()]  # running statistics
    return [*found, net(x).asnumpy()], net


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (number % 3 > 0)) for number, name in enumerate(CHAINS)]
)
def test_chains_of_convolutions_with_channels_last(name, library, channels_last):
    expected, _ = chain(name, "numpy", None)
    found, net = chain(name, "triton", "vendor")
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-4)
    report = " ".join(str(mx.explain(net)).split())
    for part in ("Convolution", "_conv_data_grad", "_conv_weight_grad"):
        assert f"x {part}_channels_last in float32" in report and f"x {part} in float32" not in report


def test_transposes_of_a_net_with_channels_last_cancel(library, channels_last):
    def run(engine, products):
        mx.random.seed(1)
        net = nn.HybridSequential()
        net.add(
            nn.Conv2D(6, 3, layout="NHWC", use_bias=False), nn.BatchNorm(axis=3), nn.MaxPool2D(2, 2, layout="NHWC"),
            nn.Conv2D(5, 2, layout="NHWC"),
        )  # fmt: skip
        net.initialize(mx.init.Xavier())
        net.hybridize(engine=engine, products=products)
        x = nd.array(np.random.RandomState(0).randn(2, 9, 8, 4))
        x.attach_grad()
        with autograd.record():
            y = net(x)
            loss = (y * y).mean()
        loss.backward()
        return [y.asnumpy(), x.grad.asnumpy(), *(each.grad().asnumpy() for each in _trained(net))], net

    (expected, _), (found, net) = run("numpy", None), run("triton", "vendor")
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-4)
    for graph in _graphs(net, (2, 9, 8, 4), True).values():
        fusion = kernels_of(graph, "ieee", VendorRule("nvidia", "ieee"))[1]
        read = [value.node.op.name for region in fusion.by_vendor for value in region.inputs]
        assert "transpose" not in read and "stored" not in read, fusion.graph


def test_half_precision_has_channels_last_by_itself():
    expected, _ = chain("pooling", "numpy", None, "float16")
    found, net = chain("pooling", "triton", "vendor", "float16")
    for one, other in zip(found, expected, strict=True):
        close(one, other, 3e-2)
    assert "x Convolution_channels_last in float16" in " ".join(str(mx.explain(net)).split())


def test_nothing_is_transposed_inside_of_a_chain(channels_last):
    """Only the first operand is: pooling, sums and operators element by element go on with channels last."""
    net = nn.HybridSequential()
    net.add(*CHAINS["a residual"]())
    net.initialize()
    graphs = _graphs(net, (2, 4, 9, 8), True)
    rule = VendorRule("nvidia", "ieee")
    for graph in graphs.values():
        operators = kernels_of(graph, "ieee", rule)[1].graph.operators
        assert [node.op.name for node in operators].count("stored") == 1


# -- where they write --------------------------------------------------------------------------------------------------


def test_products_write_into_planned_memory():
    def function(F, x, w, v, b):
        return F.FullyConnected(F.relu(F.FullyConnected(x, w, b, num_hidden=6)), v, no_bias=True, num_hidden=3)

    graph = graph_of(function, (5, 4), (6, 4), (3, 6), (6,))
    executable = engines.get("triton").compile(graph, products="vendor")
    program = executable.report.program
    assert len(re.findall(r"FullyConnected_by_torch(?:_2)?\(", program)) == 2
    assert "copy_" not in program and "clone" not in program.replace("x_x0.clone", "")
    given = arrays_of(graph, "float32")
    before = launches.snapshot()
    close(executable(given)[0], engines.get("numpy").compile(graph)(given)[0])
    assert launches.snapshot()["vendor"] - before["vendor"] == 2


def test_where_torch_makes_memory_for_the_result_it_is_handed_on():
    graph = graph_of(
        lambda F, dy, x, w: F._conv_data_grad(dy, x, w, kernel=(3, 3), num_filter=6), (2, 6, 5, 5), (2, 4, 7, 7),
        (6, 4, 3, 3),
    )  # fmt: skip
    executable = engines.get("triton").compile(graph, products="vendor")
    given = [torch.from_numpy(item) for item in arrays_of(graph, "float32")]
    (first,), (second,) = executable(given), executable(given)
    assert first.data_ptr() != second.data_ptr() and torch.equal(first, second)
    assert "copy_" not in executable.report.program and "array(" not in executable.report.program


def test_an_error_of_the_library_says_what_to_do(monkeypatch):
    graph = product(8, 8, 8)
    executable = engines.get("triton").compile(graph, products="vendor")
    wrong = [torch.zeros(8, 8), torch.zeros(8, 8, dtype=torch.float64)]
    with pytest.raises(RuntimeError) as caught:
        executable(wrong)
    assert "hybridize(products='own')" in caught.value.__notes__[-1]


def test_a_parameter_is_viewed_once():
    place = CachedView(StridedView((3, 2), (1, 3), 0))
    first, second = torch.zeros(2, 3), torch.ones(2, 3)
    assert place(first) is place(first) and place(second).sum() == 6 and place(first).sum() == 0


def test_torchs_flags_are_set_once_for_a_program():
    graph = graph_of(lambda F, x, w, v: F.dot(F.dot(x, w), v), (4, 4), (4, 4), (4, 4))
    program = engines.get("triton").compile(graph, products="vendor").report.program
    assert program.count("set_flags") == 1 and program.count("restore_flags") == 1


def net_of(products, **flags):
    mx.random.seed(3)
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(20, 3, activation="relu"), nn.BatchNorm(), nn.MaxPool2D(), nn.Conv2DTranspose(12, 3, strides=2),
        nn.Activation("relu"), nn.Flatten(), nn.Dense(30, activation="tanh"), nn.Dense(7),
    )  # fmt: skip
    net.initialize(mx.init.Xavier())
    net.hybridize(engine="triton", products=products, **flags)
    return net


def trained(products, **flags):
    net, random, found = net_of(products, **flags), np.random.RandomState(0), []
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    for batch in (4, 4, 6):
        x = nd.array(random.randn(batch, 3, 10, 10))
        x.attach_grad()
        with autograd.record():
            loss = (net(x) ** 2).mean()
        loss.backward()
        trainer.step(batch)
        found += [loss.asnumpy(), x.grad.asnumpy()]
    return [*found, net(x).asnumpy()], net


@pytest.mark.long
def test_training_equals_training_by_our_own_kernels(library):
    (expected, _), (found, net) = trained("own"), trained("vendor")
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-4)
    report = " ".join(str(mx.explain(net)).split())
    assert "the vendor's library computes" in report and "2 x FullyConnected in float32" in report
    assert "by rule" in " ".join(kernel.why[-1] for kernel in mx.explain(net).kernels if "convolution" in kernel.name)


def test_strict_and_own_have_no_call_of_torch():
    for flags in ({"strict": True}, {}):
        net = net_of("own" if not flags else "vendor", **flags)
        net(nd.ones((2, 3, 10, 10)))
        assert "on vendor" not in str(mx.explain(net))


def test_tf32_is_said():
    node = product(8, 8, 8).operators[0]
    read = functools.partial(lambda node, tf32: flag_of(node, tf32).wanted, node)
    assert read(True) in ("tf32", True) and read(False) in ("ieee", False)
