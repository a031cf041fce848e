"""Pair: forward and backward of a recorded call, and what goes from one to the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Value

Source = tuple[str, int]

#: In the order in which a backward takes its inputs.
_ORDER = ("input", "output", "saved", "head")


@dataclass(frozen=True)
class Pair:
    """forward, backward, sources : as in graph.split.Split"""

    forward: Graph
    backward: Graph
    sources: tuple[Source, ...]

    @staticmethod
    def of(forward: Graph, backward: Graph, places: Mapping[Value, Source]) -> Pair:
        """The pair in which the backward takes these inputs. places : where each comes from"""
        inputs = sorted(places, key=lambda value: (_ORDER.index(places[value][0]), places[value][1]))
        turned = Graph(inputs, backward.outputs, backward.effects, backward.draws, backward.name)
        return Pair(forward, turned, tuple([places[value] for value in inputs]))
