"""Overlays of a picture: for each node and box its time, its memory, its values, its gradients, or its engine.

Times and values are measured on the graphs of a compiled program, part by part: no code of the model runs, and nothing
of it changes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.diagnostics.formatting import count, visible
from hybrid_lab.engines import Executable
from hybrid_lab.engines.report import format_bytes
from hybrid_lab.gluon import access
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.memory.packing import Allocation
from hybrid_lab.graph.memory.plan import MemoryPlan, plan
from hybrid_lab.graph.node import Node
from hybrid_lab.graph.passes.infer import infer
from hybrid_lab.hybridize.compiled_call import CompiledCall
from hybrid_lab.hybridize.structure import flatten
from hybrid_lab.insight.calls import Compiled, running_call
from hybrid_lab.insight.one_operator import operator_time, operator_values
from hybrid_lab.insight.random_inputs import random_inputs, reads_whole_numbers
from hybrid_lab.insight.states import block_at, blocks_below
from hybrid_lab.insight.summary import Summary, number, summarize
from hybrid_lab.insight.summary_batch import SummaryBatch
from hybrid_lab.insight.table import milliseconds
from hybrid_lab.insight.timing import eager_times, measure_steps
from hybrid_lab.insight.values import look_at_values
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.messages.graphs import GraphProgram
from hybrid_lab.lab.messages.measured import MeasuredOn, Moment, OverlayItem, OverlayKind, OverlayReply, StepMoment
from hybrid_lab.lab.picture.graph_view import chosen, picture_for, programs_of
from hybrid_lab.lab.picture.kept_inputs import KeptInputs
from hybrid_lab.lab.picture.nodes import Picture
from hybrid_lab.lab.picture.plain_block import Part, Whole
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.interpret import interpret
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.system.memory import without_collecting

_M = TypeVar("_M", Moment, StepMoment)

_RUNS = 10
_SLOWEST = 5
_MOMENTS = 2000
"""Points of a timeline at most."""


@dataclass
class _Cell:
    """What is known of a node or box. value : the number; eager : seconds in eager mode

    short : the number as text; text : in words, "" where `short` says all
    """

    value: float | None = None
    eager: float | None = None
    short: str = ""
    text: str = ""
    bad: bool = False


@dataclass
class _Overlay:
    """cells : by id of the picture; total : what shares are parts of, None for the largest value of an operator"""

    unit: str
    measured_on: MeasuredOn = ""
    cells: dict[str, _Cell] = field(default_factory=dict)
    total: float | None = None
    headline: str = ""
    marked: list[str] = field(default_factory=list)
    timeline: list[Moment] = field(default_factory=list)
    step: list[StepMoment] = field(default_factory=list)
    missing: str = ""


@dataclass(frozen=True)
class Data:
    """What to measure on: variables by their names, as `x, y`; of "" the inputs that were kept, else random numbers."""

    names: str = ""
    namespace: Mapping[str, object] = field(default_factory=dict)
    kept: KeptInputs | None = None


def overlay(net: Block, path: str, program: str, kind: OverlayKind, data: Data, busy: bool) -> OverlayReply:
    """The reply of the request `overlay`, by the ids of the `graph` reply to the same path and program.

    busy : a cell is running
    Raises KeyError for an unknown path, RequestError for data that do not fit and for a measurement while a cell runs.
    """
    found = programs_of(net, path)
    shown = None if isinstance(found, str) else chosen(found, program)
    drawn = None if shown is None else shown.show().program
    if shown is None or drawn is None:
        return _reply(kind, "", None, _Overlay("", missing=found if isinstance(found, str) else "There is no graph."))
    if busy and kind in ("time", "values"):
        raise RequestError(
            "busy",
            f"a cell is running: the {kind} overlay runs the graph, which would disturb it",
            "Ask again when the cell is done. Memory, engines and gradients can be shown at any time.",
        )
    with without_collecting(collect=False):  # thousands of records, none of them in a cycle
        picture = picture_for(drawn, net, path)
        if isinstance(picture, Whole):
            return _reply(kind, shown.entry["id"], picture, _of_whole(kind, picture, data))
        block = block_at(net, path)
        assert isinstance(block, HybridBlock)
        source = _Source(net, path, block, shown.entry, picture, data)
        return _reply(kind, shown.entry["id"], picture, _KINDS[kind](source))


def _of_whole(kind: OverlayKind, whole: Whole, data: Data) -> _Overlay:
    """The overlay of a plain Block: the overlays of the graphs in its picture together."""
    if data.names and kind in ("time", "values"):
        raise RequestError(
            "failed",
            "a plain Block runs as Python, so its Blocks cannot be measured on inputs of the whole",
            "Leave the variables out, or select one of its Blocks and name the inputs of that.",
        )
    parts: list[tuple[Part | None, _Overlay]] = [
        (part, _KINDS[kind](_Source(part.net, part.path, part.block, part.entry, part.picture, data)))
        for part in whole.parts
    ]
    if (eager := _of_eager(kind, whole)) is not None:
        parts.append((None, eager))
    known = [(part, result) for part, result in parts if not result.missing]
    taken = {result.measured_on for part, result in known if part is not None or len(known) == 1}
    measured_on: MeasuredOn = "random" if "random" in taken else next(iter(taken), "")
    whole_result = _Overlay(known[0][1].unit if known else "", measured_on)
    for _, result in known:
        whole_result.cells |= result.cells
        whole_result.timeline += result.timeline
        whole_result.marked += result.marked
        if result.total is not None:
            whole_result.total = (whole_result.total or 0.0) + result.total
    if not known:
        whole_result.missing = parts[0][1].missing if parts else "None of its Blocks has a graph."
        return whole_result
    cells = whole_result.cells
    if kind != "values":  # of which the first that is bad stays the first
        whole_result.marked = sorted(whole_result.marked, key=lambda each: -(cells[each].value or 0.0))
    whole_result.marked = whole_result.marked[:_SLOWEST]
    whole_result.headline = f"{_words_of_whole(kind, whole_result)} in {_places(known)}"
    if kind in ("time", "values"):
        numbers = "kept inputs of its call" if measured_on == "kept" else "random numbers of its call's shapes"
        whole_result.headline += f", each by itself on {numbers}"
        if any(cell.bad for cell in whole_result.cells.values()) and measured_on == "random":
            whole_result.headline += f": NaN {_BY_CHANCE}"
    without = [result.missing for _, result in parts if result.missing]
    whole_result.headline += f"; {count(len(without), 'graph')} without: {without[0]}" if without else ""
    return whole_result


def _of_eager(kind: OverlayKind, whole: Whole) -> _Overlay | None:
    """Times, values, and bytes of the results, of the operators that a plain Block calls in eager mode, between its
    graphs. Times and values are measured with random numbers.
    """
    cells = {}
    for row, item in whole.eager:
        if kind == "time" and item.op is not None:
            seconds = operator_time(item.op, item.takes, item.scalars, item.training)
            if seconds is not None:
                words = milliseconds(seconds)
                cells[row["id"]] = _Cell(seconds, None, words, f"{words} in eager mode")
        elif kind == "values" and item.op is not None:
            results = operator_values(item.op, item.takes, item.scalars, item.training)
            if results:
                cells[row["id"]] = _values_cell([*map(summarize, results[: max(item.op.signature.visible, 1)])], True)
        elif kind == "memory" and item.gives:
            size = sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in item.gives)
            cells[row["id"]] = _Cell(float(size), short=format_bytes(size))
    if not cells:
        return None
    if kind == "memory":
        return _Overlay("B", cells=cells)
    if kind == "values":
        return _Overlay("", "random", cells, marked=[identity for identity, cell in cells.items() if cell.bad][:1])
    ranked = sorted(cells, key=lambda each: -(cells[each].value or 0.0))
    return _Overlay("s", "random", cells, sum(cell.value or 0.0 for cell in cells.values()), marked=ranked[:_SLOWEST])


def _places(known: Sequence[tuple[Part | None, _Overlay]]) -> str:
    """`3 calls of its Blocks and 1 operator between them`."""
    calls = sum(part is not None for part, _ in known)
    between = sum(len(result.cells) for part, result in known if part is None)
    words = f"{count(calls, 'call')} of its Blocks"
    return f"{words} and {count(between, 'operator')} between them" if between else words


def _words_of_whole(kind: OverlayKind, result: _Overlay) -> str:
    cells = [*result.cells.values()]
    operators = count(len(cells), "operator")
    if kind == "time":
        return f"{milliseconds(result.total or 0.0)}"
    if kind == "memory":
        return f"{format_bytes(int(sum(cell.value or 0.0 for cell in cells)))} of values"
    if kind == "values":
        bad = sum(cell.bad for cell in cells)
        end = f"{count(bad, 'operator')} with NaN or infinities" if bad else "all finite"
        return f"values of {operators}, {end},"
    if kind == "gradients":
        return f"gradients of the parameters of {operators}, as the last backward() left them,"
    names = Counter(cell.short for cell in cells)
    return ", ".join(f"{name}: {count(number, 'operator')}" for name, number in names.items())


@dataclass
class _Source:
    """What an overlay is made from. entry : the shown program; measured_on : what `leaves` took"""

    net: Block
    path: str
    block: HybridBlock
    entry: GraphProgram
    picture: Picture
    data: Data
    measured_on: MeasuredOn = ""

    @property
    def part(self) -> str:
        """The part of a compiled call that is shown: "forward", "backward", or "" for other graphs."""
        half = self.entry["half"]
        return {"predict": "forward", "forward": "forward", "backward": "backward"}.get(half, "")

    def program(self) -> CompiledCall | None:
        """The compiled program that is shown, or the latest one of the traced graph; None if it is gone."""
        compilations = [item for item in access.calls(self.block).compilations if item.program is not None]
        if self.part:
            number = int(self.entry["id"].partition(":")[0][1:])
            compilations = [item for item in compilations if item.number == number]
        return compilations[-1].program if compilations else None

    def call(self) -> Compiled | str:
        """A call of the program on the data; or why there is none."""
        if self.entry["half"] == "update":
            return "Updates are measured by mx.profile of a whole step, not here."
        program = self.program()
        if program is None:
            return "This graph was not compiled, or its program is gone: call the model once after hybridize()."
        return running_call(self.path, self.block, program, self.leaves(program))

    def leaves(self, program: CompiledCall) -> list[NDArray]:
        """The inputs of the call: variables of the user, the kept inputs of a call of this kind, or random numbers."""
        wanted = program.special.inputs[: program.neutral.num_data]
        types = [(tuple(value.shape), np.dtype(value.dtype)) for value in wanted]
        if not self.data.names:
            kept = None if self.data.kept is None else self.data.kept.of(self.block, tuple(types))
            self.measured_on = "random" if kept is None else "kept"
            return kept or [NDArray.wrap(array) for array in random_inputs(_with_shapes(program), types)]
        self.measured_on = "variables"
        arrays: list[Any] = []
        for name in self.data.names.split(","):
            name = name.strip()
            if name not in self.data.namespace:
                raise RequestError("failed", f"there is no variable {visible(name)}", "Give names like x, or x, y.")
            arrays += flatten(self.data.namespace[name], f"the variable {name}")[0]
        given = [(tuple(item.shape), np.dtype(item.dtype)) for item in arrays if isinstance(item, NDArray)]
        if given != types:
            raise RequestError(
                "failed",
                f"{visible(self.data.names)} is {_types(given)}; this program takes {_types(types)}",
                "Choose the program of these shapes, or other variables.",
            )
        return arrays

    @property
    def data_in_words(self) -> str:
        """What the overlay was measured on."""
        if self.measured_on == "variables":
            return f"on {visible(self.data.names)}"
        if self.measured_on == "kept":
            return "on the kept inputs of a call"
        missing = "" if self.data.kept is None else " (no inputs of such a call are kept yet: call the model)"
        return f"on random numbers of the call's shapes{missing}"

    def neutral_ids(self, graph: Graph) -> dict[Node, str]:
        """Id by node of the traced graph, of which the picture may show a copy with shapes."""
        drawn = self.picture.drawn_graph.graph.operators
        pairs = zip(graph.operators, drawn, strict=True) if len(drawn) == len(graph.operators) else ()
        found = ((node, self.picture.id_of(copy)) for node, copy in pairs if node.op.name == copy.op.name)
        return {node: identity for node, identity in found if identity is not None}


def _with_shapes(program: CompiledCall) -> Graph:
    """The traced graph of a program with the shapes that it was compiled for, if random inputs depend on them."""
    graph, inputs = program.neutral.graph, program.special.inputs
    if not reads_whole_numbers(graph):
        return graph
    pairs = list(zip(graph.inputs, inputs, strict=True))
    try:
        return infer(graph, {own: known.shape for own, known in pairs}, {own: known.dtype for own, known in pairs})
    except HybridLabError:  # sizes that only a call knows
        return graph


def _types(types: Sequence[tuple[tuple[int, ...], np.dtype]]) -> str:
    return ", ".join(f"{dtype.name}{list(shape)}" for shape, dtype in types) or "no array"


# -- the kinds -------------------------------------------------------------------------------------------------------


def _time(source: _Source) -> _Overlay:
    compiled = source.call()
    if isinstance(compiled, str):
        return _Overlay("s", missing=compiled)
    if not source.part:
        return _eager_time(source, compiled)
    heads = compiled.heads() if source.part == "backward" else None
    nodes = eager_times(compiled, heads, _RUNS)
    steps, runs, once, _ = measure_steps(compiled, heads, nodes, _RUNS)
    result = _Overlay("s", source.measured_on)
    slowest: list[tuple[float, str]] = []
    opened = {step.row.region for step in steps if step.row.inside and step.row.part == source.part}
    for step in steps:
        row = step.row
        identity = source.picture.id_of(step.node)
        if row.part != source.part or identity is None:
            continue
        short = milliseconds(row.seconds)
        text = f"about {short}, shared out" if row.estimated else ""
        result.cells[identity] = _Cell(row.seconds, row.eager_seconds, f"~{short}" if text else short, text)
        if row.inside or row.region is None or row.region not in opened:
            slowest.append((row.seconds, identity))
    rows = [step.row for step in steps if step.row.part == source.part and not step.row.inside]
    result.total = sum(row.seconds for row in rows)
    eager = sum(row.eager_seconds or 0.0 for row in rows)
    result.marked = [identity for _, identity in sorted(slowest, reverse=True)[:_SLOWEST]]
    result.headline = f"{source.part}: {milliseconds(result.total)} in {count(len(rows), 'step')}"
    result.headline += f", the same operators in eager mode {milliseconds(eager)}" if eager else ""
    result.headline += f"; {milliseconds(once)} more when parameters change" if once else ""
    result.headline += f"; medians of {count(runs, 'run')}, {source.data_in_words}"
    return result


def _eager_time(source: _Source, compiled: Compiled) -> _Overlay:
    """For the traced graph: the times of its operators in eager mode."""
    ids = source.neutral_ids(compiled.neutral.graph)
    result, slowest = _Overlay("s", source.measured_on), []
    for (_, node), seconds in eager_times(compiled, None, _RUNS).items():
        if node in ids:
            result.cells[ids[node]] = _Cell(seconds, None, milliseconds(seconds))
            slowest.append((seconds, ids[node]))
    result.total = sum(seconds for seconds, _ in slowest)
    result.marked = [identity for _, identity in sorted(slowest, reverse=True)[:_SLOWEST]]
    result.headline = f"eager forward: {milliseconds(result.total)}, {source.data_in_words}"
    return result


def _values(source: _Source) -> _Overlay:
    compiled = source.call()
    if isinstance(compiled, str):
        return _Overlay("", missing=compiled)
    ids = source.neutral_ids(compiled.neutral.graph) if not source.part else None
    by_chance = source.measured_on == "random"
    batch, places = SummaryBatch(), list[tuple[str, int]]()

    def look(node: Node, results: Sequence[Any]) -> None:
        identity = source.picture.id_of(node) if ids is None else ids.get(node)
        shown = [item for item in results[: max(node.op.signature.visible, 1)] if item is not None]
        if identity is not None and shown:
            places.append((identity, len(shown)))
            for item in shown:
                batch.add(item)

    def run(part: str, executable: Executable, graph: Graph, inputs: list[list[Any]]) -> list[Sequence[Any]]:
        if part != source.part:
            return [executable(inputs[0], compiled.rng)]
        look_at_values(source.picture.drawn_graph.graph, inputs[0], compiled.rng, look)
        return [()]  # nothing runs after it

    if source.part:
        compiled.run_parts(compiled.heads() if source.part == "backward" else None, run)
    else:
        with tape.Mode(False, False):
            arrays = [NDArray.wrap(np.array(array)) for array in compiled.arrays]
            see = lambda node, inputs, outputs: look(node, outputs)
            interpret(compiled.neutral.graph, arrays, compiled.rng, update=False, look=see)
    result, summaries = _Overlay("", source.measured_on), iter(batch.summaries())
    for identity, number_of_outputs in places:
        cell = result.cells[identity] = _values_cell([*islice(summaries, number_of_outputs)], by_chance)
        if cell.bad and not result.marked:
            result.marked = [identity]
    bad = sum(cell.bad for cell in result.cells.values())
    mode = "" if source.part else " in prediction mode"
    result.headline = f"values of {count(len(result.cells), 'operator')}{mode} {source.data_in_words}"
    result.headline += f": {count(bad, 'operator')} with NaN or infinities" if bad else ": all are finite"
    result.headline += f", which {_BY_CHANCE}" if bad and by_chance else ""
    result.headline += "; the backward starts from random gradients" if source.part == "backward" else ""
    return result


def _values_cell(summaries: Sequence[Summary], by_chance: bool) -> _Cell:
    """The values of one operator's outputs. by_chance : whether they come from random numbers"""
    ends = [abs(end) for each in summaries for end in (each.minimum, each.maximum) if end is not None]
    text = "; ".join(map(str, summaries))
    cell = _Cell(max(ends, default=None), None, _range(summaries[0]), text, not all(each.finite for each in summaries))
    if cell.bad:
        cell.short = f"{_NOT_FINITE}, random inputs" if by_chance else _NOT_FINITE
        cell.text += f" ({_BY_CHANCE})" if by_chance else ""
    return cell


