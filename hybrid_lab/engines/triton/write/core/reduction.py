"""Row kernels: reductions, with the operators before and behind them; a program computes a tile of rows.

The axes that a reduction keeps count together as rows, the reduced axes as columns. Rows of a few thousand elements fit
one tile. Longer rows are read in loops, one for each level of reductions: first the reductions of elements, then the
reductions that need a result of the first, then the stored elements. Mean and variance, and maximum and sum of a
softmax, take one loop (one_pass.py). Few long rows are split: many programs each store a part, and a second kernel
combines the parts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from hybrid_lab.engines.triton.write.body import Body, Refused, Scope
from hybrid_lab.engines.triton.write.core.one_pass import (
    Exponentials,
    Pair,
    Squares,
    centre_of,
    named_total,
    pair_of,
)
from hybrid_lab.engines.triton.write.core.pointwise import MANY
from hybrid_lab.engines.triton.write.index import Index, Place, formula, linear, unravel, variable
from hybrid_lab.engines.triton.write.kinds import combine, is_reduction
from hybrid_lab.engines.triton.write.reuse import choice
from hybrid_lab.engines.triton.write.source import (
    COLUMN_LANES,
    ROW_LANES,
    KernelSource,
    block_for,
    counted,
    covering,
    kernel_name,
    kernel_source,
    lanes,
    power_of_two,
)
from hybrid_lab.engines.triton.write.syntax import TYPES, short, wide
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.graph.passes.partition import Region
from hybrid_lab.ops.framework.dtypes import is_floating

#: Rows up to this length are one tile; longer rows are read in a loop, COLUMNS elements at a time.
ONE_TILE, COLUMNS = 4096, 1024
#: Elements of a tile, rows times columns, that a program works on.
TILE = 2048
#: Values that a tile loads, at most: 64 for each of the threads of 8 warps; up to a half of it has 4 warps.
MOST_VALUES = 1 << 14
#: The least rows of a tile if neighbours in memory are in different rows: the elements of one memory transfer.
NEIGHBOURS = 16
#: Rows longer than SPLIT (SPLIT_ACROSS for rows across memory) that fall to fewer than FEW programs do not keep a GPU
#: busy: their columns are divided among about BUSY programs, at most MOST_PARTS for a row, each with PART columns or
#: more, or as many elements across memory.
FEW, SPLIT, SPLIT_ACROSS, PART, MOST_PARTS, BUSY = 128, 4096, 512, 1024, 256, 2048


@dataclass(frozen=True)
class Rows:
    """A shape as rows and columns. axes : the reduced axes, together the columns; the remaining axes are the rows"""

    shape: tuple[int, ...]
    axes: tuple[int, ...]

    @staticmethod
    def of(node: Node) -> Rows:
        """The rows and columns of a reduction's operand."""
        shape = node.values_in[0].shape
        return Rows(shape, tuple(node.op.axes(len(shape))))  # type: ignore[attr-defined]

    @staticmethod
    def between(whole: tuple[int, ...], kept: tuple[int, ...]) -> Rows | None:
        """Rows and columns of `whole`, if `kept` has one element for each row: size 1 along the columns; else None."""
        if len(whole) != len(kept) or any(size not in (1, other) for size, other in zip(kept, whole, strict=True)):
            return None
        return Rows(whole, tuple(axis for axis, size in enumerate(kept) if size != whole[axis]))

    @property
    def kept(self) -> tuple[int, ...]:
        return tuple(size for axis, size in enumerate(self.shape) if axis not in self.axes)

    @property
    def reduced(self) -> tuple[int, ...]:
        return tuple(size for axis, size in enumerate(self.shape) if axis in self.axes)

    @property
    def counts(self) -> tuple[int, int]:
        """(rows, columns)."""
        return prod(self.kept), prod(self.reduced)

    @property
    def across(self) -> bool:
        """Whether neighbours in memory are in different rows."""
        return next((axis for axis in reversed(range(len(self.shape))) if self.shape[axis] > 1), 0) not in self.axes

    def tile(self, width: int, many: bool = False) -> dict[str, int]:
        """The blocks of a tile. width : its columns, 0 if it goes along the columns in a loop

        many : whether there are many loads, for which a quarter of a tile is enough
        """
        tile, columns = (TILE // 4, max(COLUMNS // 2, 1)) if many else (TILE, COLUMNS)
        width = width or self._loop_width(columns)
        most = max(1, tile // width)
        if self.across and width * NEIGHBOURS <= 4 * tile:
            most = max(most, NEIGHBOURS)
        return {"ROWS": block_for(self.counts[0], 1, most), "COLUMNS": width}

    @choice
    def _loop_width(self, columns: int) -> int:
        return max(columns * 2 // NEIGHBOURS, 1) if self.across and self.counts[0] >= NEIGHBOURS else columns

    @property
    @choice
    def longest(self) -> int:
        """How many columns one tile may have: fewer if it needs several rows, and is to fit into registers."""
        return min(ONE_TILE, 4 * TILE // power_of_two(self.counts[0], 1, NEIGHBOURS)) if self.across else ONE_TILE

    def place(self, row: Index, column: Index) -> Place:
        """The place of the element of a row and a column."""
        rows, columns = iter(row.digits(self.kept)), iter(column.digits(self.reduced))
        return tuple(next(columns) if axis in self.axes else next(rows) for axis in range(len(self.shape)))


@choice
def is_split(rows: Rows) -> bool:
    """Whether rows are few and long enough to divide their columns among programs."""
    count, columns = rows.counts
    least = min(SPLIT, SPLIT_ACROSS) if rows.across else SPLIT
    return columns > least and -(-count // rows.tile(0)["ROWS"]) < FEW


def reductions(nodes: Sequence[Node]) -> list[Node]:
    return [node for node in nodes if is_reduction(node)]


def rows_of(group: Region) -> Rows:
    """The rows of a group's reductions; without reductions, of its outputs. Raises Refused."""
    if reduced := reductions(group.nodes):
        return Rows.of(reduced[0])
    shapes = sorted((value.shape for value in group.outputs), key=prod)
    rows = Rows.between(shapes[-1], shapes[0])
    if rows is None:
        raise Refused("outputs of several sizes")
    return rows


def levels(nodes: Sequence[Node]) -> dict[Node, int]:
    """How many loops over reductions a node needs before it, its own included; a pair that goes in one pass has one."""
    inside, level = set(nodes), dict[Node, int]()
    for node in nodes:
        before = max((level[value.node] for value in node.values_in if value.node in inside), default=0)
        level[node] = before + is_reduction(node)
        if is_reduction(node) and (pair := pair_of(node, inside)) is not None:
            level[node] = level[pair.first]
    return level


class RowBody(Body):
    """A body over `row` and `column`. reduce : writes a reduction's lines and names its result"""

    def __init__(self, group: Region, space: Rows):
        super().__init__(group)
        self.space = space
        rows, columns = space.counts
        self.counts = [(columns, "columns")]
        self.lengths = {"row": "rows", "column": "columns"}
        self.row = self.declare("row", rows, "row_inside")
        self.column = variable("column", columns)
        self.results: dict[Node, str] = {}
        self.reduce: Callable[[Node], str] = self.whole_row
        self._loops: dict[Value, set[Scope]] = {}

    @property
    def passes(self) -> dict[Value, int]:
        """How many loops read an element per row and column of these inputs, if there are several."""
        return {value: len(loops) for value, loops in self._loops.items() if len(loops) > 1}

    def _load(self, value: Value, place: Place, guard: str, scope: Scope) -> str:
        if scope is not self.scopes[0] and "row" in linear(place, value.shape).variables:
            self._loops.setdefault(value, set()).add(scope)
        return super()._load(value, place, guard, scope)

    def runs_along(self, where: Index, dtype: np.dtype) -> None:
        if {*self.row.variables, *self.column.variables}.issubset(where.variables):
            # other values have one element per row, or per column: little in comparison
            super().runs_along(where, dtype)

    def anchored(self, value: Value, place: Place) -> str:
        if not is_reduction(value.node):
            raise Refused("a product and a reduction")
        if linear(place, value.shape) != self.row:
            raise Refused(f"{value.node.op.name} is read at other rows than the kernel's")
        if value.node not in self.results:
            self.results[value.node] = self.reduce(value.node)
        return self.results[value.node]

    def operand_of(self, node: Node) -> str:
        """The element of a reduction's operand at this row and column, neutral beyond the last column."""
        space = Rows.of(node)
        if space.counts != self.space.counts:
            raise Refused("reductions of other rows")
        data = node.values_in[0]
        place = space.place(self.row, self.column)
        element = self.value(data, place)
        loaded = data.node not in self.nodes and "column" in linear(place, data.shape).variables
        if loaded and combine(node) == "sum" and is_floating(data.dtype):  # it is 0 there already
            return element
        return f"tl.where(column_inside, {element}, {neutral(node)})"

    def whole_row(self, node: Node) -> str:
        """A reduction of rows that are one tile."""
        element, only = self.operand_of(node), self.only_subtracted(node)
        if combine(node) != "sum" and not only:
            element = self.named(element, "element")
        return self.named(combined(node, element, only), short(node.op.name), node)

    def only_subtracted(self, node: Node) -> bool:
        """Whether a maximum is only taken from its own elements, as softmax does: a NaN then stays one by itself."""
        (value,), operand = node.outputs, node.inputs[0]
        readers = [reader for reader in self.nodes if value in reader.values_in]
        return (
            value not in self.pointers
            and bool(readers)
            and all(reader.op.name == "broadcast_sub" and reader.inputs == (operand, value) for reader in readers)
        )

    def store(self, values: Sequence[Value], full: bool) -> None:
        """Store the outputs with an element per row and column (`full`), or the outputs with an element per row."""
        for value in values:
            if self.is_full(value) != full:
                continue
            where = linear(self.space.place(self.row, self.column), self.space.shape) if full else self.row
            place = unravel(where, value.shape)
            if place is None:
                raise Refused("an output whose elements lie in another order")
            self.runs_along(where, value.dtype)
            number = self.named_if_long(formula(where, self.lengths), "at")
            address, mask = (number, "row_inside & column_inside") if full else ("row", "row_inside")
            self.line(f"tl.store({self.pointers[value]} + {address}, {self.value(value, place)}, mask={mask})")

    def is_full(self, value: Value) -> bool:
        """Whether an output has an element per row and column. Raises Refused if it has not one per row either."""
        rows, columns = self.space.counts
        size = prod(value.shape)
        if size not in (rows, rows * columns):
            raise Refused("an output with neither one element per row nor one per row and column")
        return size != rows


def write_rows(group: Region) -> KernelSource:
    """The kernel of a group with reductions, or only with outputs of both sizes; its rows in one tile or in a loop."""
    space = rows_of(group)
    looped = _is_long(space)
    source, loads = _rows(group, looped)
    if not looped and loads > MANY and _is_long(space, TILE // 4):
        with contextlib.suppress(Refused):
            return _rows(group, True)[0]
    return source


@choice
def _is_long(space: Rows, most: int | None = None) -> bool:
    """Whether a row has more columns than one tile should have."""
    return space.counts[1] > (space.longest if most is None else most)


def fitted(body: RowBody, blocks: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """The blocks, with few enough rows that the values loaded for a tile fit into registers, and the warps of a
    program.
    """
    tile, values = dict(blocks), max(*body.loads, 1) * prod(blocks.values())
    while values > MOST_VALUES and tile["ROWS"] > (NEIGHBOURS if body.space.across else 1):
        tile["ROWS"], values = tile["ROWS"] // 2, values // 2
    return tile, 8 if values > MOST_VALUES // 2 or prod(tile.values()) > 4096 else 4


def _rows(group: Region, looped: bool) -> tuple[KernelSource, int]:
    """The kernel, and how many values it loads for a row and a column."""
    space = rows_of(group)
    body = RowBody(group, space)
    rows, columns = space.counts
    if looped:
        _in_a_loop(body, group)
    else:
        body.declare("column", body.space.counts[1], "column_inside")
        body.store(group.outputs, True)
        body.store(group.outputs, False)
    head = ROW_LANES if looped else [*ROW_LANES, *COLUMN_LANES]
    summary = f"{counted(group.nodes)} over {rows:,} rows of {columns:,} elements{', in a loop' * looped}."
    blocks, warps = fitted(body, space.tile(0 if looped else covering(columns, 2), max(body.loads) > MANY))
    source = kernel_source(
        body, "rows in a loop" if looped else "rows", kernel_name(group.nodes), summary, head,
        {"rows": rows, "columns": columns}, blocks, {"ROWS": rows}, (("rows", "ROWS"),), warps=warps,
        passes=body.passes, together=body.together(),
    )  # fmt: skip
    return source, max(body.loads)


_LOOP = "for start in range(0, columns, COLUMNS):"


def _in_a_loop(body: RowBody, group: Region) -> None:
    """One loop per level of reductions, and one for the elements that are stored."""
    level = levels(group.nodes)
    for number in sorted({level[node] for node in reductions(group.nodes)}):
        accumulate(body, [node for node in reductions(group.nodes) if level[node] == number], _LOOP)
    if any(map(body.is_full, group.outputs)):
        begin_loop(body)
        body.store(group.outputs, True)
        body.close(_LOOP)
    body.store(group.outputs, False)


def begin_loop(body: RowBody) -> None:
    body.open()
    body.declare("column", body.space.counts[1], "column_inside")
    body.line_each(lanes("column", "columns", "COLUMNS", "start + "))


def accumulate(body: RowBody, nodes: Sequence[Node], loop: str, part: str = "", stored: Sequence[Value] = ()) -> None:
    """Tiles of partial results, added to in a loop, and then the results of the rows.

    part : if the loop goes over a part of each row, the number of elements of the part
    stored : values with an element per row and column, which are stored on the way
    """
    one_pass = [pair for node in nodes if (pair := pair_of(node, body.nodes)) is not None and pair.first in nodes]
    pairs: dict[Pair, Squares | Exponentials] = {}
    for pair in one_pass:
        finite = body.only_subtracted(pair.first)
        pairs[pair] = Squares(body, pair) if pair.squares else Exponentials(body, pair, finite)
    largest = {pair.first: lines.largest for pair, lines in pairs.items() if isinstance(lines, Exponentials)}
    plain = [node for node in nodes if node not in largest and all(node is not pair.second for pair in one_pass)]
    totals = {node: body.fresh(f"{short(node.op.name)}_so_far") for node in plain}
    for node, total in totals.items():
        dtype = TYPES[wide(node.outputs[0].dtype)]
        body.line(f"{total} = tl.full([ROWS, COLUMNS], {neutral(node)}, {dtype})")
    begin_loop(body)
    body.reduce = _too_early
    for node, total in totals.items():
        body.line(step(node, total, body.operand_of(node), body.only_subtracted(node)))
    for pair, lines in pairs.items():
        lines.step(body.value(pair.data, Rows.of(pair.second).place(body.row, body.column)))
    body.store(stored, True)
    body.close(loop)
    for node, total in {**totals, **largest}.items():
        text = combined(node, total, body.only_subtracted(node))
        body.results[node] = body.named(text, short(node.op.name), node)
    for pair, lines in pairs.items():
        first = body.results[pair.first]
        if isinstance(lines, Exponentials):
            text = lines.part(first) if part else lines.total(first)
        else:
            text = lines.total(body.named(f"{first} / {part}", "part_mean") if part else centre_of(body, pair))
        named_total(body, pair, text)


def _too_early(node: Node) -> str:
    raise Refused(f"{node.op.name} is needed before its loop has run")


def neutral(node: Node) -> str:
    dtype = node.outputs[0].dtype
    if combine(node) in ("sum", "prod"):
        number = "0" if combine(node) == "sum" else "1"
        return number if dtype.kind in "iu" else f"{number}.0"
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return str(limits.min if combine(node) == "max" else limits.max)
    return f'float("{"-" if combine(node) == "max" else ""}inf")'


def step(node: Node, total: str, element: str, finite: bool) -> str:
    if combine(node) in ("sum", "prod"):
        return f"{total} {'+' if combine(node) == 'sum' else '*'}= {element}"
    which = {"max": "tl.maximum", "min": "tl.minimum"}[str(combine(node))]
    return f"{total} = {which}({total}, {element}{'' if finite else ', propagate_nan=tl.PropagateNan.ALL'})"


def combined(node: Node, element: str, finite: bool = False) -> str:
    """The reduction over the columns of a tile; of numbers with a NaN the largest is NaN, as in NumPy.

    finite : a NaN need not be looked for
    """
    dtype = node.outputs[0].dtype
    text = f"tl.{combine(node)}({element}, axis=1, keep_dims=True)"
    if combine(node) == "prod":
        text = f"tl.reduce({element}, 1, multiplied, keep_dims=True)"
    elif combine(node) != "sum" and is_floating(dtype) and not finite:
        odd = f"tl.max(({element} != {element}).to(tl.int32), axis=1, keep_dims=True) > 0"
        return f'tl.where({odd}, float("nan"), {text})'
    return f"{text}.to({TYPES[dtype.name]})" if dtype.kind in "iu" else text
