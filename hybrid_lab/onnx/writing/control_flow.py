"""Loops and branches in files: foreach is a Scan, while_loop a Loop, cond an If."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.graph.loops.control_flow import Cond, Foreach, WhileLoop

from .nodes import Tensor, subgraph

if TYPE_CHECKING:
    from hybrid_lab.graph.graph import Graph
    from hybrid_lab.graph.node import Node, Value

    from .emitter import FileEmitter


def emit(g: FileEmitter, node: Node, inputs: Sequence[Any]) -> tuple[str, ...]:
    """The nodes of a loop or branch; returns the names of its visible outputs. Raises Unmappable, NeedsNumber."""
    op: Any = node.op
    form: Callable[..., tuple[str, ...]] | None = _FORMS.get(type(op))
    if form is None or not all(isinstance(name, str) for name in inputs):
        raise Unmappable(f"{op.name}: it has no ONNX form")
    results = form(g, node, [graph for _, graph in node.subgraphs], list(inputs))
    for name, value in zip(results, node.outputs, strict=False):
        g.declare(name, value.shape, value.dtype)
    return results


def _body(g: FileEmitter, graph: Graph, names: dict[Value, str], count: int) -> list[Tensor]:
    """Emit a graph inside a subgraph; its first `count` outputs under names of their own."""
    for node in graph.operators:
        g.emit_node(node, names)
    values = graph.outputs[:count]
    copies = [g.declare(g.Identity(g.operand(value, names)), value.shape, value.dtype) for value in values]
    return [(name, value.shape, value.dtype) for name, value in zip(copies, values, strict=True)]


def _cond(g: FileEmitter, node: Node, graphs: Sequence[Graph], inputs: list[str]) -> tuple[str, ...]:
    op: Any = node.op
    branches = []
    for label, graph in zip(op.labels, graphs, strict=True):
        with g.inside() as nodes:
            outputs = _body(g, graph, dict(zip(graph.inputs, inputs[1:], strict=True)), op.num_out)
        branches.append(subgraph(label, nodes, (), outputs))
    attributes = {"then_branch": branches[0], "else_branch": branches[1]}
    return g.add("If", [_truth(g, inputs[0])], op.num_out, attributes)


def _truth(g: FileEmitter, number: str) -> str:
    """A condition, of shape () or (1,), as ONNX wants it."""
    return g.cast(g.Reshape(number, []), np.bool_)


def _foreach(g: FileEmitter, node: Node, graphs: Sequence[Graph], inputs: list[str]) -> tuple[str, ...]:
    op: Any = node.op
    graph = graphs[0]
    count, states = op.num_data, op.num_states
    with g.inside() as nodes:
        names = dict(zip(graph.inputs, inputs, strict=True))
        moving: list[Tensor] = []
        for value in (*graph.inputs[count : count + states], *graph.inputs[:count]):
            name = names[value] = g.declare(g.unused("step"), value.shape, value.dtype)
            moving.append((name, value.shape, value.dtype))
        for index, value in enumerate(graph.inputs[:count]):
            if len(g.shape(inputs[index])) == 1:  # an entry is a number there, and has the shape (1,) here
                place = states + index
                moving[place] = (f"{names[value]}_number", (), value.dtype)
                g.declare(*moving[place])
                entry = g.Reshape(moving[place][0], [1])
                names[value] = g.declare(entry, (1,), value.dtype)
        outputs = _body(g, graph, names, op.num_out + states)
    body = subgraph("body", nodes, moving, [*outputs[op.num_out :], *outputs[: op.num_out]])
    results = g.add(
        "Scan", [*inputs[count : count + states], *inputs[:count]], states + op.num_out,
        {"body": body, "num_scan_inputs": count},
    )  # fmt: skip
    return (*results[states:], *results[:states])


def _while_loop(g: FileEmitter, node: Node, graphs: Sequence[Graph], inputs: list[str]) -> tuple[str, ...]:
    op: Any = node.op
    condition, graph = graphs
    states = op.num_states
    with g.inside() as nodes:
        names = dict(zip(graph.inputs, inputs, strict=True))
        moving: list[Tensor] = [
            (g.unused("iteration"), (), np.dtype("int64")),
            (g.unused("going"), (), np.dtype("bool")),
        ]
        for value in graph.inputs[:states]:
            name = names[value] = g.declare(g.unused("state"), value.shape, value.dtype)
            moving.append((name, value.shape, value.dtype))
        outputs = _body(g, graph, names, op.num_out + states)
        news = [name for name, *_ in outputs[op.num_out :]]
        going = _going(g, condition, [*news, *inputs[states:]])
    body = subgraph(
        "body", nodes, moving, [(going, (), np.dtype("bool")), *outputs[op.num_out :], *outputs[: op.num_out]]
    )
    start = _going(g, condition, inputs)
    most = g.const(op.max_iterations, "int64")
    results = g.add("Loop", [most, start, *inputs[:states]], states + op.num_out, {"body": body})
    stacked = [
        _padded(g, name, value.shape, value.dtype) for name, value in zip(results[states:], node.outputs, strict=False)
    ]
    return (*stacked, *results[:states])


def _going(g: FileEmitter, condition: Graph, inputs: Sequence[str]) -> str:
    names = dict(zip(condition.inputs, inputs, strict=True))
    ((name, *_),) = _body(g, condition, names, 1)
    return _truth(g, name)


def _padded(g: FileEmitter, name: str, shape: Sequence[Any], dtype: np.dtype) -> str:
    """The stacked steps with zeros behind them, up to the largest number of steps."""
    missing = g.Sub(g.const([shape[0]], "int64"), g.Gather(g.Shape(name), [0], axis=0))
    rest = [g.const(list(shape[1:]), "int64")] if len(shape) > 1 else []
    zeros = g.Expand(g.const(0, dtype), g.Concat(missing, *rest, axis=0))
    return str(g.Concat(name, zeros, axis=0))


_FORMS: dict[type, Callable[..., tuple[str, ...]]] = {Cond: _cond, Foreach: _foreach, WhileLoop: _while_loop}
