"""Fusion: chooses which operators share a kernel, in one sweep from the last operator to the first.

- An operator joins the kernel of a reader if its result then need not go through memory. The kernel must read the
  result at elements it computes anyway, and further readers must not close a cycle between kernels (`joining.py`).
- If several kernels read an operator, one kernel stores it. A cheap operator is computed in each kernel instead, if
  reading its operands moves fewer bytes (`prices.py`).
- All outputs of a kernel have one space: the same number of elements, or the same rows, of which an output has either
  all elements or one. A reduction joins only a kernel that has its whole rows. A few long rows get a kernel of their
  own, which splits them.

At the end kernels of one space that read the same values are merged (`siblings.py`). `Fusion.apart` says for each
operator why it did not join the kernel of a reader.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from hybrid_lab.engines.triton.plan.by_vendor import Vendors
from hybrid_lab.engines.triton.plan.groups import Group, Grouping, Kernels, Write, views_for_each_reader
from hybrid_lab.engines.triton.plan.joining import everywhere, objection, refuses
from hybrid_lab.engines.triton.plan.prices import MAX_COPIES, cheaper_than_host, host_of, is_cheap, worth_copies
from hybrid_lab.engines.triton.plan.siblings import merge_siblings
from hybrid_lab.engines.triton.write.body import Refused
from hybrid_lab.engines.triton.write.core.reduction import Rows
from hybrid_lab.engines.triton.write.kinds import is_product, is_reduction
from hybrid_lab.engines.triton.write.reuse import Outcomes, Writing
from hybrid_lab.engines.triton.write.special.attention import attention_at
from hybrid_lab.engines.triton.write.special.attention_grad import chained_products
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.graph.passes.partition import Region

#: Why the vendor's products share no kernel.
BY_VENDOR = "the vendor's library computes it"


@dataclass
class Fusion:
    """A fused graph: its groups and their kernels.

    graph : with every view made again for each operator that reads it
    groups : in program order. An operator may be in several: each computes it, and at most one stores it
    kernels : of each group; choices : that were made while these were written (see reuse.py)
    by_vendor : regions of one product each, with the views before it, that the vendor's library computes
    refused : operator -> why it is in no kernel; apart : operator -> why it does not share the kernel of a reader
    """

    graph: Graph
    groups: list[Region] = field(default_factory=list)
    kernels: dict[Region, Kernels] = field(default_factory=dict)
    choices: dict[Region, Outcomes] = field(default_factory=dict)
    by_vendor: list[Region] = field(default_factory=list)
    refused: dict[Node, str] = field(default_factory=dict)
    apart: dict[Node, str] = field(default_factory=dict)

    def on(self, graph: Graph) -> Fusion:
        """The same groups of another graph, whose nodes correspond to those of `graph`, in their order; no kernels."""
        nodes = dict(zip(self.graph.nodes, graph.nodes, strict=True))

        def values(items: Sequence[Value]) -> tuple[Value, ...]:
            return tuple([nodes[item.node].outputs[item.index] for item in items])

        groups, by_vendor = (
            [
                Region(tuple([nodes[node] for node in group.nodes]), values(group.inputs), values(group.outputs))
                for group in regions
            ]
            for regions in (self.groups, self.by_vendor)
        )
        refused, apart = ({nodes[node]: why for node, why in each.items()} for each in (self.refused, self.apart))
        return Fusion(graph, groups, by_vendor=by_vendor, refused=refused, apart=apart)


def fuse(
    graph: Graph, refusal: Callable[[Node], str | None], write: Write, vendors: Callable[[Graph], Vendors] | None = None
) -> Fusion:
    """Groups of operators; `write` can make kernels of each group.

    refusal : operator -> None, or why no kernel can hold it
    write : raises Refused for a group that is not one kernel
    vendors : finds the products that the vendor's library computes
    """
    graph = views_for_each_reader(graph)
    products = {} if vendors is None else vendors(graph)
    never_ours = {node for node in products if not is_product(node)}  # which no kernel of ours holds
    refused = {node: why for node in graph.operators if node not in never_ours and (why := refusal(node)) is not None}
    products = {node: views for node, views in products.items() if node not in refused}
    alone: dict[Node, str] = {}
    while True:
        grouping = Grouping(graph, refused | dict.fromkeys(products, BY_VENDOR), alone, write)
        _sweep(grouping, products)
        merge_siblings(grouping)
        fusion = Fusion(graph, refused=refused)
        try:
            for group in grouping.kernels():
                region, run = grouping.region((group,)), Writing()
                fusion.kernels[region] = write(region, run)
                fusion.choices[region] = tuple(run.outcomes)
        except Refused as reason:  # another member has changed the stored values: fuse again without this group
            if len(region.nodes) == 1:
                refused[region.nodes[0]] = str(reason)
            else:
                alone.update(dict.fromkeys(region.nodes, str(reason)))
            continue
        fusion.groups = list(fusion.kernels)
        fusion.by_vendor = [grouping.region((grouping.of[node][0],)) for node in products]
        fusion.apart = dict.fromkeys(products, BY_VENDOR)
        fusion.apart |= {node: why for node, why in grouping.apart.items() if not node.op.view}
        return fusion


def _sweep(grouping: Grouping, products: Vendors) -> None:
    """Put all operators into groups, from the last one to the first."""
    attentions, together = _attentions(grouping)
    for node in reversed(grouping.nodes):
        if node in products:
            grouping.place((node, *reversed(products[node])), grouping.new_group(False))
        elif node in grouping.refused:
            grouping.place((node,), grouping.new_group(False))
        elif node not in grouping.of and node not in together:
            _visit(grouping, attentions.get(node, (node,)))


def _attentions(grouping: Grouping) -> tuple[dict[Node, tuple[Node, ...]], set[Node]]:
    """The operators of every attention, and of its gradients, of which no other operator reads a part: last first, by
    the last; and the casts of an attention's statistics, which its kernel stores.

    Other operators may read an attention's statistics: the largest score and the sum of each query, and casts of them.
    """
    members: dict[Node, tuple[Node, ...]] = {}
    together: set[Node] = set()
    users, roots = grouping.users, grouping.roots

    def last_first(nodes: Collection[Node]) -> tuple[Node, ...]:
        return tuple(sorted(nodes, key=grouping.position.__getitem__, reverse=True))

    for node in grouping.nodes:
        attention = attention_at(node)
        if attention is None or not attention.nodes.isdisjoint(grouping.refused):
            continue
        statistics = {*attention.maximum.outputs, *attention.total.outputs}
        casts = {reader for value in statistics for reader in users.get(value, ())
                 if reader.op.name == "Cast" and roots.issuperset(reader.outputs)}  # fmt: skip
        inner = [value for part in attention.nodes - {node} for value in part.outputs]
        if {*attention.nodes, *casts}.issuperset(reader for value in inner for reader in users.get(value, ())):
            nodes = (node, *last_first({*attention.nodes, *casts} - {node}))
            if not refuses(grouping, grouping.region((), nodes, True)):
                members[node] = nodes
                together |= casts
    for chained in chained_products(grouping.nodes, users, roots):
        last, *_ = nodes = last_first(chained.nodes)
        ends = tuple([value for end in chained.ends for value in end.outputs])
        region = replace(grouping.region((), nodes, True), outputs=ends)
        if chained.nodes.isdisjoint(grouping.refused) and not refuses(grouping, region):
            members[last] = nodes
            grouping.closed.add(last)
    return members, together


def _visit(grouping: Grouping, members: Sequence[Node]) -> None:
    """Put an operator into the groups that compute it. members : the operator, and operators that go with it"""
    node = members[0]
    if node in grouping.closed:
        grouping.place(members, grouping.new_group())
        return
    readers = grouping.readers(node)
    must = not grouping.roots.isdisjoint(node.outputs) or not all(group.kernel for group in readers)
    kernels = [group for group in readers if group.kernel]
    if is_reduction(node):  # rather beside other reductions
        kernels.sort(key=lambda group: group.rows is None)
    if node.op.view:
        reason = "another operator reads this view from memory"
        if kernels and not must:
            reason = everywhere(grouping, node, kernels)
        if reason:
            grouping.apart[node] = reason
            grouping.place(members, grouping.new_group(False))
        return
    copies: list[Group] = []
    host = host_of(grouping, node) if is_cheap(node) and kernels else None
    if host is not None:
        copies = cheaper_than_host(grouping, host, kernels, must)
    elif is_cheap(node) and len(kernels) + must > 1 and len(kernels) <= MAX_COPIES:
        copies = worth_copies(grouping, node, kernels, must)
    if copies and len(copies) == len(kernels) and not must and not everywhere(grouping, node, kernels):
        return
    copies = [group for group in copies if not objection(grouping, members, group, False)]
    home, stored, reason = None, must, ""
    for group in kernels if host is None else host.homes:
        others = [other for other in readers if other is not group and other not in copies]
        stored = must or bool(others)
        reason = objection(grouping, members, group, stored, others)
        if not reason:
            home = group
            break
    if home is None:
        if host is not None and len(copies) < len(kernels):
            reason = f"the kernel of {host.maker.op.name} stores it"
        if reason:
            grouping.apart[node] = reason
        home = grouping.new_group()
    elif stored and home.rows is None and not is_reduction(node) and home.product is None:
        whole = grouping.shape(home)
        if prod(node.outputs[0].shape) != prod(whole):
            home.rows = Rows.between(whole, node.outputs[0].shape)
    grouping.place(members, home, *(group for group in copies if group is not home))
