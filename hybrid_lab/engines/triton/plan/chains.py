"""Chains: what cheap operators are made of, while groups are put together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hybrid_lab.engines.triton.plan.groups import Group, Groups, origin
from hybrid_lab.engines.triton.write.kinds import is_pointwise
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Node, Value

#: Families of operators that read at most one element for each of theirs, wherever it is.
ONE_FOR_ONE = ("movement", "creation", "cast")
#: So many operators are looked through for the kernel that could store what they make.
MOST_MADE = 32
#: More than there are bytes.
NEVER = 1 << 62


class Chains(Groups):
    """Groups of a graph. refused : operator -> why it is in no kernel"""

    def __init__(self, graph: Graph, refusal: Callable[[Node], str | None]):
        super().__init__(graph)
        self.refused = {node: why for node in self.nodes if (why := refusal(node)) is not None}

    def chain(self, value: Value) -> tuple[set[Node], list[Value]]:
        """The cheap operators that a value is made of, and the values that these are made of in turn: results of
        others, and what somebody reads from memory.
        """
        made, leaves, waiting = set[Node](), dict[Value, None](), [origin(value)]
        while waiting:
            item = waiting.pop()
            inside = is_cheap(item.node) and item.node not in self.refused and len(made) < MOST_MADE
            if inside and (not made or (item not in self.roots and not self.readers(item.node))):
                if item.node not in made:
                    made.add(item.node)
                    waiting += map(origin, item.node.values_in)
            elif not isinstance(item.node.op, Constant):
                leaves[item] = None
        return made, list(leaves)

    def real_readers(self, node: Node) -> list[Node]:
        """The operators that read another one, through views too; itself where its result leaves the graph."""
        found, waiting = [], list(node.outputs)
        while waiting:
            value = waiting.pop()
            if value in self.roots:
                found.append(node)
            for reader in self.users.get(value, ()):
                if reader.op.view and len(reader.outputs) == 1:
                    waiting += reader.outputs
                else:
                    found.append(reader)
        return found

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

    def would_read(self, leaves: Sequence[Value], node: Node, group: Group) -> int:
        """How many bytes a group reads more if it computes an operator that is made of these values."""
        if group.product is not None and self.feeds(node, group):
            return NEVER  # each tile would compute it
        known = {origin(value) for member in group.nodes for value in member.values_in}
        return sum(value.nbytes for value in leaves if value not in known and value.node not in group.nodes)

    def only_for(self, value: Value, node: Node) -> bool:
        """Whether the operator alone reads a value that another operator computes."""
        computed = not isinstance(value.node.op, (Input, Constant)) and value.node not in self.refused
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


def is_cheap(node: Node) -> bool:
    """Whether an operator may be computed in several kernels: element by element, and the same each time."""
    plain = is_pointwise(node) or node.op.family in ONE_FOR_ONE
    return plain and len(node.outputs) == 1 and not node.op.random and not node.op.view
