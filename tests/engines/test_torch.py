"""The torch engine: regions of torch calls, memory shared with NumPy, fresh outputs, layouts, refusals."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import engines, nd
from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.gluon import nn
from hybrid_lab.graph import Graph, input_node
from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.specialize import specialize
from hybrid_lab.ops.framework.operator import get as operator
from hybrid_lab.ops.framework.run import run_kernel
from tests import quick
from tests.engines.random_graphs import random_case
from tests.engines.test_random_graphs import problems
from tests.engines.test_samples import graph_of as graph_of_case
from tests.graph.building import evaluate, graph_of, uniform
from tests.ops.cases import each_sample

pytest.importorskip("torch")
from hybrid_lab.engines.torch_kernels import TorchEngine, images  # noqa: E402
from hybrid_lab.engines.torch_kernels.registry import kernel_of, refusal  # noqa: E402

pytest.importorskip("onnxruntime")  # for the networks of its tests
from tests.engines.test_onnxruntime import LENET, close, lenet  # noqa: E402


def test_a_whole_network_is_one_region_forward_and_backward():
    graph, arrays = graph_of(lenet, *LENET, name="lenet"), uniform(*LENET)
    parts = specialize(graph, LENET, ["float32"] * 7, True, range(1, 7))
    forward, backward = (engines.get("torch").compile(part) for part in (parts.forward, parts.backward))
    for executable in (forward, backward):
        assert executable.report.operators["numpy"] == 0
        assert [region.engine for region in executable.report.regions] == ["torch"]
    results = forward(arrays)
    given = {"input": arrays, "output": results, "saved": results[1:], "head": uniform((8, 10), seed=3)}
    operands = [given[kind][index] for kind, index in parts.sources]
    for got, wanted in zip(results, evaluate(parts.forward, arrays), strict=True):
        assert close(got, wanted) and got.flags.c_contiguous
    for got, wanted in zip(backward(operands), evaluate(parts.backward, operands), strict=True):
        assert close(got, wanted, 1e-4) and got.flags.c_contiguous


@pytest.mark.parametrize("first", range(0, 150 if quick.ALL else 50, 50))
def test_random_graphs_follow_eager(first):
    engine = engines.get("torch")
    for seed in range(first, first + 50):
        for train in (True, False):
            assert problems(random_case(seed), engine, train) == [], seed


def test_outputs_are_fresh_and_untouched_by_later_calls():
    def net(F, x, y):
        same = F.Reshape(x, shape=(-1,))
        return same, F.reshape_like(same, y), F.relu(x * y), F.zeros_like(x), F.broadcast_like(F.sum(y, axis=0), x)

    executable = engines.get("torch").compile(graph_of(net, (3, 4), (3, 4)))
    x, y = uniform((3, 4), (3, 4))
    results = executable([x, y])
    for index, one in enumerate(results):
        assert one.flags.c_contiguous and one.flags.writeable
        assert not any(np.may_share_memory(one, other) for other in (x, y, *results[:index]))
    before = [result.copy() for result in results]
    for result in executable(uniform((3, 4), (3, 4), seed=1)):
        result += 1
    assert all(map(np.array_equal, results, before))


def test_inputs_of_any_strides_and_read_only_ones():
    executable = engines.get("torch").compile(graph_of(lambda F, x: F.exp(x), (30, 20)))
    (x,) = uniform((20, 30))
    frozen = np.array(x.T)
    frozen.setflags(write=False)
    repeated = np.broadcast_to(x[:, 0], (30, 20))
    for array in (x.T, x.T[::-1], x[::-1, ::-1].T, repeated, frozen):
        before = array.copy()
        assert close(executable([array])[0], np.exp(array)) and np.array_equal(array, before)


def test_no_input_is_written_to():
    executable = engines.get("torch").compile(graph_of(lambda F, x, y: F.relu(F.exp(x + y)) * y, (9, 4), (9, 4)))
    x, y = uniform((9, 4), (9, 4))
    copies = x.copy(), y.copy()
    executable([x, y])
    assert np.array_equal(x, copies[0]) and np.array_equal(y, copies[1])


def test_the_program_works_in_place_where_a_value_dies():
    graph = graph_of(lambda F, x: F.relu(F.exp(x) * 2.0) + 1.0, (9, 4))
    executable = engines.get("torch").compile(graph)
    (node,) = executable.graph.operators
    assert node.op.program.source.count("out=t") == 3


@pytest.mark.parametrize("read", [(0,), (1, 2), (2,)])
@pytest.mark.parametrize("name", ["LayerNorm", "BatchNorm"])
def test_gradients_of_a_normalization_that_nobody_reads_are_not_computed(name, read):
    def net(F, x, dy):
        column = F.sum(F.square(x), axis=0)
        if name == "LayerNorm":
            gradients = F._layer_norm_grad(dy, x, column, *F.LayerNorm(x, column, column, output_mean_var=True)[1:])
        else:
            statistics = F.BatchNorm(x, column, column, column, column, fix_gamma=False, output_mean_var=True)[1:]
            gradients = F._batch_norm_grad(dy, x, column, *statistics, fix_gamma=False)
        return [gradients[index] for index in read]

    graph, arrays = graph_of(net, (6, 5), (6, 5)), uniform((6, 5), (6, 5))
    executable = engines.get("torch").compile(graph)
    (node,) = executable.graph.operators
    assert f"need={[index in read for index in range(3)]}" in node.op.program.source
    for got, wanted in zip(executable(arrays), evaluate(graph, arrays), strict=True):
        assert close(got, wanted, 1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "function, calls",
    [
        (lambda F, dy, a, b: F.square(a - b), 1),
        (lambda F, dy, a, b: F.broadcast_mul(dy, (a - b) * 2.0), 1),
        (lambda F, dy, a, b: F.broadcast_mul((a - b) * 2.0, dy), 1),
        (lambda F, dy, a, b: (F.square(a - b), a - b), 2),
        (lambda F, dy, a, b: (F.broadcast_mul(dy, (a - b) * 2.0), (a - b) * 2.0), 3),
        (lambda F, dy, a, b: (F.square(1.0 - a), F.square(a - dy), F.broadcast_mul(a, (b - dy) * 2.0)), 7),
    ],
)
def test_a_squared_difference_and_its_gradient_are_one_call_each(function, calls, dtype):
    """But not where the difference is read elsewhere, or is one of a number or of two shapes."""
    graph = graph_of(function, (7, 1), (7, 5), (7, 5), dtype=dtype)
    executable = engines.get("torch").compile(graph)
    (node,) = executable.graph.operators
    assert node.op.program.source.count(" = ") == calls
    arrays = [array.astype(dtype) for array in uniform((7, 1), (7, 5), (7, 5))]
    arrays[1][0, :3] = np.inf, np.nan, 3e38
    arrays[2][1, :2] = -np.inf, 1e20
    arrays[0][1] = 0.0
    with np.errstate(all="ignore"):
        for got, wanted in zip(executable(arrays), evaluate(graph, arrays), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    "function, fused",
    [
        (lambda F, x: F.mean(x * 0.5, axis=0, exclude=True), True),
        (lambda F, x: F.sum(x * -0.25, axis=0, keepdims=True), True),
        (lambda F, x: F.sum(x * 0.0), True),
        (lambda F, x: F.sum(x * 2.0, axis=1), False),
        (lambda F, x: F.max(x * 0.5, axis=1), False),
    ],
)
@pytest.mark.parametrize("special", [[1.0], [3e38, 3e38], [math.inf, -math.inf], [math.nan], [math.inf]])
def test_sums_are_scaled_instead_of_what_they_add_up(function, fused, special):
    (x,) = uniform((4, 1 << 15))
    x[1, : len(special)] = special
    graph = graph_of(function, x.shape)
    executable = engines.get("torch").compile(graph)
    (node,) = executable.graph.operators
    assert node.op.program.source.count(" = ") == 2 - fused
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(executable([x])[0], evaluate(graph, [x])[0], rtol=1e-4)


def test_dropout_masks_come_from_numpy_and_equal_eager():
    x = input_node("x", shape=(50, 4), dtype="float32")
    dropout = operator("Dropout").bind(p=0.5).bind_mode(True)
    graph = Graph([x], [make_node(dropout, [x], draw=3).outputs[0]], draws=4)
    executable = engines.get("torch").compile(graph)
    assert [fallback.operator for fallback in executable.report.fallbacks] == ["_dropout_mask"]
    (data,) = uniform((50, 4))
    assert close(executable([data], (7, 2))[0], evaluate(graph, [data], (7, 2))[0])


@pytest.mark.parametrize(
    "function, shape, dtype, reason",
    [
        (lambda F, x: F.exp(x), (0, 3), "float32", "without elements"),
        (lambda F, x: F.exp(x), (2, 3), "float16", "float16"),
        (lambda F, x: x * 2, (2, 3), "int32", "int32"),
        (lambda F, x: F.reverse(x, axis=0), (2, 3), "float32", "no entry"),
        (lambda F, x: F.slice(x, begin=(None,), end=(None,), step=(-1,)), (2, 3), "float32", "backwards"),
    ],
)
def test_what_torch_cannot_take_falls_back_by_name(function, shape, dtype, reason):
    graph = graph_of(function, shape, dtype=dtype)
    executable = engines.get("torch").compile(graph)
    (fallback,) = executable.report.fallbacks
    assert fallback.engine == "numpy" and reason in fallback.reason
    x = np.ones(shape, dtype)
    assert np.array_equal(executable([x])[0], evaluate(graph, [x])[0])
    with pytest.raises(EngineError, match="1 of 1 operators cannot run in torch"):
        engines.get("torch").compile(graph, strict=True)


def same_order(node, array):
    """The entry, which devices use, gives the bits of NumPy."""
    import torch

    assert refusal(node) is None
    made = kernel_of(torch, node)(torch.from_numpy(array))
    wanted = run_kernel(node.op, [array])
    for one, other in zip(made if isinstance(made, tuple) else (made,), wanted, strict=True):
        assert one.numpy().dtype == other.dtype and one.numpy().tobytes() == other.tobytes()


@each_sample(lambda case: case.record.name in ("sort", "argsort", "topk"))
def test_samples_of_orders_are_equal_bit_by_bit(case):
    (node,) = graph_of_case(case)[0].operators
    same_order(node, *case.inputs())


ORDERS = [
    *(("sort", {"is_ascend": up}) for up in (True, False)),
    *(("argsort", {"is_ascend": up, "dtype": kind}) for up in (True, False) for kind in ("int32", "float64", "uint8")),
    *(("topk", {"is_ascend": up, "k": 3, "ret_typ": kind, "dtype": "int64"})
      for up in (True, False) for kind in ("value", "indices", "mask", "both")),
]  # fmt: skip


@pytest.mark.parametrize("name, attributes", ORDERS)
@pytest.mark.parametrize("axis", [0, 1, -1, None])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
def test_equal_elements_zeros_and_nan_have_the_order_of_numpy(name, attributes, axis, dtype):
    values = np.array([0.0, -0.0, 1.0, np.nan, -np.nan, np.inf, -np.inf, -1.0, 1e-42])
    values = values.astype(dtype) if dtype.startswith("float") else np.array([0, 255, 7, 128, 3], dtype)
    op = operator(name).bind(axis=axis, **attributes)
    for shape in ((5, 7, 4), (3, 700)):
        data = values[np.random.RandomState(1).randint(len(values), size=shape)]
        x = input_node("x", shape=shape, dtype=dtype)
        for array in (data, data.T.copy().T):
            same_order(make_node(op, [x]), array)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_indices_that_are_no_numbers_are_those_of_eager_mode(dtype):
    def picks(F, x, i):
        return F.pick(x, i), F.pick(x, i, mode="wrap"), F.Embedding(i, x, input_dim=4, output_dim=3)

    x = nd.arange(12).reshape((4, 3))
    index = nd.array([np.nan, np.inf, -np.inf, 1e30], dtype=dtype)
    net = nn.HybridLambda(picks)
    eager = net(x, index)
    net.hybridize(engine="torch")
    for ours, theirs in zip(net(x, index), eager, strict=True):
        np.testing.assert_array_equal(ours.asnumpy(), theirs.asnumpy())


def test_orders_of_float16_have_no_torch_call_and_on_a_cpu_none_is_used():
    def last(function):
        return graph_of(function, (2, 3)).operators[-1]

    assert refusal(last(lambda F, x: F.argsort(x, dtype="float16"))) == "a torch call with float16"
    assert refusal(last(lambda F, x: F.sort(F.Cast(x, dtype="float16")))) == "a torch call with float16"
    (fallback,) = engines.get("torch").compile(graph_of(lambda F, x: F.sort(x), (2, 3))).report.fallbacks
    assert fallback.engine == "numpy" and "on a CPU" in fallback.reason


def test_several_threads_may_call_the_same_executable():
    shapes = [(64, 30), (20, 30), (20,)]
    graph = graph_of(lambda F, x, w, b: F.softmax(F.FullyConnected(x, w, b, num_hidden=20)), *shapes)
    executable = engines.get("torch").compile(graph)
    cases = [uniform(*shapes, seed=seed) for seed in range(4)]
    wanted = [evaluate(graph, arrays)[0] for arrays in cases]
    wrong = []

    def work(index):
        wrong.extend(index for _ in range(30) if not close(executable(cases[index])[0], wanted[index]))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# -- gradients of convolutions that are products --------------------------------------------------------------------


@each_sample(lambda case: case.record.name in ("_conv_data_grad", "_conv_weight_grad"))
def test_gradients_of_convolutions_as_products(case):
    """Wherever a product can stand for oneDNN's kernel it gives the same numbers, and not only where it is faster."""
    import torch

    graph, arrays = graph_of_case(case)
    parts = specialize(graph, [a.shape for a in arrays], [a.dtype for a in arrays], True)
    (node,) = (node for node in parts.forward.operators if node.op.name == case.record.name)
    geometry = node.op.geometry
    kernels = [kernel_of(torch, node)] if refusal(node) is None else []
    if images._is_plain(geometry) and case.record.name == "_conv_weight_grad":
        kernels.append(images._unfolded_product(torch, node, node.op))
    elif images._is_plain(geometry) and set(geometry.kernel) == {1} and not any(geometry.pad):
        kernels.append(images._spread_product(torch, node, node.op))
    for kernel in kernels:
        found = kernel(*map(torch.from_numpy, arrays))
        assert close(found.numpy(), run_kernel(case.op, case.inputs())[0], 1e-5)


