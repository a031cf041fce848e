"""Executables on a device: programs that are planned and written when they first run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab.engines import memory
from hybrid_lab.engines.engine import Executable, Kept, Program
from hybrid_lab.engines.planned.build import Later, describe
from hybrid_lab.engines.planned.training import JointTraining
from hybrid_lab.engines.report import Report
from hybrid_lab.engines.triton.run import availability
from hybrid_lab.engines.triton.run.program import DeviceBegin, DeviceFinish, DeviceWriter
from hybrid_lab.engines.triton.run.steps import HostStep, KernelOperator, on_torch
from hybrid_lab.engines.triton.run.watch import WatchedDeviceProgram
from hybrid_lab.graph.dump import dump
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.plan import MemoryPlan, plan


class DeviceLater(Later):
    """A device program that is planned and written when it is first run.

    It takes and gives tensors of the device; called without one it takes and gives NumPy arrays, by counted copies.
    """

    def write_now(self) -> None:
        """Plan and write it now."""
        self._run = self.write()

    def write(self) -> Program:
        planned = dump("plan", plan(self.graph, contiguous=True))
        run, text = DeviceWriter(planned, self.static_alloc).finish()
        dump("program", text)
        if not self.report.written:
            describe(self.report, planned, text, self.static_alloc)
            note_copies(self.report, planned)
        return run

    def alone(self) -> Program:
        """The same program with an arena that is its own as long as it lives: captured launches write there."""
        return DeviceWriter(plan(self.graph, contiguous=True), True).finish()[0]

    def __call__(self, inputs: Sequence[Any], rng: tuple[int, int]) -> list[Any]:
        if inputs and np.ndarray not in set(map(type, inputs)):
            return super().__call__(inputs, rng)
        device = availability.torch_device()
        tensors = [memory.to_device(item, device) if type(item) is np.ndarray else item for item in inputs]
        return [memory.to_host(item) for item in super().__call__(tensors, rng)]

    def on_tensors(self, inputs: Sequence[Any], rng: tuple[int, int]) -> list[Any]:
        """As calling it with tensors, for programs that may have no inputs."""
        return super().__call__(inputs, rng)


class DeviceExecutable(Executable):
    """An executable of `device`; see DeviceLater for what it takes and gives."""

    __slots__ = ("device",)

    def __init__(self, graph: Graph, run: DeviceLater, report: Report):
        super().__init__(graph, run, report)
        self.device = availability.torch_device()

    def watched(self) -> WatchedDeviceProgram:
        return WatchedDeviceProgram(self.graph, self.report.static_alloc)


class DeviceTraining(JointTraining):
    """A recorded call on the device: forward and backward over one arena of its memory."""

    begin_writer = DeviceBegin
    finish_writer = DeviceFinish

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        note_copies(self.forward.report, self.plan.forward)
        note_copies(self.backward.report, self.plan.backward)

    def in_place(
        self, kept: Kept, operands: Sequence[object], rng: tuple[int, int], out: Sequence[object]
    ) -> list[Any]:
        """The backward in the arena of `kept`, which stays leased: for captured launches."""
        return self._finish(operands, rng, kept.lease, out)


def note_copies(report: Report, planned: MemoryPlan) -> None:
    """Write down how many copies to the host and back a call of this program makes, and for what."""
    report.host_copies = {}
    for node in planned.steps:
        if isinstance(node.op, KernelOperator) or (node.op.view and len(node.outputs) == 1) or on_torch(node):
            continue
        step = HostStep(node, planned.needs[node])
        report.host_copies[node.op.name] = report.host_copies.get(node.op.name, 0) + step.to_host + step.to_device
