"""Measure a compiled call step by step, and the same operators run eagerly, with the tape if it is recorded."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np

from hybrid_lab.engines import Executable
from hybrid_lab.engines import registry as engines
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Node, Value
from hybrid_lab.graph.passes.partition import Region
from hybrid_lab.insight.calls import Compiled, gradients
from hybrid_lab.insight.checking import alone
from hybrid_lab.insight.reference import operands_of, region_in
from hybrid_lab.insight.table import OperatorRow, count, row_of
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.invoke import invoke
from hybrid_lab.ndarray.ndarray import NDArray

_PATIENCE = 1.5
"""Seconds that one kind of measurement may take before it makes do with fewer runs."""


@dataclass
class StepRow(OperatorRow):
    """One step of a compiled program: an operator, a region of several, or an operator inside a region.

    seconds : median; inside a region the region's time, shared out in proportion to each operator's time alone
        (`estimated`); share : of all steps; bytes_moved : read and written
    eager_seconds : median time of the same operators run eagerly, None if the step has no eager counterpart
    """

    seconds: float
    share: float
    bytes_moved: int
    eager_seconds: float | None
    region: int | None = None
    inside: bool = False
    estimated: bool = False


def alternately(sides: Sequence[Callable[[], object]], runs: int) -> list[float]:
    """Median seconds of each function. They run in turn, so that a disturbance affects both."""
    taken: list[list[float]] = [[] for _ in sides]
    started = time.perf_counter()
    for number in range(runs):
        for times, side in zip(taken, sides, strict=True):
            begin = time.perf_counter()
            side()
            times.append(time.perf_counter() - begin)
        if _enough(number, time.perf_counter() - started, 2 * _PATIENCE):
            break
    return [statistics.median(times) for times in taken]


def _enough(number: int, taken: float, patience: float) -> bool:
    """Whether run `number` (from 0) was the last: three runs at least, except for very long runs."""
    return taken > patience and (number >= 2 or taken > 3 * patience)


def _repeat(measure: Callable[[], np.ndarray], runs: int) -> tuple[np.ndarray, int]:
    """Medians of the results of `measure`, and the number of runs."""
    measure()
    samples, started = [], time.perf_counter()
    for number in range(runs):
        samples.append(measure())
        if _enough(number, time.perf_counter() - started, _PATIENCE):
            break
    return np.median(np.array(samples), axis=0), len(samples)


# -- eager, operator by operator -------------------------------------------------------------------------------------

#: (forward or backward, node of the neutral graph) -> seconds.
Times = dict[tuple[str, Node], float]


def eager_times(compiled: Compiled, heads: Sequence[np.ndarray] | None, runs: int) -> Times:
    """Median time of each operator of the traced graph, run eagerly; with the tape if the call is recorded."""
    graph = compiled.neutral.graph
    nodes = [node for node in graph.nodes if not isinstance(node.op, (Input, Constant))]
    rows = max(len(nodes), 1)

    def measure() -> np.ndarray:
        times = np.zeros(2 * rows)
        arrays = [NDArray.wrap(array.copy() if compiled.training else array) for array in compiled.arrays]
        for index in compiled.special.wrt:
            arrays[index].attach_grad()
        values: dict[Value, Any] = dict(zip(graph.inputs, arrays, strict=True))
        for node in graph.nodes:
            if isinstance(node.op, Constant):
                values[node.outputs[0]] = NDArray.wrap(np.array(node.op.array))
        rng, clock = compiled.rng, time.perf_counter
        with tape.Mode(compiled.recording, compiled.training):
            for index, node in enumerate(nodes):
                operands = operands_of(node, values)
                draw = (rng[0], rng[1] + node.draw) if node.draw is not None else None
                begin = clock()
                result = invoke(node.op, operands, rng=draw)
                times[index] = clock() - begin
                results = result if isinstance(result, (list, tuple)) else (result,)
                values.update(zip(node.outputs, results, strict=False))
        if heads is not None:
            _backward_times([values[value] for value in graph.outputs], heads, nodes, values, times[rows:])
        return times

    median, _ = _repeat(measure, runs)
    times_by_node: Times = {("forward", node): float(median[index]) for index, node in enumerate(nodes)}
    if heads is not None:
        backward_times = ((node, float(median[rows + index])) for index, node in enumerate(nodes))
        times_by_node |= {("backward", node): spent for node, spent in backward_times if spent > 0}
    return times_by_node


def _backward_times(
    outputs: Sequence[NDArray],
    heads: Sequence[np.ndarray],
    nodes: Sequence[Node],
    values: Mapping[Value, Any],
    times: np.ndarray,
) -> None:
    """Time each operator's part of the backward by wrapping its entry on the tape."""
    for index, node in enumerate(nodes):
        link = values[node.outputs[0]].tape_link
        if isinstance(link, tape.Output) and link.node.entry is not None:
            link.node.entry = _Timed(link.node.entry, times, index)
    gradients(outputs, heads, ())


