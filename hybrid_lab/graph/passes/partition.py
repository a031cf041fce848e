"""Partition: group the nodes that an engine can run into convex regions, and replace each region by one node.

sum(sin(exp(x) * 2.0)) + 1.0, on an engine without sin:

a = group(x)       exp, broadcast_mul
b = sin(a)         refused: stays outside
c = group(b)       sum, broadcast_add
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Node, Value
from hybrid_lab.ops.framework.operator import Operator


@dataclass(frozen=True, eq=False)
class Region:
    """Nodes that run as one unit: no path leaves the region and comes back.

    nodes : in program order
    inputs : Values from outside, constants left out (they go with the region)
    outputs : Values that are read outside
    """

    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]

    @property
    def bytes_in(self) -> int:
        return sum(value.nbytes for value in self.inputs)

    @property
    def bytes_out(self) -> int:
        return sum(value.nbytes for value in self.outputs)


def partition(
    graph: Graph, supported: Callable[[Node], str | None], worth: Callable[[Region], str | None] = lambda region: None
) -> tuple[list[Region], dict[Node, str]]:
    """Maximal convex regions of supported nodes, and for each other node the reason why it stays outside. Parts that
    could run side by side are one region.

    supported : node -> None, or the reason why the engine cannot run it
    worth : region -> None, or the reason why it is not worth running apart; its nodes are then refused
    """
    regions: list[Region] = []
    nodes = [node for node in graph.operators if not isinstance(node.op, Constant)]
    refused = {node: reason for node in nodes if (reason := supported(node)) is not None}
    level = _levels(graph, nodes, refused)
    groups: dict[int, list[Node]] = {}
    for node in nodes:
        if node not in refused:
            groups.setdefault(level[node], []).append(node)
    users = graph.users()
    roots = set(graph.roots)
    for number in sorted(groups):
        region = region_of(groups[number], users, roots)
        reason = worth(region)
        if reason is None:
            regions.append(region)
        else:
            refused.update(dict.fromkeys(region.nodes, reason))
    return regions, refused


def _levels(graph: Graph, nodes: Sequence[Node], refused: dict[Node, str]) -> dict[Node, int]:
    """How often a path to the node changes between supported and refused, at most.

    Supported nodes of one level form a convex set: a path that leaves it enters a higher level and never returns.
    """
    level: dict[Node, int] = {}
    for node in nodes:
        level[node] = max(
            (
                level[value.node] + ((value.node in refused) != (node in refused))
                for value in node.values_in
                if value.node in level
            ),
            default=0,
        )
    # A node that only later levels read moves to the first of them, if that keeps nothing else alive for longer.
    users = graph.users()
    roots = set(graph.roots)
    for node in reversed(nodes):
        if any(value in roots for value in node.outputs) or any(value.node in level for value in node.values_in):
            continue
        readers = [reader for value in node.outputs for reader in users.get(value, ())]
        latest = min((level[reader] - ((reader in refused) != (node in refused)) for reader in readers), default=0)
        level[node] = max(level[node], latest)
    return level


def region_of(members: list[Node], users: dict[Value, list[Node]], roots: set[Value]) -> Region:
    """The region of these nodes, in program order: what it reads from outside and what others read of it."""
    inside = set(members)
    inputs = dict.fromkeys(
        value
        for node in members
        for value in node.values_in
        if value.node not in inside and not isinstance(value.node.op, Constant)
    )
    outputs = [
        value
        for node in members
        for value in node.outputs
        if value in roots or any(reader not in inside for reader in users.get(value, ()))
    ]
    return Region(tuple(members), tuple(inputs), tuple(outputs))


def contract(graph: Graph, regions: Sequence[Region], make: Callable[[Region], Operator]) -> Graph:
    """The graph with one node in the place of each region; `make(region)` is its operator.

    Regions may share nodes, which each of them computes; a value is an output of at most one region. Nodes of no region
    stay if they are read. An operator with `temporaries`, pairs (shape, dtype), has these as further outputs
    without readers: memory planned for the operator.
    """
    stored = {value: region for region in regions for value in region.outputs}
    units: dict[Any, int] = dict.fromkeys(regions, 0)
    waiting = [*graph.inputs, *graph.roots, *(value for region in regions for value in region.inputs)]
    while waiting:
        value = waiting.pop()
        if value not in stored and value.node not in units:
            units[value.node] = 0
            waiting += value.node.values_in
    readers: dict[object, list[Any]] = {}
    for unit in units:
        before = {stored.get(item, item.node) for item in (unit.inputs if isinstance(unit, Region) else unit.values_in)}
        units[unit] = len(before)
        for other in before:
            readers.setdefault(other, []).append(unit)
    # Program order as far as regions allow: a unit is due when its first member was.
    position = {node: index for index, node in enumerate(graph.nodes)}
    due = {
        unit: (min(position[node] for node in (unit.nodes if isinstance(unit, Region) else (unit,))), number)
        for number, unit in enumerate(units)
    }
    ready = [(due[unit], unit) for unit, count in units.items() if not count]
    heapq.heapify(ready)
    new: dict[Value, Value] = {}
    while ready:
        _, unit = heapq.heappop(ready)
        _rebuild(unit, new, make)
        for reader in readers.get(unit, ()):
            units[reader] -= 1
            if not units[reader]:
                heapq.heappush(ready, (due[reader], reader))
    return graph.over(new)


def _rebuild(unit: Any, new: dict[Value, Value], make: Callable[[Region], Operator]) -> None:
    """Make the unit's node anew, so that creation order is the order of the contracted graph."""
    if isinstance(unit, Region):
        first, op = unit.nodes[0], make(unit)
        types = [*((value.shape, value.dtype) for value in unit.outputs), *getattr(op, "temporaries", ())]
        contracted = Node(
            op,
            [new[value] for value in unit.inputs],
            scope=first.scope,
            location=first.location,
            shapes=tuple(shape for shape, _ in types),
            dtypes=tuple(dtype for _, dtype in types),
        )
        new.update(zip(unit.outputs, contracted.outputs, strict=False))
        return
    if isinstance(unit.op, (Input, Constant)):
        new.update(zip(unit.outputs, unit.outputs, strict=True))
        return
    contracted = unit.replace(inputs=tuple(new[item] if isinstance(item, Value) else item for item in unit.inputs))
    new.update(zip(unit.outputs, contracted.outputs, strict=True))
