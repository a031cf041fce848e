"""Whether an operator may enter the kernel of a group that reads it. Every answer is a reason against it, or "".

The last word is the writer's: it writes the kernel, or refuses. To write a kernel for each operator that joins takes
most of the time of fusion, so a pointwise operator or a view joins without a text if it only replaces loads, which the
writer never refuses unless the kernel grows too long (`_lines_with`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Any

from hybrid_lab.engines.triton.plan.groups import Group, Grouping, Kernels, Lines
from hybrid_lab.engines.triton.plan.prices import is_cheap
from hybrid_lab.engines.triton.write.body import MOST_LINES, Refused
from hybrid_lab.engines.triton.write.core.product import no_load_fusion
from hybrid_lab.engines.triton.write.core.reduction import Rows, is_split
from hybrid_lab.engines.triton.write.index import strides_in
from hybrid_lab.engines.triton.write.kinds import is_pointwise, is_product, is_reduction
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.graph.passes.partition import Region

#: A kernel has at most MAX_NODES operators, and MAX_POINTERS inputs and outputs together.
MAX_NODES, MAX_POINTERS = 64, 24
#: The number of operators that are searched for the reduction that another operator is made of.
NEAR = 8
#: Kinds of kernels that compute a value at any place that a reader asks for.
ANYWHERE = ("pointwise", "rows", "rows in a loop", "product")
_LOADED = re.compile(r"tl\.load\((\w+)")


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
    lines = None if stored or len(nodes) > 1 else _lines_with(grouping, node, group)
    reason = ""
    if lines is None or not grouping.alone.keys().isdisjoint(region.nodes):
        reason, lines = _answer(grouping, region)
    grouping.lines_if_placed[group, tuple(nodes)] = lines
    return reason


def everywhere(grouping: Grouping, node: Node, groups: Sequence[Group]) -> str:
    """Let each group compute the operator; or return the reason why a group cannot."""
    for group in groups:
        if reason := objection(grouping, (node,), group, False):
            return reason
    grouping.place((node,), *groups)
    return ""


def refuses(grouping: Grouping, region: Region) -> str:
    """Why the writer refuses a region; "" if it writes a kernel."""
    return _answer(grouping, region)[0]


def _lines_with(grouping: Grouping, node: Node, group: Group) -> Lines | None:
    """The lines of the group's kernel with an operator that is not stored; None if only the writer knows whether it
    writes that kernel.

    Each line that loads the operator's result becomes a line of the operator, a line that loads each operand, and at
    most two lines for places and masks. No other line of the kernel is another.
    """
    lines = grouping.lines.get(group)
    replaces_loads = (is_pointwise(node) and not node.op.random) or (node.op.view and strides_in(node, 0) is not None)
    if lines is None or not replaces_loads or len(node.outputs) > 1:
        return None
    if any(value.node in group.nodes for value in node.values_in):
        return None
    loads = Counter(lines.loads)
    times = loads.pop(node.outputs[0], 0)
    for value in node.values_in:
        loads[value] += times
    total = lines.total + times * (len(node.values_in) + 3)
    return Lines(total, loads) if total <= MOST_LINES else None


def _lines_of(kernels: Kernels) -> Lines | None:
    """The lines of a kernel that computes values anywhere; None for other kernels."""
    if len(kernels) > 1 or kernels[0].kind not in ANYWHERE:
        return None
    source = kernels[0]
    loads = Counter(_LOADED.findall("\n".join(source.lines)))
    pointers = zip(source.inputs, source.arguments, strict=False)
    return Lines(len(source.lines), {value: loads[pointer] for value, pointer in pointers})


def _answer(grouping: Grouping, region: Region) -> tuple[str, Lines | None]:
    """Why the writer refuses a region, or "" and the lines of its kernel. Regions of equal operators are tried once."""
    if reason := next((grouping.alone[node] for node in region.nodes if node in grouping.alone), ""):
        return reason, None
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
            grouping.tried[form] = "", _lines_of(grouping.write(region)), region.inputs
        except Refused as refused:
            grouping.tried[form] = str(refused), None, ()
    reason, lines, inputs = grouping.tried[form]
    if lines is not None and inputs != region.inputs:
        equal = dict(zip(inputs, region.inputs, strict=True))
        lines = Lines(lines.total, {equal[value]: times for value, times in lines.loads.items() if value in equal})
    return reason, lines


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
