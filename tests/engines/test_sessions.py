"""Sessions of the ONNX Runtime engine: shared by shapes, packed with weights, written without the onnx package."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.graph.passes.partition import Region
from hybrid_lab.graph.specialize import specialize
from hybrid_lab.ops.framework.onnx_emit import OnnxNode
from hybrid_lab.ops.framework.operator import get as operator
from tests.graph.building import evaluate, graph_of, uniform

pytest.importorskip("onnxruntime")
from hybrid_lab.engines.onnxruntime import OnnxRuntimeEngine, bounds, cost, engine, messages, session  # noqa: E402
from tests.engines.test_onnxruntime import LENET, close, lenet  # noqa: E402

ALWAYS = OnnxRuntimeEngine(worth=lambda region: None)


@pytest.fixture
def created(monkeypatch):
    """The models of which sessions were made."""
    made = []
    create = session.create_session
    monkeypatch.setattr(session, "create_session", lambda *given: made.append(given) or create(*given))
    session._shared.clear()
    return made


def network(batch):
    """LeNet with a loss, forward and backward, for a batch; and arrays to run it on."""
    shapes = [(batch, *LENET[0][1:]), *LENET[1:]]

    def loss(F, *inputs):
        return F.mean(lenet(F, *inputs), axis=0, exclude=True)

    parts = specialize(graph_of(loss, *shapes), shapes, ["float32"] * 7, True, range(1, 7))
    return parts, uniform(*shapes)


def run(parts, arrays):
    forward, backward = ALWAYS.compile(parts.forward), ALWAYS.compile(parts.backward)
    results = forward(arrays)
    given = {"input": arrays, "output": results, "saved": results[1:], "head": uniform((len(arrays[0]),), seed=3)}
    operands = [given[kind][index] for kind, index in parts.sources]
    for got, wanted in zip(results, evaluate(parts.forward, arrays), strict=True):
        assert close(got, wanted)
    for got, wanted in zip(backward(operands), evaluate(parts.backward, operands), strict=True):
        assert close(got, wanted, 1e-4)
    return forward, backward


def test_another_batch_makes_no_new_session(created):
    kept = [run(*network(8))]
    assert len(created) == 2
    kept.append(run(*network(3)))
    # The backward writes one shape down: its second session takes it as an input, and serves all others.
    assert len(created) <= 3
    before = len(created)
    kept += [run(*network(1)), run(*network(5)), run(*network(8))]
    assert len(created) == before


def test_other_attributes_make_a_session_of_their_own(created):
    kept = [ALWAYS.compile(graph_of(lambda F, x, a=axis: F.softmax(x, axis=a), (4, 5))) for axis in (0, 1)]
    assert len(created) == 2 and len(kept) == 2


def test_numbers_that_differ_become_inputs(created):
    kept = []
    for number, factor in enumerate((2.0, 3.0, 4.0, 5.0)):
        kept.append(ALWAYS.compile(graph_of(lambda F, x, factor=factor: F.exp(x) * factor, (3, 4))))
        (x,) = uniform((3, 4))
        assert close(kept[-1]([x])[0], np.exp(x) * factor)
        assert len(created) == min(number + 1, 2)


def test_many_sessions_do_not_have_many_threads(created, monkeypatch):
    """With two threads besides the caller's each, the fourth session would go beyond a limit of six."""
    monkeypatch.setattr(session, "thread_count", lambda: 3)
    monkeypatch.setattr(session, "MOST_THREADS", 6)
    monkeypatch.setattr(session, "_with_threads", weakref.WeakSet())
    graphs = [graph_of(lambda F, x, k=k: F.exp(F.softmax(x, axis=k)), (2, 3, 4, 5)) for k in range(4)]
    executables = [ALWAYS.compile(graph) for graph in graphs]
    assert [threads for *_, threads in created] == [3, 3, 3, 1]
    del executables


def test_sessions_go_when_nobody_runs_them(created):
    executable = ALWAYS.compile(graph_of(lambda F, x: F.exp(x), (4,)))
    assert len(session._shared) == 1
    del executable
    gc.collect()
    assert not any(made() for sessions in session._shared.values() for made in sessions)


