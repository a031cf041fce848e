"""Rows that are split: few long rows, each summed by many programs, and a second kernel that combines their parts."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hybrid_lab.engines.triton.write.body import Refused
from hybrid_lab.engines.triton.write.core import reduction
from hybrid_lab.engines.triton.write.core.one_pass import named_total, pair_of, part_of_pair
from hybrid_lab.engines.triton.write.core.reduction import (
    RowBody,
    Rows,
    accumulate,
    combined,
    fitted,
    levels,
    neutral,
    reductions,
)
from hybrid_lab.engines.triton.write.kinds import combine
from hybrid_lab.engines.triton.write.source import (
    COLUMN_LANES,
    ROW_LANES,
    KernelSource,
    ancestors,
    block_for,
    counted,
    kernel_name,
    kernel_source,
    power_of_two,
)
from hybrid_lab.engines.triton.write.words import short, wide
from hybrid_lab.graph.node import Node, Value, input_node
from hybrid_lab.graph.partition import Region


def write_split(group: Region) -> tuple[KernelSource, KernelSource]:
    """Two kernels: parts of rows, many programs a row, and what is made of the parts.

    What has an element per row and column and needs no sum is stored by the first one, on the way.
    """
    nodes, level = reductions(group.nodes), levels(group.nodes)
    space = Rows.of(nodes[0])
    rows, columns = space.counts
    if any(number > 1 for number in level.values()):
        raise Refused("a reduction that needs another one of rows that are split")
    full = [value for value in group.outputs if prod(value.shape) == rows * columns]
    if any(level[value.node] for value in full):
        raise Refused("an element of split rows that needs a sum of them")
    results = [value for value in group.outputs if value not in full]
    if any(prod(value.shape) != rows for value in results):
        raise Refused("an output with neither one element per row nor one per row and column")
    tile = space.tile(0)
    if not space.across:
        tile["ROWS"] = 1
    per_part = _per_part(space, tile)
    parts = -(-columns // per_part)
    spaces = [
        input_node(f"{short(node.op.name)}_parts", shape=(parts, rows), dtype=wide(node.outputs[0].dtype))
        for node in nodes
    ]
    early = ancestors([*nodes, *(value.node for value in full)], group.nodes)
    # A mean of a variance alone, too.
    late = ancestors([*nodes, *(value.node for value in results)], group.nodes, nodes)
    first = Region(tuple(early), group.inputs, (*full, *spaces))
    second = Region(group.nodes, group.inputs, tuple(results))
    return _parts(first, group, space, spaces, tile, per_part), put_together(second, late, space, spaces, per_part)


def _per_part(space: Rows, tile: dict[str, int]) -> int:
    """How many columns of a row one program sums up: a number of whole tiles."""
    (rows, columns), step = space.counts, tile["COLUMNS"]
    programs = -(-rows // tile["ROWS"])
    wanted = min(max(reduction.BUSY // programs, 1), reduction.MOST_PARTS)
    least = max(-(-columns // wanted), reduction.PART // (4 if space.across else 1))
    return -(-least // step) * step


def _parts(
    computed: Region, group: Region, space: Rows, spaces: Sequence[Value], tile: dict[str, int], per_part: int
) -> KernelSource:
    """The kernel that stores a part for each program. computed : its operators and outputs"""
    body = RowBody(Region(group.nodes, group.inputs, computed.outputs), space)
    body.fresh("part")
    (rows, columns), parts, nodes = space.counts, spaces[0].shape[0], reductions(computed.nodes)
    loop = "for start in range(part * per_part, part * per_part + per_part, COLUMNS):"
    accumulate(body, nodes, loop, "elements", [value for value in computed.outputs if value not in spaces])
    for node, value in zip(nodes, spaces, strict=True):
        where = f"{body.pointers[value]} + part * rows + row"
        body.line(f"tl.store({where}, {body.results[node]}, mask=row_inside)")
    head = [*ROW_LANES, "part = tl.program_id(1)"]
    if body.mentions("elements"):
        head.append("elements = tl.minimum(per_part, columns - part * per_part)")
    name = f"{kernel_name(computed.nodes)}_parts"
    summary = f"{counted(computed.nodes)} over parts of {rows:,} rows of {columns:,} elements."
    sizes = {"rows": rows, "columns": columns, "parts": parts, "per_part": per_part}
    tile, warps = fitted(body, tile)
    return kernel_source(
        body, "parts of rows", name, summary, head, sizes, tile, {"ROWS": rows},
        (("rows", "ROWS"), ("parts", "")), warps=warps,
        together=body.together() | body.together({"column": "per_part"}),
    )  # fmt: skip


def put_together(
    group: Region, computed: Sequence[Node], space: Rows, spaces: Sequence[Value], per_part: int, most: int = 0
) -> KernelSource:
    """The kernel that puts parts together, and computes what needs the whole.

    computed : the reductions, and operators that read them; most : how many parts there may be, MOST_PARTS for 0
    """
    rows, parts, nodes = space.counts[0], spaces[0].shape[0], reductions(computed)
    body = RowBody(group, space)
    body.column = body.declare("column", parts, "column_inside")
    body.counts = [(space.counts[1], "elements")]
    parts_of: dict[Node, str] = {}
    for node, value in zip(nodes, spaces, strict=True):
        load = f"tl.load({body.pointer(value)} + column * rows + row, mask=row_inside & column_inside, other=0)"
        body.runs_along(body.column * rows + body.row, value.dtype)
        part = parts_of[node] = body.named(load, "part")
        pair = pair_of(node, body.nodes)
        if pair is not None and pair.first in parts_of:
            addend = part_of_pair(body, pair, parts_of[pair.first], part)
            named_total(body, pair, f"tl.sum(tl.where(column_inside, {addend}, 0.0), axis=1, keep_dims=True)")
            continue
        element = part  # of a sum: 0 where there is none
        if combine(node) != "sum":
            element = body.named(f"tl.where(column_inside, {part}, {neutral(node)})", "element")
        body.results[node] = body.named(combined(node, element), short(node.op.name), node)
    for value in group.outputs:
        name = body.value(value, body.row.digits(value.shape))
        body.line(f"tl.store({body.pointers[value]} + row, {name}, mask=row_inside)")
    summary = f"{counted(computed)} over {rows:,} rows of {parts:,} parts."
    sizes = {"rows": rows, "columns": parts, "elements": space.counts[1], "per_part": per_part}
    # However many there are: more columns have more parts, in the same kernel.
    width = power_of_two(most or reduction.MOST_PARTS, 2)
    if parts > width:
        raise Refused("more parts than one tile has")
    blocks = {"ROWS": block_for(rows, 1, max(1, reduction.TILE // width)), "COLUMNS": width}
    return kernel_source(
        body, "rows of parts", kernel_name(computed), summary, [*ROW_LANES, *COLUMN_LANES], sizes,
        blocks, {"ROWS": rows}, (("rows", "ROWS"),), together=body.together({"row": "rows"}),
    )  # fmt: skip
