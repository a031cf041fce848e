"""NumPyEngine: plan the memory, generate the program, describe both."""

from __future__ import annotations

import time
from typing import ClassVar

from hybrid_lab.engines.engine import Engine, Executable
from hybrid_lab.engines.numpy.program import write_program
from hybrid_lab.engines.report import Report
from hybrid_lab.graph.dump import dump
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.plan import plan


class NumPyEngine(Engine):
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


def build(graph: Graph, report: Report, static_alloc: bool) -> Executable:
    """The executable of a graph of which every operator has a NumPy kernel, a compiled region counting as one operator.

    Fills in the memory and program parts of `report`.
    """
    memory = dump("plan", plan(graph))
    program = write_program(memory, static_alloc)
    dump("program", program.source)
    report.static_alloc = static_alloc
    report.arena_bytes, report.ideal_bytes = memory.arena_bytes, memory.ideal_bytes
    report.fresh_bytes = sum(value.nbytes for value in graph.roots)
    report.bytes_moved = sum(
        value.nbytes
        for node in memory.steps
        if memory.places[node.outputs[0]].kind != "view"
        for value in (*node.values_in, *node.outputs)
        if value in memory.last_use
    )
    report.plan, report.program = str(memory), program.source
    return Executable(graph, program.run, report)


ENGINE = NumPyEngine()
