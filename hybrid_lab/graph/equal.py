"""Equal: whether two graphs compute the same, operator by operator."""

from __future__ import annotations

from typing import Any

import numpy as np

from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Node, Value


def equal(one: Graph, two: Graph) -> bool:
    """Whether the graphs have equal operators on equal inputs in the same order, of the same shapes and dtypes.

    Names, scopes and source lines do not count; constants and numbers are compared bit by bit.
    """
    counts = [(len(graph.inputs), len(graph.nodes), len(graph.outputs), len(graph.effects)) for graph in (one, two)]
    if counts[0] != counts[1]:
        return False
    twin: dict[Value, Value] = dict(zip(one.inputs, two.inputs, strict=True))
    if any(not _equal_nodes(old.node, new.node, twin) for old, new in twin.items()):
        return False
    # The inputs may stand anywhere among the operators.
    pairs = zip(*([node for node in graph.nodes if not node.outputs[0].is_input] for graph in (one, two)), strict=True)
    for first, second in pairs:
        if not _equal_nodes(first, second, twin):
            return False
        twin.update(zip(first.outputs, second.outputs, strict=True))
    return [twin[value] for value in one.outputs] == list(two.outputs) and [
        (twin[target], twin[new]) for target, new in one.effects
    ] == list(two.effects)


def _equal_nodes(one: Node, two: Node, twin: dict[Value, Value]) -> bool:
    if one.shapes != two.shapes or one.dtypes != two.dtypes or one.draw != two.draw:
        return False
    if isinstance(one.op, Constant) and isinstance(two.op, Constant):
        return one.op.array is two.op.array or _same_bits(one.op.array, two.op.array)
    return one.op == two.op and [_operand(twin.get(item, item)) for item in one.inputs] == [
        _operand(item) for item in two.inputs
    ]


def _operand(item: object) -> Any:
    """Values unchanged; immediates with their type, since 2, 2.0 and True differ, and so do 0.0 and -0.0."""
    if isinstance(item, Value):
        return item
    return type(item), float(item).hex() if isinstance(item, float) else item


def _same_bits(one: np.ndarray, two: np.ndarray) -> bool:
    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    first, second = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (one, two))
    return np.array_equal(first, second)
