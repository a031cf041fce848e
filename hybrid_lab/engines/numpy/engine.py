"""NumPyEngine: every operator by its record's NumPy kernel."""

from __future__ import annotations

import time
from typing import ClassVar

from hybrid_lab.engines.engine import Executable
from hybrid_lab.engines.planned.build import build
from hybrid_lab.engines.planned.engine import PlannedEngine
from hybrid_lab.engines.report import Report
from hybrid_lab.graph import body
from hybrid_lab.graph.graph import Graph


class NumPyEngine(PlannedEngine):
    """Runs every operator by its record's NumPy kernel."""

    name: ClassVar[str] = "numpy"
    title: ClassVar[str] = "NumPy"

    def compile(
        self, graph: Graph, static_alloc: bool = False, static_shape: bool = False, strict: bool = False
    ) -> Executable:
        started = time.perf_counter()
        report = Report(self.name, graph.name, {self.name: len(graph.operators)})
        executable = build(graph, report, static_alloc)
        report.seconds = time.perf_counter() - started
        return executable


ENGINE = NumPyEngine()

body.compile_graph = lambda graph: ENGINE.compile(graph).run
