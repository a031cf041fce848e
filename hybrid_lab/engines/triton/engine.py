"""TritonEngine: lower, fuse, make kernels of the groups, and plan the whole as a program of the device."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
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
from hybrid_lab.engines.triton.run.steps import KernelOperator, on_torch
from hybrid_lab.engines.triton.write import tiles
from hybrid_lab.engines.triton.write.source import KernelSource
from hybrid_lab.graph.dump import dump
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.partition import contract
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

    @staticmethod
    def missing() -> str | None:
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
        executable, sources = self._executable(graph, static_alloc, strict, tf32)
        _prepare(sources)
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
        """With fewer bytes saved between them: see plan/training.py."""
        from hybrid_lab.engines.triton.plan.training import training_pair

        split = training_pair(forward, backward, sources, num_outputs)
        return split.forward, split.backward, split.sources

    def compile_training(
        self, forward: Graph, backward: Graph, sources: Sequence[tuple[str, int]], num_outputs: int, **options: bool
    ) -> Training:
        """As every engine: one arena for both, and their kernels are compiled together."""
        from hybrid_lab.engines.triton.run.capture import CapturedRun, CapturedTraining
        from hybrid_lab.engines.triton.run.executable import DeviceTraining

        started = time.perf_counter()
        static_alloc = options.get("static_alloc", False)
        (first, kernels), (second, more) = (
            self._executable(graph, static_alloc, options.get("strict", False), options.get("tf32", False))
            for graph in (forward, backward)
        )
        _prepare([*kernels, *more])
        first.report.seconds = time.perf_counter() - started
        training: Training
        if any(kind == "saved" for kind, _ in sources):
            with without_collecting():
                training = DeviceTraining(first, second, sources, num_outputs, static_alloc)
        else:
            training = SeparateTraining(first, second, num_outputs)
        if not options.get("static_shape"):
            return training
        if isinstance(training, DeviceTraining):
            return CapturedTraining(training, sources)
        for executable in (first, second):
            executable.run = CapturedRun(executable)
        return training

    def trim(self) -> None:
        from hybrid_lab.engines.triton.run.arena import POOL

        super().trim()
        POOL.clear()

    @without_collecting()
    def _executable(
        self, graph: Graph, static_alloc: bool, strict: bool, tf32: bool
    ) -> tuple[DeviceExecutable, list[KernelSource]]:
        """The program of a graph, which is planned and written later; and the kernels that it needs."""
        from hybrid_lab.engines.triton.run.executable import DeviceExecutable, DeviceLater

        _, fusion, _ = kernels_of(graph, _precision(tf32))
        kernels = {group: tuning.chosen(group, fusion.kernels[group]) for group in fusion.groups}
        steps = contract(fusion.graph, fusion.groups, lambda group: KernelOperator(group, kernels[group]))
        dump("fuse", steps)
        # A view moves no data, and an operator without elements computes nothing.
        refused = {
            node: reason
            for node, reason in fusion.refused.items()
            if not node.op.view and any(value.nbytes for value in node.outputs)
        }
        if strict:
            refuse(refused, f"{count(len(refused), 'operator')} without a Triton kernel")
        report = Report(self.name, graph.name)
        for group, sources in kernels.items():
            title = " and ".join(source.name for source in sources)
            names = [node.op.name for node in group.nodes]
            real = [node.op.name for node in group.nodes if not node.op.view]
            report.regions.append(reported(group, f"kernel {title}", real or names))
        report.operators = {self.name: len(fusion.graph.operators) - len(refused), "torch": 0, "numpy": 0}
        for node, reason in refused.items():
            where = "torch" if on_torch(node) else "numpy"
            report.operators[where] += 1
            report.fall_back(node.op.name, where, reason, format_origin(node))
        own = [source for sources in kernels.values() for source in sources if isinstance(source, KernelSource)]
        return DeviceExecutable(steps, DeviceLater(steps, report, static_alloc), report), own


def _precision(tf32: bool) -> str:
    """How float32 is multiplied here."""
    device = availability.device()
    precision = tiles.precision(tf32, device.name)
    if tf32 and precision != "tf32" and not device.interpreted:
        _warn_of_no_tf32(device.name)
    return precision


@functools.cache
def _warn_of_no_tf32(name: str) -> None:
    logger.warning(f"tf32=True changes nothing on {name}: it multiplies float32 as float32 only")


def _prepare(sources: Sequence[KernelSource]) -> None:
    """Compile in parallel what is not on disk yet; the interpreter compiles nothing."""
    if not availability.device().interpreted:
        from hybrid_lab.engines.triton.build import compiling

        compiling.prepare(sources)


ENGINE = TritonEngine()