# -- in the background ---------------------------------------------------------------------------------------------


@pytest.fixture
def held(monkeypatch):
    """Long sessions are those of three operators, and a thread makes none before this is set."""
    monkeypatch.setattr(cost, "MANY", 2)
    session._shared.clear()
    event, create = threading.Event(), session.create_session
    event.made = []

    def creating(*given):
        assert threading.current_thread() is threading.main_thread() or event.wait(30)
        event.made.append(threading.current_thread().name)
        return create(*given)

    monkeypatch.setattr(session, "create_session", creating)
    yield event
    event.set()


def trained(parts, **options):
    """The training, and a function that runs its backward behind a forward on these arrays."""
    training = ALWAYS.compile_training(parts.split, **options)

    def finish(arrays, results, kept):
        given = {"input": arrays, "output": results, "saved": kept.saved, "head": uniform((len(arrays[0]),), seed=3)}
        operands = [given[kind][index] for kind, index in parts.sources]
        wanted = evaluate(parts.backward, [array.copy() for array in operands])
        found = training.finish(kept, operands, (0, 0))
        assert all(close(got, want, 1e-4) for got, want in zip(found, wanted, strict=True))

    return training, finish


def test_a_forward_runs_while_the_session_of_its_backward_is_made(held):
    parts, arrays = network(4)
    training, finish = trained(parts)
    results, kept = training.begin(arrays, (0, 0))
    assert close(results[0], evaluate(parts.forward, arrays)[0]) and held.made == ["MainThread"]
    held.set()
    finish(arrays, results, kept)
    finish(arrays, *training.begin(arrays, (0, 0)))
    assert held.made == ["MainThread", "hybrid-lab-session"]


def test_a_session_that_fails_in_the_background_is_computed_in_numpy(held, monkeypatch, caplog):
    monkeypatch.setattr(engine, "_turned_down", {})
    monkeypatch.setattr(operator("_relu_grad"), "onnx", "NoSuchOperator")
    held.set()
    parts, arrays = network(4)
    training, finish = trained(parts)
    for _ in range(2):
        finish(arrays, *training.begin(arrays, (0, 0)))
    (warning,) = [record.message for record in caplog.records if "turned them down" in record.message]
    assert "_relu_grad" in warning and "NoSuchOperator" in warning
    # The next compile knows.
    training, finish = trained(parts)
    assert [fallback.operator for fallback in training.backward.report.fallbacks] == ["_relu_grad"]
    finish(arrays, *training.begin(arrays, (0, 0)))


def test_strict_does_not_put_off_what_it_refuses(held, monkeypatch):
    monkeypatch.setattr(engine, "_turned_down", {})
    monkeypatch.setattr(operator("_relu_grad"), "onnx", "NoSuchOperator")
    with pytest.raises(EngineError, match="_relu_grad"):
        trained(network(4)[0], strict=True)


# -- packed weights ------------------------------------------------------------------------------------------------


def dense(rows):
    shapes = [(rows, 30), (20, 30), (20,)]
    graph = graph_of(
        lambda F, x, w, b: F.relu(F.FullyConnected(x, w, b, num_hidden=20)), *shapes, roles="data param param"
    )
    return ALWAYS.compile(graph), uniform(*shapes), graph


def test_packed_weights_count_until_unpack():
    executable, arrays, graph = dense(4)
    executable.pack(arrays)
    assert close(executable(arrays)[0], evaluate(graph, arrays)[0])
    x, w, b = arrays
    other = [x, w * 2, b]
    assert close(executable(other)[0], evaluate(graph, arrays)[0])  # the promise: w stays as it was
    executable.unpack()
    assert close(executable(other)[0], evaluate(graph, other)[0])
    executable.pack(other)
    assert close(executable(other)[0], evaluate(graph, other)[0])