@pytest.mark.parametrize(
    ("shapes", "attributes", "names"),
    [
        (((8, 64, 1, 1), (64, 64, 3, 3)), {"kernel": (3, 3), "pad": (1, 1)}, {"_unfolded_product"}),
        (((8, 64, 9, 9), (64, 64, 3, 3)), {"kernel": (3, 3), "pad": (1, 1)}, set()),
        (((2, 16, 8, 7), (4, 16, 1, 1)), {"kernel": (1, 1), "stride": (2, 3)}, {"_spread_product"}),
        (((2, 16, 8, 7), (4, 16, 1, 1)), {"kernel": (1, 1)}, set()),
    ],
)
def test_where_gradients_of_convolutions_are_products(monkeypatch, shapes, attributes, names):
    attributes = {"num_filter": shapes[1][0], "no_bias": True, **attributes}
    graph = graph_of(lambda F, x, w: F.Convolution(x, w, **attributes), *shapes)
    parts = specialize(graph, shapes, ["float32"] * 2, True, (0, 1))
    used = set()
    for name in ("_unfolded_product", "_spread_product"):
        rule = getattr(images, name)
        monkeypatch.setattr(images, name, lambda *given, n=name, r=rule: (used.add(n), r(*given))[1])
    arrays = uniform(*shapes)
    engine = TorchEngine()
    training = engine.compile_training(parts.split)
    results, kept = training.begin(arrays, (0, 0))
    given = {"input": arrays, "output": results, "saved": kept.saved, "head": uniform(results[0].shape, seed=5)}
    operands = [given[kind][index] for kind, index in parts.sources]
    for found, wanted in zip(training.finish(kept, operands, (0, 0)), evaluate(parts.backward, operands), strict=True):
        assert close(found, wanted, 1e-5)
    assert used == names


