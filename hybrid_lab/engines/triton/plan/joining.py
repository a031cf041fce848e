"""Whether an operator may enter the kernel of a group that reads it. Every answer is a reason against it, or ""."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from hybrid_lab.engines.triton.plan.groups import Group, Grouping
from hybrid_lab.engines.triton.plan.prices import is_cheap
from hybrid_lab.engines.triton.write.body import Refused
from hybrid_lab.engines.triton.write.core.product import no_load_fusion
from hybrid_lab.engines.triton.write.core.reduction import Rows, is_split
from hybrid_lab.engines.triton.write.kinds import is_product, is_reduction
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.graph.passes.partition import Region

#: A kernel has at most MAX_NODES operators, and MAX_POINTERS inputs and outputs together.
MAX_NODES, MAX_POINTERS = 64, 24
#: The number of operators that are searched for the reduction that another operator is made of.
NEAR = 8


def objection(
    grouping: Grouping, nodes: Sequence[Node], group: Group, stored: bool, readers: Sequence[Group] = ()
) -> str:
    """Why the first operator, and with it the others, may not join a group that reads it; "" if it may.

    stored : whether its result is written to memory; readers : other groups, which read it there
    """
    node = nodes[0]
    if len(group.nodes) >= MAX_NODES:
        return f"the kernel has {MAX_NODES} operators"
    region = grouping.region((group,), nodes, stored)
    if len(region.inputs) + len(region.outputs) > MAX_POINTERS:
        return f"the kernel would take more than {MAX_POINTERS} arrays"
    if not node.op.view and (reason := _misfit(grouping, node, group, stored)):
        return reason
    if any((reader.bit | reader.below) & group.bit for reader in readers):
        return "another of its readers must run before the kernel"
    return refuses(grouping, region)


def everywhere(grouping: Grouping, node: Node, groups: Sequence[Group]) -> str:
    """Let each group compute the operator; or return the reason why a group cannot."""
    for group in groups:
        if reason := objection(grouping, (node,), group, False):
            return reason
    grouping.place((node,), *groups)
    return ""


def refuses(grouping: Grouping, region: Region) -> str:
    """Why the writer refuses a region; "" if it writes a kernel. Regions of equal operators are tried once."""
    if reason := next((grouping.alone[node] for node in region.nodes if node in grouping.alone), ""):
        return reason
    numbers = {node: index for index, node in enumerate(region.nodes)}
    outside = {value: index for index, value in enumerate(region.inputs)}

    def key(item: object) -> Any:
        if not isinstance(item, Value):
            return repr(item)
        if item.node in numbers:
            return numbers[item.node], item.index
        return (item.shape, item.dtype, outside[item]) if item in outside else item

    form = (
        tuple((node.op, tuple(map(key, node.inputs)), node.shapes, node.dtypes) for node in region.nodes),
        tuple(map(key, region.outputs)),
    )
    if form not in grouping.tried:
        try:
            grouping.write(region)
            grouping.tried[form] = ""
        except Refused as refused:
            grouping.tried[form] = str(refused)
    return grouping.tried[form]


def _misfit(grouping: Grouping, node: Node, group: Group, stored: bool) -> str:
    """Why the space of a group - its elements, or its rows and columns - has no place for an operator."""
    size, space = prod(node.outputs[0].shape), grouping.space(group)
    if is_product(node):
        if group.rows is not None or group.product is not None:
            return "the kernel has a reduction or a product already"
        if size != space:
            return "the kernel has another number of elements than the product"
    elif group.product is not None and is_reduction(node):
        return "a product's kernel has no reduction"
    elif group.product is not None and grouping.feeds(node, group):
        if reason := no_load_fusion(node, list(group.nodes), group.product, stored):
            return reason
    if is_reduction(node):
        rows = Rows.of(node)
        if is_split(rows) and space != rows.counts[0]:
            return "few long rows are split among programs, in a kernel of their own"
        if group.rows is not None and group.rows.counts != rows.counts:
            return "the kernel has other rows"
        if group.rows is None and space not in (rows.counts[0], prod(rows.counts)):
            return "the elements of the kernel are not the rows of this reduction"
    elif stored and size not in (space, _rows_with(grouping, node, group)):
        return "it is read elsewhere, too, and the kernel has another number of elements"
    return ""


def _rows_with(grouping: Grouping, node: Node, group: Group) -> int:
    """The number of rows of a group; if it has no reduction, of one near the operator that it could have; else 0."""
    if group.rows is not None:
        return group.rows.counts[0]
    rows = Rows.between(grouping.shape(group), node.outputs[0].shape)
    if rows is None or is_split(rows) or not is_cheap(node):
        return 0
    waiting, seen = [node], set[Node]()
    while waiting and len(seen) < NEAR:
        item = waiting.pop()
        seen.add(item)
        if is_reduction(item) and Rows.of(item).counts == rows.counts:
            return rows.counts[0]
        if is_cheap(item) or item.op.view:
            waiting += [value.node for value in item.values_in if prod(value.shape) == rows.counts[0]]
    return 0
