"""Engine and Executable: the interface of every engine to the rooms above."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hybrid_lab.engines.report import Report
from hybrid_lab.graph.call_graphs import Split
from hybrid_lab.graph.graph import Graph

if TYPE_CHECKING:
    import torch

    from hybrid_lab.engines.planned.watch import WatchedProgram

#: A compiled program: arrays and (seed, first draw) in, outputs and new values of effects out.
Program = Callable[[Sequence[np.ndarray], tuple[int, int]], list[np.ndarray]]

#: The roles of graph inputs whose values stay the same from call to call without a training.
CONSTANT_ROLES = frozenset({"param", "aux", "hoisted"})


@dataclass(slots=True, weakref_slot=True, eq=False, repr=False)
class Executable:
    """A compiled graph.

    `executable(inputs, rng=(seed, base))` takes one array per graph input, of the shape and dtype it was compiled for,
    and returns a list: the outputs, then the new values of the effects, in fresh memory that the executable never
    touches again. A random node draws from (seed, base + node.draw). Safe to call from several threads at once.

    run : the same as calling it, for callers that count microseconds; takes (inputs, rng)
    report : of the compile
    device : torch's device if it takes and gives tensors there instead of arrays; else None
    """

    graph: Graph
    run: Program
    report: Report
    device: torch.device | None = field(default=None, init=False)

    def __call__(self, inputs: Sequence[np.ndarray], rng: tuple[int, int] = (0, 0)) -> list[np.ndarray]:
        return self.run(inputs, rng)

    def pack(self, inputs: Sequence[np.ndarray], token: Hashable = None) -> None:
        """The caller promises that the arrays of the inputs with the roles in `CONSTANT_ROLES` keep their values until
        `unpack()`: the executable may bake them in. Never for training. Does nothing if an engine has no use for it.

        inputs : one array per graph input, as in a call
        token : equal tokens promise equal values of these inputs, in any executable; None promises nothing
        """

    def unpack(self) -> None:
        """All inputs count again, from the next call on."""

    def watched(self) -> WatchedProgram:
        """The same program with a look at the results after every step, for checks and measurements."""
        raise NotImplementedError(f"{type(self).__name__} is no planned program")

    def release(self) -> None:
        """Release the memory kept for the next call; a later call allocates it again."""
        forget = getattr(self.run, "forget", None)
        if forget is not None:
            forget()

    def __repr__(self) -> str:
        return str(self.report)


Ready = Callable[[int, Any], object]
"""Called in a backward with the number of a gradient and the array or tensor that holds it."""


class ForwardState:
    """The values that a forward keeps for its backward.

    saved : the saved values, in the order of the ("saved", i) sources; they may lie in memory that goes back to the
        engine with this object, so no reference to them may outlive it
    lease : memory of the engine that is this call's until its backward has run or this object is dropped, or None
    spent : a backward has begun to overwrite it
    """

    __slots__ = ("_give", "lease", "saved", "spent")

    def __init__(self, saved: Sequence[np.ndarray], lease: object = None, give: Callable[[Any], None] | None = None):
        self.saved, self.lease, self._give, self.spent = saved, lease, give, False

    def __del__(self) -> None:
        lease, self.lease = self.lease, None
        if lease is not None and self._give is not None:
            self.saved = ()
            self._give(lease)


class Training(ABC):
    """The compiled forward and backward of recorded calls. Threads may run them at once, each with its own state.

    forward, backward : the same as two executables that share nothing: for reports, and to run only one
    begin : (inputs, rng) -> (results, kept). Runs the forward; results are the outputs and then the new values of
        effects, in fresh memory
    """

    forward: Executable
    backward: Executable
    begin: Callable[[Sequence[np.ndarray], tuple[int, int]], tuple[list[np.ndarray], ForwardState]]

    def release(self) -> None:
        """Release the memory kept for the next call, which may never come."""
        self.forward.release()
        self.backward.release()

    @abstractmethod
    def finish(
        self,
        kept: ForwardState,
        operands: Sequence[np.ndarray],
        rng: tuple[int, int],
        last: bool = True,
        out: Sequence[np.ndarray | None] | None = None,
        ready: Ready | None = None,
    ) -> list[np.ndarray]:
        """Run the backward. Returns the gradients in fresh memory, or in `out`.

        operands : one array per input of the backward graph, `kept.saved` among them
        rng : the forward's
        last : this is the last run on this `kept`, whose memory may be used up (no retain_graph)
        out : per gradient None, or a C-contiguous array of its shape and dtype that may take it, which shares no memory
            with the operands. Whether it did shows in the result: it is that array, or another one
        ready : told of a gradient as soon as nothing writes to it any more, while the backward still runs; an engine
            may leave gradients out
        """


class SeparateTraining(Training):
    """Two executables that share nothing; the saved values are in memory of their own."""

    def __init__(self, forward: Executable, backward: Executable, num_outputs: int):
        self.forward, self.backward = forward, backward
        self._first, self._last = num_outputs, len(forward.graph.outputs)
        self.begin = self._begin

    def _begin(self, inputs: Sequence[np.ndarray], rng: tuple[int, int]) -> tuple[list[np.ndarray], ForwardState]:
        results = self.forward.run(inputs, rng)
        first, last = self._first, self._last
        return results[:first] + results[last:], ForwardState(results[first:last])

    def finish(
        self,
        kept: ForwardState,
        operands: Sequence[np.ndarray],
        rng: tuple[int, int],
        last: bool = True,
        out: Sequence[np.ndarray | None] | None = None,
        ready: Ready | None = None,
    ) -> list[np.ndarray]:
        return self.backward.run(operands, rng)


class Engine(ABC):
    """Compiles graphs. One object per engine, from `engines.get(name)`."""

    name: ClassVar[str]
    title: ClassVar[str]
    #: Flags of hybridize() that `compile` takes in addition to the flags of every engine.
    own_options: ClassVar[frozenset[str]] = frozenset()

    @property
    def device(self) -> torch.device | None:
        """torch's device on whose memory its executables work; None for the host. Only if nothing is missing."""
        return None

    @staticmethod
    def missing() -> str | None:
        """The missing or unusable part, in words and with the next step; None if all is there."""
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

    def training_graphs(self, split: Split, **options: Any) -> Split:
        """The graphs of a recorded call as this engine wants them, which may save other values.

        options : as `compile_training` takes them
        """
        return split

    def compile_training(self, split: Split, **options: bool) -> Training:
        """Compile both graphs of a recorded call. options : as of `compile`; raises the errors of `compile`"""
        first, second = self.compile(split.forward, **options), self.compile(split.backward, **options)
        return SeparateTraining(first, second, split.num_outputs)

    def trim(self) -> None:  # noqa: B027 - an engine without pools has nothing to give back
        """Give back memory that no program uses at the moment; called after programs have been dropped."""

    def __repr__(self) -> str:
        return f"<engine {self.name}>"