@pytest.mark.parametrize("bidirectional", [False, True])
def test_an_lstm_runs_in_torch_forward_and_backward(bidirectional):
    op = operator("RNN").bind(mode="lstm", state_size=4, num_layers=2, bidirectional=bidirectional, state_outputs=True)
    places = 4 if bidirectional else 2
    shapes = [(5, 3, 6), (op.sizes.parameters(6),), (places, 3, 4), (places, 3, 4)]
    inputs = [input_node(f"x{index}", shape=shape, dtype="float32") for index, shape in enumerate(shapes)]
    node = make_node(op, inputs)
    parts = specialize(Graph(inputs, node.outputs[:3]), shapes, ["float32"] * 4, True, range(4))
    forward, backward = (engines.get("torch").compile(part) for part in (parts.forward, parts.backward))
    assert forward.report.operators["numpy"] == backward.report.operators["numpy"] == 0
    arrays = uniform(*shapes)
    results = forward(arrays)
    for got, wanted in zip(results, evaluate(parts.forward, arrays), strict=True):
        assert close(got, wanted)
    heads = uniform(*(result.shape for result in results[:3]), seed=5)
    given = {"input": arrays, "output": results, "saved": results[3:], "head": heads}
    operands = [given[kind][index] for kind, index in parts.sources]
    for got, wanted in zip(backward(operands), evaluate(parts.backward, operands), strict=True):
        assert close(got, wanted, 1e-4)


