"""Rewrites forward and backward of a recorded call so that less is saved between them, before they are fused."""

from __future__ import annotations

from collections.abc import Sequence

from hybrid_lab.engines.triton.plan.recompute import without_weights
from hybrid_lab.engines.triton.plan.saved import Source, without_views
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.split import Split
from hybrid_lab.ops.framework.sizes import NeedsNumber


def training_pair(forward: Graph, backward: Graph, sources: Sequence[Source], num_outputs: int) -> Split:
    """The graphs with less saved between them: no weights of an attention, and no views.

    num_outputs : how many outputs of the forward are the caller's
    If the graphs are bound from symbolic ones, the symbolic graphs are rewritten, once.
    """
    symbolic, other, binding = forward.symbolic, backward.symbolic, forward.binding
    if symbolic is None or other is None or binding is None:
        return _rewritten(forward, backward, sources, num_outputs)
    key = ("training", other, tuple(sources), num_outputs)
    if key not in symbolic.cache:
        try:
            symbolic.cache[key] = _rewritten(symbolic, other, sources, num_outputs), binding.guards.count
        except NeedsNumber as need:
            symbolic.cache[key] = None
            symbolic.needs_numbers.append(f"{need}; each batch compiles anew")
    known: tuple[Split, tuple[int, int]] | None = symbolic.cache[key]
    if known is None or not binding.satisfies(known[1]):
        return _rewritten(forward, backward, sources, num_outputs)
    split = known[0]
    return Split(split.forward.bind(binding), split.backward.bind(binding), split.sources)


def _rewritten(forward: Graph, backward: Graph, sources: Sequence[Source], num_outputs: int) -> Split:
    split = Split(forward, backward, tuple(sources))
    return without_views(without_weights(split, num_outputs) or split, num_outputs)