def test_packed_weights_live_as_long_as_the_session():
    executable, arrays, graph = dense(4)
    wanted = evaluate(graph, arrays)[0]
    executable.pack([arrays[0], arrays[1].copy(), arrays[2].copy()])
    gc.collect()
    junk = [np.full((20, 30), 7, np.float32) for _ in range(50)]
    assert close(executable(arrays)[0], wanted) and junk


def test_one_packed_session_for_all_batches_with_the_same_token(created):
    (one, arrays, graph), (two, more, _) = dense(4), dense(9)
    weights = arrays[1:]
    one.pack(arrays, token=("v", 1))
    two.pack([more[0], *weights], token=("v", 1))
    assert len(created) == 2
    assert close(two([more[0], *weights])[0][:4], evaluate(graph, [more[0][:4], *weights])[0])
    two.pack([more[0], *weights], token=("v", 2))
    assert len(created) == 3
    one.pack(arrays), two.pack([more[0], *weights])
    assert len(created) == 5


def test_a_weight_that_no_node_reads_is_not_packed():
    """Seed 193 of the random graphs, shrunk: fix_gamma leaves the scale unread."""

    def net(F, x, *states):
        return F.BatchNorm(x, *states, eps=0.1)

    graph = graph_of(net, (6, 2), (2,), (2,), (2,), (2,), roles="data param param aux aux")
    executable, arrays = ALWAYS.compile(graph), uniform((6, 2), (2,), (2,), (2,), (2,))
    arrays[4] = np.abs(arrays[4])
    wanted = executable(arrays)[0]
    executable.pack(arrays)
    assert close(executable(arrays)[0], wanted)


@pytest.mark.parametrize("role", ["data", "saved", "head_grad"])
def test_what_changes_from_call_to_call_is_never_packed(role):
    executable = ALWAYS.compile(graph_of(lambda F, w: F.exp(w), (30, 4), roles=role))
    executable.pack([np.zeros((30, 4), np.float32)])
    assert close(executable([np.ones((30, 4), np.float32)])[0], np.full((30, 4), np.e, np.float32))


# -- files ---------------------------------------------------------------------------------------------------------


def test_messages_are_what_the_onnx_package_reads():
    onnx = pytest.importorskip("onnx")
    attributes = {"i": -3, "f": 0.5, "s": "text", "ints": [1, -2], "floats": [0.5, 2.0], "t": np.eye(2), "none": None}
    node = messages.node(OnnxNode("Op", ("a", ""), ("b",), attributes, "name"))
    weight = messages.tensor("w", np.arange(6, dtype=np.int64).reshape(2, 3))
    outside = messages.external_tensor("v", (300, 2), np.float32)
    data = messages.model(
        [node], [weight, outside], [messages.value_info("a", 2, np.float32)], [messages.value_info("b", 0, bool)], "g"
    )
    model = onnx.load_from_string(data)
    graph = model.graph
    assert [opset.version for opset in model.opset_import] == [17]
    (read,) = graph.node
    assert (read.op_type, list(read.input), list(read.output)) == ("Op", ["a", ""], ["b"])
    got = {item.name: onnx.helper.get_attribute_value(item) for item in read.attribute}
    assert got["i"] == -3 and got["f"] == 0.5 and got["s"] == b"text"
    assert list(got["ints"]) == [1, -2] and list(got["floats"]) == [0.5, 2.0]
    assert np.array_equal(onnx.numpy_helper.to_array(got["t"]), np.eye(2))
    assert np.array_equal(onnx.numpy_helper.to_array(graph.initializer[0]), np.arange(6).reshape(2, 3))
    assert list(graph.initializer[1].dims) == [300, 2] and graph.initializer[1].data_location == 1
    assert [len(info.type.tensor_type.shape.dim) for info in (*graph.input, *graph.output)] == [2, 0]
    assert not any(dim.HasField("dim_value") for dim in graph.input[0].type.tensor_type.shape.dim)


