"""Random graphs: every engine gives eager's numbers, forward and gradient, in training, prediction and inference.

HYBRID_LAB_GRAPHS=2000 (make test-graphs) checks the first 2,000; the default is a share that fits the other tests.
`python -m tests.engines.reproduce 1234 onnxruntime train` runs one of them and prints its smallest failing part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hybrid_lab import engines
from hybrid_lab.engines import Engine
from hybrid_lab.graph import Builder, Graph, input_node
from hybrid_lab.graph.builder import make_node
from hybrid_lab.graph.call_graphs import Specialized
from hybrid_lab.graph.specialize import specialize
from hybrid_lab.ops.framework.operator import get
from tests import quick
from tests.engines.graph_cases import RNG, Case, gradients_eagerly, run_eagerly, shrink
from tests.engines.kernel_counts import count_kernels
from tests.engines.random_graphs import random_case
from tests.engines.small_tiles import use_small_tiles
from tests.engines.steadiness import members, sorted_out
from tests.failures import Failures
from tests.triton_device import use_triton

COUNT, CHUNK = quick.count("HYBRID_LAB_GRAPHS", 150, 400), 25
FORWARD, GRADIENT = 1e-5, 1e-4
"""Tolerances in float32, relative to the largest reference value."""
ROUNDING, SAMPLES = 16, 4
"""Where sums cancel: how many times as far as eager, at its worst of so many runs, a result may be from float64's."""

_counts: Counter[str] = Counter()


@pytest.fixture(scope="module", autouse=True)
def hand_counts_over(totals):
    """They are printed at the end of the run."""
    yield
    totals.update({f"{what} of random graphs": count for what, count in _counts.items()})


def engine_named(name: str) -> Engine:
    """The engine; ONNX Runtime with every region in a session, however small, Triton in its interpreter."""
    if name == "triton":
        pytest.importorskip("triton")
        pytest.importorskip("torch")
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


class Eager:
    """The eager run of a case: outputs, states and, where it is recorded, gradients."""

    def __init__(self, case: Case, train: bool, recorded: bool):
        self.case, self.train, self.recorded = case, train, recorded
        self.outputs, self.states, values, tape = run_eagerly(case, train)
        self.heads = heads_of(self.outputs) if recorded else []
        self.gradients = gradients_eagerly(case, values, tape, self.heads, case.wrt) if recorded else []
        self._again: dict[int, Any] = {}

    def again(self, change: int) -> Any:
        """(in float64, in float32): the same run with the inputs changed a little; None where a kernel refuses it."""
        if change not in self._again:
            case = self.case.changed(change)
            try:
                exact = Eager(case.in_float64(), self.train, self.recorded)
                self._again[change] = exact, Eager(case, self.train, self.recorded)
            except Exception:  # a kernel that knows its own dtypes only
                self._again[change] = None
        return self._again[change]

    def close(self, what: str, index: int, found: np.ndarray, tolerance: float) -> tuple[bool, float]:
        """Whether `found` is eager's value but for rounding.

        Where sums cancel, eager has few correct digits itself: then the distance from float64 counts, beside those of
        eager, for these inputs and for some that are nearly the same.
        """
        wanted = np.asarray(getattr(self, what)[index])
        apart = difference(found, wanted)
        if apart <= tolerance or not np.isfinite(apart):
            return apart <= tolerance, apart
        pairs = [self.again(change) for change in range(SAMPLES)]
        if None in pairs:
            return False, apart
        values = [[np.asarray(getattr(run, what)[index], np.float64) for run in pair] for pair in pairs]
        if any(exact.shape != wanted.shape for exact, _ in values):
            return False, apart
        _counts["values judged by float64"] += 1
        rounding = max(float(np.abs(exact - eager).max()) for exact, eager in values)
        return float(np.abs(found - values[0][0]).max()) <= ROUNDING * rounding, apart


def heads_of(outputs: list[np.ndarray]) -> list[np.ndarray]:
    random = np.random.RandomState(5)
    return [random.uniform(-1, 1, output.shape).astype(output.dtype) for output in outputs]


def run_compiled(case: Case, engine: Engine, parts: Specialized, heads: list[np.ndarray], packed: bool) -> list[Any]:
    """Outputs with what is kept, new states, and gradients of the compiled programs."""
    hoisted: list[np.ndarray] = []
    if parts.prologue is not None:
        hoisted = engine.compile(parts.prologue)([case.arrays[index] for index in parts.prologue_sources], RNG)
    given: dict[str, Any] = {"input": case.arrays, "hoisted": hoisted}
    inputs = [given[kind][index] for kind, index in parts.forward_sources]
    forward = engine.compile(parts.forward)
    if packed:
        forward.pack(inputs)
    results = forward(inputs, RNG)
    programs = [forward] if parts.backward is None else [forward, engine.compile(parts.backward)]
    _counts.update({f"{kind} kernels": count for kind, count in count_kernels(programs).items()})
    if parts.backward is None:
        return [results, []]
    count = len(case.graph.outputs)
    given = {"input": case.arrays, "output": results[:count], "saved": results[count:], "head": heads}
    return [results, programs[1]([given[kind][index] for kind, index in parts.sources], RNG)]


