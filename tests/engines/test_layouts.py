"""Arrays as callers have them - turned round, repeated, read-only, of another byte order - in every engine."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from hybrid_lab import autograd, gluon, nd
from hybrid_lab.engines import registry
from hybrid_lab.graph.specialize import specialize
from tests.graph.building import graph_of
from tests.triton_device import use_triton

ENGINES = ["numpy", "onnxruntime", "torch", "triton"]


def unaligned(array):
    memory = np.zeros(array.nbytes + 1, np.uint8)
    view = memory[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def numbers(*shape):
    return np.random.RandomState(len(shape)).uniform(0.5, 2, shape).astype(np.float32)


LAYOUTS = {
    "turned round": numbers(6, 70)[::-1, ::-1],
    "turned round along an axis of 1": numbers(1, 70)[::-1],
    "turned round, small": numbers(1)[::-1],
    "one of a reversed axis": numbers(5, 70)[3:2:-1],
    "repeated": np.broadcast_to(numbers(1, 70), (6, 70)),
    "one number repeated": np.broadcast_to(np.float32(1.5), (6, 70)),
    "columns first": np.asfortranarray(numbers(6, 70)),
    "every second": numbers(12, 140)[::2, ::2],
    "read-only": read_only(numbers(6, 70)),
    "read-only and repeated": np.broadcast_to(read_only(numbers(1, 5000)), (3, 5000)),
    "other byte order": numbers(6, 70).astype(">f4"),
    "unaligned": unaligned(numbers(6, 70)),
    "unaligned and turned round": unaligned(numbers(6, 70))[::-1],
    "no dimensions": np.array(numbers()),
    "a NumPy scalar": numbers()[()],
    "no elements": numbers(0, 70),
    "no elements, turned round": numbers(4, 0)[::-1],
    "large and turned round": numbers(80, 70)[:, ::-1],
}


def compiled(engine, function, *shapes):
    graph = graph_of(function, *shapes)
    return registry.get(engine).compile(specialize(graph, shapes, ["float32"] * len(shapes), False).forward)


@pytest.fixture(params=ENGINES)
def engine(request, monkeypatch):
    if request.param == "triton":
        use_triton(monkeypatch)
    elif registry.find(request.param).missing():
        pytest.skip(f"{request.param} is not installed")
    return request.param


@pytest.mark.parametrize("name", LAYOUTS)
def test_executables_take_any_layout(engine, name):
    array = LAYOUTS[name]
    program = compiled(engine, lambda F, x: (F.relu(F.exp(x) - 1.5) * x, F.sigmoid(x)), array.shape)
    given = [array]
    if program.device is not None:
        from hybrid_lab.engines.memory import to_device, to_host

        given = [to_device(array, program.device)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        results = program(given)
    if program.device is not None:
        results = [to_host(result) for result in results]
    plain = np.array(array, np.float32)
    expected = np.maximum(np.exp(plain) - 1.5, 0) * plain, 1 / (1 + np.exp(-plain))
    for got, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


class Parts(gluon.HybridBlock):
    """Its parameter and its constant are as the array is, and so is what it turns round on the way."""

    def __init__(self, array, **named):
        super().__init__(**named)
        self.weight = self.params.get("weight", shape=array.shape)
        self.table = self.params.get_constant("table", nd.array(array))

    def hybrid_forward(self, F, x, weight, table):
        y = F.flip(x, axis=0) * weight + table
        return F.relu(y[::-1]) + F.exp(x[::-1])


@pytest.mark.parametrize("name", ["turned round", "turned round along an axis of 1", "repeated", "other byte order"])
def test_inputs_and_parameters_of_any_layout_equal_eager(engine, name):
    array, results = LAYOUTS[name], []
    for hybridized in (False, True):
        net = Parts(array)
        net.initialize()
        net.weight.set_data(nd.array(array))
        if hybridized:
            net.hybridize(engine=engine)
        x = nd.array(array)
        x.attach_grad()
        outputs = [net(x).asnumpy(), net(x).asnumpy()]
        with autograd.record():
            y = net(x)
        y.backward()
        results.append([*outputs, y.asnumpy(), x.grad.asnumpy(), net.weight.grad().asnumpy()])
    for got, wanted in zip(*results, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
