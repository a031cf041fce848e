"""Short ways to write graphs down in tests."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent
from typing import Any

import numpy as np

from hybrid_lab.graph import Builder, Graph, Input, Value, input_node
from hybrid_lab.graph.graph import extract
from hybrid_lab.graph.passes.partition import Region
from hybrid_lab.ops.framework.operator import Operator
from hybrid_lab.ops.framework.run import run_kernel
from hybrid_lab.ops.framework.signature import Signature


def graph_of(
    function: Callable[..., Any], *shapes: Any, roles: str = "", dtype: str = "float32", name: str = "net"
) -> Graph:
    """The graph of `function(F, *expressions)` over inputs x0, x1, ... of these shapes (None: unknown)."""
    builder = Builder()
    kinds = roles.split() or ["data"] * len(shapes)
    inputs = [
        input_node(f"x{index}", role, shape=shape, dtype=None if shape is None else dtype)
        for index, (shape, role) in enumerate(zip(shapes, kinds, strict=True))
    ]
    results = function(builder, *map(builder.expr, inputs))
    results = results if isinstance(results, (tuple, list)) else (results,)
    return Graph(inputs, [expr.value for expr in results], name=name)


def evaluate(graph: Graph, arrays: list[np.ndarray], rng: tuple[int, int] = (0, 0)) -> list[np.ndarray]:
    """Outputs and new values of effects, one kernel at a time."""
    values: dict[Value, Any] = dict(zip(graph.inputs, arrays, strict=True))
    for node in graph.nodes:
        if isinstance(node.op, Input):
            continue
        operands = [values[item] if isinstance(item, Value) else item for item in node.inputs]
        draw = (rng[0], rng[1] + node.draw) if node.draw is not None else None
        values.update(zip(node.outputs, run_kernel(node.op, operands, rng=draw), strict=True))
    return [np.asarray(values[value]) for value in graph.roots]


class Group(Operator):
    """Stands for a region in a contracted graph and runs it, one kernel at a time."""

    name = "group"

    def __init__(self, region: Region):
        object.__setattr__(self, "inside", extract(region.inputs, region.outputs))
        object.__setattr__(self, "attributes", {})
        object.__setattr__(self, "signature", Signature(outputs=len(region.outputs)))

    def numpy(self, *inputs):
        return tuple(evaluate(self.inside, list(inputs)))


def program(text: str) -> str:
    """The text of a printed graph, written down indented."""
    return dedent(text).strip("\n")


def body(graph: Graph) -> str:
    """The statements of a printed graph, without its inputs."""
    lines = str(graph).splitlines()
    first = next(index for index, line in enumerate(lines) if line.endswith("):"))
    return "\n".join(line[2:] for line in lines[first + 1 :])


def names(graph: Graph) -> list[str]:
    """The operators' names in program order."""
    return [node.op.name for node in graph.operators]


def uniform(*shapes: tuple[int, ...], seed: int = 0) -> list[np.ndarray]:
    random = np.random.RandomState(seed)
    return [random.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]
