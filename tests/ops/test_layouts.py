"""Convolution, Deconvolution and Pooling with channels last are those with channels first, with the axes moved."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, nd
from hybrid_lab.diagnostics import AttributeSpecError
from hybrid_lab.gluon import nn
from hybrid_lab.graph.specialize import specialize
from tests.graph.building import graph_of, names

CASES = [
    ("Convolution", (2, 3, 7), (4, 3, 3), {"kernel": 3, "num_filter": 4}, "NWC"),
    ("Convolution", (2, 4, 8, 6), (6, 2, 3, 3), {"kernel": (3, 3), "num_filter": 6, "num_group": 2}, "NHWC"),
    ("Convolution", (2, 3, 7, 6), (3, 1, 3, 2), {"kernel": (3, 2), "num_filter": 3, "num_group": 3}, "NHWC"),
    ("Convolution", (1, 2, 4, 5, 4), (3, 2, 2, 2, 2), {"kernel": (2, 2, 2), "num_filter": 3}, "NDHWC"),
    ("Deconvolution", (2, 3, 5, 4), (3, 2, 3, 2), {"kernel": (3, 2), "num_filter": 2, "no_bias": False}, "NHWC"),
    ("Pooling", (2, 3, 7), None, {"kernel": 3, "stride": 2, "pool_type": "avg"}, "NWC"),
    ("Pooling", (2, 3, 7, 6), None, {"kernel": (3, 3), "stride": (2, 2), "pad": (1, 1), "pool_type": "max"}, "NHWC"),
    ("Pooling", (2, 3, 6, 4), None, {"kernel": (2, 2), "pool_type": "lp", "p_value": 2}, "NHWC"),
    ("Pooling", (2, 3, 7, 6), None, {"global_pool": True, "pool_type": "avg", "kernel": (1, 1)}, "NHWC"),
    ("Pooling", (2, 3, 7, 6), None, {"global_pool": True, "pool_type": "max"}, "NHWC"),
    ("Pooling", (1, 2, 4, 4, 4), None, {"kernel": (2, 2, 2), "stride": (2, 2, 2), "pool_type": "max"}, "NDHWC"),
]


def last(array):
    return np.ascontiguousarray(np.moveaxis(array, 1, -1))


def arrays_of(data, weight, attributes):
    rng = np.random.default_rng(0)
    shapes = [data] if weight is None else [data, weight, (attributes["num_filter"],)]
    return [rng.normal(size=shape).astype("float32") for shape in shapes]


def run(name, arrays, attributes):
    """The output and the gradients of all inputs."""
    inputs = [nd.array(each) for each in arrays]
    for each in inputs:
        each.attach_grad()
    with autograd.record():
        y = getattr(nd, name)(*inputs, **attributes)
        loss = (y * y).sum()
    loss.backward()
    return y.asnumpy(), [each.grad.asnumpy() for each in inputs]


@pytest.mark.parametrize(("name", "data", "weight", "attributes", "layout"), CASES)
def test_numbers_gradients_and_shapes(name, data, weight, attributes, layout):
    arrays = arrays_of(data, weight, attributes)
    y, gradients = run(name, arrays, attributes)
    moved = [last(each) if each.ndim > 2 else each for each in arrays]
    other, others = run(name, moved, {**attributes, "layout": layout})
    assert np.array_equal(other, last(y))
    for gradient, expected in zip(others, gradients, strict=True):
        expected = last(expected) if expected.ndim > 2 else expected
        np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-5)
    symbol = getattr(mx.sym, name)(mx.sym.Variable("x"), name="y", **attributes, layout=layout)
    shapes, (result,), _ = symbol.infer_shape(x=moved[0].shape)
    assert [tuple(shape) for shape in shapes] == [each.shape for each in moved]
    assert tuple(result) == other.shape
    again = mx.sym.load_json(symbol.tojson())
    values = dict(zip(again.list_arguments(), map(nd.array, moved), strict=True))
    np.testing.assert_allclose(again.bind(mx.cpu(), values).forward()[0].asnumpy(), other, rtol=1e-5, atol=1e-6)


def network(layout):
    axis = layout.index("C")
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(4, 3, padding=1, layout=layout, activation="relu"),
        nn.BatchNorm(axis=axis),
        nn.MaxPool2D(2, layout=layout),
        nn.Conv2D(6, 1, layout=layout),
        nn.Activation("tanh"),
        nn.Conv2DTranspose(3, 2, strides=2, layout=layout),
        nn.GlobalAvgPool2D(layout=layout),
        nn.Flatten(),
        nn.Dense(2),
    )
    return net


def step(net, x):
    with autograd.record():
        y = net(x)
        loss = (y * y).sum()
    loss.backward()
    return y.asnumpy(), {
        name: parameter.grad().asnumpy()
        for name, parameter in net._collect_params_with_prefix().items()
        if parameter.grad_req != "null"
    }


@pytest.mark.parametrize("engine", ["eager", "numpy", "onnxruntime", "torch", "triton"])
def test_a_network_with_channels_last_is_the_one_with_channels_first(engine, monkeypatch):
    if engine == "triton":
        monkeypatch.setenv("HYBRID_LAB_TRITON", "interpret")
    elif engine != "eager":
        monkeypatch.setenv("HYBRID_LAB_CPU", engine)
    x = np.random.default_rng(1).normal(size=(2, 3, 8, 6)).astype("float32")
    first, net = network("NCHW"), network("NHWC")
    first.initialize(mx.init.Xavier())
    net.initialize()
    first(nd.array(x))
    net(nd.array(last(x)))
    for parameter, other in zip(first.collect_params().values(), net.collect_params().values(), strict=True):
        values = parameter.data().asnumpy()
        other.set_data(nd.array(last(values) if values.ndim == 4 else values))
    expected, gradients = step(first, nd.array(x))
    if engine != "eager":
        net.hybridize()
    y, found = step(net, nd.array(last(x)))
    np.testing.assert_allclose(y, expected, rtol=2e-5, atol=2e-6)
    for name, gradient in found.items():
        wanted = last(gradients[name]) if gradients[name].ndim == 4 else gradients[name]
        np.testing.assert_allclose(gradient, wanted, rtol=2e-4, atol=2e-6)


def test_transposes_between_layers_cancel_out():
    def network(F, x, weight, other):
        y = F.Convolution(x, weight, kernel=(3, 3), num_filter=4, no_bias=True, layout="NHWC")
        y = F.Pooling(F.relu(y), kernel=(2, 2), stride=(2, 2), pool_type="max", layout="NHWC")
        return F.Convolution(y, other, kernel=(1, 1), num_filter=2, no_bias=True, layout="NHWC")

    shapes = ((1, 8, 8, 3), (4, 3, 3, 3), (2, 1, 1, 4))
    graph = specialize(graph_of(network, *shapes), shapes, ["float32"] * 3, train=False, num_data=1)
    # One of the data, one of each weight, one of the result.
    assert names(graph.forward).count("transpose") == 4


def test_an_unknown_layout_is_refused():
    with pytest.raises(AttributeSpecError, match="layout 'NHCW' is not supported"):
        nd.Pooling(nd.ones((1, 2, 3, 4)), kernel=(2, 2), layout="NHCW")
    with pytest.raises(AttributeSpecError, match="use NCHW or NHWC"):
        nd.Convolution(
            nd.ones((1, 2, 3, 4)), nd.ones((1, 2, 1, 1)), kernel=(1, 1), num_filter=1, no_bias=True, layout="NWC"
        )
