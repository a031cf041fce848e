"""The ONNX Runtime engine: regions, fallbacks with their reasons, bound buffers, fresh outputs, threads."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

from hybrid_lab import engines
from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.graph import Graph, input_node
from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.passes.simplify import simplify
from hybrid_lab.graph.specialize import specialize
from hybrid_lab.ops.framework.operator import get as operator
from tests.graph.building import evaluate, graph_of, uniform

pytest.importorskip("onnxruntime")
from hybrid_lab.engines.onnxruntime import OnnxRuntimeEngine  # noqa: E402

ALWAYS = OnnxRuntimeEngine(worth=lambda region: None)


def lenet(F, x, w1, b1, w2, b2, w3, b3):
    x = F.Pooling(F.relu(F.Convolution(x, w1, b1, kernel=(5, 5), num_filter=6)), kernel=(2, 2), stride=(2, 2))
    x = F.Pooling(F.relu(F.Convolution(x, w2, b2, kernel=(5, 5), num_filter=16)), kernel=(2, 2), stride=(2, 2))
    return F.log_softmax(F.FullyConnected(x, w3, b3, num_hidden=10))


LENET = [(8, 1, 28, 28), (6, 1, 5, 5), (6,), (16, 6, 5, 5), (16,), (10, 256), (10,)]


def close(a, b, tolerance=1e-5):
    return np.abs(a - b).max() <= tolerance * max(np.abs(b).max(), 1e-30)


def test_a_whole_network_is_one_region_forward_and_backward():
    graph, arrays = graph_of(lenet, *LENET, name="lenet"), uniform(*LENET)
    parts = specialize(graph, LENET, ["float32"] * 7, True, range(1, 7))
    forward, backward = (engines.get("onnxruntime").compile(part) for part in (parts.forward, parts.backward))
    for executable in (forward, backward):
        assert executable.report.operators["numpy"] == 0
        assert len(executable.report.regions) == 1
    results = forward(arrays)
    given = {"input": arrays, "output": results, "saved": results[1:], "head": uniform((8, 10), seed=3)}
    operands = [given[kind][index] for kind, index in parts.sources]
    for got, wanted in zip(results, evaluate(parts.forward, arrays), strict=True):
        assert close(got, wanted)
    for got, wanted in zip(backward(operands), evaluate(parts.backward, operands), strict=True):
        assert close(got, wanted, 1e-4)


def test_a_small_graph_stays_in_numpy_and_says_why():
    executable = engines.get("onnxruntime").compile(graph_of(lambda F, x: F.exp(x) * 2.0, (3,)))
    report = executable.report
    assert report.operators == {"onnxruntime": 0, "numpy": 2}
    assert {fallback.reason for fallback in report.fallbacks} == {"too little work for a session of its own"}
    assert "fallback: exp on numpy: too little work" in str(report)


def test_gradients_of_large_softmaxes_and_gelus_are_worth_a_session():
    for name in ("_softmax_grad", "_gelu_grad"):
        for shape, inside in (((2, 3), 0), ((512, 512), 1)):
            inputs = [input_node(key, shape=shape, dtype="float32") for key in "xy"]
            graph = Graph(inputs, make_node(operator(name).bind(), inputs).outputs)
            assert engines.get("onnxruntime").compile(graph).report.operators["onnxruntime"] == inside


@pytest.mark.parametrize("shape", [(4, 5), (300, 200)])
def test_outputs_are_untouched_by_later_calls(shape):
    executable = ALWAYS.compile(graph_of(lambda F, x, y: F.relu(x * y + x), shape, shape))
    first, second = uniform(shape, shape), uniform(shape, shape, seed=1)
    y1 = executable(first)[0]
    before = y1.copy()
    executable(second)
    assert np.array_equal(y1, before)


def test_inputs_may_change_in_place_between_calls():
    executable = ALWAYS.compile(graph_of(lambda F, x: F.exp(x), (300, 200)))
    (x,) = uniform((300, 200))
    executable([x])
    x *= 0
    assert np.array_equal(executable([x])[0], np.ones_like(x))


def test_strided_inputs_are_fine_every_time():
    executable = ALWAYS.compile(graph_of(lambda F, x: F.exp(x), (300, 200)))
    (x,) = uniform((200, 300))
    for _ in range(2):
        assert close(executable([x.T])[0], np.exp(x.T))
        x += 0.5


def test_nothing_of_the_caller_is_kept_alive():
    executable = ALWAYS.compile(graph_of(lambda F, x: F.exp(x), (300, 200)))
    (x,) = uniform((300, 200))
    (y,) = executable([x])
    alive = [weakref.ref(x), weakref.ref(y)]
    del x, y
    gc.collect()
    assert [ref() for ref in alive] == [None, None]


def test_two_threads_may_call_the_same_executable():
    shapes = [(64, 30), (20, 30), (20,)]
    graph = graph_of(lambda F, x, w, b: F.softmax(F.FullyConnected(x, w, b, num_hidden=20)), *shapes)
    executable = ALWAYS.compile(graph)
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


def test_dropout_masks_come_from_numpy_and_equal_eager():
    x = input_node("x", shape=(50, 4), dtype="float32")
    dropout = operator("Dropout").bind(p=0.5).bind_mode(True)
    graph = Graph([x], [make_node(dropout, [x], draw=3).outputs[0]], draws=4)
    executable = ALWAYS.compile(graph)
    assert [(fallback.operator, fallback.engine) for fallback in executable.report.fallbacks] == [
        ("_dropout_mask", "numpy")
    ]
    (data,) = uniform((50, 4))
    assert np.array_equal(executable([data], (7, 2))[0], evaluate(graph, [data], (7, 2))[0])


@pytest.mark.parametrize(
    "shape, dtype, reason", [((0, 3), "float32", "without elements"), ((2, 3), "float16", "float16")]
)
def test_what_a_session_cannot_take_falls_back_by_name(shape, dtype, reason):
    executable = ALWAYS.compile(graph_of(lambda F, x: F.exp(x), shape, dtype=dtype))
    (fallback,) = executable.report.fallbacks
    assert fallback.operator == "exp" and reason in fallback.reason
    assert executable([np.ones(shape, dtype)])[0].shape == shape


def test_strict_refuses_fallbacks():
    graph = graph_of(lambda F, x: F.exp(x), (2, 3), dtype="float16")
    with pytest.raises(EngineError, match="1 of 1 operators cannot run in ONNX Runtime.*\n  exp: float16"):
        ALWAYS.compile(graph, strict=True)


def test_an_operator_that_onnxruntime_turns_down_is_taken_out_of_its_region(monkeypatch):
    # A mapping to an operator that no session knows: only building the session shows it.
    monkeypatch.setattr("hybrid_lab.engines.onnxruntime.engine._turned_down", {})
    monkeypatch.setattr(operator("sin"), "onnx", "NoSuchOperator")
    graph = graph_of(lambda F, x: F.exp(F.sin(F.exp(x) * 2.0)), (4,))
    executable = ALWAYS.compile(graph)
    assert executable.report.operators == {"onnxruntime": 3, "numpy": 1}
    assert executable.report.fallbacks[0].operator == "sin"
    (x,) = uniform((4,))
    assert close(executable([x])[0], np.exp(np.sin(np.exp(x) * 2)))


def test_effects_and_shape_only_constants():
    graph = graph_of(lambda F, x, s: (F.broadcast_like(s, x), s * 0.9), (4, 3), (1, 3), roles="data aux")
    graph = Graph(graph.inputs, graph.outputs[:1], [(graph.inputs[1], graph.outputs[1])])
    executable = ALWAYS.compile(simplify(graph))
    x, s = uniform((4, 3), (1, 3))
    y, new = executable([x, s])
    assert np.array_equal(y, np.broadcast_to(s, (4, 3)))
    assert close(new, s * 0.9)


def test_float64_and_integers():
    graph = graph_of(lambda F, x: F.sum(F.square(x), axis=1), (4, 3), dtype="float64")
    x = uniform((4, 3))[0].astype(np.float64)
    assert np.allclose(ALWAYS.compile(graph)([x])[0], (x**2).sum(axis=1), rtol=1e-12)
    graph = graph_of(lambda F, x, y: x * y + 3, (4,), (4,), dtype="int32")
    a = np.arange(4, dtype=np.int32)
    assert np.array_equal(ALWAYS.compile(graph)([a, a])[0], a * a + 3)


LOSE_NAN = {
    "max": lambda F, x: F.max(x, axis=1),
    "min": lambda F, x: F.min(x, axis=1),
    "argmax": lambda F, x: F.argmax(x, axis=1),
    "argmin": lambda F, x: F.argmin(x, axis=1),
    "topk": lambda F, x: F.topk(x, k=3, ret_typ="value"),
    "sort": lambda F, x: F.sort(x),
    "argsort": lambda F, x: F.argsort(x),
    "pool": lambda F, x: F.Pooling(F.Reshape(x, shape=(1, 1, 4, 8)), kernel=(2, 2), stride=(2, 2)),
    "global pool": lambda F, x: F.Pooling(F.Reshape(x, shape=(1, 1, 4, 8)), global_pool=True, kernel=(1, 1)),
    "large pool": lambda F, x: F.Pooling(F.tile(F.Reshape(x, shape=(1, 1, 4, 8)), reps=(1, 2, 80, 40)), kernel=(2, 2)),
}


@pytest.mark.parametrize("name", LOSE_NAN)
def test_nan_is_not_lost(name, caplog):
    x, graph = uniform((4, 8))[0], graph_of(LOSE_NAN[name], (4, 8))
    executable = ALWAYS.compile(graph)
    assert executable.report.regions
    for number in (1.0, np.nan, -np.inf, np.inf, np.nan, 2.0):
        x[0, 2] = x[2, 5] = number
        (wanted,) = evaluate(graph, [x])
        np.testing.assert_array_equal(executable([x])[0], wanted)
    assert caplog.text.count("ONNX Runtime would lose NaN") == 1


def test_slopes_that_are_not_finite_reach_zeros():
    """0 times NaN is NaN, as eagerly; a diverged training leaves such slopes."""
    graph = graph_of(lambda F, x, slope: F.LeakyReLU(x, slope, act_type="prelu"), (2, 4), (4,))
    arrays = [np.float32([[0, 0, 0, 0], [-1, 1, -1, 0]]), np.float32([np.nan, np.nan, np.inf, 0.5])]
    np.testing.assert_array_equal(ALWAYS.compile(graph)(arrays)[0], evaluate(graph, arrays)[0])


def test_masks_of_infinities_stay_in_the_session(caplog):
    executable = ALWAYS.compile(graph_of(LOSE_NAN["topk"], (4, 8)))
    executable([np.full((4, 8), -np.inf, np.float32)])
    assert "would lose NaN" not in caplog.text


def test_gelu_is_written_as_the_pattern_that_onnxruntime_runs_in_one_pass(tmp_path):
    import onnx
    import onnxruntime

    from hybrid_lab.engines.onnxruntime.model import build_model
    from hybrid_lab.graph.passes.partition import region_of

    graph = graph_of(lambda F, x: F.LeakyReLU(x, act_type="gelu"), (4, 8))
    model = build_model(region_of(graph.operators, graph.users(), set(graph.roots)))
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(tmp_path / "optimized.onnx"), 4
    onnxruntime.InferenceSession(model.serialize(), options, providers=["CPUExecutionProvider"])
    run = onnx.load(tmp_path / "optimized.onnx").graph.node
    assert [node.op_type for node in run if node.op_type != "Identity"] == ["Gelu"]
