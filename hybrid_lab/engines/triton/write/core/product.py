"""Product kernels: tiles of matrix products, with operators fused into the loads of the factors and an epilogue.

Matrix products, batches of them, and convolutions with their gradients are one kind: a record's `product` says what
rows, columns and the summed axes are, and where the factors' elements lie. A convolution's factor is read at the pixels
that its window covers; nothing is gathered beforehand. If the output has too few tiles to keep a GPU busy and the
summed axis is long, many programs share a tile: each leaves a part, and a second kernel adds the parts up, always in
the same order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from hybrid_lab.engines.triton.write import tiles
from hybrid_lab.engines.triton.write.body import Body, Refused, moved_place
from hybrid_lab.engines.triton.write.elements import Elements
from hybrid_lab.engines.triton.write.index import ZERO, Place, formula, linear, unravel
from hybrid_lab.engines.triton.write.kinds import contraction_of
from hybrid_lab.engines.triton.write.reuse import choice
from hybrid_lab.engines.triton.write.source import (
    KernelSource,
    ancestors,
    and_more,
    kernel_name,
    kernel_source,
    lanes,
)
from hybrid_lab.engines.triton.write.syntax import TYPES, short, tensor, wide
from hybrid_lab.graph.node import Node, Value, input_node
from hybrid_lab.graph.passes.partition import Region
from hybrid_lab.ops.framework.dtypes import NARROW
from hybrid_lab.ops.framework.kernel import Contraction

#: Counts of a product's rows, columns, summed elements (inner) and matrices (batches).
Sizes = Mapping[str, int]

#: A launch has at most MOST_PROGRAMS programs along its second and its third axis.
MOST_PROGRAMS = 65535
#: Fewer tiles than FEW_TILES with a summed axis of SPLIT or more are shared by programs: about BUSY of them, at most
#: MOST_PARTS a tile, each with PART or more to sum.
FEW_TILES, SPLIT, BUSY, MOST_PARTS, PART = 128, 1024, 256, 64, 256
#: With more tiles than NEAR along both axes, programs go through NEAR columns of tiles together, so that their operands
#: stay in the cache.
NEAR = 8
#: The tile of the kernel that adds parts up, for results of all sizes.
TOTAL_ROWS, TOTAL_COLUMNS = 16, 64
#: Operators that are worth computing again for each tile that reads them: a load from memory costs more.
CHEAP = frozenset((
    "broadcast_add", "broadcast_sub", "broadcast_mul", "broadcast_maximum", "broadcast_minimum", "negative", "abs",
    "square", "relu", "clip", "where", "Cast", "_cast_like", "_masked_scale", "_relu_grad", "identity",
    "broadcast_equal", "broadcast_not_equal", "broadcast_greater", "broadcast_greater_equal", "broadcast_lesser",
    "broadcast_lesser_equal",
))  # fmt: skip
#: Operators that are fused into the loads of one product, at most.
MOST_CHEAP = 6


def sizes_of(product: Contraction) -> dict[str, int]:
    axes = {"rows": product.rows, "columns": product.columns, "inner": product.inner, "batches": product.batch}
    return {name: prod(sizes) for name, sizes in axes.items()}


def described(sizes: Sizes) -> str:
    """`A product of 64 x 800 and 800 x 500`."""
    kind = f"{sizes['batches']:,} products" if sizes["batches"] > 1 else "A product"
    return f"{kind} of {sizes['rows']:,} x {sizes['inner']:,} and {sizes['inner']:,} x {sizes['columns']:,}"


# -- load fusion: operators that are computed while a tile of a factor is loaded ---------------------------------------


def no_load_fusion(node: Node, group: Sequence[Node], product: Node, stored: bool) -> str:
    """Why a factor's operator stays outside of the product's kernel; "" if it may be computed tile by tile.

    stored : whether another kernel reads it, so that it is in memory anyway
    """
    if stored:
        return "this factor is read elsewhere, too, so it is in memory"
    if node.op.name not in CHEAP:
        return f"{node.op.name} would be computed again for each tile that reads it"
    if sum(other.op.name in CHEAP and not other.op.view for other in operators_before(product, group)) >= MOST_CHEAP:
        return f"{MOST_CHEAP} operators are computed for each tile already"
    read, result = sum(value.nbytes for value in node.values_in), node.outputs[0].nbytes
    if _times(product) * (read - result) > read + result:
        return "its operands, larger than its result, would be read again for each tile"
    return ""


def operators_before(product: Node, group: Sequence[Node]) -> set[Node]:
    """The operators of a group that the product's factors are computed of."""
    return {*ancestors([product], group)} - {product}


