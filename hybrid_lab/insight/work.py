"""The work of operators: multiply-adds, floating-point operations and the bytes that they write, from types alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.loops.composed import ControlFlow
from hybrid_lab.graph.loops.steps import Loop
from hybrid_lab.graph.node import Input, Node, Value

_MOVES = frozenset({
    "movement", "slicing", "reshape", "creation", "index", "constant_index", "coordinates", "scatter", "order",
    "sequence", "cast", "storage", "pad", "patches", "declared", "random", "distributions",
})  # fmt: skip
"""Families whose operators bring numbers to other places, or make them, and compute nothing."""
_READERS = frozenset({"reduce", "norm", "softmax", "group_norm", "scan", "ctc"})
"""Families whose operators do about one operation for each number that they read or write, whichever are more."""


@dataclass
class OperatorWork:
    """How much operators compute and write.

    multiply_adds : of products, convolutions, recurrences and attention
    flop : two for each multiply-add, and about one for each element of other operators; 0 for operators that move
    numbers
    bytes : of the arrays that they write; views write none
    """

    multiply_adds: int = 0
    flop: int = 0
    bytes: int = 0

    def add(self, other: OperatorWork, times: int = 1) -> None:
        """Add other work, done `times` times."""
        self.multiply_adds += other.multiply_adds * times
        self.flop += other.flop * times
        self.bytes += other.bytes * times


def work_of(node: Node) -> OperatorWork:
    """The work of one operator of a graph with types."""
    op = node.op
    if isinstance(op, Input) or op.view:
        return OperatorWork()
    shapes = [item.shape if isinstance(item, Value) else () for item in node.inputs]
    written = sum(value.nbytes for value in node.outputs[: op.signature.visible])
    if isinstance(op, ControlFlow):
        return _of_control_flow(node, op, shapes, written)
    products = op.multiply_adds(shapes, [value.shape for value in node.outputs])
    elements = sum(prod(value.shape) for value in node.outputs[: op.signature.visible])
    if products:
        bias = elements if _has_bias(node) else 0
        return OperatorWork(products, 2 * products + bias, written)
    if op.family in _MOVES:
        return OperatorWork(0, 0, written)
    if op.family == "pool":
        window = prod(getattr(op, "kernel", ())) or 1
        whole = getattr(op, "global_pool", False)
        return OperatorWork(0, prod(shapes[0]) if whole else elements * window, written)
    if op.family in _READERS:
        elements = max([elements, *map(prod, shapes)])
    return OperatorWork(0, elements, written)


def _has_bias(node: Node) -> bool:
    return "no_bias" in node.op.attributes and not node.op.attributes["no_bias"]


def _of_control_flow(node: Node, op: ControlFlow, shapes: list[tuple[int, ...]], written: int) -> OperatorWork:
    """For a loop, every step; for a branch, the branch with the most work."""
    dtypes = [item.dtype if isinstance(item, Value) else None for item in node.inputs]
    inside = [work_in(graph) for _, graph in op.typed_subgraphs(shapes, dtypes)]
    total = OperatorWork(bytes=written)
    if isinstance(op, Loop):
        steps = op.unrolled(shapes)[0]
        for work in inside:
            total.add(OperatorWork(work.multiply_adds, work.flop), steps)
    else:
        most = max(inside, key=lambda work: work.flop, default=OperatorWork())
        total.add(OperatorWork(most.multiply_adds, most.flop))
    return total


def work_in(graph: Graph) -> OperatorWork:
    """The work of all operators of a graph with types."""
    total = OperatorWork()
    for node in graph.nodes:
        total.add(work_of(node))
    return total


def peak_bytes(graph: Graph, kept: Iterable[Value] = ()) -> int:
    """The most bytes of computed arrays that are needed at one time, if each is freed behind its last reader.

    Inputs and parameters are not among them. kept : arrays that are never freed
    """
    base: dict[Value, Value] = {}

    def owner(value: Value) -> Value:
        return base.get(value, value)

    last: dict[Value, int] = {}
    operators = [node for node in graph.nodes if not isinstance(node.op, Input)]
    for place, node in enumerate(operators):
        for value in node.values_in:
            last[owner(value)] = place
        for value in node.outputs:
            if node.op.view and node.values_in:
                base[value] = owner(node.values_in[0])
            last.setdefault(owner(value), place)
    for value in (*graph.outputs, *kept):
        last[owner(value)] = len(operators)
    now = most = 0
    freed: dict[int, int] = {}
    for place, node in enumerate(operators):
        if not node.op.view:
            for value in node.outputs:
                now += value.nbytes
                freed[last[value]] = freed.get(last[value], 0) + value.nbytes
        most = max(most, now)
        now -= freed.pop(place, 0)
    return most