_NOT_FINITE = "NaN or infinite"
_BY_CHANCE = "may come from the random numbers alone"


def _range(summary: Summary) -> str:
    """`-1.2 to 3.4`, of the finite values."""
    if summary.minimum is None or summary.maximum is None:
        return str(summary)
    return f"{number(summary.minimum)} to {number(summary.maximum)}"


def _memory(source: _Source) -> _Overlay:
    result, picture = _Overlay("B"), source.picture
    for node in picture.drawn_graph.graph.operators:
        identity = picture.id_of(node)
        if identity is None or node.shapes is None or None in node.shapes:
            continue
        sizes = [value.nbytes for value in node.outputs[: max(node.op.signature.visible, 1)]]
        result.cells[identity] = _Cell(float(sum(sizes)), short=format_bytes(sum(sizes)))
    if not result.cells:
        result.missing = "Shapes are not known yet: call the model once after hybridize()."
        return result
    total = sum(cell.value or 0.0 for cell in result.cells.values())
    result.headline = f"{format_bytes(int(total))} of values"
    program = source.program() if source.part else None
    if program is None:
        return result
    executable = program.forward if source.part == "forward" else program.backward
    assert executable is not None
    sources = zip(program.special.sources, _backward_inputs(program))
    kept = sum(value.nbytes for (kind, _), value in sources if kind == "saved")
    if source.part == "forward" and kept:
        result.headline += f", {format_bytes(kept)} of them kept for the backward"
    own, shared = plan(executable.graph), []
    if program.together is not None and executable.report.shared_arena:
        halves = [half.report.memory for half in (program.forward, program.backward) if half is not None]
        forward, backward = (half for half in halves if half is not None)
        own, shared = backward if source.part == "backward" else forward, _step(forward, backward)
    _add_plan(result, picture, own, shared)
    if picture.drawn_graph.units.units:
        result.headline += "; what sessions and kernels use inside is not counted"
    return result


