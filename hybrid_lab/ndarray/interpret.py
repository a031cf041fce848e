"""Run a graph eagerly on NDArrays, operator by operator, with the tape: the reference meaning of every graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.loops.control_flow import Cond, Foreach, WhileLoop
from hybrid_lab.graph.node import Constant, Input, Node, Value
from hybrid_lab.graph.passes.infer import closed
from hybrid_lab.ndarray import control_flow
from hybrid_lab.ndarray.invoke import converted, invoke
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.random_state import state
from hybrid_lab.ops.framework.namespace import Namespace
from hybrid_lab.ops.framework.operator import Operator

#: Called after each operator with its node, its inputs and its outputs, before another operator reads the outputs.
Look = Callable[[Node, Sequence[Any], Sequence[NDArray]], object]


def _invoked(op: Operator, inputs: Sequence[object]) -> object:
    return invoke(op, [NDArray.wrap(item) if isinstance(item, np.ndarray) else item for item in inputs], cast=False)


_LOWERED = Namespace(_invoked)
"""F for the lowerings of operators that wait for shapes: NDArrays, and NumPy arrays as constants."""


def interpret(
    graph: Graph,
    arrays: Sequence[NDArray],
    rng: tuple[int, int] | None = None,
    update: bool = True,
    cast: bool = True,
    look: Look | None = None,
) -> list[NDArray]:
    """The outputs of a neutral graph; auxiliary states among `arrays` are updated in place in a training-mode run.

    arrays : one per graph input
    rng : (seed, base) of an earlier run, to repeat its random numbers; None reserves new draws
    update : False leaves the auxiliary states alone
    cast : whether mixed precision, if it is on, converts inputs of operators as in any eager call
    look : for tools; inside loops and branches it is called for their operators too
    """
    graph = closed(graph, {value: array.shape for value, array in zip(graph.inputs, arrays, strict=True)})
    values: dict[Value, Any] = dict(zip(graph.inputs, arrays, strict=True))
    if rng is None and graph.draws:
        rng = state.next_draws(graph.draws)
    for node in graph.nodes:
        if isinstance(node.op, Input):
            continue
        if isinstance(node.op, Constant):
            values[node.outputs[0]] = NDArray.wrap(np.array(node.op.array))
            continue
        inputs = [values[item] if isinstance(item, Value) else item for item in node.inputs]
        names, aux = node.op.signature.inputs, node.op.signature.aux
        if not update and aux:
            inputs = [item.copy() if names[index] in aux else item for index, item in enumerate(inputs)]
        draw = (rng[0], rng[1] + node.draw) if rng is not None and node.draw is not None else None
        if isinstance(node.op, (Cond, Foreach, WhileLoop)):
            outputs: Sequence[NDArray] = _run_control_flow(node.op, inputs, draw, update, cast, look)
        else:
            if node.op.by_shapes:  # has no code of its own, only the operators that it stands for
                result = node.op.lower(_LOWERED, *(converted(node.op, inputs) if cast else inputs))
            else:
                result = invoke(node.op, inputs, rng=draw, cast=cast)
            outputs = result if isinstance(result, (list, tuple)) else (result,)
        if look is not None:
            look(node, inputs, outputs)
        values.update(zip(node.outputs, outputs, strict=False))
    return [values[value] for value in graph.outputs]


def _run_control_flow(
    op: Cond | Foreach | WhileLoop,
    inputs: list[NDArray],
    draw: tuple[int, int] | None,
    update: bool,
    cast: bool,
    look: Look | None,
) -> list[NDArray]:
    """The visible outputs of a loop or branch: its graphs, interpreted step by step."""
    run = partial(interpret, update=update, cast=cast, look=look)
    graphs = [graph for _, graph in op.subgraphs]
    if isinstance(op, Cond):
        number, captures = inputs[0], inputs[1:]
        then, other = (lambda graph=graph: run(graph, captures) for graph in graphs)
        return control_flow.cond(number, then, other, draw=draw)
    first, last = op.num_data, op.num_data + op.num_states
    captures = inputs[last:]

    def step(arrays: list[NDArray]) -> tuple[list[NDArray], list[NDArray]]:
        outputs = run(graphs[-1], [*arrays, *captures])
        return outputs[: op.num_out], outputs[op.num_out :]

    if isinstance(op, Foreach):
        outputs, states = control_flow.foreach(
            lambda entries, states: step([*entries, *states]), inputs[:first], inputs[first:last], draw=draw
        )
    else:
        outputs, states = control_flow.while_loop(
            lambda *states: run(graphs[0], [*states, *captures])[0],
            lambda *states: step(list(states)),
            inputs[:last],
            op.max_iterations,
            draw=draw,
        )
    return [*outputs, *states]