def test_compiling_does_not_import_onnx():
    code = (
        "import sys; from tests.graph.building import graph_of\n"
        "from hybrid_lab.engines.onnxruntime import OnnxRuntimeEngine\n"
        "import numpy as np\n"
        "run = OnnxRuntimeEngine(worth=lambda region: None).compile(graph_of(lambda F, x: F.exp(x), (3,)))\n"
        "run([np.zeros(3, np.float32)]); assert 'onnx' not in sys.modules and 'onnxruntime' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- bounds: packed weights tell where NaN cannot arise ------------------------------------------------------


def pooled(batch):
    """A packed network with poolings, its arrays and graph."""
    shapes = [(batch, *LENET[0][1:]), *LENET[1:]]
    graph = graph_of(lenet, *shapes, roles="data" + " param" * 6)
    executable, arrays = ALWAYS.compile(graph), uniform(*shapes)
    executable.pack(arrays)
    return executable, arrays, graph


def checks_of(executable):
    """Checks without and with the weights packed, of the only session."""
    (region,) = [node.op.session for node in executable.graph.operators if hasattr(node.op, "session")]
    return len(region.model.checks), len(region._current.model.checks)


def test_packed_sessions_check_no_poolings_behind_known_weights():
    executable, arrays, graph = pooled(2)
    assert checks_of(executable) == (2, 0)
    assert close(executable(arrays)[0], evaluate(graph, arrays)[0])


@pytest.mark.parametrize("batch", [2, 16])  # small inputs are looked at in another way
@pytest.mark.parametrize("number", [1e19, -1e19, np.nan, np.inf, -np.inf, 3e38])
def test_inputs_that_may_overflow_run_with_all_checks(number, batch):
    executable, arrays, graph = pooled(batch)
    arrays[0][1, 0, 3:6, 4] = number
    arrays[0][1, 0, 5, 6] = -number
    with np.errstate(all="ignore"):
        (wanted,) = evaluate(graph, arrays)
    np.testing.assert_allclose(executable(arrays)[0], wanted, rtol=1e-4, atol=1e-5)
    assert np.isnan(wanted[1]).any() == (not abs(number) <= 1e19)


@pytest.mark.parametrize("where", [1, 2, 3, 4])
@pytest.mark.parametrize("number", [np.nan, np.inf, 3e38])
def test_weights_without_a_bound_keep_the_checks_behind_them(where, number):
    graph, arrays = graph_of(lenet, *LENET, roles="data" + " param" * 6), uniform(*LENET)
    arrays[where].reshape(-1)[0] = number
    executable = ALWAYS.compile(graph)
    executable.pack(arrays)
    assert checks_of(executable) == (2, 2 if where < 3 else 1)
    with np.errstate(all="ignore"):
        (wanted,) = evaluate(graph, arrays)
    np.testing.assert_allclose(executable(arrays)[0], wanted, rtol=1e-4, atol=1e-5)


def test_unpacking_brings_the_checks_back():
    executable, arrays, graph = pooled(2)
    executable.unpack()
    arrays[3][0, 0, 0, 0] = np.nan
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(executable(arrays)[0], evaluate(graph, arrays)[0])


LAYER, IMAGES = [(4, 6), (3, 6), (3,)], [(2, 4, 5, 6), (6, 2, 3, 2), (6,)]
BOUNDED = {
    "relu": (LAYER, lambda F, x, w, b: F.relu(x)),
    "activation": (LAYER, lambda F, x, w, b: F.Activation(x, act_type="relu")),
    "curves": (LAYER, lambda F, x, w, b: F.tanh(x) + F.sigmoid(x)),
    "layer": (LAYER, lambda F, x, w, b: F.FullyConnected(x, w, b, num_hidden=3)),
    "arithmetic": (LAYER, lambda F, x, w, b: (x * -3.0 - x) * x + 0.5),
    "parts": (LAYER, lambda F, x, w, b: F.concat(F.slice_axis(x, axis=1, begin=0, end=3), F.transpose(w), dim=0)),
    "convolution": (
        IMAGES,
        lambda F, x, w, b: F.Convolution(x, w, b, num_filter=6, num_group=2, kernel=(3, 2), pad=(1, 1)),
    ),
    "affine": (
        IMAGES,
        lambda F, x, w, b: F._channel_affine(F.concat(x, F.slice_axis(x, axis=1, begin=0, end=2)), b, b),
    ),
    "mean": (IMAGES, lambda F, x, w, b: F.Flatten(F.Pooling(x, pool_type="avg", kernel=(2, 2)))),
    "sum": (IMAGES, lambda F, x, w, b: F.Pooling(x, pool_type="sum", global_pool=True, kernel=(1, 1))),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_bounds_hold(name):
    """No element is larger than its bound says, at inputs as large as they may be."""
    shapes, function = BOUNDED[name]
    graph, arrays = graph_of(function, *shapes), uniform(*shapes)
    region = Region(tuple(graph.operators), tuple(graph.inputs), tuple(graph.outputs))
    known = bounds.bounded(region, {1: arrays[1], 2: arrays[2]}, region.outputs)
    assert known.values == frozenset(region.outputs) and known.inputs == (0,)
    sizes = bounds._Sizes(dict(zip(region.inputs[1:], arrays[1:], strict=True)))
    bound = sizes.through(region.nodes, {region.inputs[0]: 10.0})[region.outputs[0]]
    largest = 0.0
    for seed in range(50):
        arrays[0] = np.random.default_rng(seed).choice([-10.0, 10.0], shapes[0]).astype(np.float32)
        largest = max(largest, float(np.abs(evaluate(graph, arrays)[0]).max()))
    assert 0 < largest <= bound * (1 + 1e-6)


def test_what_no_rule_is_for_has_no_bound():
    shapes = [(4, 6), (3, 6), (3,)]
    graph, arrays = graph_of(lambda F, x, w, b: F.relu(F.exp(x)), *shapes), uniform(*shapes)
    region = Region(tuple(graph.operators), tuple(graph.inputs), tuple(graph.outputs))
    known = bounds.bounded(region, {1: arrays[1], 2: arrays[2]}, region.outputs)
    assert not known.values and known.holds([np.full(shapes[0], np.nan, np.float32), *arrays[1:]])


def test_deep_networks_are_bounded_for_smaller_inputs():
    def deep(F, x, w, b):
        for _ in range(6):
            x = F.FullyConnected(x, w, b, num_hidden=6)
        return x

    shapes = [(4, 6), (6, 6), (6,)]
    graph, arrays = graph_of(deep, *shapes), uniform(*shapes)
    region = Region(tuple(graph.operators), tuple(graph.inputs), tuple(graph.outputs))
    found = [bounds.bounded(region, {1: arrays[1] * size, 2: arrays[2]}, region.outputs) for size in (1, 1e3, 1e4, 1e6)]
    assert [known.magnitude for known in found if known.values] == [1e18, 1e12, 1e6]
    assert not found[3].values


@pytest.mark.parametrize("size", [9, 20000])
def test_what_holds_of_inputs(size):
    known = bounds.Bounded(frozenset(), (1,), 1e6)
    ignored = np.full(3, np.nan, np.float32)
    for dtype in ("float32", "float64"):
        array = np.linspace(-1000, 1000, size).astype(dtype)
        assert known.holds([ignored, array])
        for number in (1.1e6, -1.1e6, 3e38, np.inf, -np.inf, np.nan):
            array[size // 2] = number
            assert not known.holds([ignored, array])
    integers = np.arange(size)
    assert known.holds([ignored, integers])
    integers[1] = -(2**40)
    assert not known.holds([ignored, integers])


def test_nothing_is_known_behind_what_may_overflow():
    shapes = [(4, 6), (3, 6), (3,)]
    graph = graph_of(lambda F, x, w, b: F.tanh(F.FullyConnected(x, w, b, num_hidden=3)), *shapes)
    arrays = uniform(*shapes)
    region = Region(tuple(graph.operators), tuple(graph.inputs), tuple(graph.outputs))
    assert bounds.bounded(region, {1: arrays[1], 2: arrays[2]}, region.outputs).values
    assert not bounds.bounded(region, {1: arrays[1] * 1e32, 2: arrays[2]}, region.outputs).values
    assert not bounds.bounded(region, {2: arrays[2]}, region.outputs).values  # the weight comes from somewhere
