"""300 random graphs: every engine gives eager's numbers, forward and gradient, in training and prediction."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from hybrid_lab import engines
from hybrid_lab.engines import Engine
from hybrid_lab.graph import Graph, input_node
from hybrid_lab.graph.specialize import specialize
from hybrid_lab.ops.operator import get
from tests.engines.random_graphs import RNG, Case, gradients_eagerly, random_case, run_eagerly, shrink

COUNT, CHUNK = 300, 50
FORWARD, GRADIENT = 1e-5, 1e-4
"""Tolerances in float32, relative to the largest reference value."""

_counts: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def print_counts(request):
    yield
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print("\n" + ", ".join(f"{count} {what}" for what, count in sorted(_counts.items())))


def engine_named(name: str) -> Engine:
    """The engine; ONNX Runtime with every region in a session, however small."""
    if name == "onnxruntime":
        pytest.importorskip("onnxruntime")
        from hybrid_lab.engines.onnxruntime import OnnxRuntimeEngine

        return OnnxRuntimeEngine(worth=lambda region: None)
    return engines.get(name)


def difference(found: np.ndarray, wanted: Any) -> float:
    """The largest difference, relative to the largest reference value; infinite for another shape or dtype."""
    wanted = np.asarray(wanted)
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return float("inf")
    if not wanted.size:
        return 0.0
    # Sums that cancel to nothing are rounding errors in eager too: below this everything counts as equal to zero.
    scale = max(float(np.abs(wanted).max()), 1e-2)
    return float(np.abs(found.astype(np.float64) - wanted).max()) / scale


def problems(case: Case, engine: Engine, train: bool) -> list[str]:
    """What differs between the compiled and the eager run of one case."""
    graph = case.graph
    outputs, states, values, tape = run_eagerly(case, train)
    wrt = [index for index, value in enumerate(graph.inputs) if value.node.op.role != "aux"]
    parts = specialize(graph, [a.shape for a in case.arrays], [a.dtype for a in case.arrays], train, wrt)
    forward, backward = engine.compile(parts.forward), engine.compile(parts.backward)
    results = forward(case.arrays, RNG)
    count = len(outputs)
    random = np.random.RandomState(5)
    heads = [random.uniform(-1, 1, output.shape).astype(output.dtype) for output in outputs]
    given = {"input": case.arrays, "output": results[:count], "saved": results[count:], "head": heads}
    gradients = backward([given[kind][index] for kind, index in parts.sources], RNG)
    checks = [
        ("output", results[:count], outputs, FORWARD),
        ("state", results[len(parts.forward.outputs) :], states, FORWARD),
        ("gradient", gradients, gradients_eagerly(case, values, tape, heads, wrt), GRADIENT),
    ]
    found = []
    for what, got, wanted, tolerance in checks:
        assert len(got) == len(wanted)
        for index, (a, b) in enumerate(zip(got, wanted)):
            _counts[f"{what}s"] += 1
            _counts[f"{what}s bit-equal"] += bool(np.array_equal(a, b))
            if not difference(a, b) <= tolerance:
                found.append(f"{what} {index} differs by {difference(a, b):.1e}")
    _counts["graphs"] += 1
    _counts["operators"] += len(graph.operators)
    return found


@pytest.mark.parametrize("name", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("first", range(0, COUNT, CHUNK))
def test_every_engine_follows_eager(name, first):
    engine = engine_named(name)
    for seed in range(first, first + CHUNK):
        case = random_case(seed)
        # Making sessions is what takes the time here: prediction gets every third graph of that engine.
        for train in (True, False) if name == "numpy" or seed % 3 == 0 else (True,):
            found = problems(case, engine, train)
            if found:
                smallest = shrink(case, lambda smaller, train=train: bool(problems(smaller, engine, train)), train)
                mode = "train" if train else "predict"
                pytest.fail(f"seed {seed}, {name}, {mode}: {'; '.join(found)}. Smallest graph that fails:\n{smallest}")


def test_random_graphs_have_what_they_should():
    names: Counter[str] = Counter()
    roles: Counter[str] = Counter()
    sizes = []
    for seed in range(COUNT):
        graph = random_case(seed).graph
        names.update(node.op.name for node in graph.operators)
        roles.update(value.node.op.role for value in graph.inputs)
        sizes.append(len(graph.operators))
    assert {
        "Convolution",
        "Pooling",
        "BatchNorm",
        "LayerNorm",
        "Dropout",
        "Embedding",
        "SliceChannel",
        "Concat",
    } <= set(names)
    assert {"data", "param", "aux"} == set(roles)
    assert len(names) > 40 and max(sizes) > 20


def test_a_failing_graph_shrinks_to_its_smallest_part():
    case = next(case for case in map(random_case, range(100)) if any(n.op.name == "softmax" for n in case.graph.nodes))
    smallest = shrink(case, lambda smaller: any(node.op.name == "softmax" for node in smaller.graph.nodes))
    assert [node.op.name for node in smallest.graph.operators] == ["softmax"]
    assert "softmax(" in str(smallest)


def test_a_wrong_kernel_is_noticed():
    """The test itself: an engine that computes tanh as sinh must not pass."""

    class Wrong(Engine):
        name = title = "wrong"

        def compile(self, graph, **options):
            changed = graph.map(
                lambda node, inputs: (
                    node.replace(op=get("sinh").bind(), inputs=inputs).outputs if node.op.name == "tanh" else None
                )
            )
            return engines.get("numpy").compile(changed)

    x = input_node("x", "data")
    from hybrid_lab.graph.builder import make_node

    case = Case(Graph([x], make_node(get("tanh").bind(), [x]).outputs), [np.array([0.5, 1.0], np.float32)])
    assert [text.split(" by ")[0] for text in problems(case, Wrong(), train=False)] == [
        "output 0 differs",
        "gradient 0 differs",
    ]
