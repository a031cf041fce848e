"""Prices in bytes: whether kernels read an operator's result from memory, or compute it again.

A result that a kernel reads from memory costs its bytes. A result that it computes again costs the bytes of the
result's operands that the kernel does not read anyway. Two cases have prices:

- `worth_copies`: a cheap operator that several kernels read.
- `host_of`: a cheap operator made of a reduction or product. The kernel of that reduction can store the result, because
  it has the elements at hand; a reader that computes the result instead needs arithmetic, too (`EASY`, `HARD`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hybrid_lab.engines.triton.plan.groups import Group, Grouping, origin
from hybrid_lab.engines.triton.write.core.reduction import Rows, is_split
from hybrid_lab.engines.triton.write.kinds import is_pointwise, is_product, is_reduction
from hybrid_lab.graph.node import Constant, Input, Node, Value

#: Families of operators that read at most one element for each element of the result, at any place.
ONE_FOR_ONE = ("movement", "creation", "cast")
#: At most this many kernels compute the same operator.
MAX_COPIES = 8
#: A result of this many bytes, operands included, is computed again rather than stored by a kernel of its own.
SMALL = 1 << 16
#: The number of operators that are searched for a kernel that could store their result.
MOST_MADE = 32
#: An element of an operator takes as long as moving 1 / EASY bytes; an element of a COSTLY operator, HARD times as
#: long.
EASY, HARD = 8, 8
COSTLY = frozenset(("broadcast_div", "broadcast_power", "reciprocal", "exp", "expm1", "log", "log1p", "tanh", "sigmoid",
                    "sqrt", "rsqrt", "erf", "_softrelu", "softsign"))  # fmt: skip
#: A price above all bytes.
NEVER = 1 << 62


@dataclass(frozen=True)
class Host:
    """A kernel that can store an operator's result, because it has the elements that the result is made of.

    node : the operator; maker : the reduction or product of that kernel; chain, leaves : see `_chain`
    homes : the readers whose kernel could have the maker and the operator in it
    """

    node: Node
    maker: Node
    chain: set[Node]
    leaves: list[Value]
    homes: list[Group]


def is_cheap(node: Node) -> bool:
    """Whether an operator may be computed in several kernels: element by element, and the same each time."""
    element_wise = is_pointwise(node) or node.op.family in ONE_FOR_ONE
    return element_wise and len(node.outputs) == 1 and not node.op.random and not node.op.view


# -- a cheap operator that several kernels read ------------------------------------------------------------------------


def worth_copies(grouping: Grouping, node: Node, groups: Sequence[Group], must: bool) -> list[Group]:
    """The groups that should compute the operator instead of reading it: all groups, if then it need not be stored and
    fewer bytes are moved; else the groups that read fewer bytes for its operands than for itself.

    must : whether it is stored in any case
    """
    size = node.outputs[0].nbytes
    leaves, alone = _operands(grouping, node)
    if not must and size + sum(value.nbytes for value in leaves) <= SMALL:
        return list(groups)
    computed = {group: _would_read(grouping, leaves, node, group) for group in groups}
    least = {group: min(size, price) for group, price in computed.items()}
    # An expensive operand without other readers gets a kernel of its own; copies read it from memory.
    operands = sum(value.nbytes for value in alone)
    own_kernel = sum(value.nbytes for value in leaves if value not in alone) + sum(least.values())
    in_a_reader = operands + sum(least.values()) + min(computed[group] - least[group] for group in groups)
    if not must and sum(computed.values()) + operands < size + min(own_kernel, in_a_reader):
        return list(groups)
    return [group for group, price in computed.items() if price < size]


def _operands(grouping: Grouping, node: Node) -> tuple[list[Value], set[Value]]:
    """The values that a cheap operator is computed of, together with cheap operators that only it reads; and the values
    that only these operators read.
    """
    leaves: dict[Value, None] = {}
    alone: set[Value] = set()
    waiting = [node]
    while waiting:
        reader = waiting.pop()
        for value in map(origin, reader.values_in):
            only = _only_for(grouping, value, reader)
            if only and is_cheap(value.node):
                waiting.append(value.node)
            elif not isinstance(value.node.op, Constant):
                leaves[value] = None
                if only:
                    alone.add(value)
    return list(leaves), alone


def _would_read(grouping: Grouping, leaves: Sequence[Value], node: Node, group: Group) -> int:
    """How many more bytes a group reads if it computes an operator that is made of these values."""
    if group.product is not None and grouping.feeds(node, group):
        return NEVER  # each tile would compute it
    known = {origin(value) for member in group.nodes for value in member.values_in}
    return sum(value.nbytes for value in leaves if value not in known and value.node not in group.nodes)


def _only_for(grouping: Grouping, value: Value, node: Node) -> bool:
    """Whether an operator computes the value, and `node` alone reads it, if need be through views."""
    computed = not isinstance(value.node.op, (Input, Constant)) and value.node not in grouping.refused
    return computed and _readers(grouping, value) == [node]


# -- a cheap operator made of a reduction or product -------------------------------------------------------------------


def host_of(grouping: Grouping, node: Node) -> Host | None:
    """The kernel that can compute and store an operator's result. None if no kernel can, or if each reader may compute
    the result for itself.
    """
    size = prod(node.outputs[0].shape)
    chain, leaves = _chain(grouping, node.outputs[0])
    readers = grouping.readers(node)
    kernels = [group for group in readers if group.kernel]
    for value in leaves:
        maker = value.node
        if maker in grouping.refused or isinstance(maker.op, Input):
            continue
        if is_product(maker) and prod(maker.outputs[0].shape) == size and chain.issuperset(_readers(grouping, value)):
            stored = len(readers) > 1 or not grouping.roots.isdisjoint(node.outputs)
            homes = [group for group in kernels if not stored and not grouping.feeds(node, group)]
            if len(homes) < len(kernels):
                return Host(node, maker, chain, leaves, homes)
        if not is_reduction(maker):
            continue
        rows = Rows.of(maker)
        whole = size == prod(rows.counts)
        if size != rows.counts[0] and (not whole or is_split(rows)):
            continue
        if whole and not {item for item in leaves if prod(item.shape) == size} <= {
            *_chain(grouping, maker.values_in[0])[1]
        }:
            continue
        homes = [group for group in kernels if _can_hold(grouping, group, rows, kernels)]
        if len(homes) < len(kernels):
            return Host(node, maker, chain, leaves, homes)
    return None


def cheaper_than_host(grouping: Grouping, host: Host, groups: Sequence[Group], must: bool) -> list[Group]:
    """The groups that should compute an operator instead of reading the result that its host stores."""
    size = host.node.outputs[0].nbytes
    others = [group for group in groups if group not in host.homes]
    prices = {group: _price(grouping, host, group) for group in others}
    if not must and not host.homes and sum(prices.values()) < size * (1 + len(others)):
        return others
    return [group for group, price in prices.items() if price < size]


def _price(grouping: Grouping, host: Host, group: Group) -> int:
    """The bytes that a group reads in addition if it computes the values that the host could store, and the worth of
    the arithmetic.
    """
    if group.product is not None and grouping.feeds(host.node, group):
        return NEVER
    computed = host.chain - group.nodes
    work = sum(HARD if node.op.name in COSTLY else 1 for node in computed) * grouping.space(group) // EASY
    return _would_read(grouping, host.leaves, host.node, group) + work


def _can_hold(grouping: Grouping, group: Group, rows: Rows, readers: Sequence[Group]) -> bool:
    """Whether a reduction of these rows can be in a group, and all other readers can run after the group."""
    first = any((reader.bit | reader.below) & group.bit for reader in readers if reader is not group)
    if first or group.product is not None:
        return False
    if group.rows is not None:
        down = group.rows.across and not rows.across and rows.counts[1] <= rows.longest
        return group.rows.counts == rows.counts or (down and group.rows.counts == rows.counts[::-1])
    return grouping.space(group) in (rows.counts[0], *([] if is_split(rows) else [prod(rows.counts)]))


def _chain(grouping: Grouping, value: Value) -> tuple[set[Node], list[Value]]:
    """The cheap operators that a value is made of, and the values that these operators are computed of: results of
    other operators, and results that some group reads from memory.
    """
    chain, leaves, waiting = set[Node](), dict[Value, None](), [origin(value)]
    while waiting:
        item = waiting.pop()
        inside = is_cheap(item.node) and item.node not in grouping.refused and len(chain) < MOST_MADE
        if inside and (not chain or (item not in grouping.roots and not grouping.readers(item.node))):
            if item.node not in chain:
                chain.add(item.node)
                waiting += map(origin, item.node.values_in)
        elif not isinstance(item.node.op, Constant):
            leaves[item] = None
    return chain, list(leaves)


def _readers(grouping: Grouping, value: Value) -> list[Node]:
    """The operators that read a value, through views too; its own operator if it leaves the graph."""
    node, readers, waiting = value.node, list[Node](), [value]
    while waiting:
        value = waiting.pop()
        if value in grouping.roots:
            readers.append(node)
        for reader in grouping.users.get(value, ()):
            if reader.op.view and len(reader.outputs) == 1:
                waiting += reader.outputs
            else:
                readers.append(reader)
    return readers