class _Timed(tape.Entry):
    """An entry of the tape that notes how long its backward takes."""

    def __init__(self, inner: tape.Entry, times: np.ndarray, index: int):
        self.inner, self.times, self.index, self.name = inner, times, index, inner.name

    def backward(self, douts: list[Any], needed: tuple[bool, ...]) -> Sequence[Any]:
        begin = time.perf_counter()
        result = self.inner.backward(douts, needed)
        self.times[self.index] += time.perf_counter() - begin
        return result

    def release(self) -> None:
        self.inner.release()


# -- hybrid, step by step --------------------------------------------------------------------------------------------


class MeasuredStep(NamedTuple):
    """A row, the node of the executable (or of a region in it) that it is about, and the operators that this runs."""

    row: StepRow
    node: Node
    operators: list[Node]


def measure_steps(
    compiled: Compiled, heads: Sequence[object] | None, nodes: Times, runs: int
) -> tuple[list[MeasuredStep], int, float, set[Any]]:
    """The rows of all parts, the number of runs, the time of the prologue, and the assigned eager times."""
    rng = compiled.rng
    rows: list[MeasuredStep] = []
    counted, once = runs, 0.0

    def measure(part: str, executable: Executable, graph: Graph, inputs: list[list[Any]]) -> list[Sequence[Any]]:
        nonlocal counted, once
        watched = executable.watched()
        times, counted = _repeat(partial(watched.times, inputs[0], rng), runs)
        if part == "prologue":
            once = float(times.sum())
        for index, node in enumerate(watched.steps):
            rows.extend(_step_rows(part, node, float(times[index]), len(rows)))
        return [executable(inputs[0], rng)]

    compiled.run_parts(heads, measure)
    matched = _give_eager_times(rows, nodes)
    total = sum(row.seconds for row, *_ in rows if not row.inside and row.part != "prologue") or 1.0
    for row, *_ in rows:
        row.share = row.seconds / total if row.part != "prologue" else 0.0
    return rows, counted, once, matched


def _step_rows(part: str, node: Node, seconds: float, number: int) -> list[MeasuredStep]:
    """The row of a step with the nodes it runs; of a region also a row per operator inside."""
    region = region_in(node)
    if region is None:
        return [MeasuredStep(_row(part, node, "numpy", seconds, _moved(node)), node, [node])]
    if node.op.name == "triton":
        return [MeasuredStep(_kernel_row(part, node, region, seconds, number), node, list(region.nodes))]
    whole = _row(part, node, node.op.name, seconds, _moved(node))
    whole.operator, whole.type, whole.region = count(len(region.nodes), "operator"), "", number
    if len(region.nodes) == 1:
        inner = region.nodes[0]
        whole = _row(part, inner, node.op.name, seconds, _moved(node))
        whole.region = number
        return [MeasuredStep(whole, node, [inner])]
    spent = [_time_alone(node.op.name, inner) for inner in region.nodes]
    total = sum(spent) or 1.0
    rows = [MeasuredStep(whole, node, list(region.nodes))]
    for inner, own in zip(region.nodes, spent, strict=True):
        row = _row(part, inner, node.op.name, seconds * own / total, _moved(inner))
        row.region, row.inside, row.estimated = number, True, True
        rows.append(MeasuredStep(row, inner, [inner]))
    return rows


