"""Engine and Executable: what every engine offers to the rooms above."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar

import numpy as np

from hybrid_lab.engines.report import Report
from hybrid_lab.graph.graph import Graph

#: A compiled program: arrays and (seed, first draw) in, outputs and new values of effects out.
Program = Callable[[Sequence[np.ndarray], tuple[int, int]], list[np.ndarray]]

#: The roles of graph inputs whose values stay the same from call to call, as long as nobody trains.
CONSTANT_ROLES = frozenset({"param", "aux", "hoisted"})


class Executable:
    """A compiled graph.

    `executable(inputs, rng=(seed, base))` takes one array per graph input, of the shape and dtype it was compiled for,
    and returns a list: the outputs, then the new values of the effects, in fresh memory that the executable never
    touches again. A random node draws from (seed, base + node.draw). Safe to call from several threads at once.

    run : the same as calling it, for callers that count microseconds; takes (inputs, rng)
    report : what was compiled
    """

    __slots__ = ("__weakref__", "graph", "report", "run")

    def __init__(self, graph: Graph, run: Program, report: Report):
        self.graph, self.run, self.report = graph, run, report

    def __call__(self, inputs: Sequence[np.ndarray], rng: tuple[int, int] = (0, 0)) -> list[np.ndarray]:
        return self.run(inputs, rng)

    def pack(self, inputs: Sequence[np.ndarray], token: Hashable = None) -> None:
        """The caller promises that the arrays of the inputs with the roles in `CONSTANT_ROLES` keep their values until
        `unpack()`: the executable may bake them in. Never for training. Does nothing where an engine has no use for it.

        inputs : one array per graph input, as in a call
        token : equal tokens promise equal values of these inputs, in any executable; None promises nothing
        """

    def unpack(self) -> None:
        """All inputs count again, from the next call on."""

    def __repr__(self) -> str:
        return str(self.report)


class Engine(ABC):
    """Compiles graphs. One object per engine, from `engines.get(name)`."""

    name: ClassVar[str]
    title: ClassVar[str]

    def missing(self) -> str | None:
        """What is not installed or not usable here, in words and with the next step; None where all is there."""
        return None

    def where(self) -> str:
        """Engine and device for people: "NumPy on the CPU", "Triton on gfx1100"."""
        return f"{self.title} on the CPU"

    @abstractmethod
    def compile(
        self, graph: Graph, static_alloc: bool = False, static_shape: bool = False, strict: bool = False
    ) -> Executable:
        """Compile a specialized graph (every node has shapes and dtypes, its mode is bound).

        static_alloc : keep one arena for this executable instead of borrowing one per call
        static_shape : whatever the engine can fix further for unchanging shapes (captured launches on a GPU)
        strict : an operator that this engine cannot run is an error instead of a counted fallback
        Raises EngineError naming the operator, its block and its source line.
        """

    def __repr__(self) -> str:
        return f"<engine {self.name}>"
