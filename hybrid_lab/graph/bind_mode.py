"""Bind training or prediction mode: replace mode-dependent operators, collect updates of states as effects."""

from __future__ import annotations

from typing import Any

from hybrid_lab.graph.builder import Builder, Expr, make_node
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value


def bind_mode(graph: Graph, train: bool) -> Graph:
    """An inferred graph for one mode. A state updated twice (a block called twice) is updated in program order."""
    builder = Builder()
    updated: dict[Value, Value] = {}

    def rewrite(node: Node, inputs: tuple[Any, ...]) -> Any:
        op = node.op.bind_mode(train) if node.op.mode_dependent else node.op
        if not op.aux_names and op is node.op:
            return None
        inputs = inputs[: len(op.names())] if not op.variadic else inputs
        made = make_node(op, inputs, origin=node, draw=node.draw if op.random else None).replace(name=node.name)
        if op.aux_names:
            states = tuple(updated.get(item, item) if isinstance(item, Value) else item for item in inputs)
            with builder.origin(node):
                news = op.aux(builder, tuple(map(builder.expr, states)), tuple(map(builder.expr, made.outputs)))
            for name, new in news.items():
                target = inputs[op.names().index(name)]
                assert isinstance(new, Expr)
                # A state that was computed on the way is nobody's to update.
                if isinstance(target, Value) and target.is_input:
                    updated[target] = new.value
        return made.outputs

    bound = graph.map(rewrite)
    return Graph(bound.inputs, bound.outputs, [*bound.effects, *updated.items()], bound.draws, bound.name)
