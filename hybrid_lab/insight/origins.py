"""Differences without a faulty kernel: code that no longer computes its graph, and passes that change numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hybrid_lab.engines import Executable
from hybrid_lab.graph.dump import Stage
from hybrid_lab.graph.graph import Graph, reachable
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.insight.calls import Compiled
from hybrid_lab.insight.eager import Operation
from hybrid_lab.insight.reference import Values, all_values, difference, graph_values, nearness, tolerance
from hybrid_lab.insight.subsequence import common_runs


def first_untrue(
    compiled: Compiled, operations: Sequence[Operation], outputs: Sequence[np.ndarray]
) -> tuple[Node, str] | None:
    """The first node of the traced graph whose value the code no longer computes, and the likely reason.

    operations, outputs : of an eager run of the code
    A number that changes from call to call, an attribute changed after the trace, another branch taken: the graph still
    has the values of the trace.
    """
    graph = _bound(compiled)
    values = graph_values(graph, compiled.arrays, compiled.rng)
    if all(_same(values[value], array) for value, array in zip(graph.outputs, outputs, strict=True)):
        return None
    pairs = pair_up(graph, operations)
    last = -1
    for node in graph.operators:
        if node not in pairs:
            continue
        index = pairs[node]
        operation = operations[index]
        wrong = [
            difference(result, values[value])
            for value, result in zip(node.outputs, operation.results, strict=False)
            if not _same(values[value], result)
        ]
        if wrong:
            before = [item for item in operations[last + 1 : index] if item.scope == node.scope]
            return node, _what(node, operation, before)
        last = max(last, index)
    node = graph.outputs[0].node
    return node, "the code computes another result than the graph that was traced from it"


def _what(node: Node, operation: Operation, before: Sequence[Operation]) -> str:
    numbers = tuple(item for item in node.inputs if isinstance(item, (int, float)))
    if numbers != operation.numbers and len(numbers) == len(operation.numbers):
        traced, used = (", ".join(f"{item:.6g}" for item in items) for items in (numbers, operation.numbers))
        return f"the graph holds the number {traced} from its trace; the code now computes with {used}"
    if before:
        place = f" ({before[0].location.describe()})" if before[0].location is not None else ""
        return f"the graph was traced another way: the code calls {before[0].name}{place} before this"
    return "the code computes another value here than the graph that was traced from it"


def pair_up(graph: Graph, operations: Sequence[Operation]) -> dict[Node, int]:
    """Graph node -> its operation in an eager run, matched within each Block by order and name."""
    nodes: dict[str, list[Node]] = {}
    called: dict[str, list[int]] = {}
    for node in graph.operators:
        nodes.setdefault(node.scope, []).append(node)
    for index, operation in enumerate(operations):
        called.setdefault(operation.scope, []).append(index)
    pairs = {}
    for scope, scope_nodes in nodes.items():
        indices = called.get(scope, [])
        names = [operations[index].name for index in indices]
        for start, other, size in common_runs([node.op.name for node in scope_nodes], names):
            for offset in range(size):
                pairs[scope_nodes[start + offset]] = indices[other + offset]
    return pairs


def first_changed(compiled: Compiled, heads: Sequence[object] | None) -> tuple[Node, str] | None:
    """The first node after the first pass that changes the numbers, by the reference kernels."""
    expected: list[Any] | None = None
    values: Values = {}
    for stage in _stages(compiled):
        graph = stage.after
        if not isinstance(graph, Graph):
            continue
        arrays = [*compiled.arrays, *(heads or ())]
        current = graph_values(graph, arrays[: len(graph.inputs)], compiled.rng)
        results = [current[value] for value in graph.outputs]
        if expected is not None:
            wrong = [
                value
                for value, old, new in zip(graph.outputs, expected, results, strict=False)
                if not nearness(new, old, tolerance(old.dtype, True)).agrees
            ]
            if wrong:
                operators = [node for node in reachable(wrong) if node.inputs]
                node = _first_other(operators, current, values) or wrong[0].node
                return node, f"the pass {stage.name} changes the numbers here"
        expected, values = results, current
    return None


def first_miscompiled(compiled: Compiled, heads: Sequence[object] | None) -> tuple[Node, str] | None:
    """The first operator whose value is nowhere in the engine's results, though its inputs are."""
    rng, engine = compiled.rng, compiled.program.engine
    missing: list[tuple[Node, str]] = []

    def look(part: str, executable: Executable, graph: Graph, inputs: list[list[Any]]) -> list[list[Any]]:
        values = graph_values(graph, inputs[0], rng)
        if not missing and (node := _missing(graph, values, executable, inputs[0], rng)) is not None:
            missing.append((node, f"the engine {engine} compiles it into something that computes another value"))
        return [[values[value] for value in graph.outputs]]

    compiled.run_parts(heads, look)
    return missing[0] if missing else None


def _missing(
    graph: Graph, values: Values, executable: Executable, inputs: Sequence[object], rng: tuple[int, int]
) -> Node | None:
    """The first operator of a graph whose value the compiled graph does not have; None if the results agree."""
    compiled_values = all_values(executable.graph, inputs, rng)
    results = [compiled_values[value] for value in executable.graph.outputs]
    pairs = zip((values[value] for value in graph.outputs), results, strict=False)
    if all(nearness(new, old, tolerance(old.dtype, True)).agrees for old, new in pairs):
        return None
    return _first_other(graph.operators, values, compiled_values) or graph.outputs[0].node


class _Known:
    """A collection of arrays that is searched by their numbers."""

    def __init__(self, values: Values):
        self._arrays: dict[Any, list[Any]] = {}
        for value, array in values.items():
            if array is not None:
                self._arrays.setdefault((value.shape, value.dtype), []).append(array)

    def has(self, value: Value, array: object) -> bool:
        """Whether an array of the value's type holds the same numbers within rounding."""
        options = self._arrays.get((value.shape, value.dtype), ())
        return any(nearness(array, option, tolerance(value.dtype, True)).agrees for option in options)


def _first_other(nodes: Iterable[Node], values: Values, known_values: Values) -> Node | None:
    """The first of some nodes of which the inputs, but not the output, are among the known values."""
    known = _Known(known_values)
    for node in nodes:
        inputs = all(value.is_input or known.has(value, values[value]) for value in node.values_in)
        if inputs and not known.has(node.outputs[0], values[node.outputs[0]]):
            return node
    return None


def _stages(compiled: Compiled) -> list[Stage]:
    names = [stage.name for stage in compiled.special.stages]
    return list(compiled.special.stages[names.index("bind_mode") :])


def _bound(compiled: Compiled) -> Graph:
    bound = _stages(compiled)[0].after
    assert isinstance(bound, Graph)
    return bound


def _same(value: object, wanted: np.ndarray) -> bool:
    return nearness(value, wanted, 10 * tolerance(wanted.dtype, False)).agrees
