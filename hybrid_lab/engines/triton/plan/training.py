"""What becomes of forward and backward of a recorded call before they are kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hybrid_lab.engines.triton.plan.kept_views import without_views
from hybrid_lab.engines.triton.plan.pair import Pair, Source
from hybrid_lab.engines.triton.plan.recompute import without_weights
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.symbolic import SymbolicGraph
from hybrid_lab.ops.sizes import NeedsNumber


def training_pair(forward: Graph, backward: Graph, sources: Sequence[Source], num_outputs: int) -> Pair:
    """The graphs with less to keep from one to the other: no weights of an attention, and no views.

    num_outputs : how many outputs of the forward are the caller's
    For bound graphs the symbolic ones are rewritten, once.
    """
    symbolic, other, binding = forward.symbolic, backward.symbolic, forward.binding
    if symbolic is None or other is None or binding is None:
        return _pair(forward, backward, sources, num_outputs)
    key = ("training", other, tuple(sources), num_outputs)
    if key not in symbolic.cache:
        symbolic.cache[key] = _SymbolicPair.of(symbolic, other, sources, num_outputs)
    pair: _SymbolicPair | None = symbolic.cache[key]
    if pair is None or not binding.satisfies(pair.count):
        return _pair(forward, backward, sources, num_outputs)
    return Pair(pair.forward.bind(binding), pair.backward.bind(binding), pair.sources)


def _pair(forward: Graph, backward: Graph, sources: Sequence[Source], num_outputs: int) -> Pair:
    found = without_weights(forward, backward, sources, num_outputs)
    return without_views(found or Pair(forward, backward, tuple(sources)), num_outputs)


@dataclass(frozen=True)
class _SymbolicPair:
    """A Pair of symbolic graphs. count : how many guards must hold for it"""

    forward: SymbolicGraph
    backward: SymbolicGraph
    sources: tuple[Source, ...]
    count: tuple[int, int]

    @staticmethod
    def of(
        symbolic: SymbolicGraph, other: SymbolicGraph, sources: Sequence[Source], num_outputs: int
    ) -> _SymbolicPair | None:
        """None where the rewriting needs numbers."""
        guards = symbolic.guards
        try:
            pair = _pair(symbolic.graph, other.graph, sources, num_outputs)
        except NeedsNumber as need:
            symbolic.needs_numbers.append(f"{need}; each batch compiles anew")
            return None
        if pair.forward is symbolic.graph:
            return _SymbolicPair(symbolic, other, pair.sources, guards.count)
        graphs = SymbolicGraph(pair.forward, guards), SymbolicGraph(pair.backward, guards)
        return _SymbolicPair(*graphs, pair.sources, guards.count)
