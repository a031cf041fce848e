"""Fusion: which operators share a kernel. All choices and what they weigh stand here.

One sweep from the last operator to the first. An operator joins the kernel of a reader if that saves a trip through
memory: the kernel reads it where it has an element at hand, and whatever else reads it does not need that kernel in
turn. Kernels have one space: as many elements for each output, or rows of as many elements, with one or all of them
stored. A reduction joins only where its whole rows are; a few long rows are left to a kernel of their own, which splits
them. Then kernels of one space that read the same are merged. Why an operator stayed outside is written down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

from hybrid_lab.engines.triton.attention import attention_at
from hybrid_lab.engines.triton.body import Refused
from hybrid_lab.engines.triton.kinds import is_product
from hybrid_lab.engines.triton.prologue import no_prologue
from hybrid_lab.engines.triton.reduction import Rows, is_split
from hybrid_lab.engines.triton.source import KernelSource
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Node, Value
from hybrid_lab.graph.partition import Region, region_of

#: Makes the kernels of a group, one or several that run one after the other.
Write = Callable[[Region], "tuple[KernelSource, ...]"]

#: A kernel takes at most so many operators, and so many inputs and outputs together.
MAX_NODES, MAX_POINTERS = 64, 24


@dataclass
class Fusion:
    """graph : with a copy of every view for each of its readers; groups : in program order; kernels : of each group

    refused : operator -> why it is in no kernel; apart : operator -> why it does not share the kernel of a reader
    """

    graph: Graph
    groups: list[Region] = field(default_factory=list)
    kernels: dict[Region, tuple[KernelSource, ...]] = field(default_factory=dict)
    refused: dict[Node, str] = field(default_factory=dict)
    apart: dict[Node, str] = field(default_factory=dict)


@dataclass(eq=False)
class _Group:
    """nodes : in reverse program order; rows : of its reductions, if it has some; product : the one that it computes"""

    nodes: list[Node]
    rows: Rows | None = None
    product: Node | None = None

    def with_(self, *nodes: Node) -> _Group:
        """The group with an operator that comes before all of its, or with those of an attention, last first."""
        if len(nodes) > 1:
            return _Group([*self.nodes, *nodes], None, nodes[0])
        (node,) = nodes
        rows = Rows.of(node) if self.rows is None and node.op.combine is not None else self.rows
        return _Group([*self.nodes, node], rows, node if is_product(node) else self.product)


def fuse(graph: Graph, refusal: Callable[[Node], str | None], write: Write) -> Fusion:
    """Groups of operators, each of which `write` can make kernels of.

    refusal : operator -> None, or why no kernel can hold it
    write : raises Refused for a group that is not one kernel
    """
    return _Sweep(views_for_each_reader(graph), refusal, write).result


def views_for_each_reader(graph: Graph) -> Graph:
    """The graph with every view made again for each operator that reads it: a kernel reads through it for nothing."""
    new: dict[Value, Value] = {}

    def through(value: Value) -> Value:
        node = value.node
        if not node.op.view or len(node.outputs) != 1 or isinstance(node.op, (Input, Constant)):
            return new.get(value, value)
        first, *rest = node.inputs
        inputs = [through(first) if isinstance(first, Value) else first]
        inputs += [new.get(item, item) if isinstance(item, Value) else item for item in rest]
        return node.replace(inputs=tuple(inputs)).outputs[0]

    for node in graph.nodes:
        if isinstance(node.op, (Input, Constant)):
            continue
        if node.op.view and len(node.outputs) == 1:
            new[node.outputs[0]] = node.outputs[0]  # shapes are read of it, if nothing else
            continue
        made = node.replace(inputs=tuple(through(item) if isinstance(item, Value) else item for item in node.inputs))
        new.update(zip(node.outputs, made.outputs, strict=True))
    return Graph(
        graph.inputs,
        [through(value) for value in graph.outputs],
        [(target, through(value)) for target, value in graph.effects],
        graph.draws,
        graph.name,
    )


class _Sweep:
    def __init__(self, graph: Graph, refusal: Callable[[Node], str | None], write: Write):
        self.result = Fusion(graph)
        self.write = write
        self.users, self.roots = graph.users(), set(graph.roots)
        self.group: dict[Node, _Group] = {}
        nodes = [node for node in graph.operators if not isinstance(node.op, Constant)]
        for node in nodes:
            reason = refusal(node)
            if reason is not None:
                self.result.refused[node] = reason
        self.attentions = self.whole_attentions(nodes)
        for node in reversed(nodes):
            if node not in self.result.refused and node not in self.group:
                self.visit(node)
        self.merge_siblings(nodes)
        self.finish(nodes)

    # -- joining a reader ----------------------------------------------------------------------------------------------

    def whole_attentions(self, nodes: Sequence[Node]) -> dict[Node, tuple[Node, ...]]:
        """The operators of every attention of which nobody else reads a part, last first, by the last."""
        found = {}
        for node in nodes:
            attention = attention_at(node)
            if attention is None or not attention.nodes.isdisjoint(self.result.refused):
                continue
            inner = [value for part in attention.nodes - {node} for value in part.outputs]
            if self.roots.isdisjoint(inner) and attention.nodes.issuperset(
                reader for value in inner for reader in self.users.get(value, ())
            ):
                members = tuple(part for part in reversed(nodes) if part in attention.nodes)
                try:
                    self.write(self.region(_Group([]).with_(*members)))
                except Refused:
                    continue
                found[node] = members
        return found

    def visit(self, node: Node) -> None:
        members = self.attentions.get(node, (node,))
        readers = [reader for value in node.outputs for reader in self.users.get(value, ())]
        reason = ""
        for group in dict.fromkeys(self.group[reader] for reader in readers if reader in self.group):
            reason = self.objection(node, group, readers)
            if not reason:
                joined = group.with_(*members)
                try:
                    self.write(self.region(joined))
                except Refused as refused:
                    reason = str(refused)
                    continue
                for member in joined.nodes:
                    self.group[member] = joined
                return
        if reason:
            self.result.apart[node] = reason
        if not node.op.view:
            self.group.update(dict.fromkeys(members, _Group([]).with_(*members)))

    def objection(self, node: Node, group: _Group, readers: Sequence[Node]) -> str:
        """Why the operator should not join, before a kernel is written to see whether it can."""
        if len(group.nodes) >= MAX_NODES:
            return f"the kernel has {MAX_NODES} operators"
        region = self.region(group.with_(node))
        if len(region.inputs) + len(region.outputs) > MAX_POINTERS:
            return f"the kernel would take more than {MAX_POINTERS} arrays"
        stored = node.outputs[0] in self.roots or any(self.group.get(reader) is not group for reader in readers)
        if node.op.view:
            return "somebody else reads this view" if stored else ""
        size, space = prod(node.outputs[0].shape), self.space(group)
        if is_product(node):
            if group.rows is not None or group.product is not None:
                return "the kernel has a reduction or a product already"
            if size != space:
                return "the kernel has not one element for each of the product"
        elif group.product is not None and node.op.combine is not None:
            return "a product's kernel has no reduction"
        elif group.product is not None and self.feeds(node, group):
            if why := no_prologue(node, group.nodes, group.product, stored):
                return why
        if node.op.combine is not None:
            rows = Rows.of(node)
            if is_split(rows) and space != rows.counts[0]:
                return "few long rows are split among programs, in a kernel of their own"
            if group.rows is not None and group.rows.counts != rows.counts:
                return "the kernel has other rows"
            if group.rows is None and space not in (rows.counts[0], prod(rows.counts)):
                return "the kernel has elements that are no rows of this reduction"
        elif stored and size not in ([space] if group.rows is None else [group.rows.counts[0], space]):
            return "somebody else reads it, and the kernel has not one element for each of its own"
        outside = [reader for reader in readers if self.group.get(reader) is not group]
        if self.reaches(outside, group):
            return "what else reads it comes before the kernel"
        return ""

    def feeds(self, node: Node, group: _Group) -> bool:
        """Whether a factor of the group's product is made of the operator."""
        readers = [reader for value in node.outputs for reader in self.users.get(value, ())]
        inside = [reader for reader in readers if self.group.get(reader) is group]
        return any(reader is group.product or self.feeds(reader, group) for reader in inside)

    def space(self, group: _Group) -> int:
        """How many elements a kernel goes through."""
        return prod(self.region(group).outputs[0].shape if group.rows is None else group.rows.shape)

    def reaches(self, nodes: Sequence[Node], group: _Group) -> bool:
        """Whether a path leads from one of these, through whole kernels, into the group."""
        seen: set[object] = set()
        waiting: list[Node] = list(nodes)
        while waiting:
            node = waiting.pop()
            unit = self.group.get(node, node)
            if unit is group:
                return True
            if unit in seen:
                continue
            seen.add(unit)
            for member in unit.nodes if isinstance(unit, _Group) else (node,):
                waiting += [reader for value in member.outputs for reader in self.users.get(value, ())]
        return False

    # -- siblings ------------------------------------------------------------------------------------------------------

    def merge_siblings(self, nodes: Sequence[Node]) -> None:
        """Merge kernels of one space that read the same array."""
        by_input: dict[Value, list[_Group]] = {}
        for group in dict.fromkeys(self.group[node] for node in nodes if node in self.group):
            for value in self.region(group).inputs:
                by_input.setdefault(value, []).append(group)
        for value, groups in by_input.items():
            if prod(value.shape) == 1:
                continue
            merged: list[_Group] = []
            for group in dict.fromkeys(self.group[item.nodes[0]] for item in groups):
                for index, other in enumerate(merged):
                    both = self.both(other, group, nodes)
                    if both is not None:
                        merged[index] = both
                        break
                else:
                    merged.append(group)

    def both(self, one: _Group, other: _Group, nodes: Sequence[Node]) -> _Group | None:
        if one.product is not None or other.product is not None or self.space(one) != self.space(other):
            return None
        rows = one.rows or other.rows
        if one.rows is not None and other.rows is not None and one.rows.counts != other.rows.counts:
            return None
        if rows is not None and is_split(rows) and None in (one.rows, other.rows):
            return None
        inside = {*one.nodes, *other.nodes}
        both = _Group([node for node in reversed(nodes) if node in inside], rows)
        region = self.region(both)
        if len(both.nodes) > MAX_NODES or len(region.inputs) + len(region.outputs) > MAX_POINTERS:
            return None
        if self.reaches(self.readers(one, other), other) or self.reaches(self.readers(other, one), one):
            return None
        try:
            self.write(region)
        except Refused:
            return None
        self.group.update(dict.fromkeys(both.nodes, both))
        return both

    def readers(self, group: _Group, other: _Group) -> list[Node]:
        """Who reads the group's values, neither in it nor in the other: paths from there must not come back."""
        readers = [reader for node in group.nodes for value in node.outputs for reader in self.users.get(value, ())]
        return [reader for reader in readers if self.group.get(reader) not in (group, other)]

    # -- the result ----------------------------------------------------------------------------------------------------

    def region(self, group: _Group) -> Region:
        return region_of(list(reversed(group.nodes)), self.users, self.roots)

    def finish(self, nodes: Sequence[Node]) -> None:
        for group in dict.fromkeys(self.group[node] for node in nodes if node in self.group):
            region = self.region(group)
            try:
                self.result.kernels[region] = self.write(region)
            except Refused as refused:
                self.result.refused.update(dict.fromkeys(region.nodes, str(refused)))
                continue
            self.result.groups.append(region)
        self.result.apart = {node: why for node, why in self.result.apart.items() if not node.op.view}
