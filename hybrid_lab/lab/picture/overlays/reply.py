"""The reply of the request `overlay`: cells as items, and sums for the boxes."""

from __future__ import annotations

import math

from hybrid_lab.diagnostics.formatting import visible
from hybrid_lab.engines.report import format_bytes
from hybrid_lab.insight.summary import number
from hybrid_lab.insight.table import milliseconds
from hybrid_lab.lab.messages.measured import OverlayItem, OverlayKind, OverlayReply
from hybrid_lab.lab.picture.nodes import Picture
from hybrid_lab.lab.picture.overlays.cells import BY_CHANCE, NOT_FINITE, Cell, Overlay
from hybrid_lab.lab.picture.plain_block import Whole


def overlay_reply(kind: OverlayKind, program: str, picture: Picture | Whole | None, result: Overlay) -> OverlayReply:
    """The reply to a request. picture : None if there is no graph, and so no boxes"""
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


def _item(identity: str, cell: Cell, whole: float) -> OverlayItem:
    value = cell.value if cell.value is not None and math.isfinite(cell.value) else None
    share = value / whole if value is not None and whole else 0.0
    text, short = visible(cell.text or cell.short), visible(cell.short)
    if cell.eager is not None:
        text += f" ({share:.1%}), eager {milliseconds(cell.eager)}"
    return {"id": identity, "value": value, "share": share, "short": short, "text": text, "bad": cell.bad}


def _add_boxes(kind: OverlayKind, picture: Picture | Whole, result: Overlay) -> None:
    """Totals of the boxes: sums of times, bytes and squared norms, the largest value, the engines."""
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
        made = Cell(bad=any(cell.bad for cell in cells))
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
                made.short = f"{NOT_FINITE} inside" + (", random inputs" if by_chance else "")
                made.text = f"NaN or infinities inside{f' ({BY_CHANCE})' if by_chance else ''}"
        else:
            made.short = ", ".join(dict.fromkeys(name for cell in cells for name in cell.short.split(", ")))
        result.cells[box["id"]] = made
