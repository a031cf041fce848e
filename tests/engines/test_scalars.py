"""Scalars cut from vectors, and sizes as numbers, into every operator: each engine gives what eager calls give."""

from __future__ import annotations

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.engines import registry
from hybrid_lab.gluon import nn
from hybrid_lab.graph import Builder, Graph, input_node
from hybrid_lab.graph.passes.decompose import lower
from hybrid_lab.graph.specialize import specialize
from hybrid_lab.ops.framework.run import run_kernel
from tests.engines.graph_cases import Case as GraphCase
from tests.engines.graph_cases import run_eagerly
from tests.ops.cases import CASES, RNG, Case
from tests.triton_device import use_triton

ENGINES = ["numpy", "onnxruntime", "torch", "triton"]


@pytest.fixture(params=ENGINES)
def engine(request, monkeypatch):
    if request.param == "triton":
        use_triton(monkeypatch)
    elif registry.find(request.param).missing():
        pytest.skip(f"{request.param} is not installed")
    elif request.param == "onnxruntime":
        monkeypatch.setattr(registry.find("onnxruntime"), "worth", lambda region: None)
    return request.param


# -- every record -------------------------------------------------------------------------------------------------

PUBLIC = [case for case in CASES if not case.record.name.startswith("_") and not case.op.random]


def scalar(builder, node, array):
    """A scalar from the middle of a vector."""
    return builder.SliceChannel(node, num_outputs=2, axis=0, squeeze_axis=True)[1], np.resize(array, 2)


def sizes(builder, node, array):
    """The shape of an array, as numbers."""
    return builder.shape_array(node), np.ones((2,) * max(1, array.ndim), np.float32)


def graph_with(case: Case, make) -> GraphCase | None:
    """The sample's call with its first array made by something else; None where the operator takes no such input."""
    builder, inputs, arrays, operands = Builder(), [], [], []
    for item in case.inputs():
        if not isinstance(item, np.ndarray):
            operands.append(item)
            continue
        array = item
        if not inputs:
            array = make(Builder(), Builder().expr(input_node("x", shape=(2,), dtype=item.dtype)), item)[1]
            array = array.astype(item.dtype) if make is scalar else array
        inputs.append(input_node(f"x{len(inputs)}", shape=array.shape, dtype=array.dtype))
        arrays.append(array)
        value = builder.expr(inputs[-1])
        operands.append(make(builder, value, item)[0] if len(inputs) == 1 else value)
    if not inputs:
        return None
    try:
        results = getattr(builder, case.record.name)(*operands, **case.sample.attributes)
    except HybridLabError:
        return None
    results = results if isinstance(results, tuple) else (results,)
    return GraphCase(Graph(inputs, [result.value for result in results]), arrays)


@pytest.mark.parametrize("make", [scalar, sizes], ids=["scalar", "sizes"])
@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"], indirect=True)
def test_every_operator_takes_them(engine, make):
    ran, wrong = 0, []
    for case in PUBLIC:
        given = graph_with(case, make)
        if given is None:
            continue
        dtypes = [array.dtype.name for array in given.arrays]
        shapes = [array.shape for array in given.arrays]
        with np.errstate(all="ignore"):
            wanted = run_eagerly(given, False)[0]
            parts = specialize(given.graph, shapes, dtypes, False)
            hoisted = []
            if parts.prologue is not None:
                arrays = [given.arrays[index] for index in parts.prologue_sources]
                hoisted = registry.get(engine).compile(parts.prologue)(arrays)
            source = {"input": given.arrays, "hoisted": hoisted}
            arrays = [source[kind][index] for kind, index in parts.forward_sources]
            got = registry.get(engine).compile(parts.forward)(arrays, RNG)
        ran += 1
        for one, other in zip(got, map(np.asarray, wanted), strict=True):
            same = one.shape == other.shape and one.dtype == other.dtype
            if not same or not np.allclose(one, other, rtol=1e-3, atol=1e-3, equal_nan=True):
                wrong.append(case.id)
    assert not wrong and ran > 100


@pytest.mark.parametrize("make", [scalar, sizes], ids=["scalar", "sizes"])
def test_every_gradient_takes_them(make):
    """MakeLoss over a batch needs one: it says so."""
    wrong = []
    for case in PUBLIC:
        given = graph_with(case, make)
        if given is None or not given.wrt:
            continue
        shapes = [array.shape for array in given.arrays]
        dtypes = [array.dtype.name for array in given.arrays]
        try:
            specialize(given.graph, shapes, dtypes, True, given.wrt)
        except HybridLabError as error:
            wrong.append(f"{case.id}: {error}")
    assert [line.partition(":")[0] for line in wrong] in ([], ["MakeLoss-1"]), "\n".join(wrong)