def _backward_inputs(program: CompiledCall) -> Sequence[Any]:
    return () if program.special.backward is None else program.special.backward.inputs


_STORAGE_PHRASES = {
    "arena": "in the arena",
    "view": "a view of its input",
    "output": "fresh memory, handed out",
    "own": "allocated by its kernel",
    "none": "not computed",
}


def _in_use(allocations: Iterable[Allocation], times: Sequence[int]) -> list[int]:
    """The bytes of the allocations in use at each time of `times`."""
    change = np.zeros(max(times, default=0) + 2, np.int64)
    for allocation in allocations:
        change[allocation.first] += allocation.size
        change[min(allocation.last + 1, len(change) - 1)] -= allocation.size
    return [int(size) for size in np.cumsum(change)[list(times)]]


def _times(memory: MemoryPlan) -> range:
    return range(memory.start, memory.start + len(memory.steps))


def _step(forward: MemoryPlan, backward: MemoryPlan) -> list[StepMoment]:
    """How full the arena that both share is in each step."""
    times = [*_times(forward), *_times(backward)]
    own = {id(allocation) for allocation in forward.allocations}
    kept = {id(allocation): allocation for allocation in backward.allocation_of.values() if id(allocation) in own}
    sizes = _in_use([*forward.allocations, *backward.allocations], times), _in_use(kept.values(), times)
    return [
        {"half": "forward" if time < backward.start else "backward", "bytes": size, "kept": held}
        for time, size, held in zip(times, *sizes, strict=True)
    ]


