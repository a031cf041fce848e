"""Times and values, measured on the graphs of a compiled program, part by part."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.formatting import count
from hybrid_lab.engines import Executable
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node
from hybrid_lab.insight.calls import Compiled
from hybrid_lab.insight.reference import look_at_values
from hybrid_lab.insight.summary_batch import SummaryBatch
from hybrid_lab.insight.table import milliseconds
from hybrid_lab.insight.timing import eager_times, measure_steps
from hybrid_lab.lab.picture.overlays.cells import BY_CHANCE, SLOWEST, Cell, Overlay, values_cell
from hybrid_lab.lab.picture.overlays.source import OverlaySource
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.interpret import interpret
from hybrid_lab.ndarray.ndarray import NDArray

_RUNS = 10


def time_overlay(source: OverlaySource) -> Overlay:
    """Seconds of each step of a compiled program, or of each operator of the traced graph in eager mode."""
    compiled = source.call()
    if isinstance(compiled, str):
        return Overlay("s", missing=compiled)
    if not source.part:
        return _eager_time(source, compiled)
    heads = compiled.heads() if source.part == "backward" else None
    nodes = eager_times(compiled, heads, _RUNS)
    steps, runs, once, _ = measure_steps(compiled, heads, nodes, _RUNS)
    result = Overlay("s", source.measured_on)
    slowest: list[tuple[float, str]] = []
    opened = {step.row.region for step in steps if step.row.inside and step.row.part == source.part}
    for step in steps:
        row = step.row
        identity = source.picture.id_of(step.node)
        if row.part != source.part or identity is None:
            continue
        short = milliseconds(row.seconds)
        text = f"about {short}: an estimated share, as several operators run as one" if row.estimated else ""
        result.cells[identity] = Cell(row.seconds, row.eager_seconds, f"~{short}" if text else short, text)
        if row.inside or row.region is None or row.region not in opened:
            slowest.append((row.seconds, identity))
    rows = [step.row for step in steps if step.row.part == source.part and not step.row.inside]
    result.total = sum(row.seconds for row in rows)
    eager = sum(row.eager_seconds or 0.0 for row in rows)
    result.marked = [identity for _, identity in sorted(slowest, reverse=True)[:SLOWEST]]
    result.headline = f"{source.part}: {milliseconds(result.total)} in {count(len(rows), 'step')}"
    result.headline += f", the same operators in eager mode {milliseconds(eager)}" if eager else ""
    result.headline += f"; {milliseconds(once)} more when parameters change" if once else ""
    result.headline += f"; medians of {count(runs, 'run')}, {source.data_in_words}"
    return result


def _eager_time(source: OverlaySource, compiled: Compiled) -> Overlay:
    """For the traced graph: the times of its operators in eager mode."""
    ids = source.neutral_ids(compiled.neutral.graph)
    result, slowest = Overlay("s", source.measured_on), []
    for (_, node), seconds in eager_times(compiled, None, _RUNS).items():
        if node in ids:
            result.cells[ids[node]] = Cell(seconds, None, milliseconds(seconds))
            slowest.append((seconds, ids[node]))
    result.total = sum(seconds for seconds, _ in slowest)
    result.marked = [identity for _, identity in sorted(slowest, reverse=True)[:SLOWEST]]
    result.headline = f"eager forward: {milliseconds(result.total)}, {source.data_in_words}"
    return result


def values_overlay(source: OverlaySource) -> Overlay:
    """The range of the values of each operator, and whether all are finite."""
    compiled = source.call()
    if isinstance(compiled, str):
        return Overlay("", missing=compiled)
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
    result, summaries = Overlay("", source.measured_on), iter(batch.summaries())
    for identity, number_of_outputs in places:
        cell = result.cells[identity] = values_cell([*islice(summaries, number_of_outputs)], by_chance)
        if cell.bad and not result.marked:
            result.marked = [identity]
    bad = sum(cell.bad for cell in result.cells.values())
    mode = "" if source.part else " in prediction mode"
    result.headline = f"values of {count(len(result.cells), 'operator')}{mode} {source.data_in_words}"
    result.headline += f": {count(bad, 'operator')} with NaN or infinities" if bad else ": all are finite"
    result.headline += f", which {BY_CHANCE}" if bad and by_chance else ""
    result.headline += "; the backward starts from random gradients" if source.part == "backward" else ""
    return result
