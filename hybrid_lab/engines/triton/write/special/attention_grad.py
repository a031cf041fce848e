"""The gradients of an attention: products of tiles computed from other products, without storing these in memory.

The forward leaves the largest score and the sum of each query; weights follow from them and the scores again, tile by
tile. One kernel goes over the queries and, for each tile of keys, computes scores and weights and their gradients from
the gradient of the result, and adds up the gradient of the queries. The second kernel goes over the keys, with the same
tiles turned, and adds up the gradients of keys and values. Each sum has one order, so no run differs from another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from hybrid_lab.engines.triton.write import tiles
from hybrid_lab.engines.triton.write.body import Body, Refused, smooth
from hybrid_lab.engines.triton.write.core.product import factors, is_exact
from hybrid_lab.engines.triton.write.index import Index, Place, linear, variable
from hybrid_lab.engines.triton.write.kinds import contraction_of, is_product, is_reduction
from hybrid_lab.engines.triton.write.source import (
    KernelSource,
    descendants,
    kernel_name,
    kernel_source,
    lanes,
    power_of_two,
)
from hybrid_lab.engines.triton.write.special.attention import MOST_WIDTH, leading_to_products, rows_of_batches
from hybrid_lab.engines.triton.write.syntax import TYPES, wide
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.graph.passes.partition import Region
from hybrid_lab.ops.framework.dtypes import NARROW
from hybrid_lab.ops.framework.kernel import Contraction

#: Queries and values of float32 have at most this many numbers: without tensor cores more do not fit into registers.
MOST_EXACT = 64
#: A tile is made of at most MOST_INNER products, by at most MOST_CHAIN operators.
MOST_INNER, MOST_CHAIN = 2, 48


@dataclass(frozen=True)
class Chained:
    """Products whose first factor is made, element by element, of other products that are as large.

    ends : those products, all over the same rows; inner : the products that their factors are made of
    chain : the operators between; turned : whether the ends' rows are the inner products' columns
    """

    ends: tuple[Node, ...]
    inner: tuple[Node, ...]
    chain: frozenset[Node]
    turned: bool

    @property
    def nodes(self) -> frozenset[Node]:
        """Every node of the chain."""
        return frozenset((*self.ends, *self.inner, *self.chain))


def chained_products(
    nodes: Sequence[Node], users: Mapping[Value, Sequence[Node]], roots: Collection[Value]
) -> list[Chained]:
    """The chained products among these operators whose parts no other operator reads."""
    families: list[list[Chained]] = []
    for node in nodes:
        if (item := _chained_at(node)) is None:
            continue
        family = next((known for known in families if not {*known[0].inner}.isdisjoint(item.inner)), None)
        if family is None:
            families.append([item])
        else:
            family.append(item)
    chains = []
    for family in families:
        whole = _together(family)
        inside, ends = {*whole.inner, *whole.chain}, {*whole.ends}
        values = [value for part in inside for value in part.outputs]
        if not inside.isdisjoint(ends) or any(value in roots for value in values):
            continue
        if any(reader not in whole.nodes for value in values for reader in users.get(value, ())):
            continue
        if not descendants(ends, nodes).isdisjoint(whole.nodes):
            continue
        parts = [[item for item in family if item.turned == turned] for turned in (False, True)]
        chains += [_together(members) for members in parts if members]
    return chains


def _together(members: Sequence[Chained]) -> Chained:
    inner = dict.fromkeys(node for item in members for node in item.inner)
    chain = frozenset(node for item in members for node in item.chain)
    return Chained(tuple(node for item in members for node in item.ends), tuple(inner), chain, members[0].turned)


def chained_in(nodes: Sequence[Node]) -> Chained | None:
    """The products that these operators are, whole, if all are of one kind."""
    inside = set(nodes)
    members = [item for node in nodes if (item := _chained_at(node)) is not None and item.nodes <= inside]
    if not members or len({item.turned for item in members}) > 1:
        return None
    chained = _together(members)
    return chained if {node for node in nodes if is_product(node)} <= chained.nodes else None


def _chained_at(end: Node) -> Chained | None:
    """The product with the products that its first factor is made of, and the operators between; None without them."""
    product = contraction_of(end)
    if product is None:
        return None
    value = end.values_in[0]
    size = prod(value.shape)
    if size != prod((*product.batch, *product.rows, *product.inner)) or product.bias is not None:
        return None
    leading = leading_to_products(value.node, size, MOST_CHAIN)
    inner = [node for node in leading if is_product(node)]
    chain = {node for node in leading if not is_product(node)}
    if not 0 < len(inner) <= MOST_INNER or not any(_is_weight(node, size) for node in chain):
        return None
    if any(is_reduction(node) or node.op.random or len(node.outputs) != 1 for node in chain):
        return None
    widths = [prod(product.columns)]
    for node in inner:
        contraction = contraction_of(node)
        assert contraction is not None
        if contraction.bias is not None or prod((*contraction.batch, *contraction.rows, *contraction.columns)) != size:
            return None
        widths.append(prod(contraction.inner))
    dtype = end.outputs[0].dtype.name
    if dtype == "float64" or max(widths) > (MOST_WIDTH if dtype in NARROW else MOST_EXACT):
        return None
    # Turned: neighbours in memory of the first factor are in different rows of it.
    return Chained((end,), tuple(inner), frozenset(chain), bool(getattr(end.op, "transpose_a", False)))


def _is_weight(node: Node, size: int) -> bool:
    """Whether an operator is the exponential of scores less a number of their row."""
    difference = node.values_in[0].node if node.op.name == "exp" else None
    if difference is None or difference.op.name != "broadcast_sub" or len(difference.values_in) != 2:
        return False
    return prod(difference.values_in[1].shape) < size


class ChainedBody(Body):
    """A body over `row` of one batch, and, in a loop, over the axis shared by the inner products and the ends."""

    rounds = False

    def __init__(self, group: Region, chained: Chained, precision: str):
        super().__init__(group)
        self.chained, self.precision, self.approximate = chained, precision, smooth(chained.chain)
        self.ends = [(node, self._product(node)) for node in chained.ends]
        first = self.ends[0][1]
        self.counts_of = {
            "batches": prod(first.batch), "rows": prod(first.rows), self.along: prod(first.inner)
        }  # fmt: skip
        for _, product in self.ends:
            sizes = [prod(axes) for axes in (product.batch, product.rows, product.inner)]
            if sizes != list(self.counts_of.values()):
                raise Refused("products over other rows")
        if self.counts_of[self.along] == 1:
            raise Refused("a sum of one element")
        if not {value for node in chained.ends for value in node.outputs}.issuperset(group.outputs):
            raise Refused("a part of an attention's gradient that is read elsewhere")
        self.batch = self.declare("batch", self.counts_of["batches"])
        self.row = self.declare("row", self.counts_of["rows"], "row_inside")
        self.widths: dict[str, int] = {}
        self.whole: dict[str, Index] = {}
        self.head: list[str] = []
        self.tiles: dict[Node, tuple[str, Place]] = {}
        self.blocks: dict[str, int] = {}

    @property
    def along(self) -> str:
        """The axis that the loop goes over."""
        return "queries" if self.chained.turned else "keys"

    @staticmethod
    def _product(node: Node) -> Contraction:
        product = contraction_of(node)
        assert product is not None
        return product

    def width(self, name: str, count: int, down: bool = False) -> str:
        """The name of a variable that is whole in each program, one for each length."""
        base = {"column": "columns", "across": "inner"}[name]
        number = next((number for number in range(1, 9) if self.widths.get(f"{base}{number}", count) == count), 1)
        size = f"{base}{number}"
        last = "" if number == 1 else str(number)
        called, block, length = ("down" if down else name) + last, (base + last).upper(), base + last
        self.widths[size] = count
        if called not in self.masks:
            self._taken.add(length)
            self.scopes[0].variables.add(called)  # known outside of all loops
            self.masks[called] = f"{called}_inside"
            self._taken |= {called, f"{called}_inside"}
            self.whole[called] = variable(called, count)
            self.blocks[block] = power_of_two(count, tiles.LEAST)
            self.counts_of[length] = count
            self.head += lanes(called, length, block, down=down)
        return called

    def anchored(self, value: Value, place: Place) -> str:
        if value.node not in self.tiles:
            raise Refused("another product or reduction")
        name, own = self.tiles[value.node]
        self.check_place(value, place, own)
        return name

    def write_all(self) -> None:
        """All lines: sums, the loop, and the stores."""
        fixed = [self.fixed_factor(node, self._product(node)) for node in self.chained.inner]
        totals = []
        for node, product in self.ends:
            column = self.width("column", prod(product.columns))
            total, dtype = self.fresh(self.gradient_name(node)), TYPES[wide(node.outputs[0].dtype)]
            block = "COLUMNS" + column.removeprefix("column")
            self.line(f"{total} = tl.zeros([ROWS, {block}], {dtype})", node)
            totals.append((total, column, block))
        self.loop(fixed, totals)
        for (node, product), (total, column, _) in zip(self.ends, totals, strict=True):
            if node.outputs[0] in self.pointers:  # while groups are put together, it may have no reader yet
                self.store(node, product, total, column)

    def scores(self) -> set[Node]:
        """The inner products that exponentials are made of."""
        makers = {node for node in self.chained.chain if node.op.name == "exp"}
        waiting = list(makers)
        while waiting:
            before = [value.node for value in waiting.pop().values_in if value.node in self.chained.nodes]
            waiting += [node for node in before if node not in makers]
            makers.update(before)
        return makers.intersection(self.chained.inner)

    def gradient_name(self, node: Node) -> str:
        """The name of an end's gradient; the gradient of the values needs the weights alone."""
        if not self.chained.turned:
            return "query_grad"
        alone = _chained_at(node)
        return "key_grad" if alone is not None and len(alone.inner) > 1 else "value_grad"

    def loop(self, fixed: Sequence[str], totals: Sequence[tuple[str, str, str]]) -> None:
        name, block = ("query" if self.chained.turned else "key"), self.along.upper()
        self.open()
        step = self.declare(name, self.counts_of[self.along], f"{name}_inside")
        down = self.declare(f"{name}_down", self.counts_of[self.along], f"{name}_down_inside")
        self.line_each(lanes(name, self.along, block, "start + "))
        self.line_each(lanes(f"{name}_down", self.along, block, "start + ", down=True))
        for node, factor in zip(self.chained.inner, fixed, strict=True):
            self.tile(node, self._product(node), factor, name, step, block)
        for (node, product), (total, column, columns) in zip(self.ends, totals, strict=True):
            batch, rows = self.batch.digits(product.batch), self.row.digits(product.rows)
            left = product.left(
                factors(self, node, "row", name, f"[ROWS, {block}]"), batch, rows, step.digits(product.inner)
            )
            right = product.right(
                factors(self, node, column, f"{name}_down", f"[{block}, {columns}]"), batch, down.digits(product.inner),
                self.whole[column].digits(product.columns),
            )  # fmt: skip
            self.line(f'{total} = tl.dot({left}, {right}, {total}, input_precision="{self.precision}")')
        self.close(f"for start in range(0, {self.along}, {block}):")

    def fixed_factor(self, node: Node, product: Contraction) -> str:
        """The factor of an inner product that does not change in the loop: its rows, or turned its columns."""
        across = self.width("across", prod(product.inner))
        block = "INNER" + across.removeprefix("across")
        fixed = factors(self, node, "row", across, f"[ROWS, {block}]")
        batch, inner = self.batch.digits(product.batch), self.whole[across].digits(product.inner)
        if self.chained.turned:
            return str(product.right(fixed, batch, inner, self.row.digits(product.columns)))
        return str(product.left(fixed, batch, self.row.digits(product.rows), inner))

    def tile(self, node: Node, product: Contraction, factor: str, name: str, step: Index, block: str) -> None:
        """The tile of an inner product, its rows along the kernel's, or turned its columns."""
        across = self.width("across", prod(product.inner))
        down = self.width("across", prod(product.inner), down=True)
        inner = "INNER" + across.removeprefix("across")
        tiles_read = factors(self, node, name, down, f"[{inner}, {block}]")
        batch = self.batch.digits(product.batch)
        if self.chained.turned:
            rows, columns = step.digits(product.rows), self.row.digits(product.columns)
            other = product.left(tiles_read, batch, rows, self.whole[down].digits(product.inner))
        else:
            rows, columns = self.row.digits(product.rows), step.digits(product.columns)
            other = product.right(tiles_read, batch, self.whole[down].digits(product.inner), columns)
        total = self.fresh("scores" if node in self.scores() else "weight_grad")
        self.line(f'{total} = tl.dot({factor}, {other}, input_precision="{self.precision}")', node)
        if product.scale != 1:
            self.line(f"{total} *= {product.scale!r}")
        self.tiles[node] = total, product.place(batch, rows, columns)

    def store(self, node: Node, product: Contraction, total: str, column: str) -> None:
        if product.scale != 1:
            self.line(f"{total} *= {product.scale!r}")
        place = product.place(
            self.batch.digits(product.batch), self.row.digits(product.rows), self.whole[column].digits(product.columns)
        )
        where = linear(place, node.outputs[0].shape)
        self.store_tile(self.pointers[node.outputs[0]], where, total, ("row", column))


