"""Shared: what the programs of one Block have in common, and Prologue, what a Block computes from parameters alone."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from operator import is_not
from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab import forks
from hybrid_lab.engines import memory
from hybrid_lab.graph.equal import equal
from hybrid_lab.graph.specializations import Specializations
from hybrid_lab.ndarray.ndarray import NDArray

if TYPE_CHECKING:
    from hybrid_lab.engines.engine import Executable
    from hybrid_lab.gluon.hybridized.neutral import NeutralGraph
    from hybrid_lab.gluon.hybridized.program import Program
    from hybrid_lab.graph.graph import Graph

_serial = itertools.count()
_NO_DRAWS = (0, 0)


class Prologue:
    """What a Block computes from its parameters alone, in prediction: held until one of them is written to.

    arrays : the parameters it reads
    """

    def __init__(self, graph: Graph, arrays: list[NDArray], executable: Executable):
        self.graph, self.arrays, self.executable = graph, arrays, executable
        self.serial = next(_serial)
        self._held: tuple[list[int], list[np.ndarray]] | None = None

    def serves(self, graph: Graph, arrays: list[NDArray]) -> bool:
        """Whether it gives the values of this graph for these arrays."""
        same = len(arrays) == len(self.arrays) and not any(map(is_not, arrays, self.arrays))
        return same and equal(graph, self.graph)

    def values(self) -> list[np.ndarray]:
        """The outputs for the parameters as they are now."""
        versions = [array.buffer.version for array in self.arrays]
        held = self._held
        if held is None or held[0] != versions or any(array.buffer.exported for array in self.arrays):
            device = self.executable.device
            results = self.executable.run([array.raw(device) for array in self.arrays], _NO_DRAWS)
            if device is not None and not self.arrays:  # made of constants: called without a tensor, it gives arrays
                results = [memory.to_device(result, device) for result in results]
            held = self._held = versions, results
        return held[1]


class Shared:
    """What the programs of one Block have in common: graphs, prologues, and the few that may keep copies of the
    parameters.

    specializations : the graphs of earlier calls, for those of other sizes
    heads : per neutral graph, the outputs that the backwards of its calls differentiated of late
    note : called with (program, seconds, kind, reason) for a program that another one compiled
    switch : called with (old, new) where calls are to run another program of the same signature from now on
    compiling : held while one of these programs is compiled
    """

    def __init__(
        self,
        note: Callable[[Program, float, str, str], None] = lambda program, seconds, kind, reason: None,
        switch: Callable[[Program, Program], None] = lambda old, new: None,
        compiling: Any = None,
    ) -> None:
        self.note, self.switch = note, switch
        self.compiling = forks.rlock() if compiling is None else compiling
        self.heads: weakref.WeakKeyDictionary[NeutralGraph, frozenset[int]] = weakref.WeakKeyDictionary()
        self.serial = next(_serial)
        self.lock = forks.rlock()
        self.specializations = Specializations()
        self.prologues: weakref.WeakSet[Prologue] = weakref.WeakSet()
        self.packed: list[Program] = []

    def prologue(self, graph: Graph, arrays: list[NDArray], engine: Any, options: dict[str, bool]) -> Prologue:
        """The prologue of another program where it is the same one, compiled otherwise."""
        with self.lock:
            for known in self.prologues:
                if known.serves(graph, arrays):
                    return known
            prologue = Prologue(graph, arrays, engine.compile(graph, **options))
            self.prologues.add(prologue)
            return prologue
