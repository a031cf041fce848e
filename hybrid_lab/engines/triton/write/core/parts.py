"""Rows that many programs share: each leaves parts of sums, and a second kernel puts the parts together.

- Few long rows are split (`write_split`): each program sums a part of a row.
- Sums along rows and down the columns of the same elements (`write_with_columns`), as the backward of a normalization
  has them: the gradient of a LayerNorm's input needs sums along the rows; the gradients of its scale and shift need
  sums down the columns. A program goes over some rows, one tile at a time: it reads a tile once, computes and stores
  the results of its rows, and adds to the sums down the columns.
"""

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
    step,
)
from hybrid_lab.engines.triton.write.index import Place, linear
from hybrid_lab.engines.triton.write.kinds import combine
from hybrid_lab.engines.triton.write.source import (
    COLUMN_LANES,
    ROW_LANES,
    KernelSource,
    ancestors,
    block_for,
    counted,
    covering,
    descendants,
    kernel_name,
    kernel_source,
    lanes,
    power_of_two,
)
from hybrid_lab.engines.triton.write.syntax import TYPES, short, wide
from hybrid_lab.graph.node import Node, Value, input_node
from hybrid_lab.graph.passes.partition import Region

#: At most PROGRAMS programs share rows with sums down their columns. Each has TILES tiles or more.
PROGRAMS, TILES = 512, 2


def write_split(group: Region) -> tuple[KernelSource, KernelSource]:
    """Two kernels: parts of rows, many programs a row, and the operators behind the sums.

    Values with an element per row and column that need no sum are stored by the first kernel, on the way.
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
    spaces = _spaces(nodes, (parts, rows))
    early = ancestors([*nodes, *(value.node for value in full)], group.nodes)
    # A mean of a variance alone, too.
    late = ancestors([*nodes, *(value.node for value in results)], group.nodes, nodes)
    first = Region(tuple(early), group.inputs, (*full, *spaces))
    second = Region(group.nodes, group.inputs, tuple(results))
    return _parts(first, group, space, spaces, tile, per_part), _put_together(second, late, space, spaces, per_part)


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


def _spaces(nodes: Sequence[Node], shape: tuple[int, int]) -> list[Value]:
    """Memory for the parts of sums, which the first kernel stores for the second."""
    return [
        input_node(f"{short(node.op.name)}_parts", shape=shape, dtype=wide(node.outputs[0].dtype)) for node in nodes
    ]


def _put_together(
    group: Region, computed: Sequence[Node], space: Rows, spaces: Sequence[Value], per_part: int, most: int = 0
) -> KernelSource:
    """The kernel that puts parts together, and computes the operators that need the whole.

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
        element = part  # of a sum: 0 if there is none
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


# -- rows, and sums down the columns of the same elements --------------------------------------------------------------


def down_columns(nodes: list[Node]) -> list[Node]:
    """The reductions of a group that go down the columns of the rows that its other reductions reduce; or []."""
    down = [node for node in nodes if Rows.of(node).across]
    along = [node for node in nodes if node not in down]
    if not down or not along or Rows.of(down[0]).counts[::-1] != Rows.of(along[0]).counts:
        return []
    return down


class _ColumnBody(RowBody):
    """A body over the rows of a program in a loop, and all columns; `down` are sums over the rows."""

    def __init__(self, group: Region, space: Rows, down: list[Node]):
        super().__init__(group, space)
        self.down = down
        self.scopes[0].variables.discard("row")
        self.fresh("part")
        self.declare("column", space.counts[1], "column_inside")

    def open(self) -> None:
        super().open()
        self.declare("row", self.space.counts[0], "row_inside")

    def anchored(self, value: Value, place: Place) -> str:
        if value.node in self.down:
            raise Refused(f"{value.node.op.name} is needed before all rows have been read")
        return super().anchored(value, place)

    def downwards(self, node: Node) -> str:
        """The element of a sum's operand at this row and column; 0 beyond the last row."""
        space = Rows.of(node)
        place = space.place(self.column, self.row)
        if linear(place, space.shape) != linear(self.space.place(self.row, self.column), self.space.shape):
            raise Refused("it sums down columns that the kernel's rows do not have")
        return f"tl.where(row_inside, {self.value(node.values_in[0], place)}, {neutral(node)})"


def write_with_columns(group: Region, down: list[Node]) -> tuple[KernelSource, KernelSource]:
    """Two kernels: rows with parts of the sums down their columns, and the operators behind the sums. Raises
    Refused.
    """
    along = [node for node in reductions(group.nodes) if node not in down]
    space = Rows.of(along[0])
    rows, columns = space.counts
    if columns > space.longest or any(combine(node) != "sum" for node in down):
        raise Refused("rows longer than a tile, with reductions down their columns")
    behind = {*down, *descendants(down, group.nodes)}
    results = [value for value in group.outputs if value.node in behind]
    if any(prod(value.shape) != columns for value in results):
        raise Refused("an output that needs sums down all rows, with other elements than columns")
    first = [value for value in group.outputs if value not in results]
    late = ancestors([value.node for value in results], group.nodes, down)
    early = ancestors([*(value.node for value in first), *down], group.nodes)
    blocks = space.tile(covering(columns, 2))
    tile = blocks["ROWS"]
    per_part = -(-max(-(-rows // PROGRAMS), TILES * tile) // tile) * tile  # rows of a program: whole tiles
    parts = -(-rows // per_part)
    if parts < 2:
        raise Refused("too few rows for more than one program")
    spaces = _spaces(down, (parts, columns))
    body = _ColumnBody(Region(group.nodes, group.inputs, (*first, *spaces)), space, down)
    _write_rows(body, first, spaces)
    blocks, warps = fitted(body, blocks)
    summary = f"{counted(early)} over {rows:,} rows of {columns:,} elements, with parts of the sums down their columns."
    head = ["part = tl.program_id(0)", *COLUMN_LANES]
    sizes = {"rows": rows, "columns": columns, "parts": parts, "per_part": per_part}
    rows_kernel = kernel_source(
        body, "rows and columns", kernel_name(early), summary, head, sizes, blocks,
        {"ROWS": blocks["ROWS"]}, (("parts", ""),),  # a larger tile would go into the next program's rows
        warps=warps, together=body.together(),
    )  # fmt: skip
    second = Region(group.nodes, group.inputs, tuple(results))
    return rows_kernel, _put_together(second, late, Rows.of(down[0]), spaces, per_part, PROGRAMS)


def _write_rows(body: _ColumnBody, first: list[Value], spaces: list[Value]) -> None:
    """The lines of the first kernel. first : outputs of the rows; spaces : memory for parts of the sums"""
    totals = {node: body.fresh(f"{short(node.op.name)}_so_far") for node in body.down}
    for node, total in totals.items():
        body.line(f"{total} = tl.full([ROWS, COLUMNS], {neutral(node)}, {TYPES[wide(node.outputs[0].dtype)]})")
    body.open()
    body.line_each(lanes("row", "rows", "ROWS", "start + ", down=True))
    body.store(first, True)
    body.store(first, False)
    for node, total in totals.items():
        body.line(step(node, total, body.downwards(node), True), node)
    body.close("for start in range(part * per_part, part * per_part + per_part, ROWS):")
    for (node, total), value in zip(totals.items(), spaces, strict=True):
        part = body.named(f"tl.sum({total}, axis=0, keep_dims=True)", short(node.op.name))
        body.line(f"tl.store({body.pointers[value]} + part * columns + column, {part}, mask=column_inside)")
