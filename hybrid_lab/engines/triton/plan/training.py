"""Rewrites forward and backward of a recorded call so that less is saved between them, before they are fused."""

from __future__ import annotations

from hybrid_lab.engines.triton.plan.attention import split_with_vendor_attention
from hybrid_lab.engines.triton.plan.by_vendor import VendorRule
from hybrid_lab.engines.triton.plan.layout import split_with_channels_last
from hybrid_lab.engines.triton.plan.recompute import without_weights
from hybrid_lab.engines.triton.plan.recurrent import with_vendor_layers
from hybrid_lab.engines.triton.plan.saved import without_views
from hybrid_lab.engines.triton.support import lowered
from hybrid_lab.graph.call_graphs import Split
from hybrid_lab.ops.framework.sizes import NeedsNumber


def with_less_saved(split: Split, rule: VendorRule | None = None) -> Split:
    """The graphs with less saved between them: no weights of an attention, and no views. Recurrent layers of the
    vendor's library, chosen by the rule, save the library's workspace.

    If the graphs are bound from symbolic ones, the symbolic graphs are rewritten, once.
    """
    forward, backward, binding = split.forward.symbolic, split.backward.symbolic, split.forward.binding
    if forward is None or backward is None or binding is None:
        return _rewritten(split, rule)
    key = "training", backward, split.sources, rule
    if key not in forward.cache:
        try:
            forward.cache[key] = _rewritten(Split(forward, backward, split.sources), rule), binding.guards.count
        except NeedsNumber as need:
            forward.cache[key] = None
            forward.needs_numbers.append(f"{need}; each batch compiles anew")
    known: tuple[Split, tuple[int, int]] | None = forward.cache[key]
    if known is None or not binding.satisfies(known[1]):
        return _rewritten(split, rule)
    symbolic = known[0]
    return Split(symbolic.forward.bind(binding), symbolic.backward.bind(binding), symbolic.sources)


def _rewritten(split: Split, rule: VendorRule | None) -> Split:
    if rule is not None:
        split = with_vendor_layers(split, rule.computes)
        split = split_with_vendor_attention(split, rule.attends)
        if any(map(rule.convolves_last, split.forward.operators)):
            forward, backward = (rule.without_biases(lowered(graph)) for graph in (split.forward, split.backward))
            split = split_with_channels_last(Split(forward, backward, split.sources), rule.convolves_last)
    return without_views(without_weights(split) or split)