@pytest.mark.parametrize("imported", [True, False])
def test_threads_of_a_torch_that_the_user_imported_are_the_users(imported, monkeypatch):
    import sys
    import types

    from hybrid_lab.engines.torch_kernels import engine

    calls = []
    torch = types.SimpleNamespace(set_num_threads=calls.append)
    monkeypatch.setattr(engine, "_threads_set", False)
    monkeypatch.setattr(engine, "_imported_here", False)
    monkeypatch.setattr(engine, "sys", types.SimpleNamespace(modules={"torch": torch} if imported else {}))
    monkeypatch.setitem(sys.modules, "torch", torch)
    engine.set_threads()
    engine.set_threads()
    assert calls == ([] if imported else [engine.thread_count()])


@pytest.mark.parametrize("channels", [1, images.MANY_CHANNELS])
@pytest.mark.parametrize(
    "windows",
    [
        {"kernel": (2, 2), "stride": (2, 2)},
        {"kernel": (3, 2), "stride": (1, 2), "pad": (1, 0)},
        {"kernel": (3, 3), "stride": (2, 2), "pooling_convention": "full"},
        {"kernel": (1, 1), "stride": (3, 2)},
    ],
    ids=["disjoint", "padded", "rounded up", "single elements"],
)
def test_the_first_of_equal_maxima_takes_the_gradient(windows, channels):
    def net(F, x):
        y = F.Pooling(x, **windows)
        return y, F._max_pool_grad(F.exp(y), x, y, **windows)

    x = np.random.RandomState(0).randint(-3, 3, (2, channels, 6, 6)).astype("float32")
    graph = graph_of(net, x.shape)
    executable = engines.get("torch").compile(graph)
    assert executable.report.operators["numpy"] == 0
    for got, wanted in zip(executable([x]), evaluate(graph, [x]), strict=True):
        assert close(got, wanted)


