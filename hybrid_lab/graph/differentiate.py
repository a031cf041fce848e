"""Differentiate: a forward graph becomes one joint forward and backward graph, by the records' own gradients.

y = tanh(dot(x, w))     becomes     y = tanh(dot(x, w))
                                    d = head_grad0 * (1.0 - y * y)
                                    returns y and _dot_rhs_grad(d, x, w), the gradient of w
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import count
from typing import Any

from hybrid_lab.diagnostics.errors import AutogradError
from hybrid_lab.graph.builder import Builder, Expr
from hybrid_lab.graph.decompose import composite_names
from hybrid_lab.graph.graph import Graph, reachable
from hybrid_lab.graph.lower import is_composite, lower
from hybrid_lab.graph.node import Node, Value, input_node
from hybrid_lab.ops.contract import check_gradient_type
from hybrid_lab.ops.dtypes import is_floating
from hybrid_lab.ops.run import no_second_gradient, run_gradient


def differentiate(graph: Graph, wrt: Sequence[Value], heads: Collection[int] | None = None) -> Graph:
    """The joint graph: inputs + one head gradient per output; outputs + one gradient per Value in `wrt`.

    heads : numbers of the outputs that have a head gradient; None: all. The others are not differentiated, and nothing
        reads their head gradients: a gradient of zeros is something else, since 0 times infinity is NaN
    The graph is inferred and its mode bound. The gradient of an input that no such output depends on is zeros.
    Differentiate the result again for gradients of gradients.
    """
    backward = _backward(graph)
    if backward:
        graph = _without_hidden_reads(graph)
    builder = Builder()
    needed = depends_on(graph, wrt)
    composites = composite_names(graph)
    gradients: dict[Value, Expr] = {}

    made = []
    taken = {value.node.name for value in graph.inputs}
    for index, output in enumerate(graph.outputs):
        name = _free_name(f"head_grad{index}", taken)
        head = input_node(name, "head_grad", shape=output.shape, dtype=output.dtype)
        made.append(head)
        if heads is None or index in heads:
            _accumulate(gradients, output, Expr(builder, head))

    for node in reversed(graph.nodes):
        if not any(value in needed for value in node.values_in):
            continue
        visible = node.outputs[: node.op.num_visible]
        douts = [gradients.get(value) for value in visible]
        if all(dout is None for dout in douts):
            continue
        if not node.op.differentiable:
            if node.op.refuses_gradient:
                raise _no_second(node)
            continue
        # The gradient of a composite is one too: what it is made of belongs together.
        origin = node.replace(composite=f"{composites[node]}_backward") if node in composites else node
        with builder.origin(origin):
            inputs, outputs = (list(map(builder.expr, items)) for items in (node.inputs, node.outputs))
            wanted = [isinstance(item, Value) and item in needed for item in node.inputs]
            found = run_gradient(node.op, builder, inputs, outputs, douts, wanted)
            for index, (item, gradient) in enumerate(zip(node.inputs, found, strict=True)):
                if gradient is not None and isinstance(item, Value) and item in needed:
                    check_gradient_type(node.op, index, gradient.value, item)
                    _accumulate(gradients, item, gradient)

    readers = graph.users()
    results = []
    for value in wrt:
        with builder.origin(next(iter(readers.get(value, ())), None)):
            results.append(gradients[value] if value in gradients else builder.zeros_like(Expr(builder, value)))
    return Graph(
        [*graph.inputs, *made],
        [*graph.outputs, *(expr.value for expr in results)],
        graph.effects,
        graph.draws,
        graph.name,
    )


def _free_name(name: str, taken: set[str]) -> str:
    """The name, or with a number behind it: a graph that was differentiated before has head gradients already."""
    return name if name not in taken else next(f"{name}_{n}" for n in count(2) if f"{name}_{n}" not in taken)


def _backward(graph: Graph) -> set[Value]:
    """What depends on head gradients, in a graph that was differentiated before."""
    heads = [value for value in graph.inputs if value.node.op.role == "head_grad"]  # type: ignore[attr-defined]
    return depends_on(graph, heads) if heads else set()


def _without_hidden_reads(graph: Graph) -> Graph:
    """Operators of which a gradient reads a hidden output (a mean, a deviation) in their parts.

    A record's gradient knows of visible outputs only; its lowering says how the hidden ones depend on the inputs.
    Hidden outputs are read by gradients alone, though not always beside a head: one may be reshaped first.
    Raises AutogradError where there is no lowering.
    """
    read = {value for node in reachable(graph.outputs) for value in node.values_in}
    hidden = {
        node
        for node in graph.operators
        for value in node.outputs[node.op.num_visible :]
        if value in read and is_floating(value.dtype)
    }
    for node in hidden:
        if not is_composite(node.op):
            raise _no_second(node)
    return graph.map(lambda node, inputs: lower(node, inputs) if node in hidden else None) if hidden else graph


def _no_second(node: Node) -> AutogradError:
    return no_second_gradient(node.op, f" (block {node.scope})" if node.scope else "")


def depends_on(graph: Graph, sources: Sequence[Value], differentiable: bool = False) -> set[Value]:
    """All Values that a change of `sources` can change. differentiable : through operators that have a gradient only"""
    found = set(sources)
    for node in graph.nodes:
        if any(value in found for value in node.values_in) and (node.op.differentiable or not differentiable):
            found.update(node.outputs)
    return found


def _accumulate(gradients: dict[Value, Any], value: Value, gradient: Expr) -> None:
    held = gradients.get(value)
    gradients[value] = gradient if held is None else held + gradient
