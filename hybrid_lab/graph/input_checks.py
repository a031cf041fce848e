"""Checks of a graph's inputs: an operator through which all others read them, and which refuses other shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.loops.composed import ControlFlow
from hybrid_lab.graph.node import Input, Node, Value
from hybrid_lab.ops.framework.declared_shapes import DeclaredShapes
from hybrid_lab.ops.framework.operator import get

OPERATOR = "_check_inputs"
NAME = "check_inputs"
Source = Literal["torch", "onnx", "code"]


def checked(
    graph: Graph, declared: DeclaredShapes, source: Source = "onnx", data: Sequence[Value] | None = None
) -> Graph:
    """The graph with a check of some inputs, which all its operators read them from.

    data : the inputs, one for each that is declared; None for the first ones of the graph
    """
    data = graph.inputs[: len(declared.inputs)] if data is None else tuple(data)
    if not data:
        return graph
    inputs, conditions = declared.dumps()
    op = get(OPERATOR).bind(declares=inputs, conditions=conditions, source=source)
    check = Node(op, data, name=NAME)
    behind = dict(zip(data, check.outputs, strict=True))

    def rewrite(node: Node, inputs: tuple[Any, ...]) -> Sequence[Value] | None:
        if isinstance(node.op, Input) or behind.keys().isdisjoint(node.values_in):
            return None
        return node.replace(inputs=[behind.get(item, item) if type(item) is Value else item for item in inputs]).outputs

    return graph.map(rewrite)


def without_checks(graph: Graph) -> Graph:
    """The graph without checks of inputs, also in the bodies of its loops and branches."""

    def rewrite(node: Node, inputs: tuple[Any, ...]) -> Sequence[Value] | None:
        if node.op.name == OPERATOR:
            return inputs
        if not isinstance(node.op, ControlFlow) or not any(has_checks(body.graph) for body in node.op.bodies):
            return None
        bodies = [without_checks(body.graph) for body in node.op.bodies]
        return node.replace(op=node.op.rebuilt(bodies, node.op.carried), inputs=inputs).outputs

    return graph.map(rewrite) if has_checks(graph) else graph


def checks_of(graph: Graph) -> list[Node]:
    """The checks in a graph, without those in the bodies of its loops and branches."""
    return [node for node in graph.operators if node.op.name == OPERATOR]


def has_checks(graph: Graph) -> bool:
    """Whether there are checks in a graph or in the bodies of its loops and branches."""
    return any(
        node.op.name == OPERATOR or any(has_checks(inner) for _, inner in node.op.subgraphs) for node in graph.operators
    )
