"""Executables on a device: to be called, and to be watched at work with a look after every step."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from hybrid_lab.engines import memory
from hybrid_lab.engines.engine import Executable, Program
from hybrid_lab.engines.planned.watch import Look, WatchedProgram
from hybrid_lab.engines.report import Report
from hybrid_lab.engines.triton.run import availability
from hybrid_lab.engines.triton.run.program import DeviceWriter
from hybrid_lab.graph.graph import Graph

#: Cycles that a GPU waits for each step before a timed run, about 20 microseconds: longer than a launch takes here.
_HEAD_START = 30_000
_LONGEST = 200_000_000


class DeviceExecutable(Executable):
    """An executable whose `run` takes and gives tensors of `device`. Called without one it takes and gives NumPy
    arrays, by counted copies.
    """

    __slots__ = ()

    def __init__(self, graph: Graph, run: Program, report: Report):
        super().__init__(graph, run, report)
        self.device = availability.torch_device()

    def __call__(self, inputs: Sequence[Any], rng: tuple[int, int] = (0, 0)) -> list[Any]:
        if inputs and np.ndarray not in set(map(type, inputs)):
            return self.run(inputs, rng)
        tensors = [memory.to_device(item, self.device) if type(item) is np.ndarray else item for item in inputs]
        return [memory.to_host(item) for item in self.run(tensors, rng)]

    def watched(self) -> WatchedDeviceProgram:
        return WatchedDeviceProgram(self.graph, self.report.static_alloc)


class WatchedDeviceProgram(WatchedProgram):
    """As WatchedProgram, with the kernels launched in a call; a kernel counts as one step.

    Takes NumPy arrays, which are copied to the device once for all runs with the same list of them.
    """

    writer = DeviceWriter
    _given: tuple[Any, list[Any]] = (None, [])

    def run(self, inputs: Sequence[np.ndarray], rng: tuple[int, int], look: Look) -> list[np.ndarray]:
        """As Executable.run, calling `look` with copies on the host."""

        def look_here(step: int, values: tuple[object, ...]) -> None:
            look(step, tuple(None if value is None else memory.to_host(value) for value in values))

        return [memory.to_host(item) for item in self._watched(self._tensors(inputs), rng, look_here)]

    def times(self, inputs: Sequence[np.ndarray], rng: tuple[int, int]) -> np.ndarray:
        """Seconds of each step in one run: of the GPU, as its events tell, not of what waits for it here."""
        tensors = self._tensors(inputs)
        return super().times(tensors, rng) if availability.device().interpreted else self.event_times(tensors, rng)

    def event_times(self, tensors: Sequence[object], rng: tuple[int, int]) -> np.ndarray:
        """The same by events on the device's stream.

        The GPU is kept waiting at first, so that launches lie ready when it comes to them: else a short kernel would
        seem to take as long as its launch.
        """
        import torch

        events: list[Any] = []

        def look(step: int, values: object) -> None:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            events.append(event)

        wait = getattr(torch.cuda, "_sleep", None)
        if wait is not None:
            wait(min(_HEAD_START * len(self.steps), _LONGEST))
        self._watched(tensors, rng, look)
        events[-1].synchronize()
        return np.array([before.elapsed_time(after) for before, after in pairwise(events)], np.float64) / 1e3

    def _tensors(self, inputs: Sequence[np.ndarray]) -> list[Any]:
        known, tensors = self._given
        if known is not inputs:
            device = availability.torch_device()
            tensors = [memory.to_device(np.asarray(item), device) for item in inputs]
            self._given = inputs, tensors
        return tensors
