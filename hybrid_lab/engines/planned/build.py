"""Build the executable of a graph: plan its memory, write its program, describe both in the report. PlannedEngine is
the base of the engines on a CPU, whose executables are these.
"""

from __future__ import annotations

import functools
import time
from abc import abstractmethod
from collections.abc import Hashable, Sequence

import numpy as np

from hybrid_lab.engines.engine import CONSTANT_ROLES, Engine, Executable, Program, SeparateTraining, Training
from hybrid_lab.engines.planned import arena
from hybrid_lab.engines.planned.program import ProgramWriter
from hybrid_lab.engines.planned.training import JointTraining
from hybrid_lab.engines.planned.watch import WatchedProgram
from hybrid_lab.engines.report import Report
from hybrid_lab.graph.call_graphs import Split
from hybrid_lab.graph.dump import dump, is_dumping
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.loops import body
from hybrid_lab.graph.memory.plan import plan
from hybrid_lab.graph.node import Input, Node, Value
from hybrid_lab.graph.passes.decompose import decompose
from hybrid_lab.graph.specialize import run_pass
from hybrid_lab.ops.framework.lowering import draw_lowering, run_lowering
from hybrid_lab.ops.framework.run import computes_in_float32
from hybrid_lab.system import forks


class PlannedExecutable(Executable):
    """An executable whose `run` is a planned program. Operators that can take constants as weights have `pack`."""

    __slots__ = ()

    def pack(self, inputs: Sequence[np.ndarray], token: Hashable = None) -> None:
        pairs = zip(self.graph.inputs, inputs, strict=True)
        constants = {value: array for value, array in pairs if _is_constant(value)}
        try:
            for node in self._packing():
                weights = {at: constants[value] for at, value in enumerate(node.values_in) if value in constants}
                if weights:
                    node.op.pack(weights, token)  # type: ignore[attr-defined]
        except BaseException:  # an interrupt: no operator may keep weights that are never released
            self.unpack()
            raise

    def unpack(self) -> None:
        for node in self._packing():
            node.op.unpack()  # type: ignore[attr-defined]

    def _packing(self) -> list[Node]:
        return [node for node in self.graph.operators if hasattr(node.op, "pack")]

    def watched(self) -> WatchedProgram:
        return WatchedProgram(self.graph, self.report.static_alloc)


def _is_constant(value: Value) -> bool:
    return isinstance(value.node.op, Input) and value.node.op.role in CONSTANT_ROLES


def build(graph: Graph, report: Report, static_alloc: bool, later: bool = False) -> PlannedExecutable:
    """The executable of a graph of which every operator has a NumPy kernel, a compiled region counting as one operator.

    Fills in the memory and program parts of `report`. later : only at the program's first run
    """
    graph = run_pass(None, "decompose", decompose, graph, _has_kernel)
    report.bodies = _bodies(graph)
    run = (Later if later else write)(graph, report, static_alloc)
    return PlannedExecutable(graph, run, report)


def _has_kernel(node: Node) -> bool:
    """Whether an operator runs as a whole; if its kernel only runs the kernels of its parts, the program runs these."""
    lowered = type(node.op).numpy in (run_lowering, draw_lowering)
    return not lowered or computes_in_float32(node.op, [value.dtype for value in node.values_in])


def write(graph: Graph, report: Report, static_alloc: bool, writer: type[ProgramWriter] = ProgramWriter) -> Program:
    """Plan a graph and write its program. Describes memory and program in the report, unless it has them already."""
    written = writer(dump("plan", plan(graph, contiguous=writer.contiguous)), static_alloc)
    run, text = written.finish()
    if is_dumping():
        dump("program", text())
    if not report.written:
        written.describe(report, text)
    return run


def _bodies(graph: Graph) -> list[body.Body]:
    """The bodies of its loops and branches, and of those inside them."""
    bodies = [each for node in graph.operators for each in getattr(node.op, "bodies", ())]
    return bodies + [inner for each in bodies for inner in _bodies(each.graph)]


class Later:
    """A program that is planned and written when it is first run. writer : as `write` takes it"""

    def __init__(self, graph: Graph, report: Report, static_alloc: bool, writer: type[ProgramWriter] = ProgramWriter):
        self._write = functools.partial(write, graph, report, static_alloc, writer)
        self._run: Program | None = None
        self._lock = forks.lock()

    def __call__(self, inputs: Sequence[np.ndarray], rng: tuple[int, int]) -> list[np.ndarray]:
        run = self._run
        if run is None:
            with self._lock:
                run = self._run = self._run or self._write()
        return run(inputs, rng)

    def forget(self) -> None:
        """Drop the function, and the arenas with it, until the next run."""
        self._run = None


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
        """later : write the program at its first run"""
        started = time.perf_counter()
        executable = build(*self.prepare(graph, strict, background), static_alloc, later)
        executable.report.seconds = time.perf_counter() - started
        return executable

    def trim(self) -> None:
        arena.trim()
