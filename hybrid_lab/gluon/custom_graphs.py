"""Graphs of hybridized Blocks that call an operator written in Python."""

from __future__ import annotations

from hybrid_lab.gluon import access
from hybrid_lab.graph.custom import Custom
from hybrid_lab.graph.graph import Graph
from hybrid_lab.hybridize import graphs
from hybrid_lab.system.logger import logger


def drop_custom_graphs(op_type: str) -> None:
    """Drop the traced graphs that call the operator with this name, and the graphs of the Blocks that contain these
    Blocks. A graph from a file stays, with a warning.
    """
    for known in list(graphs.alive):
        block = known.block
        if access.graphs(block) is not known or not any(_calls(each.graph, op_type) for each in known.graphs()):
            continue
        if known.pinned:
            logger.warning(f"{block.name}: its graph is from a file and keeps the earlier code of {op_type!r}")
        access.structure_changed(block)


def _calls(graph: Graph, op_type: str) -> bool:
    """Whether a graph, or a loop or branch in it, calls the operator of this name."""
    return any(
        (isinstance(node.op, Custom) and node.op.code.op_type == op_type)
        or any(_calls(inner, op_type) for _, inner in node.op.subgraphs)
        for node in graph.nodes
    )
