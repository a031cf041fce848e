"""Split: the forward and the backward of a recorded call. Specialized: the graphs that one kind of call runs; `hoist`
makes it for predictions, `specialize` completes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from hybrid_lab.graph.dump import Stage
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Value
from hybrid_lab.ops.framework.sizes import binding_of
from hybrid_lab.ops.framework.types import Shape

if TYPE_CHECKING:
    from hybrid_lab.ops.framework.sizes import Binding

_EMPTY = Graph((), ())
#: The source of a graph's input: its kind, and its index among the sources of this kind.
Source = tuple[str, int]


@dataclass(frozen=True)
class Split:
    """The graphs of a recorded call.

    forward : its outputs are the outputs of the call, then the saved values for the backward
    backward : the gradients. Random nodes that are computed again keep their draws: run it with the forward's rng
    sources : the source of each input of `backward`: ("input", i) and ("output", i) of the call, ("saved", i) for saved
        value i of `forward`, ("head", i) for a gradient handed in
    """

    forward: Graph
    backward: Graph
    sources: tuple[Source, ...]

    @property
    def num_outputs(self) -> int:
        """How many outputs of the forward are the caller's; the others are saved values, one for each such source."""
        return len(self.forward.outputs) - sum(kind == "saved" for kind, _ in self.sources)

    @property
    def saves(self) -> bool:
        """Whether the backward reads saved values."""
        return self.num_outputs < len(self.forward.outputs)

    @property
    def saved_bytes(self) -> int:
        """The bytes that the forward saves for the backward, apart from its own inputs and outputs."""
        return sum(value.nbytes for value in self.forward.outputs[self.num_outputs :])

    def __str__(self) -> str:
        origins = ", ".join(f"{kind} {index}" for kind, index in self.sources)
        return f"{self.forward}\n\n{self.backward}\n  inputs: {origins}; {self.saved_bytes:,} bytes are kept"


class Cuts(Protocol):
    """Cuts the joint graph of a recorded call: `graph.passes.split.Cutter`."""

    def split(self, binding: Binding | None = None) -> Split:
        """The cut at these values of symbolic sizes."""
        ...


@dataclass(frozen=True)
class Specialized:
    """The graphs of one kind of call.

    forward, backward, sources : as of a Split; backward is None for a call that records nothing
    wrt : indices of the graph's inputs whose gradients `backward` returns, in this order
    prologue : for inference, the values that depend on parameters alone and that `forward` reads, or None; run it when
        one of the inputs numbered in `prologue_sources` has changed, and hand its outputs to `forward`
    forward_sources : the source of each input of `forward`: ("input", k) for input k of the neutral graph,
        ("hoisted", j) for output j of the prologue
    given : a graph that has all inputs of the neutral graph; `forward` may lack those that only the prologue reads
    stages : the passes that ran, with the graphs before and after each; empty unless `keep` was asked for
    heads : numbers of the outputs that `backward` differentiates; None: all
    absent : indices from `wrt` at which no gradient arrives; `backward` returns zeros for them
    needs_numbers : why some leading sizes of the data are no symbols (see graph.specialize)
    guards : if sizes are symbolic: the number of guards that the passes relied on, see `Guards.count`
    cutter : where sizes of a recorded call are symbolic: what cuts the joint graph for the sizes of another call
    """

    forward: Graph
    backward: Graph | None = None
    sources: tuple[Source, ...] = ()
    wrt: tuple[int, ...] = ()
    prologue: Graph | None = None
    forward_sources: tuple[Source, ...] = ()
    prologue_sources: tuple[int, ...] = ()
    given: Graph = _EMPTY
    stages: tuple[Stage, ...] = ()
    heads: tuple[int, ...] | None = None
    absent: frozenset[int] = frozenset()
    needs_numbers: tuple[str, ...] = ()
    guards: tuple[int, int] | None = None
    cutter: Cuts | None = field(default=None, repr=False)

    @property
    def split(self) -> Split | None:
        """The graphs of a recorded call; None for another one."""
        return None if self.backward is None else Split(self.forward, self.backward, self.sources)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The neutral graph's inputs with their shapes and dtypes, in order."""
        return self.given.inputs

    def bind(self, shapes: Sequence[Shape]) -> Specialized | None:
        """These symbolic graphs for inputs of these shapes. None if a guard fails, or if a fixed size differs. The
        minimum cut is computed again, because it weighs bytes.
        """
        binding = binding_of([value.shape for value in self.given.inputs], shapes)
        if binding is None or self.guards is None or not binding.satisfies(self.guards):
            return None
        parts = self if self.cutter is None else self.cutter.split(binding)
        return replace(
            self,
            forward=parts.forward.bind(binding),
            backward=None if parts.backward is None else parts.backward.bind(binding),
            sources=parts.sources,
            prologue=None if self.prologue is None else self.prologue.bind(binding),
            given=self.given.bind(binding),
            guards=None,
            cutter=None,
        )

    def __str__(self) -> str:
        return str(self.forward) if self.prologue is None else f"{self.prologue}\n\n{self.forward}"
