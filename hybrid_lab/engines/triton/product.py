"""Product kernels: tiles of matrix products, with what is made of the result before it is stored.

Matrix products, batches of them, and convolutions with their gradients are one kind: a record's `product` says what
rows, columns and the summed axes are, and where the factors' elements lie. A convolution's factor is read at the pixels
that its window covers; nothing is gathered beforehand.
"""

from __future__ import annotations

from math import prod

from hybrid_lab.engines.triton.body import TYPES, Body, Elements, Place, Refused, comment, short, wide
from hybrid_lab.engines.triton.index import ZERO, Variable, linear, unravel
from hybrid_lab.engines.triton.source import KernelSource, function, kernel_name, output_pointers, power_of_two
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.graph.partition import Region
from hybrid_lab.ops.operator import Operator
from hybrid_lab.ops.product import Product

#: Tiles of the output and of the summed axis; tensor cores want at least 16 of each.
ROWS, COLUMNS, INNER, LEAST = 64, 64, 32, 16
#: A launch has at most so many programs along its third axis.
MOST_BATCHES = 65535

_HEAD = """\
row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
row_inside = row < rows
column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
column_inside = column < columns"""


def is_product(node: Node) -> bool:
    return type(node.op).product is not Operator.product


def product_of(node: Node) -> Product:
    """What the record says for the node's shapes."""
    return node.op.product(*(item.shape for item in node.values_in))


class ProductBody(Body):
    """A body over `row` and `column` of one batch's product; `total` is its sum, once the loop has run."""

    def __init__(self, group: Region, anchor: Node):
        super().__init__(group.nodes)
        self.anchor, self.product = anchor, product_of(anchor)
        product = self.product
        for name in ("rows", "columns", "inner", "batches", "ROWS", "COLUMNS", "INNER", "start"):
            self.fresh(name)
        self.pointers = dict(zip(group.outputs, output_pointers(self, len(group.outputs)), strict=True))
        self.batch = self.declare(Variable("batch", prod(product.batch)))
        self.row = self.declare(Variable("row", prod(product.rows)), "row_inside")
        self.column = self.declare(Variable("column", prod(product.columns)), "column_inside")
        rows, columns = self.row.digits(product.rows), self.column.digits(product.columns)
        self.space = (self.batch.digits(product.batch), rows, columns)
        self.place = product.place(*self.space) or (ZERO,) * len(anchor.outputs[0].shape)
        self.total = ""

    def anchored(self, value: Value, place: Place) -> str:
        if value.node is not self.anchor:
            raise Refused("a second product or reduction")
        if linear(place, value.shape) != linear(self.place, value.shape):
            raise Refused(f"{value.node.op.name} is read at other places than the kernel's own")
        return self.total

    def sum(self) -> None:
        """The loop over the summed axes, and the bias."""
        node, product = self.anchor, self.product
        dtype = wide(node.outputs[0].dtype)
        self.total = self.fresh(short(node.op.name))
        elements = Elements(self, node, "")
        batch, rows, columns = self.space
        self.line(f"{self.total} = tl.zeros([ROWS, COLUMNS], {TYPES[dtype]})", comment(node))
        self.open()
        across = self.declare(Variable("across", prod(product.inner)), "across_inside")
        down = self.declare(Variable("down", prod(product.inner)), "down_inside")
        self.line("across = start + tl.arange(0, INNER)[None, :]")
        self.line("across_inside = across < inner")
        self.line("down = start + tl.arange(0, INNER)[:, None]")
        self.line("down_inside = down < inner")
        self.widens = False
        left = product.left(elements, batch, rows, across.digits(product.inner))
        right = product.right(elements, batch, down.digits(product.inner), columns)
        self.widens = True
        if across.length == 1:  # no load depends on it: beyond the only element there is nothing
            left, right = f"tl.where(across_inside, {left}, 0.0)", f"tl.where(down_inside, {right}, 0.0)"
        if 1 in (self.row.length, across.length):
            left = f"tl.broadcast_to({left}, [ROWS, INNER])"
        if 1 in (self.column.length, down.length):
            right = f"tl.broadcast_to({right}, [INNER, COLUMNS])"
        self.line(f'{self.total} = tl.dot({left}, {right}, {self.total}, input_precision="ieee")')
        self.close("for start in range(0, inner, INNER):")
        if product.scale != 1:
            self.line(f"{self.total} *= {elements.literal(product.scale)}")
        if product.bias is not None:
            self.line(f"{self.total} += {product.bias(elements, batch, rows, columns)}")


def write_product(group: Region, anchor: Node) -> KernelSource:
    """The kernel of a product and of the pointwise operators that read it."""
    body = ProductBody(group, anchor)
    product = body.product
    sizes = {"rows": prod(product.rows), "columns": prod(product.columns), "inner": prod(product.inner)}
    batches = prod(product.batch)
    if batches > MOST_BATCHES:
        raise Refused(f"more than {MOST_BATCHES} products")
    body.sum()
    where = linear(body.place, anchor.outputs[0].shape)
    for value in group.outputs:
        place = unravel(where, value.shape)
        if prod(value.shape) != prod(anchor.outputs[0].shape) or place is None:
            raise Refused("an output that has not one element for each of the product")
        missing = [name for name in ("row", "column") if name not in {item.name for item in where.variables}]
        address = " + ".join([body.pointers[value], *([str(where)] if where.terms else []), *missing])
        body.line(f"tl.store({address}, {body.value(value, place)}, mask=row_inside & column_inside)")
    name = kernel_name(group.nodes)
    kind = f"{batches:,} products of" if batches > 1 else "A product of"
    summary = f"{kind} {sizes['rows']:,} x {sizes['inner']:,} and {sizes['inner']:,} x {sizes['columns']:,}"
    summary += f", and {len(group.nodes) - 1} more operators." if len(group.nodes) > 1 else "."
    head = [*_HEAD.splitlines(), *(["batch = tl.program_id(2)"] if batches > 1 else [])]
    blocks = {
        "ROWS": power_of_two(sizes["rows"], LEAST, ROWS),
        "COLUMNS": power_of_two(sizes["columns"], LEAST, COLUMNS),
        "INNER": power_of_two(sizes["inner"], LEAST, INNER),
    }
    text = function(name, body, list(body.pointers.values()), head, [*sizes, "batches"], list(blocks), summary)
    return KernelSource(
        name, text, "product", tuple(body.inputs), group.outputs, tuple(body.draws), {**sizes, "batches": batches},
        blocks, {key: sizes[key.lower()] for key in blocks},
        (("rows", "ROWS"), ("columns", "COLUMNS"), ("batches", "")),
    )  # fmt: skip
