"""Engine tuning, `mx.tune` on a CPU: measures every engine that can run a call, and compares results with NumPy's."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab import engines
from hybrid_lab import ndarray as nd
from hybrid_lab.diagnostics.formatting import called, count, first_line
from hybrid_lab.engines import tuned
from hybrid_lab.engines.engine import Engine
from hybrid_lab.gluon import access
from hybrid_lab.gluon.ahead import arguments
from hybrid_lab.graph.call_graphs import Specialized
from hybrid_lab.graph.graph import Graph
from hybrid_lab.hybridize.structure import flatten
from hybrid_lab.insight import reference
from hybrid_lab.insight.calls import inputs_from
from hybrid_lab.insight.report import InsightReport
from hybrid_lab.insight.table import Column, Row, Table
from hybrid_lab.ndarray import tape
from hybrid_lab.system.progress import Progress

if TYPE_CHECKING:
    from hybrid_lab.gluon.hybrid import HybridBlock

#: How far results may lie from NumPy's, relative to the largest: outputs, gradients.
TOLERANCES = (1e-4, 1e-3)
#: Runs before any is timed: the first ones make sessions, lay out weights and fill caches.
WARM_UP = 3
#: Seconds that an engine is timed for, and how many runs that are at the least and at the most.
BUDGET, FEWEST, MOST = 0.5, 5, 50
#: Seconds in which the threads of the engine that ran last go to sleep.
SETTLE = 0.05

#: A call: returns outputs, and of a recorded call gradients.
Call = Callable[[], tuple[Sequence[np.ndarray], Sequence[np.ndarray]]]


@dataclass(frozen=True)
class EngineTimes:
    """The result for one kind of call.

    role : "training" or "prediction"; engine : the fastest
    seconds : median of a call, by engine; left_out : engine -> why it was not compared
    measured : now, not taken from an earlier time
    """

    role: str
    engine: str
    seconds: Mapping[str, float]
    left_out: Mapping[str, str] = field(default_factory=dict)
    measured: bool = True


@dataclass(repr=False)
class EngineTuning(InsightReport):
    """The result of `mx.tune` on a CPU."""

    name: str
    calls: list[EngineTimes] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def headline(self) -> str:
        """`net0: onnxruntime for prediction, torch for training; 3.2 s`."""
        chosen = ", ".join(f"{call.engine} for {call.role}" for call in self.calls)
        left = sum(len(call.left_out) for call in self.calls)
        left_out = f", {count(left, 'engine')} left out" if left else ""
        return f"{self.name}: {chosen}{left_out}; {self.seconds:.1f} s"

    def _table(self) -> Table:
        table = Table([Column("call"), Column("engine"), *(Column(name, right=True) for name in ("ms", "x fastest")),
                       Column("note", flexible=True)])  # fmt: skip
        for call in self.calls:
            for name, seconds in sorted(call.seconds.items(), key=lambda item: item[1]):
                note = ("chosen" if call.measured else "chosen at an earlier time") if name == call.engine else ""
                times = f"{1e3 * seconds:.3g}", f"{seconds / call.seconds[call.engine]:.2f}"
                table.rows.append(Row([call.role, name, *times, note], strong=name == call.engine))
            for name, why in call.left_out.items():
                table.rows.append(Row([call.role, name, "", "", f"left out: {why}"]))
        return table


def tune_engines(
    net: HybridBlock, inputs: Sequence[object], modes: Sequence[bool], candidates: Mapping[str, Engine], again: bool
) -> EngineTuning:
    """Measure each engine with the model's calls, and keep which is fastest. candidates : by name, NumPy among them"""
    started = time.perf_counter()
    results: list[tuple[list[Graph], EngineTimes]] = []
    progress = Progress(f"tuning {called(net)}", len(modes) * len(candidates), "engines")
    try:
        for number, train in enumerate(modes):
            special, arrays, options = _call_of(net, inputs, train)
            graphs = [special.forward] if special.backward is None else [special.forward, special.backward]
            role = "training" if train else "prediction"
            known = None if again else tuned.recall(graphs)
            if known is not None:
                results.append((graphs, EngineTimes(role, known.engine, known.seconds, measured=False)))
                continue

            def tell(name: str, place: int = number * len(candidates), role: str = role) -> None:
                progress.step(place + list(candidates).index(name), f"{name}, {role}")

            results.append((graphs, measure(role, special, arrays, candidates, options, tell)))
    finally:
        progress.close()
    for graphs, times in results:  # together, so that an interrupt leaves everything unchanged
        if times.measured:
            tuned.remember(graphs, tuned.Tuned(times.engine, dict(times.seconds)))
    access.calls(net).forget_programs()
    return EngineTuning(called(net), [times for _, times in results], time.perf_counter() - started)


