"""Run a graph eagerly on NDArrays, operator by operator, with the tape: the reference meaning of every graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.infer import closed
from hybrid_lab.graph.node import Constant, Input, Value
from hybrid_lab.ndarray.invoke import invoke
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ndarray.random_state import state


def interpret(
    graph: Graph, arrays: Sequence[NDArray], rng: tuple[int, int] | None = None, update: bool = True
) -> list[NDArray]:
    """The outputs of a neutral graph; auxiliary states among `arrays` are updated in place in a training-mode run.

    arrays : one per graph input
    rng : (seed, base) of an earlier run whose random numbers are to come again; None reserves new draws
    update : False leaves the auxiliary states alone
    """
    graph = closed(graph, {value: array.shape for value, array in zip(graph.inputs, arrays, strict=True)})
    values: dict[Value, Any] = dict(zip(graph.inputs, arrays, strict=True))
    if rng is None and graph.draws:
        rng = state.next_draws(graph.draws)
    for node in graph.nodes:
        if isinstance(node.op, Input):
            continue
        if isinstance(node.op, Constant):
            values[node.outputs[0]] = NDArray._wrap(np.array(node.op.array))
            continue
        inputs = [values[item] if isinstance(item, Value) else item for item in node.inputs]
        if not update and node.op.aux_names:
            names = node.op.names()
            inputs = [item.copy() if names[index] in node.op.aux_names else item for index, item in enumerate(inputs)]
        draw = (rng[0], rng[1] + node.draw) if rng is not None and node.draw is not None else None
        result = invoke(node.op, inputs, rng=draw)
        outputs = result if isinstance(result, (list, tuple)) else (result,)
        values.update(zip(node.outputs, outputs, strict=False))
    return [values[value] for value in graph.outputs]
