"""The compiled programs of a bound Symbol, by the mode and by whether the call is recorded."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from hybrid_lab.diagnostics.location import capture
from hybrid_lab.gluon.access import parameter_holding
from hybrid_lab.gluon.symbol_block import data_inputs
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.hybridize.calls import program_for
from hybrid_lab.hybridize.compiled_call import CompiledCall
from hybrid_lab.hybridize.neutral import NeutralGraph
from hybrid_lab.hybridize.program_cache import ProgramCache
from hybrid_lab.hybridize.structure import LEAF, Spec
from hybrid_lab.ndarray import changes
from hybrid_lab.ndarray import invoke as invoking
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.symbol.symbol import Symbol
from hybrid_lab.system import forks
from hybrid_lab.system.logger import logger
from hybrid_lab.system.memory import without_collecting


class BoundGraph:
    """The neutral graph of a Symbol, with its data inputs first; and the common part of the programs for all shapes.

    order : for each input of the graph, its number among the Symbol's inputs

    The names of inputs tell which are parameters, which affects the speed alone: values that a prediction computes from
    parameters only are computed again when the parameters are written to.
    """

    def __init__(self, symbol: Symbol) -> None:
        values = symbol.graph().inputs
        data = set(data_inputs(symbol))
        indices = range(len(values))
        first = [index for index in indices if values[index].node.name in data]
        self.order = first + [index for index in indices if values[index].node.name not in data]
        self.num_data = len(first)
        self.graph = _numbered(symbol.graph([values[index] for index in self.order]))
        self.name = symbol.name or "group"
        self.cache = ProgramCache(forks.rlock())
        self.in_spec: Spec = ("tuple", (LEAF,) * self.num_data)
        self.out_spec: Spec = ("tuple", (LEAF,) * len(self.graph.outputs))


class Programs:
    """The programs that run a graph on some arrays.

    arrays : of all inputs, in the order of the graph, with their links on the tape
    """

    def __init__(self, bound: BoundGraph, arrays: Sequence[NDArray]) -> None:
        self.bound, self.arrays = bound, list(arrays)
        names = [value.node.name for value in bound.graph.inputs]
        held = zip(names[bound.num_data :], arrays[bound.num_data :], strict=True)
        self._leaves = self.arrays[: bound.num_data]
        self._neutral = NeutralGraph(
            bound.graph,
            bound.in_spec,
            bound.out_spec,
            tuple(parameter_holding(name, array) for name, array in held),
            source="file",
        )
        self._programs: dict[tuple[bool, bool], CompiledCall] = {}

    def program(self, training: bool, recording: bool) -> CompiledCall:
        """The program of a mode, compiled now if there is none."""
        known = self._programs.get((training, recording))
        if known is not None and known.precision is invoking.precision:
            if known.state.checked == changes.count or known.state.still_valid():
                return known
        return self._compile(training, recording)

    def _compile(self, training: bool, recording: bool) -> CompiledCall:
        place, start, bound = capture(), time.perf_counter(), self.bound
        with without_collecting():
            program = program_for(bound.name, {}, self._neutral, self._leaves, training, recording, bound.cache)
        self._programs[training, recording] = program
        seconds = time.perf_counter() - start
        logger.debug(f"{program.headline(seconds)}{'' if place is None else f' ({place.describe()})'}")
        return program

    def run(self, training: bool, recording: bool, rng: tuple[int, int]) -> list[NDArray]:
        """The outputs; states are updated. rng : (seed, base) of the random numbers"""
        return list(self.program(training, recording)(self._leaves, rng))


def _numbered(graph: Graph) -> Graph:
    """The graph with its draws numbered from 0: Symbols that are composed by hand have draws anywhere."""
    draws = sorted({node.draw for node in graph.nodes if node.draw is not None})
    if draws == list(range(graph.draws)):
        return graph
    new = {draw: index for index, draw in enumerate(draws)}

    def rewrite(node: Node, inputs: tuple[Any, ...]) -> Sequence[Value] | None:
        return None if node.draw is None else node.replace(inputs=inputs, draw=new[node.draw]).outputs

    renumbered = graph.map(rewrite)
    return Graph(renumbered.inputs, renumbered.outputs, draws=len(draws), name=graph.name)
