"""The overlay of a plain Block: the overlays of the graphs in its picture together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from hybrid_lab.diagnostics.formatting import count
from hybrid_lab.engines.report import format_bytes
from hybrid_lab.insight.one_operator import operator_time, operator_values
from hybrid_lab.insight.summary import summarize
from hybrid_lab.insight.table import milliseconds
from hybrid_lab.lab.errors import RequestError
from hybrid_lab.lab.messages.measured import MeasuredOn, OverlayKind
from hybrid_lab.lab.picture.overlays.cells import BY_CHANCE, SLOWEST, Cell, Overlay, values_cell
from hybrid_lab.lab.picture.overlays.source import Data, OverlaySource
from hybrid_lab.lab.picture.plain_block import BlockPicture, Whole


def whole_overlay(
    kind: OverlayKind, whole: Whole, data: Data, overlay_of: Callable[[OverlaySource], Overlay]
) -> Overlay:
    """The overlay of a plain Block: the overlays of the graphs in its picture together.

    overlay_of : makes the overlay of `kind` for one graph
    """
    if data.names and kind in ("time", "values"):
        raise RequestError(
            "failed",
            "a plain Block runs as Python, so its Blocks cannot be measured on inputs of the whole",
            "Leave the variables out, or select one of its Blocks and name the inputs of that.",
        )
    parts: list[tuple[BlockPicture | None, Overlay]] = [
        (part, overlay_of(OverlaySource(part.net, part.path, part.block, part.entry, part.picture, data)))
        for part in whole.parts
    ]
    if (eager := _of_eager(kind, whole)) is not None:
        parts.append((None, eager))
    known = [(part, result) for part, result in parts if not result.missing]
    taken = {result.measured_on for part, result in known if part is not None or len(known) == 1}
    measured_on: MeasuredOn = "random" if "random" in taken else next(iter(taken), "")
    whole_result = Overlay(known[0][1].unit if known else "", measured_on)
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
    if kind != "values":  # the first bad value stays the first
        whole_result.marked = sorted(whole_result.marked, key=lambda each: -(cells[each].value or 0.0))
    whole_result.marked = whole_result.marked[:SLOWEST]
    whole_result.headline = f"{_words_of_whole(kind, whole_result)} in {_places(known)}"
    if kind in ("time", "values"):
        numbers = "kept inputs of its call" if measured_on == "kept" else "random numbers of its call's shapes"
        whole_result.headline += f", each by itself on {numbers}"
        if any(cell.bad for cell in whole_result.cells.values()) and measured_on == "random":
            whole_result.headline += f": NaN {BY_CHANCE}"
    without = [result.missing for _, result in parts if result.missing]
    whole_result.headline += f"; {count(len(without), 'graph')} without: {without[0]}" if without else ""
    return whole_result


def _of_eager(kind: OverlayKind, whole: Whole) -> Overlay | None:
    """Times, values, and bytes of the results, of the operators that a plain Block calls in eager mode, between its
    graphs. Times and values are measured with random numbers.
    """
    cells = {}
    for row, item in whole.eager:
        if kind == "time" and item.op is not None:
            seconds = operator_time(item.op, item.takes, item.scalars, item.training)
            if seconds is not None:
                words = milliseconds(seconds)
                cells[row["id"]] = Cell(seconds, None, words, f"{words} in eager mode")
        elif kind == "values" and item.op is not None:
            results = operator_values(item.op, item.takes, item.scalars, item.training)
            if results:
                cells[row["id"]] = values_cell([*map(summarize, results[: max(item.op.signature.visible, 1)])], True)
        elif kind == "memory" and item.gives:
            size = sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in item.gives)
            cells[row["id"]] = Cell(float(size), short=format_bytes(size))
    if not cells:
        return None
    if kind == "memory":
        return Overlay("B", cells=cells)
    if kind == "values":
        return Overlay("", "random", cells, marked=[identity for identity, cell in cells.items() if cell.bad][:1])
    ranked = sorted(cells, key=lambda each: -(cells[each].value or 0.0))
    return Overlay("s", "random", cells, sum(cell.value or 0.0 for cell in cells.values()), marked=ranked[:SLOWEST])


def _places(known: Sequence[tuple[BlockPicture | None, Overlay]]) -> str:
    """`3 calls of its Blocks and 1 operator between them`."""
    calls = sum(part is not None for part, _ in known)
    between = sum(len(result.cells) for part, result in known if part is None)
    words = f"{count(calls, 'call')} of its Blocks"
    return f"{words} and {count(between, 'operator')} between them" if between else words


def _words_of_whole(kind: OverlayKind, result: Overlay) -> str:
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
