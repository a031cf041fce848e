"""Checks of inputs in MXNet's files: MXNet has no such operator, so they stand among the attributes of the graph.

MXNet ignores the attribute. Reading the file here puts the checks back.
"""

from __future__ import annotations

import json
from os import PathLike
from typing import Any, get_args

from hybrid_lab.diagnostics import ArchiveError, HybridLabError
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.input_checks import Source, checked, checks_of, has_checks
from hybrid_lab.ops.framework.declared_shapes import DeclaredShapes
from hybrid_lab.system.logger import logger

KEY = "hybrid_lab_checked_inputs"


def noted(graph: Graph) -> dict[str, list[str]]:
    """The attribute that tells the checks of a graph's own inputs; {} if there are none.

    Logs a warning: MXNet computes for other sizes, too, and other numbers than the network does then.
    """
    if not has_checks(graph):
        return {}
    checks = checks_of(graph)
    own = [node for node in checks if all(value.is_input for value in node.values_in)]
    in_bodies = any(has_checks(inner) for node in graph.operators for _, inner in node.op.subgraphs)
    lost = "; the file has no check of sizes inside the network either" if len(own) < len(checks) or in_bodies else ""
    logger.warning(
        f"{graph.name or 'the graph'}: it holds for certain sizes of its inputs only, which MXNet does not check when "
        f"it runs the file{lost}"
    )
    notes = [{"inputs": [value.node.name for value in node.values_in], **node.op.attributes} for node in own]
    return {KEY: ["str", json.dumps(notes, ensure_ascii=False)]} if notes else {}


def restored(graph: Graph, document: Any, path: str | PathLike[str] | None) -> Graph:
    """A graph that was read from a file, with the checks that the file notes. Raises ArchiveError for a note that does
    not fit.
    """
    attrs = document.get("attrs") if isinstance(document, dict) else None
    if not isinstance(attrs, dict) or KEY not in attrs:
        return graph
    variables = {value.node.name: value for value in graph.inputs}
    try:
        notes = json.loads(attrs[KEY][1])
        if not isinstance(notes, list):
            raise ValueError("they are no list")
        for note in notes:
            data = [variables[name] for name in note["inputs"]]
            declared = DeclaredShapes.loads(note["declares"], note["conditions"])
            if len(declared.inputs) != len(data) or note["source"] not in get_args(Source):
                raise ValueError("it declares other inputs")
            graph = checked(graph, declared, note["source"], data)
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, HybridLabError) as error:
        raise ArchiveError(f"the checks of the graph's inputs do not fit it: {str(error)[:200]}", path=path) from None
    return graph
