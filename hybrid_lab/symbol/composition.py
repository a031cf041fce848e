"""Composition of Symbols: a graph with other Symbols in the place of variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hybrid_lab.diagnostics.errors import AttributeSpecError
from hybrid_lab.graph.graph import reachable
from hybrid_lab.graph.node import Input, Value


def composed(values: Sequence[Value], name: str | None, others: Mapping[str, Sequence[Value]]) -> list[Value]:
    """The outputs `values` of a graph that reads `others` in the place of the variables with these names.

    name : the new name of the first output's node, or None
    Raises AttributeSpecError for a variable that the graph does not have, and for several outputs in place of one.
    """
    nodes = reachable(values)
    variables = {node.name for node in nodes if isinstance(node.op, Input)}
    for key, other in others.items():
        if key not in variables:
            raise AttributeSpecError(f"the Symbol has no variable {key!r}; it has {', '.join(sorted(variables))}")
        if len(other) != 1:
            raise AttributeSpecError(f"{key}: a Symbol with one output is needed, not one with {len(other)}")
    new: dict[Value, Value] = {}
    for node in nodes:
        if isinstance(node.op, Input) and node.name in others:
            new[node.outputs[0]] = others[node.name][0]
            continue
        inputs: list[Any] = [new[item] if isinstance(item, Value) else item for item in node.inputs]
        renamed = name is not None and node is values[0].node
        if renamed or inputs != list(node.inputs):
            copy = node.replace(inputs=inputs, name=name if renamed else node.name)
            new.update(zip(node.outputs, copy.outputs, strict=True))
        else:
            new.update((value, value) for value in node.outputs)
    return [new[value] for value in values]