@pytest.mark.parametrize(
    "function",
    [
        lambda F, dy, x: F._relu_grad(dy, F.relu(x)),
        lambda F, dy, x: F._max_pool_grad(
            F.max(dy, axis=(2, 3), keepdims=True),
            x,
            F.max(x, axis=(2, 3), keepdims=True),
            kernel=(1, 1),
            global_pool=True,
        ),
        lambda F, dy, x: F._max_pool_grad(dy, x, F.Pooling(x, kernel=(3, 3), pad=(1, 1)), kernel=(3, 3), pad=(1, 1)),
    ],
    ids=["relu", "global pool", "pool"],
)
def test_no_gradient_passes_where_the_result_is_nan(function):
    dy, x = uniform((2, 3, 4, 4), (2, 3, 4, 4))
    x[0, 0, 1, 1] = np.nan
    graph = graph_of(function, dy.shape, x.shape)
    executable = engines.get("torch").compile(graph)
    assert executable.report.regions
    np.testing.assert_allclose(executable([dy, x])[0], evaluate(graph, [dy, x])[0], rtol=1e-6)


SPECIAL = np.array([0.0, -0.0, 1, -2.5, np.inf, -np.inf, np.nan, 1e-40, 1e30], np.float32)


@pytest.mark.parametrize(
    "function",
    [
        lambda F, x: (x * math.inf, math.inf - x, x / -math.inf, x + math.nan),
        lambda F, x: (F.broadcast_maximum(x, -math.inf), F.broadcast_minimum(x, math.nan)),
        lambda F, x: (F.broadcast_lesser(x, math.inf), F.broadcast_equal(x, math.nan), F.broadcast_greater(x, 10**30)),
        lambda F, x: (x**-0.5, x**0.5, x**-1.0, F.broadcast_power(-0.5, x)),
    ],
    ids=["arithmetic", "choice", "comparisons", "powers"],
)
def test_numbers_that_are_not_finite_or_not_small(function):
    graph = graph_of(function, SPECIAL.shape)
    executable = engines.get("torch").compile(graph)
    assert executable.report.operators["numpy"] == 0
    with np.errstate(all="ignore"):
        expected = evaluate(graph, [SPECIAL])
    for got, wanted in zip(executable([SPECIAL]), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


@pytest.mark.parametrize("shape", [(21600, 1), (21600, 2, 1), (300, 3, 72)])
def test_statistics_of_many_rows_are_as_exact_as_in_numpy(shape):
    """Equal elements round a running sum in the same direction again and again."""
    x = mx.nd.array(np.resize([0.1, 0.7, 0.7, -1.3, 0.0], shape))
    seen = []
    for engine in (None, "torch"):
        net = mx.gluon.nn.BatchNorm(momentum=0.0)
        net.initialize()
        if engine:
            net.hybridize(engine=engine)
        x.attach_grad()
        with mx.autograd.record():
            y = net(x)
        y.backward(y.detach() ** 2)
        seen.append([item.asnumpy() for item in (y, net.running_mean.data(), net.running_var.data())])
        seen[-1] += [item.asnumpy() for item in (x.grad, net.gamma.grad(), net.beta.grad())]
    for wanted, found in zip(*seen, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max(), rtol=0)
