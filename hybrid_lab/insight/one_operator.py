"""One operator in eager mode, on random numbers: its time, and its results."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value, input_node
from hybrid_lab.insight.random_inputs import random_inputs
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.invoke import invoke
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ops.framework.operator import Operator

if TYPE_CHECKING:
    from hybrid_lab.gluon.call_record import Types

Scalars = Iterable[tuple[int, float]]
"""The inputs of an operator that are no arrays, each with its place among all."""

_RUNS = 10
_PATIENCE = 0.1
"""Runs of one operator, and seconds after which there is no further one."""


def operator_time(op: Operator, types: Types, scalars: Scalars, training: bool) -> float | None:
    """Median seconds of an operator; None if it cannot run on random numbers.

    types : (shape, dtype) of each array that it reads
    """

    def measure(run: Callable[[], Any]) -> float:
        run()
        samples: list[float] = []
        while len(samples) < _RUNS and sum(samples) < _PATIENCE:
            begin = time.perf_counter()
            run()
            samples.append(time.perf_counter() - begin)
        return statistics.median(samples)

    return _on_random(op, types, scalars, training, measure)


def operator_values(op: Operator, types: Types, scalars: Scalars, training: bool) -> list[np.ndarray] | None:
    """The results of an operator; None if it cannot run on random numbers. types : as in `operator_time`"""

    def outputs(run: Callable[[], Any]) -> list[np.ndarray]:
        returned = run()
        return [array.asnumpy() for array in (returned if isinstance(returned, (list, tuple)) else [returned])]

    return _on_random(op, types, scalars, training, outputs)


def _on_random(
    op: Operator, types: Types, scalars: Scalars, training: bool, use: Callable[[Callable[[], Any]], Any]
) -> Any:  # noqa: ANN401 - what `use` returns
    """The result of a function on the run of an operator; no random number of the user's is used up."""
    known = [(tuple(shape), np.dtype(dtype)) for shape, dtype in types]
    values = [input_node(f"x{place}", shape=shape, dtype=dtype) for place, (shape, dtype) in enumerate(known)]
    operands: list[Any] = [*values]
    for place, scalar in scalars:
        operands.insert(place, scalar)
    graph = Graph(values, Node(op, operands, draw=0 if op.random else None).outputs[:1], draws=1)
    try:
        arrays = iter([NDArray.wrap(array) for array in random_inputs(graph, known)])
        inputs = [next(arrays) if isinstance(each, Value) else each for each in operands]
        rng = (0, 0) if op.random else None
        with tape.Mode(False, training), np.errstate(all="ignore"):
            return use(lambda: invoke(op, inputs, rng=rng))
    except (HybridLabError, ArithmeticError, LookupError, TypeError, ValueError):
        return None
