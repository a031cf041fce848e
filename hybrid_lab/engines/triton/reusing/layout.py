"""Layouts: a fused graph at other sizes, in one step.

A recipe divides a lowered graph among kernels: views are made again for each reader, cheap operators for each kernel
that computes them. Which operators these are depends on the graph's structure alone, so it is done once, on the form of
the graph (graph/symbolic.py), and another batch is that graph with other numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hybrid_lab.engines.triton.fusing.fusion import Fusion
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.graph.partition import Region
from hybrid_lab.graph.symbolic import SymbolicGraph
from hybrid_lab.ops.sizes import Binding, Guards

#: (number of an operator, which of its outputs)
Place = tuple[int, int]


class Layout:
    """A Fusion without kernels, for all sizes of its form. fusion : of a graph with Sizes

    Raises KeyError where a group reads what its graph does not need.
    """

    def __init__(self, fusion: Fusion, guards: Guards):
        self._fused, self._given = SymbolicGraph(fusion.graph, guards), SymbolicGraph(fusion.given, guards)
        of = {node: number for number, node in enumerate(fusion.graph.nodes)}
        before = {node: number for number, node in enumerate(fusion.given.nodes)}

        def places(values: Sequence[Value]) -> list[Place]:
            return [(of[value.node], value.index) for value in values]

        self._groups = [
            ([of[node] for node in group.nodes], places(group.inputs), places(group.outputs)) for group in fusion.groups
        ]
        self._refused = [(of[node], why) for node, why in fusion.refused.items()]
        self._apart = [(of[node], why) for node, why in fusion.apart.items()]
        self._copied = [(of[node], before[original]) for node, original in fusion.copied.items() if node in of]
        self._count = guards.count

    def at(self, at: Binding) -> Fusion | None:
        """The graph and its groups at these sizes; None where some answer differs."""
        if not at.satisfies(self._count):
            return None
        graph = self._fused.bound(at)
        nodes = graph.nodes
        groups = [
            Region(
                tuple([nodes[number] for number in members]),
                tuple([nodes[number].outputs[index] for number, index in inputs]),
                tuple([nodes[number].outputs[index] for number, index in outputs]),
            )
            for members, inputs, outputs in self._groups
        ]

        def before() -> tuple[Graph, Mapping[Node, Node]]:
            given = self._given.bind(at)
            return given, {nodes[number]: given.nodes[original] for number, original in self._copied}

        return Fusion(
            graph,
            before,
            groups,
            refused={nodes[number]: why for number, why in self._refused},
            apart={nodes[number]: why for number, why in self._apart},
        )
