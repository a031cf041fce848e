"""Row kernels that also sum down the columns of the same elements, as the backward of a normalization does.

The gradient of a LayerNorm's input needs sums along the rows, those of its scale and shift sums down the columns, and
all are of the same elements. A program goes over some rows, one tile at a time: it reads them once, computes and stores
what the rows give, and adds up what goes down the columns. Each leaves a part of those sums, and a second kernel puts
the parts together.
"""

from __future__ import annotations

from math import prod

from hybrid_lab.engines.triton.write.body import Refused
from hybrid_lab.engines.triton.write.core.reduction import (
    RowBody,
    Rows,
    fitted,
    neutral,
    reductions,
    step,
)
from hybrid_lab.engines.triton.write.core.split_rows import put_together
from hybrid_lab.engines.triton.write.index import Place, linear
from hybrid_lab.engines.triton.write.kinds import combine
from hybrid_lab.engines.triton.write.source import (
    COLUMN_LANES,
    KernelSource,
    ancestors,
    counted,
    covering,
    descendants,
    kernel_name,
    kernel_source,
    lanes,
)
from hybrid_lab.engines.triton.write.words import TYPES, short, wide
from hybrid_lab.graph.node import Node, Value, input_node
from hybrid_lab.graph.partition import Region

#: So many programs share the rows, at most. Each has TILES tiles or more.
PROGRAMS, TILES = 512, 2
_LOOP = "for start in range(part * per_part, part * per_part + per_part, ROWS):"


def down_columns(nodes: list[Node]) -> list[Node]:
    """Those of a group's reductions that go down the columns of the rows that the others reduce; [] where none do."""
    down = [node for node in nodes if Rows.of(node).across]
    along = [node for node in nodes if node not in down]
    if not down or not along or Rows.of(down[0]).counts[::-1] != Rows.of(along[0]).counts:
        return []
    return down


class _Body(RowBody):
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
            raise Refused("sums down other columns than those of the kernel's rows")
        return f"tl.where(row_inside, {self.value(node.values_in[0], place)}, {neutral(node)})"


def write_with_columns(group: Region, down: list[Node]) -> tuple[KernelSource, KernelSource]:
    """Two kernels: rows with parts of the sums down their columns, and what is made of the parts. Raises Refused."""
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
    per_part = _per_part(rows, blocks["ROWS"])
    parts = -(-rows // per_part)
    if parts < 2:
        raise Refused("so few rows that one program computes all of them")
    spaces = [
        input_node(f"{short(node.op.name)}_parts", shape=(parts, columns), dtype=wide(node.outputs[0].dtype))
        for node in down
    ]
    body = _Body(Region(group.nodes, group.inputs, (*first, *spaces)), space, down)
    _write(body, first, spaces)
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
    return rows_kernel, put_together(second, late, Rows.of(down[0]), spaces, per_part, PROGRAMS)


def _per_part(rows: int, tile: int) -> int:
    """How many rows a program goes over: a number of whole tiles."""
    return -(-max(-(-rows // PROGRAMS), TILES * tile) // tile) * tile


def _write(body: _Body, first: list[Value], spaces: list[Value]) -> None:
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
    body.close(_LOOP)
    for (node, total), value in zip(totals.items(), spaces, strict=True):
        part = body.named(f"tl.sum({total}, axis=0, keep_dims=True)", short(node.op.name))
        body.line(f"tl.store({body.pointers[value]} + part * columns + column, {part}, mask=column_inside)")
