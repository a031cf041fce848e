"""A graph as a program a person can read: one line a node with dtype, shape, scope and source line."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from hybrid_lab.graph.node import Constant, Input, Node, Value

if TYPE_CHECKING:
    from hybrid_lab.graph.graph import Graph

_SHORT = {"float": "f", "int": "i", "uint": "u"}


def format_type(shape: Any, dtype: object) -> str:
    """f32[64,120]; "?" for what is not inferred."""
    inner = "?" if shape is None else ",".join(["?" if size is None else str(size) for size in shape])
    return f"{_short(dtype)}[{inner}]"


@cache
def _short(dtype: Any) -> str:
    if dtype is None:
        return "?"
    name: str = dtype.name
    return next((short + name[len(long) :] for long, short in _SHORT.items() if name.startswith(long)), name)


class Names:
    """How a printed graph calls its Values: %fc1.weight for variables, %7 for results; constants stand inline."""

    def __init__(self, graph: Graph):
        self._of: dict[Value, str] = {}
        number = 0
        for node in graph.nodes:
            if isinstance(node.op, Input):
                self._of[node.outputs[0]] = f"%{node.name}"
                continue
            if isinstance(node.op, Constant):
                self._of[node.outputs[0]] = repr(node.op)
                continue
            for value in node.outputs:
                self._of[value] = f"%{number}" if len(node.outputs) == 1 else f"%{number}.{value.index}"
            number += 1

    def __call__(self, item: Any) -> str:
        return self._of.get(item, "%?") if isinstance(item, Value) else repr(item)

    def node(self, node: Node) -> str:
        first = self(node.outputs[0])
        return first.split(".")[0] if len(node.outputs) > 1 else first


def format_graph(graph: Graph, most: int | None = None) -> str:
    """The whole program: the inputs with their types, the nodes, the results and the updates.

    most : how many operators are printed; the others are counted
    """
    name, operators = Names(graph), graph.operators
    head = [f"{name(value)}: {format_type(value.shape, value.dtype)}" for value in graph.inputs]
    rows = [row for node in operators[:most] for row in _rows(node, name)]
    if most is not None and len(operators) > most:
        rows.append((f"  ... {len(operators) - most:,} more operators ...", ""))
    width = min(max((len(text) for text, _ in rows), default=0), 96)
    title = f"graph {graph.name or ''}".rstrip()
    inputs = ", ".join(head)
    lines = [f"{title}({inputs}):"] if len(inputs) <= 100 else [f"{title}(", *(f"    {item}," for item in head), "):"]
    lines += [f"{text:<{width}}   # {comment}".rstrip() if comment else text for text, comment in rows]
    lines += [f"  update {name(target)} <- {name(value)}" for target, value in graph.effects]
    lines.append("  return " + ", ".join(name(value) for value in graph.outputs))
    return "\n".join(lines)


def _rows(node: Node, name: Names) -> list[tuple[str, str]]:
    """A node's line with its comment, then the graphs inside it, indented."""
    rows = [(f"  {format_statement(node, name)}", format_origin(node))]
    for label, inside in node.subgraphs:
        rows.append((f"    {label}:", ""))
        rows += [(f"      {line}", "") for line in format_graph(inside).splitlines()]
    return rows


def format_statement(node: Node, name: Names) -> str:
    """%7: f32[64,120] = FullyConnected(%5, %weight, num_hidden=120)."""
    types = ", ".join(
        format_type(node.shapes and node.shapes[i], node.dtypes and node.dtypes[i]) for i in range(len(node.outputs))
    )
    # Hidden attributes too, so that one sees which BatchNorm is bound to training.
    attributes = [f"{key.lstrip('_')}={value!r}" for key, value in node.op.changed.items()]
    arguments = ", ".join([name(item) for item in node.inputs] + attributes)
    draw = "" if node.draw is None else f"  draw {node.draw}"
    return f"{name.node(node)}: {types} = {node.op.name}({arguments}){draw}"


def format_origin(node: Node) -> str:
    """The block path, the source line and the composite that the node is a part of, as far as known."""
    where = str(node.location) if node.location is not None else ""
    part_of = f"in {node.composite}" if node.composite else ""
    return "   ".join(part for part in (node.scope, where, part_of) if part)