def write_chained(group: Region, chained: Chained, precision: str = "ieee") -> KernelSource:
    """The kernel of an attention's gradients. Raises Refused."""
    body = ChainedBody(group, chained, precision)
    body.write_all()
    exact = is_exact(chained.ends[0], precision)
    sizes = body.counts_of
    tile, warps = tiles.for_attention_gradient(sizes["rows"], sizes[body.along], max(body.widths.values()), exact)
    blocks = {"ROWS": tile["ROWS"], body.along.upper(): tile["KEYS"], **body.blocks}
    grid, head = rows_of_batches(sizes, body.head)
    what = "keys and values" if chained.turned and len(chained.ends) > 1 else "keys" if chained.turned else "queries"
    what = "an attention" if len(chained.inner) == 1 and len(chained.ends) == 1 else what
    name = f"attention_{'key' if chained.turned else 'query'}_grad"
    around = [node for node in group.nodes if node not in chained.nodes and not node.op.view]
    name += f"_{kernel_name(around).removeprefix('k_')}" if around else ""
    summary = f"Gradients of {what}: {sizes['rows']:,} rows, {sizes['batches']:,} times; {len(group.nodes)} operators."
    return kernel_source(
        body, "gradient of attention", name, summary, head, sizes, blocks,
        {"ROWS": sizes["rows"], body.along.upper(): sizes[body.along]}, grid,
        warps=warps, stages=1,
    )  # fmt: skip
