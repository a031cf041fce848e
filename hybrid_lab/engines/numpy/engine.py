"""NumPyEngine: every operator by its record's NumPy kernel."""

from __future__ import annotations

from typing import ClassVar

from hybrid_lab.engines.planned.build import PlannedEngine
from hybrid_lab.engines.report import Report
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.loops.body import Run


class NumPyEngine(PlannedEngine):
    """Runs every operator by its record's NumPy kernel."""

    name: ClassVar[str] = "numpy"
    title: ClassVar[str] = "NumPy"

    def prepare(self, graph: Graph, strict: bool, background: bool = False) -> tuple[Graph, Report]:
        return graph, Report(self.name, graph.name, {self.name: len(graph.operators)})


ENGINE = NumPyEngine()


def compile_body(graph: Graph) -> Run:
    """Compile an inferred graph whose mode is bound: the body of a loop."""
    return ENGINE.compile(graph).run
