"""Fusion: which operators share a kernel. All choices and what they weigh stand here.

One sweep from the last operator to the first. An operator joins the kernel of a reader if that saves a trip through
memory: the kernel reads it where it has an element at hand, and whatever else reads it does not need that kernel in
turn. What several kernels read is stored by one of them - or, if it is cheap, computed in each of them, where they
move fewer bytes so: what it is made of is then read instead of it. Kernels have one space: as many elements for each
output, or rows of as many elements, with one or all of them stored. A reduction joins only where its whole rows are; a
few long rows are left to a kernel of their own, which splits them. Then kernels of one space that read the same are
merged. Why an operator stayed outside is written down.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from hybrid_lab.engines.triton.attention import attention_at
from hybrid_lab.engines.triton.body import Refused
from hybrid_lab.engines.triton.kinds import is_product
from hybrid_lab.engines.triton.prologue import no_prologue
from hybrid_lab.engines.triton.reduction import Rows, is_split
from hybrid_lab.engines.triton.source import KernelSource
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Node, Value
from hybrid_lab.graph.partition import Region

#: Makes the kernels of a group, one or several that run one after the other.
Write = Callable[[Region], "tuple[KernelSource, ...]"]

#: A kernel takes at most so many operators, and so many inputs and outputs together.
MAX_NODES, MAX_POINTERS = 64, 24
#: At most so many kernels compute the same operator.
MAX_COPIES = 8
#: What is made of so few bytes is computed again rather than by a kernel of its own. More than there are bytes.
SMALL, NEVER = 1 << 16, 1 << 62
#: Kernels of fewer operators, all element by element, can be written for certain.
CERTAIN = 32


@dataclass
class Fusion:
    """graph : with a copy of views and of cheap operators for each kernel that computes them; groups : in program order

    kernels : of each group
    refused : operator -> why it is in no kernel; apart : operator -> why it does not share the kernel of a reader
    given : the graph before operators were copied; copied : operator of `graph` -> that of `given`
    """

    graph: Graph
    given: Graph
    groups: list[Region] = field(default_factory=list)
    kernels: dict[Region, tuple[KernelSource, ...]] = field(default_factory=dict)
    refused: dict[Node, str] = field(default_factory=dict)
    apart: dict[Node, str] = field(default_factory=dict)
    copied: dict[Node, Node] = field(default_factory=dict)


@dataclass(eq=False)
class _Group:
    """Operators of one kernel, or one that has no kernel.

    rows : of its reductions, if it has some; product : the one that it computes
    bit : which it is; below : the bits of what runs after it, because it reads what the group stores
    """

    bit: int
    nodes: set[Node]
    rows: Rows | None = None
    product: Node | None = None
    kernel: bool = True
    below: int = 0


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
        self.result = Fusion(graph, graph)
        self.write = write
        self.users, self.roots = graph.users(), set(graph.roots)
        self.nodes = [node for node in graph.operators if not isinstance(node.op, Constant)]
        self.position = {node: index for index, node in enumerate(self.nodes)}
        #: The groups that compute an operator; the first one stores it, if somebody else needs it.
        self.of: dict[Node, list[_Group]] = {}
        self.groups: list[_Group] = []
        self.tried: dict[Any, str] = {}
        self.result.refused = {node: why for node in self.nodes if (why := refusal(node)) is not None}
        self.attentions = self.whole_attentions()
        for node in reversed(self.nodes):
            if node in self.result.refused:
                self.place((node,), self.new_group(False))
            elif node not in self.of:
                self.visit(node)
        self.merge_siblings()
        self.finish()

    # -- groups, and what runs after them ------------------------------------------------------------------------------

    def new_group(self, kernel: bool = True) -> _Group:
        self.groups.append(_Group(1 << len(self.groups), set(), kernel=kernel))
        return self.groups[-1]

    def place(self, nodes: Sequence[Node], home: _Group, *copies: _Group) -> None:
        """Put operators, the last one first, into groups, of which the first stores what others read."""
        for group in (home, *copies):
            group.nodes.update(nodes)
            for node in nodes:
                if group.kernel and len(nodes) == 1 and node.op.combine is not None:
                    group.rows = group.rows or Rows.of(node)
                if group.kernel and group.product is None and is_product(node):
                    group.product = node
                self.of.setdefault(node, []).append(group)
        self.runs_before(home, [reader for node in nodes for reader in self.readers(node)])

    def runs_before(self, group: _Group, readers: Sequence[_Group]) -> None:
        """Note that these run after the group, and so after all that it runs after."""
        new = group.below
        for reader in readers:
            new |= reader.bit | reader.below
        if new != group.below:
            group.below = new
            for other in self.groups:
                if other.below & group.bit:
                    other.below |= new

    def readers(self, node: Node, inside: Collection[_Group] = ()) -> list[_Group]:
        """The groups that read the operator from memory, or would: all that have a reader of it and not itself."""
        found = dict.fromkeys(
            group for value in node.outputs for reader in self.users.get(value, ()) for group in self.of.get(reader, ())
        )
        return [group for group in found if node not in group.nodes and group not in inside]

    def region(self, groups: Collection[_Group], nodes: Sequence[Node] = (), stored: bool = False) -> Region:
        """The region of these groups as one, with operators more, of which the first may be stored."""
        members = {*nodes, *(node for group in groups for node in group.nodes)}
        inside = sorted(members, key=self.position.__getitem__)
        inputs = dict.fromkeys(
            value
            for node in inside
            for value in node.values_in
            if value.node not in members and not isinstance(value.node.op, Constant)
        )
        outputs: list[Value] = []
        for node in inside:
            if node in nodes:
                outputs += node.outputs if stored and node is nodes[0] else ()
            elif self.of[node][0] in groups and (
                not self.roots.isdisjoint(node.outputs) or self.readers(node, groups)
            ):
                outputs += node.outputs
        return Region(tuple(inside), tuple(inputs), tuple(outputs))

    # -- joining a reader ----------------------------------------------------------------------------------------------

    def whole_attentions(self) -> dict[Node, tuple[Node, ...]]:
        """The operators of every attention of which nobody else reads a part, last first, by the last."""
        found = {}
        for node in self.nodes:
            attention = attention_at(node)
            if attention is None or not attention.nodes.isdisjoint(self.result.refused):
                continue
            inner = [value for part in attention.nodes - {node} for value in part.outputs]
            if self.roots.isdisjoint(inner) and attention.nodes.issuperset(
                reader for value in inner for reader in self.users.get(value, ())
            ):
                members = tuple(sorted(attention.nodes, key=self.position.__getitem__, reverse=True))
                if not self.refuses(self.region((), members, True)):
                    found[node] = members
        return found

    def visit(self, node: Node) -> None:
        members = self.attentions.get(node, (node,))
        readers = self.readers(node)
        must = not self.roots.isdisjoint(node.outputs) or not all(group.kernel for group in readers)
        kernels = [group for group in readers if group.kernel]
        if node.op.combine is not None:  # rather beside other reductions
            kernels.sort(key=lambda group: group.rows is None)
        if node.op.view:
            reason = "somebody else reads this view" if must or not kernels else self.everywhere(node, kernels)
            if reason:
                self.result.apart[node] = reason
                self.place(members, self.new_group(False))
            return
        copies: list[_Group] = []
        if is_cheap(node) and len(kernels) + must > 1 and len(kernels) <= MAX_COPIES:
            copies = self.worth_copies(node, kernels, must)
            if len(copies) == len(kernels) and not must:
                if not self.everywhere(node, kernels):
                    return
        copies = [group for group in copies if not self.objection(members, group, False, ())]
        home, reason = None, ""
        for group in kernels:
            others = [other for other in readers if other is not group and other not in copies]
            reason = self.objection(members, group, must or bool(others), others)
            if not reason:
                home = group
                break
        if home is None:
            if reason:
                self.result.apart[node] = reason
            home = self.new_group()
        self.place(members, home, *(group for group in copies if group is not home))

    def everywhere(self, node: Node, groups: Sequence[_Group]) -> str:
        """Have these groups all compute the operator, or say why one cannot."""
        for group in groups:
            if reason := self.objection((node,), group, False, ()):
                return reason
        self.place((node,), *groups)
        return ""

    def worth_copies(self, node: Node, groups: Sequence[_Group], must: bool) -> list[_Group]:
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

    def made_of(self, node: Node) -> tuple[list[Value], set[Value]]:
        """What a cheap operator, and cheap ones before it that are for it alone, are computed of; and which of these
        values are for it alone too.
        """
        leaves: dict[Value, None] = {}
        later: set[Value] = set()
        waiting = [node]
        while waiting:
            reader = waiting.pop()
            for value in map(origin, reader.values_in):
                alone = self.only_for(value, reader)
                if alone and is_cheap(value.node):
                    waiting.append(value.node)
                elif not isinstance(value.node.op, Constant):
                    leaves[value] = None
                    if alone:
                        later.add(value)
        return list(leaves), later

    def would_read(self, leaves: Sequence[Value], node: Node, group: _Group) -> int:
        """How many bytes a group reads more if it computes an operator that is made of these values."""
        if group.product is not None and self.feeds(node, group):
            return NEVER  # each tile would compute it
        known = {origin(value) for member in group.nodes for value in member.values_in}
        return sum(value.nbytes for value in leaves if value not in known and value.node not in group.nodes)

    def only_for(self, value: Value, node: Node) -> bool:
        """Whether the operator alone reads a value that another operator computes."""
        computed = not isinstance(value.node.op, (Input, Constant)) and value.node not in self.result.refused
        while computed and value not in self.roots:
            users = self.users.get(value, ())
            if len(users) != 1:
                return False
            if users[0] is node:
                return True
            if not users[0].op.view:
                return False
            value = users[0].outputs[0]
        return False

    def objection(self, nodes: Sequence[Node], group: _Group, stored: bool, others: Sequence[_Group]) -> str:
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

    def misfit(self, node: Node, group: _Group, stored: bool) -> str:
        """Why an operator has no place in the space of a group."""
        size, space = prod(node.outputs[0].shape), self.space(group)
        if is_product(node):
            if group.rows is not None or group.product is not None:
                return "the kernel has a reduction or a product already"
            if size != space:
                return "the kernel has not one element for each of the product"
        elif group.product is not None and node.op.combine is not None:
            return "a product's kernel has no reduction"
        elif group.product is not None and self.feeds(node, group):
            if why := no_prologue(node, list(group.nodes), group.product, stored):
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
        return ""

    def is_certain(self, node: Node, group: _Group, stored: bool) -> bool:
        """Whether the operator can be written into the group's kernel for certain, so that it need not be tried."""
        if node.op.triton is None or len(group.nodes) >= CERTAIN or self.feeds(node, group):
            return False
        if stored and (group.rows is not None or node.outputs[0].shape != self.shape(group)):
            return False
        known = all(member.op.triton is not None or member.op.combine is not None for member in group.nodes)
        if stored or known:
            return known and not any(member.op.view for member in group.nodes)
        plain = ("movement", "slicing", "creation")  # these read an element for each of theirs, wherever it is
        return all(
            member.op.triton is not None or member.op.combine is not None or member.op.family in plain
            or member is group.product for member in group.nodes
        )  # fmt: skip

    def feeds(self, node: Node, group: _Group) -> bool:
        """Whether a factor of the group's product is made of the operator."""
        readers = [reader for value in node.outputs for reader in self.users.get(value, ()) if reader in group.nodes]
        return any(reader is group.product or self.feeds(reader, group) for reader in readers)

    def space(self, group: _Group) -> int:
        """How many elements a kernel goes through."""
        return prod(self.shape(group))

    def shape(self, group: _Group) -> tuple[int, ...]:
        return self.region((group,)).outputs[0].shape if group.rows is None else group.rows.shape

    # -- siblings ------------------------------------------------------------------------------------------------------

    def merge_siblings(self) -> None:
        """Merge kernels of one space that read the same array."""
        by_input: dict[Value, list[_Group]] = {}
        for group in self.kernels():
            for value in self.region((group,)).inputs:
                by_input.setdefault(value, []).append(group)
        merged: dict[_Group, _Group] = {}

        def now(group: _Group) -> _Group:
            while group in merged:
                group = merged[group]
            return group

        for value, groups in by_input.items():
            if prod(value.shape) == 1:
                continue
            different: list[_Group] = []
            for group in dict.fromkeys(map(now, groups)):
                for other in different:
                    if self.merge(other, group):
                        merged[group] = other
                        break
                else:
                    different.append(group)

    def kernels(self) -> list[_Group]:
        """The groups with a kernel, in the order of their first operators."""
        found = [group for group in self.groups if group.kernel and group.nodes]
        return sorted(found, key=lambda group: min(map(self.position.__getitem__, group.nodes)))

    def merge(self, one: _Group, other: _Group) -> bool:
        """Put the second group into the first one, if that gives a kernel."""
        if one.product is not None or other.product is not None or self.space(one) != self.space(other):
            return False
        rows = one.rows or other.rows
        if one.rows is not None and other.rows is not None and one.rows.counts != other.rows.counts:
            return False
        if rows is not None and is_split(rows) and None in (one.rows, other.rows):
            return False
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

    def comes_back(self, group: _Group, other: _Group) -> bool:
        """Whether a path leads from a group through further ones to the other."""
        readers = (reader for node in group.nodes if self.of[node][0] is group for reader in self.readers(node))
        return any(reader.below & other.bit for reader in readers if reader is not other)

    # -- the result ----------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Write the kernels, and make operators that several groups compute anew for each of them."""
        written: dict[_Group, tuple[KernelSource, ...]] = {}
        waiting = self.kernels()
        while waiting:
            group = waiting.pop(0)
            try:
                written[group] = self.write(self.region((group,)))
            except Refused as refused:
                waiting += self.apart(group, str(refused))
        kernels = [group for group in self.kernels() if group in written]
        regions = {group: self.region((group,)) for group in kernels}
        if any(len(groups) > 1 for groups in self.of.values()):
            regions = self.copied(regions, written)
        self.result.groups = [regions[group] for group in kernels]
        self.result.kernels = {regions[group]: written[group] for group in kernels}
        self.result.apart = {node: why for node, why in self.result.apart.items() if not node.op.view}

    def apart(self, group: _Group, reason: str) -> list[_Group]:
        """Give each operator of a group that is no kernel after all one of its own; returns those."""
        nodes, group.nodes = sorted(group.nodes, key=self.position.__getitem__), set()
        if len(nodes) == 1:
            self.result.refused[nodes[0]] = reason
            group.nodes, group.kernel = set(nodes), False
            return []
        found = []
        for node in nodes:
            others = [other for other in self.of[node] if other is not group]
            if others and self.of[node][0] is not group:
                self.of[node] = others
                continue
            single = self.new_group(not node.op.view)
            single.nodes = {node}
            single.rows = Rows.of(node) if node.op.combine is not None else None
            self.of[node] = [single, *others]
            self.result.apart[node] = reason
            found += [single] if single.kernel else []
        return found

    def copied(
        self, regions: dict[_Group, Region], written: dict[_Group, tuple[KernelSource, ...]]
    ) -> dict[_Group, Region]:
        """The regions, and their kernels, over a graph in which every operator is in one of them alone."""
        result, graph = self.result, self.result.graph
        new: dict[tuple[_Group | None, Value], Value] = {}

        def seen(value: Value, group: _Group | None) -> Value:
            """What stands for a value where a group reads it."""
            groups = self.of.get(value.node)
            if groups is None:
                return value
            return new[group if group in groups else groups[0], value]

        for node in self.nodes:
            for group in self.of[node]:
                inputs = [seen(item, group) if isinstance(item, Value) else item for item in node.inputs]
                made = node.replace(inputs=tuple(inputs))
                result.copied[made] = node
                new.update({(group, old): value for old, value in zip(node.outputs, made.outputs, strict=True)})
        of = {node: new[groups[0], node.outputs[0]].node for node, groups in self.of.items()}
        result.refused = {of[node]: why for node, why in result.refused.items()}
        result.apart = {of[node]: why for node, why in result.apart.items()}
        result.graph = Graph(
            graph.inputs,
            [seen(value, None) for value in graph.outputs],
            [(target, seen(value, None)) for target, value in graph.effects],
            graph.draws,
            graph.name,
        )
        for group, region in regions.items():
            written[group] = tuple(
                replace(
                    source,
                    inputs=tuple(seen(value, group) for value in source.inputs),
                    outputs=tuple(seen(value, group) for value in source.outputs),
                    passes={seen(value, group): number for value, number in source.passes.items()},
                )
                for source in written[group]
            )
            regions[group] = Region(
                tuple(new[group, node.outputs[0]].node for node in region.nodes),
                tuple(dict.fromkeys(seen(value, group) for value in region.inputs)),
                tuple(new[group, value] for value in region.outputs),
            )
        return regions


def is_cheap(node: Node) -> bool:
    """Whether an operator may be computed in several kernels: element by element, and the same each time."""
    return node.op.triton is not None and node.op.combine is None and not node.op.random and not node.op.view


def origin(value: Value) -> Value:
    """What a view, or a view of a view, looks at."""
    while value.node.op.view and len(value.node.outputs) == 1 and value.node.values_in:
        value = value.node.values_in[0]
    return value