def _call_of(net: HybridBlock, inputs: Sequence[object], train: bool) -> tuple[Specialized, list[np.ndarray], Any]:
    """The graphs of a call, the arrays that the sources of their inputs refer to, and the options of engines."""
    leaves, spec = flatten(tuple(map(_filled, arguments(list(inputs)))), f"the input of {called(net)}")
    with tape.Mode(train, train):
        program = access.calls(net).twin(traces=True).program(spec, leaves)
    parameters = program.neutral.parameters
    arrays = [*(leaf.asnumpy() for leaf in leaves), *(parameter.data().asnumpy() for parameter in parameters)]
    flags = access.flags(net)
    return program.special, arrays, {name: bool(flags.get(name)) for name in ("static_alloc", "static_shape")}


def _filled(array: object) -> object:
    """Random numbers in place of zeros. Zeros come from a shape that was given, and would hide wrong results."""
    if not isinstance(array, nd.NDArray) or np.dtype(array.dtype).kind != "f" or array.asnumpy().any():
        return array
    numbers = np.random.default_rng(0).uniform(0.01, 1, array.shape)
    return nd.array(numbers, dtype=array.dtype)


def measure(
    role: str,
    special: Specialized,
    arrays: Sequence[np.ndarray],
    candidates: Mapping[str, Engine],
    options: Mapping[str, bool],
    tell: Callable[[str], None] = lambda name: None,
) -> EngineTimes:
    """Measure the engines one after the other, each alone and warmed up; NumPy first, as the reference."""
    seconds: dict[str, float] = {}
    left_out: dict[str, str] = {}
    wanted: tuple[Sequence[np.ndarray], Sequence[np.ndarray]] | None = None
    for name in sorted(candidates, key=lambda name: name != "numpy"):
        tell(name)
        try:
            call, release = _compiled(candidates[name], special, arrays, options)
            try:
                results, taken = _timed(call)
            finally:
                release()
        except Exception as error:  # engines raise errors of any kind; a failing engine is left out with its reason
            if name == "numpy":
                raise
            left_out[name] = f"not possible: {first_line(error)}"
            continue
        finally:
            call = release = None  # type: ignore[assignment]
            gc.collect()
            candidates[name].trim()
        wanted = results if wanted is None else wanted
        why = next(filter(None, map(difference, results, wanted, TOLERANCES)), "")
        if why:
            left_out[name] = f"other numbers than NumPy's: {why}"
        else:
            seconds[name] = taken
    return EngineTimes(role, min(seconds, key=seconds.__getitem__), seconds, left_out)


def _compiled(
    engine: Engine, special: Specialized, arrays: Sequence[np.ndarray], options: Mapping[str, bool]
) -> tuple[Call, Callable[[], None]]:
    """A call of the engine, as a program makes it, and a function that frees its memory."""
    hoisted: list[np.ndarray] = []
    if special.prologue is not None:
        prologue = engines.get("numpy").compile(special.prologue)
        hoisted = prologue([arrays[index] for index in special.prologue_sources])
    operands = inputs_from(special.forward_sources, input=arrays, hoisted=hoisted)
    rng = (0, 0)
    split = special.split
    if split is None:
        executable = engine.compile(special.forward, **options)
        executable.pack(operands)

        def release() -> None:
            executable.unpack()
            executable.release()

        return lambda: (executable.run(operands, rng), ()), release
    training = engine.compile_training(split, **options)
    random = np.random.default_rng(1)
    types = [(value.shape, value.dtype) for value in split.forward.outputs[: split.num_outputs]]
    heads = [random.uniform(0.5, 1, shape).astype(dtype) for shape, dtype in types]

    def call() -> tuple[Sequence[np.ndarray], Sequence[np.ndarray]]:
        results, state = training.begin(operands, rng)
        values = inputs_from(split.sources, input=arrays, output=results, saved=state.saved, head=heads)
        return results, training.finish(state, values, rng)

    return call, training.release


def _timed(call: Call, clock: Callable[[], float] = time.perf_counter) -> tuple[Any, float]:
    """The results, and the median of the seconds that a call takes."""
    for _ in range(WARM_UP):
        results = call()
    time.sleep(SETTLE)
    times: list[float] = []
    while len(times) < FEWEST or (sum(times) < BUDGET and len(times) < MOST):
        start = clock()
        results = call()
        times.append(clock() - start)
    return results, statistics.median(times)


def difference(results: Sequence[np.ndarray], wanted: Sequence[np.ndarray], tolerance: float) -> str:
    """The first difference from NumPy's results, in words; "" if there is none. tolerance : of the largest value"""
    for index, (result, value) in enumerate(zip(results, wanted, strict=True)):
        apart, floating = reference.difference(result, value), value.dtype.kind == "f"
        if np.isinf(apart):
            return f"result {index} has another shape or dtype, or has NaN or infinity in other places"
        if apart > (tolerance if floating else 0):
            return f"result {index} differs" + (f" by {apart:.1g} of the largest value" if floating else "")
    return ""