def _kernel_row(part: str, node: Node, region: Region, seconds: float, number: int) -> StepRow:
    """The row of a kernel. It has no rows inside, because the time of one operator in a kernel cannot be measured."""
    from hybrid_lab.engines.triton.kernels import moved_by_step

    real = [inner for inner in region.nodes if not inner.op.view] or list(region.nodes)
    row = _row(part, real[-1], node.op.name, seconds, moved_by_step(node.op))  # type: ignore[arg-type]
    row.operator, row.region = node.op.label, number  # type: ignore[attr-defined]
    if len(real) > 1:
        row.operator += f", {count(len(real), 'operator')}"
        scopes = [inner.scope for inner in real]
        row.block = ".".join(takewhile(bool, map(_same, zip(*(scope.split(".") for scope in scopes)))))
    return row


def _same(names: tuple[str, ...]) -> str:
    """The name if all are equal, else "" """
    return names[0] if len(set(names)) == 1 else ""


_alone: dict[Any, float] = {}
"""Seconds that an operator takes by itself, by engine, operator, shapes and dtypes."""


def _time_alone(runs_on: str, node: Node) -> float:
    types = tuple((v.shape, v.dtype.name) if isinstance(v, Value) else repr(v) for v in node.inputs)
    key = (runs_on, node.op, types)
    if key not in _alone:
        compiled = alone(engines.find(runs_on), node) if node.draw is None and not node.op.view else None
        if compiled is None:
            return 0.0
        graph, executable = compiled
        random = np.random.RandomState(0)
        inputs = [random.uniform(0, 1, value.shape).astype(value.dtype) for value in graph.inputs]
        if len(_alone) > 4096:
            _alone.clear()

        def measure() -> np.ndarray:
            begin = time.perf_counter()
            executable(inputs)
            return np.array(time.perf_counter() - begin)

        try:
            _alone[key] = float(_repeat(measure, 5)[0])
        except Exception:  # a kernel may refuse random numbers in any way, where it needs indices for example
            _alone[key] = 0.0
    return _alone[key]


def _row(part: str, node: Node, runs_on: str, seconds: float, moved: int) -> StepRow:
    return StepRow(*row_of(part, node, runs_on), seconds, 0.0, moved, None)


def _moved(node: Node) -> int:
    """Bytes that a step reads and writes; none for a view."""
    if node.op.view:
        return 0
    read = sum(
        item.nbytes
        for index, item in enumerate(node.inputs)
        if isinstance(item, Value) and (region_in(node) is not None or node.op.variadic or node.op.reads_values(index))
    )
    return read + sum(value.nbytes for value in node.outputs[: node.op.signature.visible])


def _give_eager_times(rows: Sequence[MeasuredStep], nodes: Times) -> set[Any]:
    """Put each operator's eager time on its row: the row of the same Block, line and operator (or of an operator from
    its lowering), else of the same Block and line; of several rows, on the slowest. Returns the keys that found one.
    """
    opened = {(row.part, row.region) for row, *_ in rows if row.inside}
    leaves = [(row, row_nodes) for row, _, row_nodes in rows if row.inside or (row.part, row.region) not in opened]
    places: dict[Any, list[StepRow]] = {}
    for row, row_nodes in leaves:
        part = "backward" if row.part == "backward" else "forward"
        for node in row_nodes:
            where = part, node.scope, node.location
            for key in ((*where, node.op.name), where, (*where, "composite", node.composite)):
                places.setdefault(key, []).append(row)
    matched: set[Any] = set()
    taken: set[int] = set()
    begins: dict[int, int] = {}  # of a list of rows, how many at its beginning are taken: a loop may give thousands
    for (part, node), spent in nodes.items():
        where = part, node.scope, node.location
        options = places.get((*where, node.op.name)) or places.get((*where, "composite", node.name))
        options = options or (places.get(where) if part == "backward" else None)
        if not options:
            continue
        if part == "backward":
            free = [row for row in options if id(row) not in taken] or options
            best = max(free, key=lambda row: row.seconds)
        else:
            begin = begins.get(id(options), 0)
            while begin < len(options) and id(options[begin]) in taken:
                begin += 1
            begins[id(options)] = begin
            best = options[begin] if begin < len(options) else options[0]
        taken.add(id(best))
        best.eager_seconds = (best.eager_seconds or 0.0) + spent
        matched.add((part, node))
    inside: dict[Any, float] = {}
    for row, *_ in rows:
        if row.inside:
            place = row.part, row.region
            inside[place] = inside.get(place, 0.0) + (row.eager_seconds or 0.0)
    for row, *_ in rows:
        if not row.inside and (row.part, row.region) in opened:
            row.eager_seconds = inside[row.part, row.region]
    return matched
