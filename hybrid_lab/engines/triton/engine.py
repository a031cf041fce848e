"""TritonEngine: lower, fuse, make kernels of the groups, and plan the whole as a program of the device."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from hybrid_lab.diagnostics.words import count
from hybrid_lab.engines.collector import without_collecting
from hybrid_lab.engines.engine import Executable, SeparateTraining, Training
from hybrid_lab.engines.planned.engine import PlannedEngine
from hybrid_lab.engines.regions import refuse, reported
from hybrid_lab.engines.report import Report
from hybrid_lab.engines.triton import tuning
from hybrid_lab.engines.triton.plan.plans import kernels_of
from hybrid_lab.engines.triton.run import availability
from hybrid_lab.engines.triton.run.steps import Steps, on_torch
from hybrid_lab.engines.triton.write import tiles
from hybrid_lab.engines.triton.write.source import KernelSource
from hybrid_lab.graph.dump import dump
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.printer import format_origin
from hybrid_lab.log import logger

if TYPE_CHECKING:
    from hybrid_lab.engines.triton.run.executable import DeviceExecutable


class TritonEngine(PlannedEngine):
    """The GPU engine: kernels for what they can hold; the rest, counted as fallbacks, by torch on the device or, with
    counted copies, on the host.
    """

    name: ClassVar[str] = "triton"
    title: ClassVar[str] = "Triton"
    own_options: ClassVar[frozenset[str]] = frozenset({"tf32"})

    @property
    def device(self) -> Any:
        return availability.torch_device()

    def missing(self) -> str | None:
        return availability.missing()

    def where(self) -> str:
        device = availability.device()
        return f"Triton in {device.name}" if device.interpreted else f"Triton on {device.name}"

    def compile(
        self,
        graph: Graph,
        static_alloc: bool = False,
        static_shape: bool = False,
        strict: bool = False,
        tf32: bool = False,
    ) -> Executable:
        from hybrid_lab.engines.triton.run.capture import CapturedRun

        started = time.perf_counter()
        written = self._write(graph, strict, tf32)
        _prepare(written.sources)
        executable = written.executable(static_alloc)
        program: Any = executable.run
        with without_collecting():
            program.write_now()
        if static_shape:
            executable.run = CapturedRun(executable)
        executable.report.seconds = time.perf_counter() - started
        return executable

    def training_graphs(
        self, forward: Graph, backward: Graph, sources: Sequence[tuple[str, int]], num_outputs: int
    ) -> tuple[Graph, Graph, tuple[tuple[str, int], ...]]:
        """With less to keep: see training.py."""
        from hybrid_lab.engines.triton.plan.training import training_pair

        found = training_pair(forward, backward, sources, num_outputs)
        return found.forward, found.backward, found.sources

    def compile_training(
        self, forward: Graph, backward: Graph, sources: Sequence[tuple[str, int]], num_outputs: int, **options: bool
    ) -> Training:
        """As every engine: one arena for both, and their kernels are compiled together."""
        from hybrid_lab.engines.triton.run.capture import CapturedRun, CapturedTraining
        from hybrid_lab.engines.triton.run.executable import DeviceTraining

        started = time.perf_counter()
        strict, static_alloc = options.get("strict", False), options.get("static_alloc", False)
        tf32 = options.get("tf32", False)
        first, second = self._write(forward, strict, tf32), self._write(backward, strict, tf32)
        _prepare([*first.sources, *second.sources])
        made = first.executable(static_alloc), second.executable(static_alloc)
        made[0].report.seconds = time.perf_counter() - started
        training: Training
        if any(kind == "saved" for kind, _ in sources):
            with without_collecting():
                training = DeviceTraining(*made, sources, num_outputs, static_alloc)
        else:
            training = SeparateTraining(*made, num_outputs)
        if not options.get("static_shape"):
            return training
        if isinstance(training, DeviceTraining):
            return CapturedTraining(training, sources)
        for executable in made:
            executable.run = CapturedRun(executable)
        return training

    def trim(self) -> None:
        from hybrid_lab.engines.triton.run.arena import POOL

        super().trim()
        POOL.clear()

    @without_collecting()
    def _write(self, graph: Graph, strict: bool, tf32: bool) -> _Written:
        steps = _steps(graph, _precision(tf32))
        report = Report(self.name, graph.name)
        for group, names, kernels in steps.groups:
            title = " and ".join(source.name for source in kernels)
            report.regions.append(reported(group, f"kernel {title}", names))
        # A view moves no data, and what makes no elements computes nothing.
        refused = {
            node: reason
            for node, reason in steps.refused.items()
            if not node.op.view and any(value.nbytes for value in node.outputs)
        }
        if strict:
            refuse(refused, f"{count(len(refused), 'operator')} without a Triton kernel")
        report.operators = {self.name: steps.operators - len(refused), "torch": 0, "numpy": 0}
        for node, reason in refused.items():
            where = "torch" if on_torch(node) else "numpy"
            report.operators[where] += 1
            report.fall_back(node.op.name, where, reason, format_origin(node))
        dump("fuse", steps.graph)
        sources = [each for _, _, kernels in steps.groups for each in kernels if isinstance(each, KernelSource)]
        return _Written(steps.graph, report, sources)


@dataclass
class _Written:
    """A graph whose nodes are steps on the device, and the kernels it needs."""

    graph: Graph
    report: Report
    sources: list[KernelSource]

    def executable(self, static_alloc: bool) -> DeviceExecutable:
        from hybrid_lab.engines.triton.run.executable import DeviceExecutable, DeviceLater

        return DeviceExecutable(self.graph, DeviceLater(self.graph, self.report, static_alloc), self.report)


def _precision(tf32: bool) -> str:
    """How float32 is multiplied here."""
    device = availability.device()
    found = tiles.precision(tf32, device.name)
    if tf32 and found != "tf32" and not device.interpreted:
        _tell_of_no_tf32(device.name)
    return found


@functools.cache
def _tell_of_no_tf32(name: str) -> None:
    logger.warning(f"tf32=True changes nothing on {name}: it multiplies float32 as float32 only")


def _prepare(sources: Sequence[KernelSource]) -> None:
    """Compile in parallel what is not on disk yet; the interpreter compiles nothing."""
    if not availability.device().interpreted:
        from hybrid_lab.engines.triton.build import compiling

        compiling.prepare(sources)


def _steps(graph: Graph, precision: str) -> Steps:
    """The steps of a graph's device program."""
    _, fusion, _ = kernels_of(graph, precision)
    return Steps.of(fusion, {group: tuning.chosen(group, fusion.kernels[group]) for group in fusion.groups})


ENGINE = TritonEngine()
