"""Regions that an engine runs as units, as operators of a graph; and refusals under strict=True."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from hybrid_lab.diagnostics.errors import EngineError
from hybrid_lab.engines.report import Report
from hybrid_lab.graph.dump import dump
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node
from hybrid_lab.graph.passes.partition import Region, contract
from hybrid_lab.graph.printer import format_origin
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.signature import Signature


class RegionOperator(Operator):
    """A region in a contracted graph: one operator, as the engine of the region runs it.

    outputs : number of outputs; members : further attributes of a subclass
    """

    region: Region

    def __init__(self, region: Region, outputs: int, **members: object):
        members |= {"region": region, "signature": _signature(outputs), "attributes": {}, "inferred": {}}
        for name, value in members.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(node.op.name for node in self.region.nodes)})"


@functools.cache
def _signature(outputs: int) -> Signature:
    return Signature(outputs=outputs)


def contracted(
    engine: str, graph: Graph, operators: Mapping[Region, RegionOperator], refused: Mapping[Node, str]
) -> tuple[Graph, Report]:
    """The graph with an engine's operators in the place of their regions, and its report.

    refused : the operators that run in NumPy, with the reason
    """
    inside = sum(len(region.nodes) for region in operators)
    report = Report(engine, graph.name, {engine: inside, "numpy": len(graph.operators) - inside})
    report.units = [(engine, region, region.nodes) for region in operators]
    report.refused = [(node, "numpy", reason) for node, reason in refused.items()]
    return dump("partition", contract(graph, list(operators), operators.__getitem__)), report


def refuse(refused: Mapping[Node, str], what: str) -> None:
    """Raise EngineError if there are operators that would run on another engine, each with its reason and place.

    what : "3 of 12 operators cannot run in torch"
    """
    if not refused:
        return
    lines = [f"{what}, and strict=True allows no other engine:"]
    for node, reason in refused.items():
        origin = format_origin(node)
        lines.append(f"  {node.op.name}: {reason}" + (f"   # {origin}" if origin else ""))
    raise EngineError("\n".join(lines))
