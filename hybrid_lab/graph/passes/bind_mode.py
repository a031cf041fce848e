"""Bind training or prediction mode: replace mode-dependent operators, collect updates of states as effects.

neutral      y = BatchNorm(x, gamma, beta, mean, var)                  z = Dropout(y)
prediction   y = BatchNorm(x, gamma, beta, mean, var)                  z = identity(y)
training     y = BatchNorm(x, gamma, beta, mean, var, training=True)   z = Dropout(y)
             update mean <- mean * 0.9 + (mean of the batch) * 0.1, and var likewise
"""

from __future__ import annotations

from collections.abc import Sequence

from hybrid_lab.graph.builder import Builder, Expr, make_node
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.graph.passes.decompose import lower


def lowered_by_shapes(graph: Graph) -> Graph:
    """An inferred graph in which the operators that had to wait for the shapes are expanded."""
    if not graph.has("by_shapes"):
        return graph
    return graph.map(lambda node, inputs: lower(node, inputs) if node.op.by_shapes else None)


def channels_first(graph: Graph) -> Graph:
    """The graph with every operator on data with channels last written with channels first, between transposes."""

    def rewrite(node: Node, inputs: tuple[object, ...]) -> Sequence[Value] | None:
        if not node.op.channels_last:
            return None
        builder = Builder()
        with builder.origin(node):
            result = node.op.channels_first(builder, *map(builder.expr, inputs))
        assert isinstance(result, Expr)
        return (result.value,)

    return graph.map(rewrite) if graph.has("channels_last") else graph


def bind_mode(graph: Graph, train: bool) -> Graph:
    """An inferred graph for one mode, in which all operators have channels first.

    Effects of a graph without a mode are as in `bound`.
    """
    return bound(lowered_by_shapes(graph), train)


def bound(graph: Graph, train: bool) -> Graph:
    """A graph, which need not be inferred, for one mode. Operators that have to wait for the shapes stay.

    A reader behind the operator that updates a state reads the new value, as in an eager run: a block that is called
    twice updates its states twice, in program order. No gradient goes through the new value. Effects of a graph without
    a mode, (state, a result), name operators that no output needs and whose updates are wanted.
    """
    graph = channels_first(graph)
    updated: dict[Value, Value] = {}

    def state_now(value: Value) -> Value:
        if value not in updated:
            return value
        builder = Builder()
        return builder.stop_gradient(builder.expr(updated[value])).value

    def rewrite(node: Node, inputs: tuple[object, ...]) -> Sequence[Value] | None:
        op = node.op.bind_mode(train) if node.op.mode_dependent else node.op
        names = op.signature.inputs if op.signature.aux else ()
        current = tuple(
            item
            if not isinstance(item, Value)
            else updated.get(item, item)
            if index < len(names) and names[index] in op.signature.aux
            else state_now(item)
            for index, item in enumerate(inputs)
        )
        if not op.signature.aux and op is node.op:
            return None if current == inputs else node.replace(inputs=current).outputs
        current = current[: len(op.signature.inputs)] if not op.variadic else current
        made = make_node(op, current, origin=node, draw=node.draw if op.random else None).replace(name=node.name)
        if op.signature.aux:
            builder = Builder()
            with builder.origin(node):
                news = op.aux(builder, tuple(map(builder.expr, current)), tuple(map(builder.expr, made.outputs)))
            for name, new in news.items():
                target = inputs[op.signature.inputs.index(name)]
                assert isinstance(new, Expr)
                # A computed value in the place of a state is not updated.
                if isinstance(target, Value) and target.is_input:
                    updated[target] = new.value
        return made.outputs

    rewritten = graph.map(rewrite)
    outputs = [state_now(value) for value in rewritten.outputs]
    return Graph(rewritten.inputs, outputs, [*updated.items()], rewritten.draws, rewritten.name)
