"""Siblings: kernels of one space that read the same array become one kernel, which reads the array once."""

from __future__ import annotations

from math import prod

from hybrid_lab.engines.triton.plan import joining
from hybrid_lab.engines.triton.plan.groups import Group, Grouping
from hybrid_lab.graph.node import Value


def merge_siblings(grouping: Grouping) -> None:
    """Merge groups of one space that read the same array, as long as a pair of them gives a kernel."""
    by_input: dict[Value, list[Group]] = {}
    for group in grouping.kernels():
        for value in grouping.region((group,)).inputs:
            by_input.setdefault(value, []).append(group)
    merged: dict[Group, Group] = {}

    def now(group: Group) -> Group:
        while group in merged:
            group = merged[group]
        return group

    for value, groups in by_input.items():
        siblings = list(dict.fromkeys(map(now, groups))) if prod(value.shape) > 1 else []
        while pair := next(((one, other) for index, other in enumerate(siblings) for one in siblings[:index]
                            if _merge(grouping, one, other)), None):  # fmt: skip
            merged[pair[1]] = pair[0]  # groups between it and another one may no longer be, so all pairs are tried
            siblings.remove(pair[1])


def _merge(grouping: Grouping, one: Group, other: Group) -> bool:
    """Put the second group into the first one, if that gives a kernel; whether it did."""
    if one.product is not None or other.product is not None or grouping.space(one) != grouping.space(other):
        return False
    rows = one.rows or other.rows
    if one.rows is not None and other.rows is not None and one.rows.counts != other.rows.counts:
        if one.rows.counts != other.rows.counts[::-1]:
            return False
        rows = other.rows if one.rows.across else one.rows  # the other reductions are sums down their columns
    region = grouping.region((one, other))
    if len(region.nodes) > joining.MAX_NODES or len(region.inputs) + len(region.outputs) > joining.MAX_POINTERS:
        return False
    if grouping.comes_back(one, other) or grouping.comes_back(other, one) or joining.refuses(grouping, region):
        return False
    for node in other.nodes:
        grouping.of[node] = list(dict.fromkeys([one if group is other else group for group in grouping.of[node]]))
    one.nodes |= other.nodes
    one.rows, other.nodes = rows, set()
    both = one.bit | other.bit
    for group in grouping.groups:
        if group.below & both:
            group.below |= both
    grouping.runs_before(one, [reader for node in one.nodes if grouping.of[node][0] is one
                               for reader in grouping.readers(node)])  # fmt: skip
    one.below &= ~both
    return True
