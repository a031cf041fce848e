"""Watch a planned program at work: the same plan, places and kernels, with a look at the results after every step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from hybrid_lab.engines.planned.program import ProgramWriter
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.memory.plan import plan
from hybrid_lab.graph.node import Node
from hybrid_lab.system import forks

#: Called after each step: the step's number, and its outputs in place (None for outputs without readers). The next step
#: may overwrite them. Called once before the first step, with -1.
Look = Callable[[int, tuple[object, ...]], None]


class WatchedProgram:
    """The program of an executable's graph, a compiled region counting as one step.

    steps : the nodes in the order in which they run
    """

    writer: ClassVar[type[ProgramWriter]] = ProgramWriter

    def __init__(self, graph: Graph, static_alloc: bool = False):
        memory = plan(graph, contiguous=self.writer.contiguous)
        self.steps: tuple[Node, ...] = memory.steps
        self._run: Any = self.writer(memory, static_alloc, watched=True).finish()[0]
        self._lock = forks.lock()

    def run(self, inputs: Sequence[np.ndarray], rng: tuple[int, int], look: Look) -> list[np.ndarray]:
        """As Executable.run, calling `look` with arrays on the way."""
        return self._watched(inputs, rng, look)

    def times(self, inputs: Sequence[np.ndarray], rng: tuple[int, int]) -> np.ndarray:
        """Seconds of each step in one run, the price of looking taken off."""
        stamps: list[int] = []
        add, clock = stamps.append, time.perf_counter_ns

        def look(step: int, values: object) -> None:
            add(clock())

        self._watched(inputs, rng, look)
        spent = np.diff(np.array(stamps, np.float64)) - _price_of_looking()
        return np.maximum(spent, 0.0) / 1e9

    def _watched(self, inputs: Sequence[object], rng: tuple[int, int], look: Look) -> list[Any]:
        with self._lock:
            self._run.__globals__["look"] = look
            return self._run(inputs, rng)


_price: float | None = None


def _price_of_looking() -> float:
    """Nanoseconds that one look takes."""
    global _price
    if _price is None:
        stamps: list[int] = []
        add, clock = stamps.append, time.perf_counter_ns

        def look(step: int, values: object) -> None:
            add(clock())

        for index in range(2000):
            look(index, (stamps,))
        _price = float(np.median(np.diff(stamps)))
    return _price
