"""PlannedEngine: the base of the engines whose executables are planned programs."""

from __future__ import annotations

from collections.abc import Sequence

from hybrid_lab.engines.engine import Engine, SeparateTraining, Training
from hybrid_lab.engines.planned import arena
from hybrid_lab.engines.planned.build import postponed
from hybrid_lab.engines.planned.training import join
from hybrid_lab.graph.graph import Graph


class PlannedEngine(Engine):
    """Runs a forward and its backward over one arena where `compile` gives planned programs for both."""

    def compile_training(
        self, forward: Graph, backward: Graph, sources: Sequence[tuple[str, int]], num_outputs: int, **options: bool
    ) -> Training:
        if not any(kind == "saved" for kind, _ in sources):
            return SeparateTraining(self.compile(forward, **options), self.compile(backward, **options), num_outputs)
        with postponed():
            second = self.compile_backward(backward, **options)
            first = self.compile(forward, **options)
        static_alloc = options.get("static_alloc", False)
        joined = join(first, second, sources, num_outputs, static_alloc)
        return joined if joined is not None else SeparateTraining(first, second, num_outputs)

    def trim(self) -> None:
        arena.trim()
