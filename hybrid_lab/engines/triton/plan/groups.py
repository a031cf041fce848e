"""Groups: the operators that share a kernel while fusion puts them together, and the order in which groups run.

An operator can be in several groups: each group computes it, and the first group stores it if another kernel needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from hybrid_lab.engines.triton.write.core.reduction import Rows
from hybrid_lab.engines.triton.write.kinds import is_product, is_reduction
from hybrid_lab.engines.triton.write.source import KernelSource
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Node, Value
from hybrid_lab.graph.passes.partition import Region

#: The kernels of a group: one, or several that run one after the other.
Kernels = tuple[KernelSource, ...]
#: Writes the kernels of a group; choices are taken down in the second argument, if there is one.
Write = Callable[..., Kernels]


@dataclass(eq=False)
class Group:
    """The operators of one kernel, or one operator without a kernel.

    rows : of its reductions, if any; product : the product that it computes
    bit : its bit in masks; below : the bits of the groups that run after it, because they read its stored values
    """

    bit: int
    nodes: set[Node]
    rows: Rows | None = None
    product: Node | None = None
    kernel: bool = True
    below: int = 0


class Lines(NamedTuple):
    """At most so many lines a kernel has, and of these at most so many load a value.

    loads : value -> lines that load it
    """

    total: int
    loads: Mapping[Value, int]


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
        copy = node.replace(inputs=tuple(through(item) if isinstance(item, Value) else item for item in node.inputs))
        new.update(zip(node.outputs, copy.outputs, strict=True))
    return Graph(
        graph.inputs,
        [through(value) for value in graph.outputs],
        [(target, through(value)) for target, value in graph.effects],
        graph.draws,
        graph.name,
    )


class Grouping:
    """The groups of a graph while fusion puts them together.

    refused : operator -> why no kernel can hold it; alone : operator -> why its kernel has no other operators
    write : writes the kernels of a region, or raises Refused
    of : operator -> its groups; apart : operator -> why it is not in the kernel of a reader; closed : operators whose
        kernel takes no further operators
    tried : form of a region -> why `write` refuses it, or "", the lines of its kernel, and the inputs of the region
    lines : group -> the lines of its kernel, if they are known; lines_if_placed : likewise for a group and operators
        that may be placed into it next
    """

    def __init__(self, graph: Graph, refused: dict[Node, str], alone: dict[Node, str], write: Write):
        self.refused, self.alone, self.write = refused, alone, write
        self.users, self.roots = graph.users(), set(graph.roots)
        self.nodes = [node for node in graph.operators if not isinstance(node.op, Constant)]
        self.position = {node: index for index, node in enumerate(self.nodes)}
        self.of: dict[Node, list[Group]] = {}
        self.groups: list[Group] = []
        self.apart: dict[Node, str] = {}
        self.closed: set[Node] = set()
        self.tried: dict[object, tuple[str, Lines | None, tuple[Value, ...]]] = {}
        self.lines: dict[Group, Lines | None] = {}
        self.lines_if_placed: dict[tuple[Group, tuple[Node, ...]], Lines | None] = {}

    def new_group(self, kernel: bool = True) -> Group:
        self.groups.append(Group(1 << len(self.groups), set(), kernel=kernel))
        return self.groups[-1]

    def place(self, nodes: Sequence[Node], home: Group, *copies: Group) -> None:
        """Put operators, the last one first, into groups, of which the first stores what others read."""
        for group in (home, *copies):
            self.lines[group] = self.lines_if_placed.get((group, tuple(nodes)))
            group.nodes.update(nodes)
            for node in nodes:
                if group.kernel and len(nodes) == 1 and is_reduction(node):
                    group.rows = group.rows or Rows.of(node)
                if group.kernel and group.product is None and is_product(node):
                    group.product = node
                self.of.setdefault(node, []).append(group)
        self.lines_if_placed.clear()
        self.runs_before(home, [reader for node in nodes for reader in self.readers(node)])
        for node in nodes:  # operators placed together with later operators, before their readers
            for maker in {value.node for value in node.values_in if value.node in self.of}:
                if home not in self.of[maker]:
                    self.runs_before(self.of[maker][0], [home])

    def runs_before(self, group: Group, readers: Sequence[Group]) -> None:
        """Note that these run after the group, and so after all that it runs after."""
        new = group.below
        for reader in readers:
            new |= reader.bit | reader.below
        if new != group.below:
            group.below = new
            for other in self.groups:
                if other.below & group.bit:
                    other.below |= new

    def readers(self, node: Node, inside: Collection[Group] = ()) -> list[Group]:
        """The groups that read the operator from memory, or would: all that have a reader of it and not itself."""
        groups = dict.fromkeys(
            group for value in node.outputs for reader in self.users.get(value, ()) for group in self.of.get(reader, ())
        )
        return [group for group in groups if node not in group.nodes and group not in inside]

    def region(self, groups: Collection[Group], nodes: Sequence[Node] = (), stored: bool = False) -> Region:
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
                needed = stored if node is nodes[0] else not self.roots.isdisjoint(node.outputs)
                outputs += node.outputs if needed else ()
            elif self.of[node][0] in groups and (not self.roots.isdisjoint(node.outputs) or self.readers(node, groups)):
                outputs += node.outputs
        read = [item for item in outputs if len(item.node.outputs) == 1 or item in self.roots or self.users.get(item)]
        return Region(tuple(inside), tuple(inputs), tuple(read))

    def kernels(self) -> list[Group]:
        """The groups with a kernel, in the order of their first operators."""
        groups = [group for group in self.groups if group.kernel and group.nodes]
        return sorted(groups, key=lambda group: min(map(self.position.__getitem__, group.nodes)))

    def space(self, group: Group) -> int:
        """How many elements a kernel goes through."""
        return prod(self.shape(group))

    def shape(self, group: Group) -> tuple[int, ...]:
        if group.rows is not None:
            return group.rows.shape
        # The weights of an attention may be stored; the last output is computed from its result.
        return self.region((group,)).outputs[0 if group.product is None else -1].shape

    def feeds(self, node: Node, group: Group) -> bool:
        """Whether a factor of the group's product is made of the operator."""
        waiting, seen = [node] if group.product is not None else [], set[Node]()
        while waiting:
            for value in waiting.pop().outputs:
                for reader in self.users.get(value, ()):
                    if reader is group.product:
                        return True
                    if reader in group.nodes and reader not in seen:
                        seen.add(reader)
                        waiting.append(reader)
        return False

    def comes_back(self, group: Group, other: Group) -> bool:
        """Whether a path leads from a group through further groups to `other`."""
        readers = (reader for node in group.nodes if self.of[node][0] is group for reader in self.readers(node))
        return any(reader.below & other.bit for reader in readers if reader is not other)


def origin(value: Value) -> Value:
    """The value under a view, or under a view of a view."""
    while value.node.op.view and len(value.node.outputs) == 1 and value.node.values_in:
        value = value.node.values_in[0]
    return value