class Reference:
    """What engines are compared with, and what they compile: one case in one mode, run eagerly and specialized."""

    def __init__(self, case: Case, train: bool, recorded: bool):
        self.eager = Eager(case, train, recorded)
        shapes, dtypes = [a.shape for a in case.arrays], [a.dtype for a in case.arrays]
        self.parts = specialize(case.graph, shapes, dtypes, train, case.wrt if recorded else ())


def problems(
    case: Case, engine: Engine, train: bool, recorded: bool = True, reference: Reference | None = None
) -> list[str]:
    """What differs between the compiled and the eager run of one case. reference : of this case in this mode"""
    graph, reference = case.graph, reference or Reference(case, train, recorded)
    eager, parts = reference.eager, reference.parts
    results, gradients = run_compiled(case, engine, parts, eager.heads, packed=not recorded and not train)
    count, states = len(eager.outputs), results[len(parts.forward.outputs) :]
    checks = [("outputs", results[:count], FORWARD), ("states", states, FORWARD), ("gradients", gradients, GRADIENT)]
    found = []
    for what, got, tolerance in checks:
        assert len(got) == len(getattr(eager, what))
        for index, value in enumerate(got):
            _counts[what] += 1
            _counts[f"bit-equal {what}"] += bool(np.array_equal(value, getattr(eager, what)[index]))
            fine, apart = eager.close(what, index, value, tolerance)
            if not fine:
                found.append(f"{what[:-1]} {index} differs by {apart:.1e}")
    _counts["runs"] += 1
    _counts["operators"] += len(graph.operators)
    return found


MODES = {"train": (True, True), "predict": (False, True), "infer": (False, False)}
"""name -> (training, recorded). Inference hoists what depends on parameters alone, and packs them."""


def modes_of(name: str, seed: int) -> list[str]:
    """Making sessions is what takes the time: prediction and inference get every third graph of ONNX Runtime. Triton's
    interpreter gets every fourth graph, in training.
    """
    if name == "triton":
        return ["train"] * (seed % 4 == 0)
    return [mode for index, mode in enumerate(MODES) if name == "numpy" or index in (0, 1 + seed % 3)]


def complain(seed: int, name: str, mode: str, found: list[str], case: Case) -> str:
    """What is wrong, how to see it again, and the smallest graph that fails."""
    engine = engine_named(name)

    def fails(smaller: Case) -> bool:
        try:
            return bool(problems(smaller, engine, *MODES[mode]))
        except Exception:
            return not found

    smallest = shrink(case, fails, MODES[mode][0])
    return (
        f"seed {seed}, {name}, {mode}: {'; '.join(found) or 'an error'}. Smallest graph that fails:\n{smallest}\n"
        f"again: python -m tests.engines.reproduce {seed} {name} {mode}"
    )


@pytest.mark.parametrize("names", [("numpy", "onnxruntime"), ("triton",)], ids=" and ".join)
@pytest.mark.parametrize("first", range(0, COUNT, CHUNK))
def test_every_engine_follows_eager(names, first, monkeypatch):
    """Each graph is made, and in each mode run eagerly and specialized, once for all engines. Of an engine the first
    graph that fails is reported.
    """
    failures, failed = Failures(), set()
    for seed in range(first, min(first + CHUNK, COUNT)):
        references: dict[str, Reference] = {}
        case = random_case(seed)
        for name in names:
            for mode in modes_of(name, seed):
                if name not in failed:
                    failed.add(name)
                    with failures.of(f"seed {seed}, {name}, {mode}"), monkeypatch.context() as patch:
                        check(seed, name, mode, case, references, patch)
                        failed.remove(name)
    failures.raise_all()


def check(seed: int, name: str, mode: str, case: Case, references: dict[str, Reference], patch: Any) -> None:
    """Run a graph on an engine. references : what was computed for this graph, by mode; what is missing is added"""
    if name == "triton":
        use_triton(patch)
        if seed % 16 == 0:  # so that kernels have several tiles, loops and parts
            use_small_tiles(patch, loops=seed % 32 == 0, split=seed % 64 < 32)
    engine = engine_named(name)
    try:
        if mode not in references:
            references[mode] = Reference(case, *MODES[mode])
        found = problems(case, engine, *MODES[mode], references[mode])
    except Exception as error:
        error.add_note(complain(seed, name, mode, [], case))
        raise
    if found:
        pytest.fail(complain(seed, name, mode, found, case))


