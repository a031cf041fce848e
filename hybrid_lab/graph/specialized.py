"""Specialized: the graphs that one kind of call runs. `hoist` makes it for predictions, `specialize` completes it."""

from __future__ import annotations

from dataclasses import dataclass, field

from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Value
from hybrid_lab.graph.stages import Stage

#: Where an input of a graph comes from: its kind, and its number among those of this kind.
Source = tuple[str, int]


@dataclass(frozen=True)
class Specialized:
    """The graphs of one kind of call.

    forward : its outputs are those of the neutral graph, then the saved values for the backward
    backward : the gradients; None for a call that records nothing. Random nodes that are computed again keep their
        draws: run it with the forward's rng
    sources : where each input of `backward` comes from: ("input", i) and ("output", i) of the neutral graph,
        ("saved", i) for saved value i of `forward`, ("head", i) for a gradient handed in
    wrt : indices of the graph's inputs whose gradients `backward` returns, in this order
    prologue : for inference, the values that depend on parameters alone and that `forward` reads, or None; run it when
        one of the inputs numbered in `prologue_sources` has changed, and hand its outputs to `forward`
    forward_sources : where each input of `forward` comes from: ("input", k) for input k of the neutral graph,
        ("hoisted", j) for output j of the prologue
    given : a graph that has all inputs of the neutral graph; `forward` may lack those that only the prologue reads
    stages : the passes that ran, with the graphs before and after each; empty unless `keep` was asked for
    heads : numbers of the outputs that `backward` differentiates; None: all
    absent : indices from `wrt` at which no gradient arrives; `backward` returns zeros for them
    needs_numbers : why some leading sizes of the data are no symbols (see graph.specializations)
    """

    forward: Graph
    backward: Graph | None = None
    sources: tuple[Source, ...] = ()
    wrt: tuple[int, ...] = ()
    prologue: Graph | None = None
    forward_sources: tuple[Source, ...] = ()
    prologue_sources: tuple[int, ...] = ()
    given: Graph = field(default_factory=lambda: Graph((), ()))
    stages: tuple[Stage, ...] = ()
    heads: tuple[int, ...] | None = None
    absent: frozenset[int] = frozenset()
    needs_numbers: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The neutral graph's inputs with their shapes and dtypes, in order."""
        return self.given.inputs

    def __str__(self) -> str:
        return str(self.forward) if self.prologue is None else f"{self.prologue}\n\n{self.forward}"