def test_parts_have_the_shapes_that_their_operator_promises():
    """A vector cut into scalars was lowered to arrays of shape (1,)."""
    seen = 0
    for case in PUBLIC:
        given = graph_with(case, scalar) if not case.op.is_composite else None
        nodes = [node for node in (given.graph.operators if given else ()) if node.op.is_composite]
        for node in nodes:
            seen += 1
            assert [value.shape for value in lower(node, node.inputs)] == [value.shape for value in node.outputs]
    assert seen > 50
    node = input_node("x", shape=(4,), dtype=np.float32)
    builder = Builder()
    for part in builder._split_v2(builder.expr(node), indices=(0, 1, 2, 3), axis=-1, squeeze_axis=True):
        made = part.value.node
        assert [value.shape for value in lower(made, made.inputs)] == [()] * 4
        assert [array.shape for array in run_kernel(made.op, [np.ones(4, np.float32)])] == [()] * 4


# -- networks -----------------------------------------------------------------------------------------------------


def cut(F, x, count, axis=0):
    return F.split(x, num_outputs=count, axis=axis, squeeze_axis=True)


def chosen(F, x):
    def one():
        first, second, third = cut(F, x, 3)
        return first * second + third

    def other():
        first, second, third = cut(F, x, 3)
        return first - second * third

    return F.contrib.cond(F.sum(x) > 0, one, other)


def looped(F, x):
    """The state and each step's output are scalars."""

    def step(item, state):
        first, second, third = cut(F, item, 3)
        new = F.tanh(first * state) + second
        return new * third, new

    start = cut(F, cut(F, x, 5)[0], 3)[0]
    outputs, state = F.contrib.foreach(step, x, start)
    return F.sum(outputs) + state


def determinants(F, x):
    first, second = cut(F, F.linalg.det(x), 2)
    return F.relu(first) + second * 2


def signs(F, x):
    first, second = cut(F, F.linalg.slogdet(x)[1], 2)
    return F.relu(first) * second


def reduced(F, x):
    first, second = cut(F, x, 2)
    return F.mean(first) * F.sum(second) + F.max(first)


NETWORKS = {
    "cond": (chosen, (3,)),
    "foreach": (looped, (5, 3)),
    "det": (determinants, (2, 3, 3)),
    "slogdet": (signs, (2, 3, 3)),
    "reduced": (reduced, (2,)),
}


class Written(gluon.HybridBlock):
    def __init__(self, function, **named):
        super().__init__(**named)
        self.function = function

    def hybrid_forward(self, F, x):
        return self.function(F, x)


def results_of(net, array):
    x = nd.array(array)
    x.attach_grad()
    predicted = net(x).asnumpy()
    with autograd.record():
        y = net(x)
    y.backward()
    return predicted, y.asnumpy(), x.grad.asnumpy()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_equal_eager_ones(engine, name, sign):
    function, shape = NETWORKS[name]
    array = sign * np.random.RandomState(1).uniform(0.5, 2, shape)
    net = Written(function)
    wanted = results_of(net, array)
    net.hybridize(engine=engine)
    for got, expected in zip(results_of(net, array), wanted, strict=True):
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


class SizesNormalized(gluon.HybridBlock):
    def __init__(self, **named):
        super().__init__(**named)
        self.norm = nn.BatchNorm(axis=0)

    def hybrid_forward(self, F, x):
        return self.norm(F.cast(F.shape_array(x), "float32")) * F.sum(x)


def test_a_vector_has_nothing_to_average_in_a_batch_norm(engine):
    """To ONNX a reduction over no axes is one over all."""
    eager, net = SizesNormalized(prefix="net_"), SizesNormalized(prefix="net_")
    for block in (eager, net):
        block.initialize()
    net.hybridize(engine=engine)
    for rows in (3, 5, 5):
        array = np.ones((rows, 4))
        for got, expected in zip(results_of(net, array), results_of(eager, array), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_what_fails_in_onnxruntime_is_computed_in_numpy(monkeypatch, caplog):
    session = pytest.importorskip("hybrid_lab.engines.onnxruntime.session")
    monkeypatch.setattr(registry.find("onnxruntime"), "worth", lambda region: None)

    def failing(self, *given):
        raise RuntimeError("Non-zero status code")

    monkeypatch.setattr(session.BoundSession, "__call__", failing)
    net = Written(lambda F, x: F.exp(x) * 2)
    net.hybridize(engine="onnxruntime")
    for _ in range(2):
        np.testing.assert_allclose(net(mx.nd.ones((2, 3))).asnumpy(), 2 * np.exp(np.ones((2, 3))), rtol=1e-6)
    assert sum("Non-zero status code" in record.message for record in caplog.records) == 1
