"""The values inside a graph for given inputs, one after the other: values without further readers are freed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Node, Value
from hybrid_lab.insight.reference import Values, operands_of, run_node

#: Gets each operator with its outputs, in order; None for an output that was not computed.
LookAt = Callable[[Node, Sequence[Any]], object]


def look_at_values(graph: Graph, arrays: Sequence[object], rng: tuple[int, int], look: LookAt) -> list[Any]:
    """Run a specialized graph with the records' NumPy kernels, in the order of its nodes; returns the roots' values.

    arrays : NumPy arrays, one per input
    """
    values: Values = dict(zip(graph.inputs, arrays, strict=True))
    last: dict[Value, Node] = {}
    for node in graph.nodes:
        for value in node.values_in:
            last[value] = node
    roots = set(graph.roots)
    for node in graph.nodes:
        if isinstance(node.op, Input):
            continue
        if isinstance(node.op, Constant):
            values[node.outputs[0]] = node.op.array
            continue
        results = run_node(node, operands_of(node, values), rng)
        look(node, results)
        values.update(zip(node.outputs, results, strict=False))
        for value in (*node.values_in, *node.outputs):
            if last.get(value, node) is node and value not in roots:
                values.pop(value, None)
    return [values[value] for value in graph.roots]
