"""PlannedEngine: the base of the engines on a CPU, whose executables are planned programs."""

from __future__ import annotations

import time
from abc import abstractmethod

from hybrid_lab.engines.engine import Engine, Executable, SeparateTraining, Training
from hybrid_lab.engines.planned import arena
from hybrid_lab.engines.planned.build import build
from hybrid_lab.engines.planned.training import JointTraining
from hybrid_lab.engines.report import Report
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.specialized import Split


class PlannedEngine(Engine):
    """Plans what `prepare` makes of a graph, and writes its program; a forward and its backward share one arena."""

    @abstractmethod
    def prepare(self, graph: Graph, strict: bool, background: bool = False) -> tuple[Graph, Report]:
        """The graph with one operator for each region that this engine runs as a unit, and the report of both.

        strict : as for `compile`; background : what takes long may be made meanwhile, in a thread of its own
        """

    def compile(
        self, graph: Graph, static_alloc: bool = False, static_shape: bool = False, strict: bool = False
    ) -> Executable:
        return self._executable(graph, static_alloc, strict)

    def compile_training(self, split: Split, **options: bool) -> Training:
        static_alloc, strict = options.get("static_alloc", False), options.get("strict", False)
        joint = split.saves
        # The session of a large backward takes longest: it is made while the forward is compiled and runs. With
        # `strict` the caller wants to hear now of what is turned down.
        second = self._executable(split.backward, static_alloc, strict, joint, background=not strict)
        first = self._executable(split.forward, static_alloc, strict, joint)
        if joint:
            return JointTraining(first, second, split.sources, static_alloc)
        return SeparateTraining(first, second, split.num_outputs)

    def _executable(
        self, graph: Graph, static_alloc: bool, strict: bool, later: bool = False, background: bool = False
    ) -> Executable:
        """later : write the program when somebody runs it"""
        started = time.perf_counter()
        executable = build(*self.prepare(graph, strict, background), static_alloc, later)
        executable.report.seconds = time.perf_counter() - started
        return executable

    def trim(self) -> None:
        arena.trim()
