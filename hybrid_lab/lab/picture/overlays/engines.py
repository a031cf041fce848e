"""The engine of each operator."""

from __future__ import annotations

from hybrid_lab.diagnostics.formatting import count
from hybrid_lab.lab.picture.overlays.cells import Cell, Overlay
from hybrid_lab.lab.picture.overlays.source import OverlaySource


def engine_overlay(source: OverlaySource) -> Overlay:
    """The engine of each operator of a compiled program, and how many operators each engine has."""
    result = Overlay("")
    counts: dict[bool, dict[str, int]] = {False: {}, True: {}}
    prologues: set[str] = set()
    for box in source.picture.boxes:  # parents come before children
        if box["kind"] == "prologue" or box["parent"] in prologues:
            prologues.add(box["id"])
    for row in source.picture.nodes:
        if row["kind"] == "operator" and row["engine"]:
            result.cells[row["id"]] = Cell(short=row["engine"])
            own = counts[row["box"] in prologues]
            own[row["engine"]] = own.get(row["engine"], 0) + 1
    words = {
        once: ", ".join(f"{engine}: {count(number, 'operator')}" for engine, number in own.items())
        for once, own in counts.items()
    }
    result.headline = words[False] + (f"; when parameters change, {words[True]}" if words[True] else "")
    result.missing = "" if result.cells else "A traced graph runs on no engine: choose a compiled program."
    return result
