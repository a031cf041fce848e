"""What engines that take parts of a graph tell of them: regions in reports, and the refusal under strict=True."""

from __future__ import annotations

from collections.abc import Mapping

from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.engines.report import RegionReport
from hybrid_lab.graph.node import Node
from hybrid_lab.graph.partition import Region
from hybrid_lab.graph.printer import format_origin


def reported(region: Region, runs_on: str, names: list[str] | None = None) -> RegionReport:
    """A region in a report. names : of those of its operators that count, all by default"""
    if names is None:
        names = [node.op.name for node in region.nodes]
    return RegionReport(
        runs_on, names, len(region.inputs), len(region.outputs), region.bytes_in, region.bytes_out
    )


def refuse(refused: Mapping[Node, str], what: str) -> None:
    """Raise EngineError where there are operators that would run on another engine, each with its reason and place.

    what : "3 of 12 operators cannot run in torch"
    """
    if not refused:
        return
    lines = [f"{what}, and strict=True allows no other engine:"]
    for node, reason in refused.items():
        place = format_origin(node)
        lines.append(f"  {node.op.name}: {reason}" + (f"   # {place}" if place else ""))
    raise EngineError("\n".join(lines))