def _times(product: Node) -> int:
    """How often a factor is read, at most: once for each tile along the other factor's axis."""
    contraction = contraction_of(product)
    assert contraction is not None
    sizes = sizes_of(contraction)
    blocks, _ = tiles.for_product(**sizes, exact=True)
    return max(-(-sizes["rows"] // blocks["ROWS"]), -(-sizes["columns"] // blocks["COLUMNS"]))


# -- factors: read where they lie, or computed while their tile is loaded ----------------------------------------------


def multiplied(left: str, right: str, precision: str, dtype: np.dtype[Any], total: str = "") -> str:
    """The product of two tiles, onto `total`, as an expression. dtype : of the factors"""
    arguments = [left, right, *([total] if total else []), f'input_precision="{precision}"']
    if dtype == np.float64:  # up to Triton 3.6 the default for float64 is another
        arguments.append("out_dtype=tl.float64")
    return f"tl.dot({', '.join(arguments)})"


def factors(body: Body, node: Node, outer: str, inner: str, tile: str) -> Elements:
    """Elements for a record's `product`, in its loop: an input is read as a complete tile in its own dtype, with 0 for
    elements that add nothing.

    outer, inner : names of the variables of the tile, inner the summed one; tile : its shape, as kernels print it
    """

    def read(number: int, place: Place, guard: str) -> str:
        value, dtype = node.inputs[number], node.inputs[number].dtype
        while value.node in body.nodes and (moved := moved_place(value.node, value.index, place, body)) is not None:
            value, place = value.node.values_in[0], moved
        if value.node in body.nodes:
            name = tensor(body.value(value, place, guard), dtype)
            # Beyond the borders the inputs are 0, but a value that the body computes from 0 may be another number.
            inside = " & ".join(item for item in (body.masks[outer], body.masks[inner], guard) if item)
            text = f"tl.where({body.named_if_long(inside, 'there')}, {name}, 0.0)"
            return elements.named(f"{text}.to({TYPES[dtype.name]})" if dtype.name in NARROW else text, "factor")
        body.widens = False
        name = tensor(body.value(value, place, guard), dtype)
        body.widens = True
        moving = linear(place, value.shape).variables
        # The load applies the ends of axes along which it moves, and conditions on these axes alone.
        unknown = [] if inner in moving else [body.masks[inner]]
        unknown += body.without(guard, moving)
        if unknown:
            name = f"tl.where({' & '.join(unknown)}, {name}, 0.0)"
        return name if {outer, inner}.issubset(moving) else f"tl.broadcast_to({name}, {tile})"

    elements = Elements(body, node, reads=read)
    return elements


# -- the kernels -------------------------------------------------------------------------------------------------------


class ProductBody(Body):
    """A body over `row` and `column` of one batch's product; `total` is its sum, once the loop has run.

    precision : how float32 factors are multiplied, "ieee" or "tf32"
    """

    def __init__(self, group: Region, anchor: Node, precision: str = "ieee"):
        super().__init__(group)
        product = contraction_of(anchor)
        assert product is not None
        self.anchor, self.product, self.precision = anchor, product, precision
        self.fresh("part")
        self.lengths = {"row": "rows", "column": "columns", "across": "inner", "down": "inner"}
        self.batch = self.declare("batch", prod(product.batch))
        self.row = self.declare("row", prod(product.rows), "row_inside")
        self.column = self.declare("column", prod(product.columns), "column_inside")
        rows, columns = self.row.digits(product.rows), self.column.digits(product.columns)
        self.space = (self.batch.digits(product.batch), rows, columns)
        self.place = product.place(*self.space) or (ZERO,) * len(anchor.outputs[0].shape)
        self.total = ""

    def anchored(self, value: Value, place: Place) -> str:
        if value.node is not self.anchor:
            raise Refused("a second product or reduction")
        if not self.total:
            raise Refused("a product that reads its own result")
        self.check_place(value, place, self.place)
        return self.total

    def sum(self, first: str = "0", end: str = "inner") -> None:
        """The loop over the summed axes, from `first` to `end`."""
        node, product = self.anchor, self.product
        total = self.fresh(short(node.op.name))
        batch, rows, columns = self.space
        self.line(f"{total} = tl.zeros([ROWS, COLUMNS], {TYPES[wide(node.outputs[0].dtype)]})", node)
        self.open()
        across = self.declare("across", prod(product.inner), "across_inside")
        down = self.declare("down", prod(product.inner), "down_inside")
        self.line_each(lanes("across", end, "INNER", "start + "))
        self.line_each(lanes("down", end, "INNER", "start + ", down=True))
        left = factors(self, node, "row", "across", "[ROWS, INNER]")
        right = factors(self, node, "column", "down", "[INNER, COLUMNS]")
        a = product.left(left, batch, rows, across.digits(product.inner))
        b = product.right(right, batch, down.digits(product.inner), columns)
        self.line(f"{total} = {multiplied(a, b, self.precision, node.outputs[0].dtype, total)}")
        self.close(f"for start in range({first}, {end}, INNER):")
        self.total = total

    def sum_parts(self, parts: Value) -> None:
        """The sum of the parts that the programs of a tile have left."""
        self.total = self.fresh(short(self.anchor.op.name))
        self.line(f"{self.total} = tl.zeros([ROWS, COLUMNS], {TYPES[parts.dtype.name]})", self.anchor)
        many = prod(self.product.batch) > 1
        plane = "(part * batches + batch)" if many else "part"
        self.line("for part in range(0, parts):")
        where = f"({plane} * rows + row) * columns + column"
        self.runs_along(self.column, parts.dtype)
        load = f"tl.load({self.pointer(parts)} + {where}, mask=row_inside & column_inside, other=0)"
        self.line(f"    {self.total} += {load}")

    def finish(self, stored: Collection[Value] = ()) -> None:
        """Scale, bias and epilogue, and the stores. stored : outputs that are stored already"""
        product, elements = self.product, Elements(self, self.anchor)
        if product.scale != 1:
            self.line(f"{self.total} *= {elements.literal(product.scale)}")
        if product.bias is not None:
            self.line(f"{self.total} += {product.bias(elements, *self.space)}")
        shape = self.anchor.outputs[0].shape
        where = linear(self.place, shape)
        for value in [value for value in self.pointers if value not in stored]:
            place = unravel(where, value.shape)
            if prod(value.shape) != prod(shape) or place is None:
                raise Refused("an output with another number of elements than the product")
            self.runs_along(where, value.dtype)
            number = formula(where, self.lengths)
            self.store_tile(self.pointers[value], where, self.value(value, place), ("row", "column"), number)


def write_product(group: Region, anchor: Node, precision: str = "ieee") -> tuple[KernelSource, ...]:
    """The kernels of a product and of the pointwise operators around it: one, or two if programs share a tile."""
    product = contraction_of(anchor)
    assert product is not None
    sizes = sizes_of(product)
    chosen = tiles.for_product(**sizes, exact=is_exact(anchor, precision))
    parts = count_parts(sizes, chosen[0])
    if sizes["batches"] * parts > MOST_PROGRAMS:
        raise Refused(f"more than {MOST_PROGRAMS} products")
    if parts <= 1:
        return (_whole(group, anchor, sizes, chosen, precision),)
    shape = (parts, sizes["batches"], sizes["rows"], sizes["columns"])
    left = input_node(f"{short(anchor.op.name)}_parts", shape=shape, dtype=wide(anchor.outputs[0].dtype))
    return _parts(group, anchor, sizes, chosen, precision, left), _total(group, anchor, sizes, left)


def is_exact(node: Node, precision: str) -> bool:
    """Whether the factors are multiplied without tensor cores."""
    dtype = node.outputs[0].dtype.name
    return dtype == "float64" or (dtype == "float32" and precision == "ieee")


def count_parts(sizes: Sizes, blocks: Mapping[str, int]) -> int:
    """How many programs share a tile."""
    count = prod(-(-sizes[name.lower()] // blocks[name]) for name in ("ROWS", "COLUMNS")) * sizes["batches"]
    return max(2, min(-(-BUSY // count), sizes["inner"] // PART, MOST_PARTS)) if _is_shared(sizes, count) else 1


@choice
def _is_shared(sizes: Sizes, count: int) -> bool:
    """Whether the tiles are few and the sums long enough for several programs to share a tile. count : of the tiles"""
    return sizes["inner"] >= SPLIT and count < FEW_TILES


def _whole(group: Region, anchor: Node, sizes: Sizes, chosen: tiles.Tiles, precision: str) -> KernelSource:
    body = ProductBody(group, anchor, precision)
    body.sum()
    body.finish()
    summary = f"{described(sizes)}{and_more(group.nodes)}."
    return _source(body, kernel_name(group.nodes), summary, "product", sizes, chosen)


def _parts(group: Region, anchor: Node, sizes: Sizes, chosen: tiles.Tiles, precision: str, left: Value) -> KernelSource:
    """The kernel that leaves a part for each program of a tile."""
    body = ProductBody(Region(group.nodes, group.inputs, (left,)), anchor, precision)
    parts = left.shape[0]
    body.line("first = part * per_part")
    body.line("end = tl.minimum(first + per_part, inner)")
    body.sum("first", "end")
    plane = "(part * batches + batch)" if sizes["batches"] > 1 else "part"
    where = f"{body.pointers[left]} + ({plane} * rows + row) * columns + column"
    body.runs_along(body.column, left.dtype)
    body.line(f"tl.store({where}, {body.total}, mask=row_inside & column_inside)")
    step = chosen[0]["INNER"]
    per_part = -(-sizes["inner"] // (parts * step)) * step
    first = operators_before(anchor, group.nodes)
    computed = [node for node in group.nodes if node in first or node is anchor]
    return _source(
        body, f"{kernel_name(computed)}_parts",
        f"{described(sizes)}{and_more(computed)}, in {parts:,} parts.", "parts of a product", sizes, chosen,
        {"parts": parts, "per_part": per_part},
    )  # fmt: skip


def _total(group: Region, anchor: Node, sizes: Sizes, left: Value) -> KernelSource:
    """The kernel that adds the parts up, and computes the operators behind the result."""
    body = ProductBody(group, anchor)
    body.sum_parts(left)
    body.finish()
    blocks = {"ROWS": TOTAL_ROWS, "COLUMNS": TOTAL_COLUMNS}
    first = operators_before(anchor, group.nodes)
    computed = [node for node in group.nodes if node not in first]
    summary = f"The sum of {left.shape[0]:,} parts of {sizes['rows']:,} x {sizes['columns']:,}{and_more(computed)}."
    return _source(
        body, kernel_name(computed), summary, "product of parts", sizes, (blocks, 4),
        {"parts": left.shape[0]},
    )  # fmt: skip


def _source(
    body: ProductBody, name: str, summary: str, kind: str, sizes: Sizes, chosen: tiles.Tiles,
    more: dict[str, int] | None = None,
) -> KernelSource:  # fmt: skip
    """The text of a kernel over tiles of rows and columns, and how it is launched."""
    more, (blocks, warps) = more or {}, chosen
    grid, head = _programs(sizes, blocks, "per_part" in more)
    numbers = {**sizes, **more}
    if "per_part" in more:
        numbers["planes"] = sizes["batches"] * more["parts"]
    return kernel_source(
        body, kind, name, summary, head, numbers, blocks,
        {key: numbers[key.lower()] for key in blocks}, grid, warps=warps,
        together=body.together() | (body.together({"across": "per_part"}) if "per_part" in more else {}),
    )  # fmt: skip


@choice
def _is_swizzled(sizes: Sizes, blocks: Mapping[str, int], axes: Sequence[tuple[str, str]]) -> bool:
    return all(sizes[size] > NEAR * blocks[block] for size, block in axes)


def _programs(sizes: Sizes, blocks: Mapping[str, int], parts: bool) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    """The launch's grid, and the lines that say which tile is a program's."""
    axes = (("rows", "ROWS"), ("columns", "COLUMNS"))
    if sizes["columns"] > MOST_PROGRAMS * tiles.LEAST:  # only the first axis of a launch has room for them
        axes = axes[::-1]
    number = {size: f"tl.program_id({axis})" for axis, (size, _) in enumerate(axes)}
    head = []
    if _is_swizzled(sizes, blocks, axes):
        names = [f"{size.removesuffix('s')}_tile" for size, _ in axes]
        head = [f"{names[1]}, {names[0]} = tl.swizzle2d(", "    tl.program_id(1), tl.program_id(0), "
                f"tl.num_programs(1), tl.num_programs(0), {NEAR}", ")"]  # fmt: skip
        number = {size: name for (size, _), name in zip(axes, names, strict=True)}
    head += [
        *lanes("row", "rows", "ROWS", f"{number['rows']} * ROWS + ", down=True),
        *lanes("column", "columns", "COLUMNS", f"{number['columns']} * COLUMNS + "),
    ]
    if parts and sizes["batches"] > 1:
        head += ["batch = tl.program_id(2) % batches", "part = tl.program_id(2) // batches"]
    elif parts:
        head += ["part = tl.program_id(2)"]
    elif sizes["batches"] > 1:
        head += ["batch = tl.program_id(2)"]
    return (*axes, ("planes" if parts else "batches", "")), head