def _thinned(moments: Sequence[_M]) -> list[_M]:
    """At most `_MOMENTS` moments: the fullest of every few steps, if there are more steps."""
    size = -(-len(moments) // _MOMENTS) or 1
    parts = [moments[start : start + size] for start in range(0, len(moments), size)]
    return [max(part, key=lambda moment: moment["bytes"]) for part in parts]


def _add_plan(result: _Overlay, picture: Picture, memory: MemoryPlan, shared: Sequence[StepMoment]) -> None:
    """The places of the values, and how full the arena is in each step.

    shared : the steps of forward and backward, if both share the arena
    """
    first = len(shared) - len(memory.steps) if memory.start else 0
    own = shared[first : first + len(memory.steps)]
    alive = [moment["bytes"] for moment in own] or _in_use(memory.allocations, _times(memory))
    timeline: list[Moment] = []
    for node, size in zip(memory.steps, alive, strict=True):
        identity = picture.id_of(node)
        if identity is None:
            continue
        value = node.outputs[0]
        words = "in place of its input" if value in memory.inplace else _STORAGE_PHRASES.get(memory.storage[value], "")
        cell = result.cells.get(identity)
        if cell is not None and words:
            cell.text = f"{cell.short}, {words}"
        timeline.append({"id": identity, "bytes": size})
    result.timeline, result.step = _thinned(timeline), _thinned(shared)
    peak = max(alive, default=0)
    if not memory.arena_bytes:
        result.headline += "; nothing in the arena"
        return
    both = " for forward and backward" if shared else ""
    result.headline += f"; arena {format_bytes(memory.arena_bytes)}{both}, at most {format_bytes(peak)} in use at once"
    fullest = _times(memory)[alive.index(peak)]
    lives = {
        value
        for allocation in memory.allocations
        if allocation.first <= fullest <= allocation.last
        for value in allocation.values
    }
    ids = {picture.id_of(value.node): value.nbytes for value in lives}
    ranked = sorted((size, identity) for identity, size in ids.items() if identity is not None)
    result.marked = [identity for _, identity in reversed(ranked)][:_SLOWEST]


def _gradients(source: _Source) -> _Overlay:
    result, norms = _Overlay(""), {}
    top = f"{source.path}." if source.path else ""
    parameters = [
        (f"{above}.{name}" if above else name, parameter)
        for above, block in blocks_below(source.net)
        for name, parameter in access.own_parameters(block).items()
    ]
    for path, parameter in parameters:
        arrays = access.arrays(parameter)
        gradient = None if not arrays else arrays[0].grad
        if path.startswith(top) and arrays and gradient is not None:
            norms[path] = _norm(gradient), _norm(arrays[0])
    for row in source.picture.nodes:
        paths = [badge["path"] for badge in row["badges"]]
        paths += [row["attributes"].get("parameter", ""), row["attributes"].get("gradient of", "")]
        known = [(path, *norms[path]) for path in paths if path in norms]
        if known:
            value = math.sqrt(sum(norm * norm for _, norm, _ in known))
            each = (f"{number(norm)} of {path}, whose values have {number(size)}" for path, norm, size in known)
            text = f"norm of the gradient {'; '.join(each)}"
            result.cells[row["id"]] = _Cell(value, None, number(value), text, not math.isfinite(value))
    if not norms:
        result.missing = "No parameter of this Block has a gradient yet: call backward() once."
    whole = math.sqrt(sum(norm * norm for norm, _ in norms.values()))
    result.headline = f"norm of all gradients {number(whole)}, as the last backward() left them"
    ranked = sorted(result.cells.items(), key=lambda pair: -(pair[1].value or 0.0))
    bad = [identity for identity, cell in ranked if cell.bad]
    result.marked = (bad or [identity for identity, _ in ranked])[:_SLOWEST]
    return result


def _norm(array: NDArray) -> float:
    """The Euclidean norm, in parts, so that nothing is copied whole."""
    flat, total = array.raw().reshape(-1), 0.0
    for start in range(0, flat.size, 1 << 18):
        part = flat[start : start + (1 << 18)]
        with np.errstate(all="ignore"):
            square = float(np.dot(part, part)) if part.dtype == np.float32 else 0.0
        if not 1e-30 < square < 1e30:  # out of the range in which float32 has all its digits
            part = part.astype(np.float64)
            square = float(part @ part)
        total += square
    return math.sqrt(total) if total == total else math.nan


def _engine(source: _Source) -> _Overlay:
    result = _Overlay("")
    counts: dict[bool, dict[str, int]] = {False: {}, True: {}}
    prologues: set[str] = set()
    for box in source.picture.boxes:  # parents come before children
        if box["kind"] == "prologue" or box["parent"] in prologues:
            prologues.add(box["id"])
    for row in source.picture.nodes:
        if row["kind"] == "operator" and row["engine"]:
            result.cells[row["id"]] = _Cell(short=row["engine"])
            own = counts[row["box"] in prologues]
            own[row["engine"]] = own.get(row["engine"], 0) + 1
    words = {
        once: ", ".join(f"{engine}: {count(number, 'operator')}" for engine, number in own.items())
        for once, own in counts.items()
    }
    result.headline = words[False] + (f"; when parameters change, {words[True]}" if words[True] else "")
    result.missing = "" if result.cells else "A traced graph runs on no engine: choose a compiled program."
    return result


_KINDS: dict[OverlayKind, Callable[[_Source], _Overlay]] = {
    "time": _time,
    "memory": _memory,
    "values": _values,
    "gradients": _gradients,
    "engine": _engine,
}


# -- the reply -------------------------------------------------------------------------------------------------------


def _reply(kind: OverlayKind, program: str, picture: Picture | Whole | None, result: _Overlay) -> OverlayReply:
    if picture is not None:
        _add_boxes(kind, picture, result)
    values = [cell.value for cell in result.cells.values() if cell.value is not None and math.isfinite(cell.value)]
    whole = max(values, default=0.0) if result.total is None else result.total
    reply: OverlayReply = {
        "kind": kind,
        "program": program,
        "unit": result.unit,
        "measured_on": result.measured_on,
        "headline": visible(result.headline),
        "missing": visible(result.missing),
        "items": [_item(identity, cell, whole) for identity, cell in result.cells.items()],
        "marked": result.marked,
        "timeline": result.timeline,
    }
    if result.step:
        reply["step"] = result.step
    return reply


def _item(identity: str, cell: _Cell, whole: float) -> OverlayItem:
    value = cell.value if cell.value is not None and math.isfinite(cell.value) else None
    share = value / whole if value is not None and whole else 0.0
    text, short = visible(cell.text or cell.short), visible(cell.short)
    if cell.eager is not None:
        text += f" ({share:.1%}), eager {milliseconds(cell.eager)}"
    return {"id": identity, "value": value, "share": share, "short": short, "text": text, "bad": cell.bad}


def _add_boxes(kind: OverlayKind, picture: Picture | Whole, result: _Overlay) -> None:
    """What the boxes hold: sums of times, bytes and squared norms, the largest value, the engines."""
    inside: dict[str, list[str]] = {}
    for row in picture.nodes:
        inside.setdefault(row["box"], []).append(row["id"])
    for box in picture.boxes:
        inside.setdefault(box["parent"], []).append(box["id"])
    for box in reversed(picture.boxes):
        cells = [result.cells[each] for each in inside.get(box["id"], ()) if each in result.cells]
        if not cells or box["id"] in result.cells:
            continue
        values = [cell.value for cell in cells if cell.value is not None]
        made = _Cell(bad=any(cell.bad for cell in cells))
        if kind == "time":
            eager = [cell.eager for cell in cells if cell.eager is not None]
            made.value, made.eager = sum(values), sum(eager) if eager else None
            made.short = milliseconds(made.value)
        elif kind == "memory":
            made.value = sum(values)
            made.short = format_bytes(int(made.value))
        elif kind == "gradients":
            made.value = math.sqrt(sum(value * value for value in values))
            made.short, made.text = number(made.value), f"norm of all gradients inside {number(made.value)}"
        elif kind == "values":
            made.value = max(values, default=None)
            made.short = "" if made.value is None else f"up to {number(made.value)}"
            if made.bad:
                by_chance = result.measured_on == "random"
                made.short = f"{_NOT_FINITE} inside" + (", random inputs" if by_chance else "")
                made.text = f"NaN or infinities inside{f' ({_BY_CHANCE})' if by_chance else ''}"
        else:
            made.short = ", ".join(dict.fromkeys(name for cell in cells for name in cell.short.split(", ")))
        result.cells[box["id"]] = made