def test_random_graphs_have_what_they_should():
    names: Counter[str] = Counter()
    roles: Counter[str] = Counter()
    sizes, outputs, draws, shared = [], [], 0, 0
    for seed in range(len(members())):
        graph = random_case(seed).graph
        names.update(node.op.name for node in graph.operators)
        roles.update(value.node.op.role for value in graph.inputs)
        sizes.append(len(graph.operators))
        outputs.append(len(graph.outputs))
        draws += graph.draws > 0
        shared += any(len(users) > 1 for value, users in graph.users().items() if value.node.inputs)
    assert {"data", "param", "aux"} == set(roles)
    assert max(sizes) > 30 and max(outputs) > 3 and draws > 20 and shared > 50
    missing = {member.record.name for member in members()} - set(names)
    # A result that jumps, or that nobody reads, leaves no trace in a graph; most of the records must be there.
    assert len(missing) < len(members()) / 10, sorted(missing)


def test_all_records_take_part_that_can(record_property):
    taking, refused = sorted_out()
    record_property("records", f"{len(taking)} of {len(taking) + len(refused)}")
    kinds = Counter(reason.partition(":")[0] for reason in refused.values())
    _counts["records to choose from"] += len(taking)
    assert len(taking) > 4 * len(refused), refused
    assert {"Convolution", "BatchNorm", "Dropout", "softmax", "Embedding"} <= {member.record.name for member in taking}
    assert all(reason for reason in kinds)


def test_a_failing_graph_shrinks_to_its_smallest_part():
    case = next(case for case in map(random_case, range(100)) if any(n.op.name == "softmax" for n in case.graph.nodes))
    smallest = shrink(case, lambda smaller: any(node.op.name == "softmax" for node in smaller.graph.nodes))
    assert [node.op.name for node in smallest.graph.operators] == ["softmax"]
    assert "softmax(" in str(smallest)


# What random graphs have found, at its smallest; each is kept here because generated graphs change with the records.


def built(compute: Callable[..., Any], *arrays: np.ndarray) -> Case:
    """The graph of `compute(F, *inputs)`; arrays from number 3 on are states, as of BatchNorm."""
    builder = Builder()
    roles = ["data", "param", "param", "aux", "aux"]
    inputs = [input_node(f"x{index}", role) for index, (role, _) in enumerate(zip(roles, arrays))]
    outputs = compute(builder, *map(builder.expr, inputs))
    return Case(Graph(inputs, [outputs.value]), list(arrays))


def vector(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


FOUND = {
    "gradient of a Convolution of one image through a transpose": built(
        lambda F, x, weight, bias: F.transpose(F.Convolution(x, weight, bias, kernel=(2, 2), pad=(1, 0), num_filter=2)),
        *(np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 4, 2, 2),),
        *(np.linspace(-1, 1, 32, dtype=np.float32).reshape(2, 4, 2, 2), vector(1, 2)),
    ),
    "LayerNorm of a vector": built(
        lambda F, x, gamma, beta: F.LayerNorm(x, gamma, beta), vector(0.5, 1), vector(1, 2), vector(0, 1)
    ),
    "BatchNorm that does not read its scale": built(
        lambda F, x, *rest: F.BatchNorm(x, *rest, eps=0.1),
        *(vector(1, 2, 4)[:, None] * vector(1, -1), vector(2, 3), vector(0, 1), vector(1, 2), vector(1, 3)),
    ),
}


@pytest.mark.parametrize("name", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("what", FOUND)
def test_graphs_that_once_failed(what, mode, name):
    assert problems(FOUND[what], engine_named(name), *MODES[mode]) == []


class WrongTanh(Engine):
    """Computes tanh as sinh."""

    name = title = "wrong"

    def compile(self, graph, **options):
        def rewrite(node, inputs):
            wrong = node.replace(op=get("sinh").bind(), inputs=inputs)
            return wrong.outputs if node.op.name == "tanh" else None

        return engines.get("numpy").compile(graph.map(rewrite))


def test_a_wrong_kernel_is_noticed():
    """The test itself: an engine that computes something else must not pass."""
    x = input_node("x", "data")
    case = Case(Graph([x], make_node(get("tanh").bind(), [x]).outputs), [np.array([0.5, 1.0], np.float32)])
    assert [text.split(" by ")[0] for text in problems(case, WrongTanh(), train=False)] == [
        "output 0 differs",
        "gradient 0 differs",
    ]


def test_a_wrong_kernel_in_a_random_graph_shrinks_to_it(monkeypatch):
    case = next(case for case in map(random_case, range(100)) if problems(case, WrongTanh(), True))
    smallest = shrink(case, lambda smaller: bool(problems(smaller, WrongTanh(), True)))
    assert [node.op.name for node in smallest.graph.operators] == ["tanh"]
