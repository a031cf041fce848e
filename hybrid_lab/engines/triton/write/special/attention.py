"""Attention kernels: two products with a softmax between them, in one loop over the keys.

A program has some queries. For a tile of keys it computes the scores, the operators behind them (a scale, a mask), and
their exponentials against the largest score so far; if a later tile has a larger score, the sums are scaled down. So
neither scores nor weights are ever in memory. For the backward it stores the largest score and the sum of each query,
of which attention_grad.py makes the weights again. If another operator needs the weights and there are not too many
keys, a program has all keys at once and also stores the weights. Operators around an attention are fused as around any
product: operators that make the queries, keys and values, and operators behind the result.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from hybrid_lab.engines.triton.write import tiles
from hybrid_lab.engines.triton.write.body import Refused, Scope, smooth
from hybrid_lab.engines.triton.write.core.product import MOST_PROGRAMS, ProductBody, factors, is_exact, multiplied
from hybrid_lab.engines.triton.write.elements import Elements
from hybrid_lab.engines.triton.write.index import ZERO, Place, linear, unravel
from hybrid_lab.engines.triton.write.kinds import combine, contraction_of, element_of, is_pointwise, is_product
from hybrid_lab.engines.triton.write.source import (
    COLUMN_LANES,
    KernelSource,
    kernel_name,
    kernel_source,
    lanes,
    power_of_two,
)
from hybrid_lab.engines.triton.write.syntax import TYPES, plain, short, wide
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.graph.passes.partition import Region
from hybrid_lab.ops.framework.dtypes import NARROW

#: A program holds whole queries and values: they have at most this many numbers.
MOST_WIDTH = 256
#: Weights are stored on the way for at most MOST_KEYS keys; half as many without tensor cores.
MOST_KEYS = 256
#: Scores are made of a product by at most this many operators; four times as many are looked at to find it.
MOST_CHAIN = 64
#: Between the softmax and the second product stand only operators that commute with a division.
LINEAR = ("_masked_scale", "Cast", "identity")


@dataclass(frozen=True)
class Attention:
    """Its operators: the product that gives the scores, the softmax's operand, the parts of the softmax, and the
    product with the values. nodes : all operators from the scores to the result
    """

    scores: Node
    scaled: Value
    maximum: Node
    exponential: Node
    total: Node
    weights: Node
    mixed: Node
    nodes: frozenset[Node]


def attention_at(mixed: Node) -> Attention | None:
    """The attention that ends with this product; None if it is another product."""
    if not is_product(mixed):
        return None
    between = [mixed]
    node = mixed.values_in[0].node
    while node.inputs and (node.op.view or node.op.name in LINEAR):
        between.append(node)
        node = node.values_in[0].node
    softmax = _softmax(node)
    if softmax is None:
        return None
    scaled, parts = softmax
    scores, chain = _scores(scaled)
    if scores is None:
        return None
    maximum, _, exponential, total = parts
    nodes = frozenset([*between, node, *parts, *chain])
    return Attention(scores, scaled, maximum, exponential, total, node, mixed, nodes)


def attention_in(nodes: Collection[Node]) -> Attention | None:
    """The attention that lies among these operators whole, if there is one."""
    inside = set(nodes)
    for node in nodes:
        attention = attention_at(node)
        if attention is not None and attention.nodes <= inside:
            return attention
    return None


def _softmax(division: Node) -> tuple[Value, tuple[Node, Node, Node, Node]] | None:
    """The operand of a softmax over the last axis, and its parts: maximum, difference, exponential, sum."""
    if division.op.name != "broadcast_div" or len(division.values_in) != 2:
        return None
    above, below = division.values_in
    difference = above.node.values_in[0].node if above.node.op.name == "exp" else None
    if difference is None or difference.op.name != "broadcast_sub" or len(difference.values_in) != 2:
        return None
    data, most = difference.values_in
    if combine(below.node) != "sum" or combine(most.node) != "max":
        return None
    for result, of in ((below, above), (most, data)):
        rank = len(of.shape)
        if result.node.values_in[0] != of or tuple(result.node.op.axes(rank)) != (rank - 1,):  # type: ignore[attr-defined]
            return None
    return data, (most.node, difference, above.node, below.node)


def leading_to_products(node: Node, size: int, most: int) -> list[Node]:
    """The operators through which a value of `size` elements is made, element by element, of products as large; the
    products included. At most about `most` operators are searched.
    """
    leads: dict[Node, bool] = {}

    def follow(node: Node) -> bool:
        if node not in leads:
            known = is_pointwise(node) or node.op.view or element_of(node.op) is not None
            before = [value.node for value in node.values_in if prod(value.shape) == size]
            leads[node] = is_product(node)
            if known and not leads[node] and len(leads) <= most:
                leads[node] = sum(map(follow, before)) > 0  # all paths, not only up to the first
        return leads[node]

    follow(node)
    return [node for node, leading in leads.items() if leading]


def _scores(scaled: Value) -> tuple[Node | None, list[Node]]:
    """The product that the scores are made of element by element, and the operators between, the product included."""
    size = prod(scaled.shape)
    chain = leading_to_products(scaled.node, size, 4 * MOST_CHAIN)
    products = [node for node in chain if is_product(node)]
    if len(products) != 1 or len(chain) > MOST_CHAIN or prod(products[0].outputs[0].shape) != size:
        return None, []
    return products[0], chain


class AttentionBody(ProductBody):
    """A body over `row` (queries) and `column` (numbers of a value) of one batch; `key` runs in the loop."""

    rounds = False  # scores are float32, so that the gradient's kernels find the same scores

    def __init__(self, group: Region, attention: Attention, precision: str):
        super().__init__(group, attention.mixed, precision)
        first = contraction_of(attention.scores)
        assert first is not None
        self.attention, self.first, self.approximate = attention, first, smooth(attention.nodes)
        same = (prod(first.batch), prod(first.rows), prod(first.columns))
        if same != (prod(self.product.batch), prod(self.product.rows), prod(self.product.inner)):
            raise Refused("a softmax between products of other rows")
        if first.bias is not None or self.product.bias is not None:
            raise Refused("a bias in the products of an attention")
        if max(prod(first.inner), prod(self.product.columns)) > MOST_WIDTH:
            raise Refused(f"queries or values of more than {MOST_WIDTH} numbers")
        self.across = self.declare("across", prod(first.inner), "across_inside")
        self.down = self.declare("down", prod(first.inner), "down_inside")
        self.most, self.sum_so_far, self.mixed = (self.fresh(name) for name in ("most", "total", "mixed"))
        self.score, self.score_place = "", ()
        parts = attention.nodes - {attention.mixed}
        #: The outputs that are no result of the attention, or made of it.
        self.parts = [value for value in group.outputs if value.node in parts or is_statistic(value, attention)]

    def anchored(self, value: Value, place: Place) -> str:
        if value.node in (self.attention.maximum, self.attention.total) and self.total:
            return self.most if value.node is self.attention.maximum else self.sum_so_far
        if value.node is self.attention.scores and self.score:
            self.check_place(value, place, self.score_place)
            return self.score
        return super().anchored(value, place)

    def compute(self, value: Value, place: Place, guard: str, scope: Scope) -> str:
        if value.node is self.attention.weights:
            return self.weight(place)
        return super().compute(value, place, guard, scope)

    def query(self) -> str:
        """The tile of the queries."""
        first = self.first
        query = first.left(
            factors(self, self.attention.scores, "row", "across", "[ROWS, INNER]"),
            self.batch.digits(first.batch), self.row.digits(first.rows), self.across.digits(first.inner),
        )  # fmt: skip
        return query if plain(query) else self.named(query, "query")

    def keys(self, query: str, start: str) -> tuple[Any, ...]:
        """The keys from `start` on, in both directions, and the scores of the queries with them; their indices."""
        first, scores = self.first, self.attention.scores
        self.key = self.declare("key", prod(first.columns), "key_inside")
        self.key_down = self.declare("key_down", prod(first.columns), "key_down_inside")
        self.line_each(lanes("key", "keys", "KEYS", start))
        self.line_each(lanes("key_down", "keys", "KEYS", start, down=True))
        batches, indices = self.batch.digits(first.batch), self.key.digits(first.columns)
        keys = first.right(
            factors(self, scores, "key", "down", "[INNER, KEYS]"), batches, self.down.digits(first.inner), indices
        )
        self.score = self.fresh(short(scores.op.name))
        text = multiplied(query, keys, self.precision, scores.outputs[0].dtype)
        self.line(f"{self.score} = {text}", scores)
        if first.scale != 1:
            self.line(f"{self.score} *= {first.scale!r}")
        self.score_place = first.place(batches, self.row.digits(first.rows), indices)
        return self.key.digits(self.product.inner)

    def weights(self, keys: tuple[Any, ...]) -> str:
        """The tile of the weights, or of the weights before the division; 0 beyond the last key."""
        (batch, rows, _), mixed = self.space, self.attention.mixed

        def read(number: int, place: Place, guard: str) -> str:
            name, dtype = self.weight_at(mixed.inputs[number], place, guard), mixed.inputs[number].dtype.name
            return f"{name}.to({TYPES[dtype]})" if dtype in NARROW else name

        return str(self.product.left(Elements(self, mixed, reads=read), batch, rows, keys))

    def weight_at(self, value: Value, place: Place, guard: str) -> str:
        """The name of a tile of weights, which the loop over the keys has made 0 beyond the last one."""
        return self.value(value, place, guard)

    def values(self) -> str:
        """The tile of the values."""
        batch, _, columns = self.space
        values = factors(self, self.attention.mixed, "column", "key_down", "[KEYS, COLUMNS]")
        return str(self.product.right(values, batch, self.key_down.digits(self.product.inner), columns))

    def attend(self) -> None:
        """The loop over the keys, and the division by the sums of the weights."""
        attention = self.attention
        dtype = TYPES[wide(attention.scaled.dtype)]
        query = self.query()
        self.line(f'{self.most} = tl.full([ROWS, 1], float("-inf"), {dtype})')
        self.line(f"{self.sum_so_far} = tl.zeros([ROWS, 1], {dtype})")
        self.line(f"{self.mixed} = tl.zeros([ROWS, COLUMNS], {TYPES[wide(attention.mixed.outputs[0].dtype)]})")
        self.open()
        weights, values = self.weights(self.keys(query, "start + ")), self.values()
        text = multiplied(weights, values, self.precision, attention.mixed.outputs[0].dtype, self.mixed)
        self.line(f"{self.mixed} = {text}", attention.mixed)
        self.close("for start in range(0, keys, KEYS):")
        self.total = self.named(f"{self.mixed} / {self.sum_so_far}", short(attention.mixed.op.name), attention.weights)

    def store_statistics(self) -> None:
        """Store the values with one element for each query: the largest score, the sum of the weights."""
        batch, rows = self.batch.digits(self.first.batch), self.row.digits(self.first.rows)
        scores = self.first.place(batch, rows, (ZERO,) * len(self.first.columns))
        count = prod(self.first.columns)
        for value in self.parts:
            place = scores[: len(value.shape) - 1] + (ZERO,)
            where = linear(place, value.shape)
            if where * count != linear(scores, self.attention.scores.outputs[0].shape):
                raise Refused("a softmax of other rows")
            name = self.value(value, place)
            address = [self.pointers[value], str(where)]
            address += ["row"] if "row" not in where.variables else []
            self.line(f"tl.store({' + '.join(address)}, {name}, mask=row_inside)")

    def weight(self, place: Place) -> str:
        """The exponentials of a tile of scores against the largest of their row so far."""
        attention, most, total = self.attention, self.most, self.sum_so_far
        scaled = self.value(attention.scaled, place)
        scaled = self.named(f'tl.where(key_inside, {scaled}, float("-inf"))', "scaled")
        largest = f"tl.maximum({most}, tl.max({scaled}, axis=1, keep_dims=True))"
        higher = self.named(largest, "higher", attention.maximum)
        # If all scores so far are -inf, the next finite one still counts.
        against = self.named(f'tl.where({higher} == float("-inf"), 0.0, {higher})', "against")
        weight = self.named(f"tl.exp({scaled} - {against})", "weight", attention.exponential)
        rescale = self.named(f"tl.exp({most} - {against})", "rescale")
        summed = f"{total} = {total} * {rescale} + tl.sum({weight}, axis=1, keep_dims=True)"
        self.line(summed, attention.total)
        self.line(f"{self.mixed} *= {rescale}")
        self.line(f"{most} = {higher}")
        return weight


class WholeBody(AttentionBody):
    """As AttentionBody, with all keys at once: the softmax is written as the graph has it, and may be stored."""

    def __init__(self, group: Region, attention: Attention, precision: str):
        super().__init__(group, attention, precision)
        self.approximate = ()

    def compute(self, value: Value, place: Place, guard: str, scope: Scope) -> str:
        return ProductBody.compute(self, value, place, guard, scope)

    def anchored(self, value: Value, place: Place) -> str:
        if value.node not in (self.attention.maximum, self.attention.total):
            return super().anchored(value, place)
        of, first = value.node.values_in[0], self.first
        row = first.place(self.batch.digits(first.batch), self.row.digits(first.rows), (ZERO,) * len(first.columns))
        count = prod(first.columns)
        if linear(place, value.shape) * count != linear(row, self.attention.scores.outputs[0].shape):
            raise Refused("a softmax of other rows")
        element = self.value(of, (*place[: len(of.shape) - 1], self.key))
        name, neutral = str(combine(value.node)), "0.0" if value.node is self.attention.total else 'float("-inf")'
        text = f"tl.{name}(tl.where(key_inside, {element}, {neutral}), axis=1, keep_dims=True)"
        return self.named(text, name, value.node)

    def weight_at(self, value: Value, place: Place, guard: str) -> str:
        return self.named(f"tl.where(key_inside, {self.value(value, place, guard)}, 0.0)", "weight")

    def attend(self) -> None:
        weights = self.weights(self.keys(self.query(), ""))
        self.store_parts()
        values = self.values()
        mixed = self.attention.mixed
        text = multiplied(weights, values, self.precision, mixed.outputs[0].dtype)
        self.total = self.named(text, short(mixed.op.name), mixed)

    def store_parts(self) -> None:
        """Store the values with an element for each query and key."""
        scores = self.attention.scores.outputs[0]
        place = linear(self.score_place, scores.shape)
        for value in self.parts:
            where = unravel(place, value.shape)
            if where is None or prod(value.shape) != prod(scores.shape):
                raise Refused("a part of the softmax without one element for each query and key")
            self.store_tile(self.pointers[value], place, self.value(value, where), ("row", "key"))


def is_statistic(value: Value, attention: Attention) -> bool:
    """Whether it is the largest score or the sum of the weights of each query, or that in another dtype."""
    node = value.node
    if node.op.name == "Cast":
        node = node.values_in[0].node
    return node in (attention.maximum, attention.total)


def rows_of_batches(sizes: Mapping[str, int], lines: Sequence[str]) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    """The launch's grid, and the lines that say which rows of which batch are a program's. lines : other places"""
    grid = (("rows", "ROWS"), ("batches", ""))
    if sizes["batches"] > MOST_PROGRAMS:  # only the first axis of a launch has room for them
        grid = grid[::-1]
    number = {size: f"tl.program_id({axis})" for axis, (size, _) in enumerate(grid)}
    head = [*lanes("row", "rows", "ROWS", f"{number['rows']} * ROWS + ", down=True), *lines]
    return grid, head + [f"batch = {number['batches']}"] * (sizes["batches"] > 1)


def write_attention(group: Region, attention: Attention, precision: str = "ieee") -> KernelSource:
    """The kernel of an attention and of the pointwise operators around it. Raises Refused."""
    parts = [value for value in group.outputs if value.node in attention.nodes and value.node is not attention.mixed]
    stored = any(not is_statistic(value, attention) for value in parts)
    body = (WholeBody if stored else AttentionBody)(group, attention, precision)
    first, second = body.first, body.product
    sizes = {
        "rows": prod(second.rows),
        "columns": prod(second.columns),
        "keys": prod(first.columns),
        "inner": prod(first.inner),
        "batches": prod(second.batch),
    }
    exact = is_exact(attention.mixed, precision)
    if stored and sizes["keys"] > MOST_KEYS // (1 + exact):
        raise Refused(f"weights of {sizes['keys']} keys that are stored")
    body.attend()
    if not stored:
        body.store_statistics()
    body.finish(body.parts)
    width = max(sizes["columns"], sizes["inner"])
    tile, warps = tiles.for_attention(sizes["rows"], sizes["keys"], width, exact, stored)
    blocks = {
        **tile,
        "COLUMNS": power_of_two(sizes["columns"], tiles.LEAST),
        "INNER": power_of_two(sizes["inner"], tiles.LEAST),
    }
    inner = lanes("across", "inner", "INNER") + lanes("down", "inner", "INNER", down=True)
    grid, head = rows_of_batches(sizes, [*COLUMN_LANES, *inner])
    count, rows, keys = (f"{sizes[name]:,}" for name in ("batches", "rows", "keys"))
    summary = f"Attention of {rows} queries to {keys} keys, {count} times; {len(group.nodes)} operators."
    around = [node for node in group.nodes if node not in attention.nodes and not node.op.view]
    name = "_".join(["attention", *([kernel_name(around).removeprefix("k_")] if around else [])])
    tiled = {"ROWS": sizes["rows"]} if stored else {"ROWS": sizes["rows"], "KEYS": sizes["keys"]}
    return kernel_source(
        body, "whole attention" if stored else "attention", name, summary, head, sizes, blocks, tiled, grid,
        warps=warps, stages=1,
    )  # fmt: skip
