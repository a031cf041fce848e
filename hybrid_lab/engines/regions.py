"""What engines that take parts of a graph tell of them: regions in reports, and the refusal under strict=True."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.engines.report import RegionReport, Report
from hybrid_lab.graph.graph import Graph
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


def report_partition(report: Report, graph: Graph, regions: Sequence[Region], refused: Mapping[Node, str]) -> None:
    """Write down the regions that the engine of the report runs, and the fallbacks to NumPy."""
    inside = sum(len(region.nodes) for region in regions)
    report.operators = {report.engine: inside, "numpy": len(graph.operators) - inside}
    report.regions += [reported(region, report.engine) for region in regions]
    for node, reason in refused.items():
        report.fall_back(node.op.name, "numpy", reason, format_origin(node))


def refuse(refused: Mapping[Node, str], what: str) -> None:
    """Raise EngineError where there are operators that would run on another engine, each with its reason and place.

    what : "3 of 12 operators cannot run in torch"
    """
    if not refused:
        return
    lines = [f"{what}, and strict=True allows no other engine:"]
    for node, reason in refused.items():
        origin = format_origin(node)
        lines.append(f"  {node.op.name}: {reason}" + (f"   # {origin}" if origin else ""))
    raise EngineError("\n".join(lines))
