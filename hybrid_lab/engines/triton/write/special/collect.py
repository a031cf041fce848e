"""Collect kernels: entries are added to rows that they select by number, as in the gradient of an embedding.

A program computes some rows. It goes through the numbers of all entries, a tile at a time, and adds the entries of its
own rows in the order in which they stand, so every run gives the same bits; atomic additions would not. The numbers are
read once by each program: 33,000 rows of 200 with 1,120 entries are 8,250 programs with two tiles each. Nothing else is
read or written twice. A row that very many entries select takes as long as they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from hybrid_lab.engines.triton.write.body import Body, Refused
from hybrid_lab.engines.triton.write.core.product import MOST_PROGRAMS
from hybrid_lab.engines.triton.write.elements import Elements
from hybrid_lab.engines.triton.write.index import ZERO, Place, linear, unravel
from hybrid_lab.engines.triton.write.source import (
    KernelSource,
    and_more,
    block_for,
    kernel_name,
    kernel_source,
    lanes,
)
from hybrid_lab.engines.triton.write.syntax import TYPES, short, wide
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.graph.passes.partition import Region
from hybrid_lab.ops.framework.kernel import Entries

#: Elements of the tile of rows, the most rows and columns of one, and numbers that are looked at together.
TILE, MOST_ROWS, COLUMNS, ENTRIES = 1024, 16, 512, 1024


class CollectBody(Body):
    """A body over `row` and `column`; `total` is the collected value after the loop."""

    def __init__(self, group: Region, anchor: Node, spec: Entries):
        super().__init__(group)
        self.anchor, self.spec = anchor, spec
        self.row = self.declare("row", prod(spec.rows), "row_inside")
        self.column = self.declare("column", prod(spec.columns), "column_inside")
        self.space = self.row.digits(spec.rows), self.column.digits(spec.columns)
        self.place = spec.place(*self.space) or (ZERO,) * len(anchor.outputs[0].shape)
        self.total = ""

    def anchored(self, value: Value, place: Place) -> str:
        if value.node is not self.anchor:
            raise Refused("an operator that collects rows beside a product or a reduction")
        self.check_place(value, place, self.place)
        if not self.total:
            raise Refused("collected rows that depend on one another")
        return self.total

    def collect(self) -> None:
        """The loop over the numbers, and in it the loop over the entries that belong to these rows."""
        spec, dtype = self.spec, TYPES[wide(self.anchor.outputs[0].dtype)]
        elements, total = Elements(self, self.anchor), self.fresh(short(self.anchor.op.name))
        rows, columns = self.space
        self.line(f"{total} = tl.zeros([ROWS, COLUMNS], {dtype})", self.anchor)
        if spec.start is not None:
            self.line(f"{total} += {spec.start(elements, rows, columns)}")
        self.open()
        place = self.declare("place", prod(spec.entries), "place_inside")
        self.line("place = start + tl.arange(0, ENTRIES)")
        self.line("place_inside = place < entries")
        number = str(spec.number(Elements(self, self.anchor), place.digits(spec.entries)))
        self.line(f"mine = place_inside & ({number} >= first_row) & ({number} < first_row + ROWS)")
        self.open()
        entry = self.declare("entry", prod(spec.entries))
        self.line("entry = tl.min(tl.where(mine, place, entries), axis=0)", "the first that is left")
        target = self.named(f"tl.sum(tl.where(place == entry, {number}, 0), axis=0)", "target")
        name = spec.entry(Elements(self, self.anchor), entry.digits(spec.entries), columns)
        if spec.last:
            self.line(f"{total} = tl.where(row == {target}, {name}, {total})")
        else:
            self.line(f"{total} += tl.where(row == {target}, {name}, {elements.literal(0)})")
        self.line("mine = mine & (place != entry)")
        self.close("for _ in range(tl.sum(mine.to(tl.int32), axis=0)):")
        self.close("for start in range(0, entries, ENTRIES):")
        self.total = total


def write_collect(group: Region, anchor: Node, spec: Entries) -> KernelSource:
    """The kernel of rows by number, of what makes its entries, and of the pointwise operators that read it."""
    if anchor.outputs[0].dtype.kind == "b":
        raise Refused("collected rows of bools")
    body = CollectBody(group, anchor, spec)
    body.collect()
    sizes = {"rows": prod(spec.rows), "columns": prod(spec.columns), "entries": prod(spec.entries)}
    where = linear(body.place, anchor.outputs[0].shape)
    for value in group.outputs:
        place = unravel(where, value.shape)
        if prod(value.shape) != prod(anchor.outputs[0].shape) or place is None:
            raise Refused("an output with another number of elements than the rows")
        body.store_tile(body.pointers[value], where, body.value(value, place), ("row", "column"))
    summary = f"{sizes['rows']:,} rows of {sizes['columns']:,} collected from {sizes['entries']:,} entries"
    summary += f"{and_more(group.nodes)}."
    width = block_for(sizes["columns"], 1, COLUMNS)
    blocks = {
        "ROWS": block_for(sizes["rows"], 1, min(MOST_ROWS, TILE // width)),
        "COLUMNS": width,
        "ENTRIES": block_for(sizes["entries"], 16, ENTRIES),
    }
    grid, head = _programs(sizes)
    return kernel_source(
        body, "collect", kernel_name(group.nodes), summary, head, sizes, blocks,
        {key: sizes[key.lower()] for key in blocks}, grid,
        together=body.together({"row": "rows", "column": "columns"}),
    )  # fmt: skip


def _programs(sizes: Mapping[str, int]) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    """The launch's grid, and the lines that say which rows and columns are a program's."""
    grid = (("rows", "ROWS"), ("columns", "COLUMNS"))
    if sizes["columns"] > MOST_PROGRAMS * COLUMNS:  # only the first axis of a launch has room for them
        grid = grid[::-1]
    number = {size: f"tl.program_id({axis})" for axis, (size, _) in enumerate(grid)}
    return grid, [
        f"first_row = {number['rows']} * ROWS",
        *lanes("row", "rows", "ROWS", "first_row + ", down=True),
        *lanes("column", "columns", "COLUMNS", f"{number['columns']} * COLUMNS + "),
    ]
