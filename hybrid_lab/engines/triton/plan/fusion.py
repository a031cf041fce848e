"""Fusion: chooses which operators share a kernel. All decisions, and the costs that they compare, are in this file.

The sweep goes from the last operator to the first.

- An operator joins the kernel of a reader if its result then need not go through memory. The kernel must read it at the
  elements that it computes anyway, and the other readers must not close a cycle between kernels.
- If several kernels read an operator, one of them stores it. A cheap operator is computed in each of them instead, if
  reading its operands moves fewer bytes.
- All outputs of a kernel have one space: the same number of elements, or the same rows, of which an output has either
  all elements or one. A reduction joins only a kernel that has its whole rows. A few long rows get a kernel of their
  own, which splits them.

At the end kernels of one space that read the same values are merged. `Fusion.apart` says for each operator why it did
not join the kernel of a reader.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

from hybrid_lab.engines.triton.plan.chains import NEVER, ONE_FOR_ONE, Chains, is_cheap
from hybrid_lab.engines.triton.plan.groups import Group, copied, views_for_each_reader
from hybrid_lab.engines.triton.write.body import Refused
from hybrid_lab.engines.triton.write.core.product import no_prologue
from hybrid_lab.engines.triton.write.core.reduction import Rows, is_split
from hybrid_lab.engines.triton.write.kinds import is_pointwise, is_product, is_recurrence, is_reduction
from hybrid_lab.engines.triton.write.source import KernelSource
from hybrid_lab.engines.triton.write.special.attention import attention_at
from hybrid_lab.engines.triton.write.special.attention_grad import Chained, chained_products
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Input, Node, Value
from hybrid_lab.graph.partition import Region

#: Writes the kernels of a group: one, or several that run one after the other.
Write = Callable[[Region], "tuple[KernelSource, ...]"]

#: A kernel takes at most so many operators, and so many inputs and outputs together.
MAX_NODES, MAX_POINTERS = 64, 24
#: At most so many kernels compute the same operator.
MAX_COPIES = 8
#: What is made of so few bytes is computed again rather than by a kernel of its own.
SMALL = 1 << 16
#: How many operators are looked at to find the reduction that another one is made of.
NEAR = 8
#: An element of an operator costs as much time as 1 / EASY bytes that are moved, of a COSTLY one HARD times that.
EASY, HARD = 8, 8
COSTLY = frozenset(("broadcast_div", "broadcast_power", "reciprocal", "exp", "expm1", "log", "log1p", "tanh", "sigmoid",
                    "sqrt", "rsqrt", "erf", "_softrelu", "softsign"))  # fmt: skip
#: Kernels of fewer operators, all element by element, can be written for certain; of FEW, if one reads whole windows.
CERTAIN, FEW = 32, 6


@dataclass
class Fusion:
    """A fused graph: its groups and their kernels.

    graph : has a copy of each view and of each cheap operator for every kernel that computes it
    groups : in program order; kernels : of each group
    refused : operator -> why it is in no kernel; apart : operator -> why it does not share the kernel of a reader
    before : returns the graph before these copies, and operator of `graph` -> the operator there that it is a copy of
    plan : the groups as sets of operators of the graph before these copies
    """

    graph: Graph
    before: Callable[[], tuple[Graph, Mapping[Node, Node]]]
    groups: list[Region] = field(default_factory=list)
    kernels: dict[Region, tuple[KernelSource, ...]] = field(default_factory=dict)
    refused: dict[Node, str] = field(default_factory=dict)
    apart: dict[Node, str] = field(default_factory=dict)
    plan: Plan | None = None

    @property
    def given(self) -> Graph:
        """The graph before operators were copied."""
        return self._before[0]

    @property
    def copied(self) -> Mapping[Node, Node]:
        """Operator of `graph` -> that of `given`."""
        return self._before[1]

    @cached_property
    def _before(self) -> tuple[Graph, Mapping[Node, Node]]:
        return self.before()


@dataclass
class Plan:
    """The groups of a graph before operators are copied; `plan/plans.py` puts them on graphs of other sizes.

    nodes : the operators of the graph, in program order; of : operator -> its groups
    regions, kernels : of each group that has kernels, in the order of their first operators
    refused, apart : as in Fusion
    """

    graph: Graph
    nodes: Sequence[Node]
    of: Mapping[Node, Sequence[Any]]
    regions: Mapping[Any, Region]
    kernels: Mapping[Any, tuple[KernelSource, ...]]
    refused: Mapping[Node, str]
    apart: Mapping[Node, str]

    def on(self, graph: Graph) -> Plan:
        """The same groups, without kernels, of a graph whose nodes correspond to those of this one, in their order."""
        nodes = dict(zip(self.graph.nodes, graph.nodes, strict=True))

        def values(items: Sequence[Value]) -> tuple[Value, ...]:
            return tuple([nodes[item.node].outputs[item.index] for item in items])

        regions = {
            group: Region(tuple([nodes[node] for node in region.nodes]), values(region.inputs), values(region.outputs))
            for group, region in self.regions.items()
        }
        return Plan(
            graph,
            [nodes[node] for node in self.nodes],
            {nodes[node]: groups for node, groups in self.of.items()},
            regions,
            dict.fromkeys(regions, ()),
            {nodes[node]: why for node, why in self.refused.items()},
            {nodes[node]: why for node, why in self.apart.items()},
        )

    def fusion(self) -> Fusion:
        """The graph with operators that several groups compute made anew for each of them."""
        graph, regions, kernels = self.graph, dict(self.regions), dict(self.kernels)
        refused, apart, originals = dict(self.refused), dict(self.apart), dict[Node, Node]()
        if any(len(groups) > 1 for groups in self.of.values()):
            made = copied(graph, self.nodes, self.of)
            regions = {group: made.region(region, group) for group, region in regions.items()}
            kernels = {group: tuple(made.source(item, group) for item in found) for group, found in kernels.items()}
            graph, originals = made.graph, made.originals
            refused = {made.node(node): why for node, why in refused.items()}
            apart = {made.node(node): why for node, why in apart.items()}
        apart = {node: why for node, why in apart.items() if not node.op.view}
        found = {regions[group]: kernels[group] for group in regions}
        before = self.graph, originals
        return Fusion(graph, lambda: before, list(found), found, refused, apart, self)


@dataclass(frozen=True)
class Host:
    """A kernel that can store an operator's result, as it has at hand what that is made of.

    node : the operator; maker : the reduction or product of that kernel; made, leaves : see `Chains.chain`
    homes : the readers whose kernel could have the maker and the operator in it
    """

    node: Node
    maker: Node
    made: set[Node]
    leaves: list[Value]
    homes: list[Group]


def fuse(
    graph: Graph, refusal: Callable[[Node], str | None], write: Write, last: Write | None = None
) -> Fusion:
    """Groups of operators, each of which `write` can make kernels of.

    refusal : operator -> None, or why no kernel can hold it
    write : raises Refused for a group that is not one kernel
    last : writes the groups that there are in the end, if not `write`
    """
    return _Sweep(views_for_each_reader(graph), refusal, write, last or write).result


class _Sweep(Chains):
    def __init__(self, graph: Graph, refusal: Callable[[Node], str | None], write: Write, last: Write):
        super().__init__(graph, refusal)
        self.result = Fusion(graph, lambda: (graph, {}), refused=self.refused)
        self.write, self.write_last = write, last
        self.tried: dict[Any, str] = {}
        self.chained: dict[Node, Chained] = {}
        self.together: set[Node] = set()
        self.attentions = self.whole_attentions()
        for node in reversed(self.nodes):
            if node in self.refused:
                self.place((node,), self.new_group(False))
            elif node not in self.of and node not in self.together:
                self.visit(node)
        self.merge_siblings()
        self.finish()

    # -- joining a reader ----------------------------------------------------------------------------------------------

    def whole_attentions(self) -> dict[Node, tuple[Node, ...]]:
        """The operators of every attention, and of its gradients, of which no other operator reads a part: last first,
        by the last. What is read of an attention are the largest score and the sum of a query, and numbers made of it.
        """
        found = {}
        for node in self.nodes:
            attention = attention_at(node)
            if attention is None or not attention.nodes.isdisjoint(self.refused):
                continue
            statistics = {*attention.maximum.outputs, *attention.total.outputs}
            casts = {reader for value in statistics for reader in self.users.get(value, ())
                     if reader.op.name == "Cast" and self.roots.issuperset(reader.outputs)}  # fmt: skip
            inner = [value for part in attention.nodes - {node} for value in part.outputs]
            if {*attention.nodes, *casts}.issuperset(reader for value in inner for reader in self.users.get(value, ())):
                members = (node, *self.last_first({*attention.nodes, *casts} - {node}))
                if not self.refuses(self.region((), members, True)):
                    found[node] = members
                    self.together |= casts
        for chained in chained_products(self.nodes, self.users, self.roots):
            last, *_ = members = self.last_first(chained.nodes)
            ends = [value for end in chained.ends for value in end.outputs]
            region = self.region((), members, True)
            if chained.nodes.isdisjoint(self.refused) and not self.refuses(replace(region, outputs=tuple(ends))):
                found[last] = members
                self.chained[last] = chained
        return found

    def last_first(self, nodes: Collection[Node]) -> tuple[Node, ...]:
        return tuple(sorted(nodes, key=self.position.__getitem__, reverse=True))

    def visit(self, node: Node) -> None:
        members = self.attentions.get(node, (node,))
        if node in self.chained:
            self.place(members, self.new_group())
            return
        readers = self.readers(node)
        must = not self.roots.isdisjoint(node.outputs) or not all(group.kernel for group in readers)
        kernels = [group for group in readers if group.kernel]
        if is_reduction(node):  # rather beside other reductions
            kernels.sort(key=lambda group: group.rows is None)
        if node.op.view:
            reason = "somebody else reads this view" if must or not kernels else self.everywhere(node, kernels)
            if reason:
                self.result.apart[node] = reason
                self.place(members, self.new_group(False))
            return
        copies: list[Group] = []
        host = self.host_of(node) if is_cheap(node) and kernels else None
        if host is not None:
            copies = self.instead_of(host, kernels, must)
        elif is_cheap(node) and len(kernels) + must > 1 and len(kernels) <= MAX_COPIES:
            copies = self.worth_copies(node, kernels, must)
        if copies and len(copies) == len(kernels) and not must and not self.everywhere(node, kernels):
            return
        copies = [group for group in copies if not self.objection(members, group, False, ())]
        home, stored, reason = None, must, ""
        for group in kernels if host is None else host.homes:
            others = [other for other in readers if other is not group and other not in copies]
            stored = must or bool(others)
            reason = self.objection(members, group, stored, others)
            if not reason:
                home = group
                break
        if home is None:
            if host is not None and len(copies) < len(kernels):
                reason = f"the kernel of {host.maker.op.name} before it has it at hand"
            if reason:
                self.result.apart[node] = reason
            home = self.new_group()
        elif stored and home.rows is None and not is_reduction(node) and home.product is None:
            whole = self.shape(home)
            if prod(node.outputs[0].shape) != prod(whole):
                home.rows = Rows.between(whole, node.outputs[0].shape)
        self.place(members, home, *(group for group in copies if group is not home))

    def host_of(self, node: Node) -> Host | None:
        """The kernel before an operator that can store it; None where there is none, or a reader may have both."""
        size = prod(node.outputs[0].shape)
        made, leaves = self.chain(node.outputs[0])
        readers = self.readers(node)
        kernels = [group for group in readers if group.kernel]
        for value in leaves:
            maker = value.node
            if maker in self.refused or isinstance(maker.op, Input):
                continue
            if is_product(maker) and prod(maker.outputs[0].shape) == size and made.issuperset(self.real_readers(maker)):
                stored = len(readers) > 1 or not self.roots.isdisjoint(node.outputs)
                homes = [group for group in kernels if not stored and not self.feeds(node, group)]
                if len(homes) < len(kernels):
                    return Host(node, maker, made, leaves, homes)
            if not is_reduction(maker):
                continue
            rows = Rows.of(maker)
            whole = size == prod(rows.counts)
            if size != rows.counts[0] and (not whole or is_split(rows)):
                continue
            if whole and not {item for item in leaves if prod(item.shape) == size} <= {
                *self.chain(maker.values_in[0])[1]
            }:
                continue
            homes = [group for group in kernels if self.can_hold(group, rows, kernels)]
            if len(homes) < len(kernels):
                return Host(node, maker, made, leaves, homes)
        return None

    def can_hold(self, group: Group, rows: Rows, readers: Sequence[Group]) -> bool:
        """Whether a reduction of these rows can be in a group, and all other readers can wait for it."""
        first = any((other.bit | other.below) & group.bit for other in readers if other is not group)
        if first or group.product is not None:
            return False
        if group.rows is not None:
            down = group.rows.across and not rows.across and rows.counts[1] <= rows.longest
            return group.rows.counts == rows.counts or (down and group.rows.counts == rows.counts[::-1])
        return self.space(group) in (rows.counts[0], *([] if is_split(rows) else [prod(rows.counts)]))

    def instead_of(self, host: Host, groups: Sequence[Group], must: bool) -> list[Group]:
        """The groups that should rather compute an operator than read what its host stores."""
        size = host.node.outputs[0].nbytes
        others = [group for group in groups if group not in host.homes]
        new = {group: self.price(host, group) for group in others}
        if not must and not host.homes and sum(new.values()) < size * (1 + len(others)):
            return others
        return [group for group, price in new.items() if price < size]

    def price(self, host: Host, group: Group) -> int:
        """What it takes a group to compute what the host could store, in bytes: those that it reads more, and for each
        element what the arithmetic is worth.
        """
        if group.product is not None and self.feeds(host.node, group):
            return NEVER
        made = host.made - group.nodes
        work = sum(HARD if node.op.name in COSTLY else 1 for node in made) * self.space(group) // EASY
        return self.would_read(host.leaves, host.node, group) + work

    def everywhere(self, node: Node, groups: Sequence[Group]) -> str:
        """Have these groups all compute the operator, or say why one cannot."""
        for group in groups:
            if reason := self.objection((node,), group, False, ()):
                return reason
        self.place((node,), *groups)
        return ""

    def worth_copies(self, node: Node, groups: Sequence[Group], must: bool) -> list[Group]:
        """The groups that should rather compute the operator than read it: all, if it then need not be stored and fewer
        bytes are moved so, or those to whom what it is made of is less than itself.

        must : whether it is stored in any case
        """
        size = node.outputs[0].nbytes
        leaves, later = self.made_of(node)
        if not must and size + sum(value.nbytes for value in leaves) <= SMALL:
            return list(groups)
        new = {group: self.would_read(leaves, node, group) for group in groups}
        read = {group: min(size, found) for group, found in new.items()}
        # What is not cheap and for this operator alone would be its own kernel; copies of it read it from memory.
        last = sum(value.nbytes for value in later)
        own = sum(value.nbytes for value in leaves if value not in later) + sum(read.values())
        home = last + sum(read.values()) + min(new[group] - read[group] for group in groups)
        if not must and sum(new.values()) + last < size + min(own, home):
            return list(groups)
        return [group for group, found in new.items() if found < size]

    def objection(self, nodes: Sequence[Node], group: Group, stored: bool, others: Sequence[Group]) -> str:
        """Why an operator - the first of these - should not join a group that reads it.

        stored : whether it has to be in memory; others : groups that read it there
        """
        node = nodes[0]
        if len(group.nodes) >= MAX_NODES:
            return f"the kernel has {MAX_NODES} operators"
        region = self.region((group,), nodes, stored)
        if len(region.inputs) + len(region.outputs) > MAX_POINTERS:
            return f"the kernel would take more than {MAX_POINTERS} arrays"
        if not node.op.view and (reason := self.misfit(node, group, stored)):
            return reason
        if any((other.bit | other.below) & group.bit for other in others):
            return "what else reads it comes before the kernel"
        return "" if self.is_certain(node, group, stored) else self.refuses(region)

    def refuses(self, region: Region) -> str:
        """Why no kernel can be written of a region, or "". Regions of equal operators are tried once."""
        numbers = {node: index for index, node in enumerate(region.nodes)}
        outside = {value: index for index, value in enumerate(region.inputs)}

        def key(item: Any) -> Any:
            if not isinstance(item, Value):
                return repr(item)
            if item.node in numbers:
                return numbers[item.node], item.index
            return (item.shape, item.dtype, outside[item]) if item in outside else item

        form = (
            tuple((node.op, tuple(map(key, node.inputs)), node.shapes, node.dtypes) for node in region.nodes),
            tuple(map(key, region.outputs)),
        )
        if form not in self.tried:
            try:
                self.write(region)
                self.tried[form] = ""
            except Refused as refused:
                self.tried[form] = str(refused)
        return self.tried[form]

    def misfit(self, node: Node, group: Group, stored: bool) -> str:
        """Why an operator has no place in the space of a group."""
        size, space = prod(node.outputs[0].shape), self.space(group)
        if is_product(node):
            if group.rows is not None or group.product is not None:
                return "the kernel has a reduction or a product already"
            if size != space:
                return "the kernel has not one element for each of the product"
        elif group.product is not None and is_reduction(node):
            return "a product's kernel has no reduction"
        elif group.product is not None and self.feeds(node, group):
            if why := no_prologue(node, list(group.nodes), group.product, stored):
                return why
        if is_reduction(node):
            rows = Rows.of(node)
            if is_split(rows) and space != rows.counts[0]:
                return "few long rows are split among programs, in a kernel of their own"
            if group.rows is not None and group.rows.counts != rows.counts:
                return "the kernel has other rows"
            if group.rows is None and space not in (rows.counts[0], prod(rows.counts)):
                return "the kernel has elements that are no rows of this reduction"
        elif stored and size not in [space, self.rows_with(node, group)[0]]:
            return "somebody else reads it, and the kernel has not one element for each of its own"
        return ""

    def rows_with(self, node: Node, group: Group) -> tuple[int, int]:
        """Rows and columns of a group; of one without, those of a reduction that the operator is made of."""
        if group.rows is not None:
            return group.rows.counts
        rows = Rows.between(self.shape(group), node.outputs[0].shape)
        if rows is None or is_split(rows) or not is_cheap(node):
            return (0, 0)
        waiting, seen = [node], set[Node]()
        while waiting and len(seen) < NEAR:
            item = waiting.pop()
            seen.add(item)
            if is_reduction(item) and Rows.of(item).counts == rows.counts:
                return rows.counts
            if is_cheap(item) or item.op.view:
                waiting += [value.node for value in item.values_in if prod(value.shape) == rows.counts[0]]
        return (0, 0)

    def is_certain(self, node: Node, group: Group, stored: bool) -> bool:
        """Whether the operator can be written into the group's kernel for certain, so that it need not be tried."""
        if not is_pointwise(node) or len(group.nodes) >= CERTAIN or self.feeds(node, group):
            return False
        if stored and (group.rows is not None or node.outputs[0].shape != self.shape(group)):
            return False
        if any(map(is_recurrence, group.nodes)):
            return False
        known = all(is_pointwise(member) or is_reduction(member) for member in group.nodes)
        if stored or known:
            return known and not any(member.op.view for member in group.nodes)
        simple = (*ONE_FOR_ONE, "slicing")
        windows = any(
            not is_pointwise(member) and not is_reduction(member) and member.op.family not in simple
            and member is not group.product for member in group.nodes
        )  # fmt: skip
        return not windows or len(group.nodes) < FEW

    # -- siblings ------------------------------------------------------------------------------------------------------

    def merge_siblings(self) -> None:
        """Merge kernels of one space that read the same array."""
        by_input: dict[Value, list[Group]] = {}
        for group in self.kernels():
            for value in self.region((group,)).inputs:
                by_input.setdefault(value, []).append(group)
        merged: dict[Group, Group] = {}

        def now(group: Group) -> Group:
            while group in merged:
                group = merged[group]
            return group

        for value, groups in by_input.items():
            different = list(dict.fromkeys(map(now, groups))) if prod(value.shape) > 1 else []
            while found := next(((one, other) for index, other in enumerate(different) for one in different[:index]
                                 if self.merge(one, other)), None):  # fmt: skip
                merged[found[1]] = found[0]  # what lay between it and another one no longer does
                different.remove(found[1])

    def merge(self, one: Group, other: Group) -> bool:
        """Put the second group into the first one, if that gives a kernel."""
        if one.product is not None or other.product is not None or self.space(one) != self.space(other):
            return False
        rows = one.rows or other.rows
        if one.rows is not None and other.rows is not None and one.rows.counts != other.rows.counts:
            if one.rows.counts != other.rows.counts[::-1]:
                return False
            rows = other.rows if one.rows.across else one.rows  # the others are sums down the columns of these
        region = self.region((one, other))
        if len(region.nodes) > MAX_NODES or len(region.inputs) + len(region.outputs) > MAX_POINTERS:
            return False
        if self.comes_back(one, other) or self.comes_back(other, one):
            return False
        if self.refuses(region):
            return False
        for node in other.nodes:
            groups = [one if group is other else group for group in self.of[node]]
            self.of[node] = list(dict.fromkeys(groups))
        one.nodes |= other.nodes
        one.rows, other.nodes = rows, set()
        both = one.bit | other.bit
        for group in self.groups:
            if group.below & both:
                group.below |= both
        self.runs_before(one, [reader for node in one.nodes if self.of[node][0] is one
                               for reader in self.readers(node)])  # fmt: skip
        one.below &= ~both
        return True

    # -- the result ----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Write the kernels, and make operators that several groups compute anew for each of them."""
        regions: dict[Group, Region] = {}
        written: dict[Group, tuple[KernelSource, ...]] = {}
        waiting = self.kernels()
        while waiting:
            group = waiting.pop(0)
            region = self.region((group,))
            try:
                regions[group], written[group] = region, self.write_last(region)
            except Refused as refused:
                self.apart(group, str(refused))
                self.drop_unread()
                waiting = [group for group in self.kernels() if regions.get(group) != self.region((group,))]
        kernels = self.kernels()
        self.result = Plan(
            self.graph,
            self.nodes,
            self.of,
            {group: regions[group] for group in kernels},
            {group: written[group] for group in kernels},
            self.result.refused,
            self.result.apart,
        ).fusion()

    def apart(self, group: Group, reason: str) -> None:
        """Give each operator of a group that is no kernel after all one of its own."""
        nodes, group.nodes = sorted(group.nodes, key=self.position.__getitem__), set()
        if len(nodes) == 1:
            self.refused[nodes[0]] = reason
            group.nodes, group.kernel = set(nodes), False
            return
        for node in nodes:
            others = [other for other in self.of[node] if other is not group]
            if others and self.of[node][0] is not group:
                self.of[node] = others
                continue
            single = self.new_group(not node.op.view)
            single.nodes = {node}
            single.rows = Rows.of(node) if is_reduction(node) else None
            self.of[node] = [single, *others]
            self.result.apart[node] = reason

    def drop_unread(self) -> None:
        """Take copies of operators out of groups whose readers of them have gone."""
        for node in reversed(self.nodes):
            groups = self.of[node]
            if len(groups) == 1:
                continue
            users = {reader for value in node.outputs for reader in self.users.get(value, ())}
            stored = not self.roots.isdisjoint(node.outputs) or bool(self.readers(node))
            kept = [group for group in groups if (stored and group is groups[0]) or not users.isdisjoint(group.nodes)]
            for group in set(groups).difference(kept):
                group.nodes.discard(node)
            self.of[node] = kept
