"""Fuse pointwise operators: convex groups with one iteration space, each of which becomes one kernel.

sum(tanh(x + b) * 2.0, axis=1) + 1.0:

a = kernel(x, b)       broadcast_add, tanh, broadcast_mul
s = sum(a, axis=1)     refused: not pointwise
y = kernel(s)          broadcast_add, of another shape
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby

from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Node, Value
from hybrid_lab.graph.partition import Region, region_of

#: A kernel takes at most so many nodes, and so many inputs and outputs together.
MAX_NODES, MAX_POINTERS = 64, 24


@dataclass
class Fusion:
    """groups : one kernel each; refused : node -> why it is in none"""

    groups: list[Region] = field(default_factory=list)
    refused: dict[Node, str] = field(default_factory=dict)


def fuse_pointwise(graph: Graph, refusal: Callable[[Node], str | None]) -> Fusion:
    """Groups of nodes whose outputs have one shape, such that no path leaves a group and comes back.

    refusal : node -> None, or why it cannot be part of a pointwise kernel
    """
    result = Fusion()
    nodes = [node for node in graph.operators if not isinstance(node.op, Constant)]
    space: dict[Node, object] = {}
    for node in nodes:
        reason = refusal(node)
        if reason is not None:
            result.refused[node] = reason
        space[node] = node.outputs[0].shape if reason is None else node
    # A path that leaves the space of a node enters a higher level and never returns: nodes of one level and space
    # are convex.
    level: dict[Node, int] = {}
    members: dict[tuple[int, object], list[Node]] = {}
    for node in nodes:
        level[node] = max(
            (level[value.node] + (space[value.node] != space[node]) for value in node.values_in if value.node in level),
            default=0,
        )
        if node not in result.refused:
            members.setdefault((level[node], space[node]), []).append(node)
    users, roots = graph.users(), set(graph.roots)
    for key in sorted(members, key=lambda item: item[0]):
        for part in _within_limits(members[key], users, roots):
            result.groups.append(region_of(part, users, roots))
    return result


def _within_limits(nodes: list[Node], users: dict[Value, list[Node]], roots: set[Value]) -> list[list[Node]]:
    """Consecutive parts of the program order, which stay convex, none beyond the limits.

    The parts of a composite operator stay together where one kernel can hold them.
    """
    together = set(nodes)

    def fits(part: list[Node]) -> bool:
        if len(part) > MAX_NODES:
            return False
        inside = set(part)
        given = {value for node in part for value in node.values_in if value.node not in inside}
        leaving = [
            node
            for node in part
            if node.outputs[0] in roots or any(reader not in together for reader in users.get(node.outputs[0], ()))
        ]
        return len(given) + len(leaving) <= MAX_POINTERS

    parts: list[list[Node]] = [[]]
    for _, members in groupby(nodes, key=lambda node: node.composite or node):
        unit = list(members)
        if parts[-1] and not fits(parts[-1] + unit):
            parts.append([])
        for node in unit:
            if parts[-1] and not fits([*parts[-1], node]):
                parts.append([])
            parts[-1].append(node)
    return parts
