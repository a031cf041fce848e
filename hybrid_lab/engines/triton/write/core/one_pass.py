"""One pass for two sums of the same rows, the second of which needs the first: mean and variance, softmax.

As written, a variance needs the mean of the whole row, and a sum of exponentials its largest element: rows that do not
fit a tile would be read once for each. In one pass each lane of the tile keeps what belongs to its own elements so far,
and the lanes are put together at the end, as Welford and Chan do it for moments:

    count += 1;  away = x - mean;  mean += away / count;  squares += away * (x - mean)
    sum of squares about the mean of the row  =  sum over lanes of squares + count * (lane's mean - mean) ** 2

and for exponentials, with every lane's largest element so far:

    largest = max(largest_so_far, x);  total = total * exp(largest_so_far - largest) + exp(x - largest)
    sum of exponentials  =  sum over lanes of total * exp(lane's largest - largest)

The same holds for the parts of rows that are split among programs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from hybrid_lab.engines.triton.write.body import broadcast_place
from hybrid_lab.engines.triton.write.kinds import combine
from hybrid_lab.engines.triton.write.syntax import TYPES, number_of, short, wide
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.ops.framework.dtypes import is_floating

if TYPE_CHECKING:
    from hybrid_lab.engines.triton.write.core.reduction import RowBody


@dataclass(frozen=True)
class Pair:
    """first, second : the reductions; data : what both are of; centre : the first one's result, as `data` is compared
    with it; squares : whether the second is of squared differences, else it is of exponentials
    """

    first: Node
    second: Node
    data: Value
    centre: Value
    squares: bool


def pair_of(node: Node, inside: Collection[Node]) -> Pair | None:
    """The pair whose second reduction this is, if the first one and all between them are inside too."""
    between = [node.values_in[0].node]
    function = between[0].op.name
    if combine(node) != "sum" or function not in ("square", "exp") or not is_floating(node.outputs[0].dtype):
        return None
    difference = between[0].values_in[0].node
    if difference.op.name != "broadcast_sub" or len(difference.values_in) != 2:
        return None
    data, centre = difference.values_in
    between.append(difference)

    def through_views(node: Node) -> Node:
        while node.op.view and len(node.outputs) == 1 and node.inputs:
            between.append(node)
            node = node.values_in[0].node
        return node

    first = through_views(centre.node)
    if function == "square":
        if not _is_mean(first, prod(data.shape) // max(prod(first.outputs[0].shape), 1)):
            return None
        between.append(first)
        first = through_views(first.values_in[0].node)
    if combine(first) != ("sum" if function == "square" else "max") or not {first, *between} <= set(inside):
        return None
    if not _same(first.values_in[0], data) or difference.outputs[0].shape != data.shape:
        return None
    axes = (reduction.op.axes(len(data.shape)) for reduction in (first, node))  # type: ignore[attr-defined]
    if len({tuple(sorted(item)) for item in axes}) > 1:
        return None
    return Pair(first, node, data, centre, function == "square")


def _is_mean(node: Node, count: int) -> bool:
    """Whether an operator divides a sum by the number of its elements."""
    if node.op.name not in ("broadcast_mul", "broadcast_div") or not isinstance(node.inputs[0], Value):
        return False
    by = number_of(node.inputs[1])
    return by is not None and abs((by * count if node.op.name == "broadcast_mul" else by / count) - 1) < 1e-6


def _same(one: Value, other: Value) -> bool:
    """Whether two values are one, if need be through equal views."""
    if one is other:
        return True
    a, b = one.node, other.node
    equal = a.op.view and a.op is b.op and one.index == other.index and len(a.inputs) == len(b.inputs)
    return equal and a.inputs[1:] == b.inputs[1:] and _same(a.values_in[0], b.values_in[0])


class Squares:
    """The lines of a sum of squares about the mean. The first sum's own lines stand beside them."""

    def __init__(self, body: RowBody, pair: Pair):
        self.body, self.pair = body, pair
        dtype = TYPES[wide(pair.second.outputs[0].dtype)]
        self.count, self.mean, self.squares = (
            body.fresh(name) for name in ("count_so_far", "mean_so_far", "squares_so_far")
        )
        body.line(f"{self.count} = tl.full([1, COLUMNS], 0.0, {dtype})")
        body.line(f"{self.mean} = tl.full([ROWS, COLUMNS], 0.0, {dtype})")
        body.line(f"{self.squares} = tl.full([ROWS, COLUMNS], 0.0, {dtype})")

    def step(self, element: str) -> None:
        """In the loop, for an element at hand."""
        body = self.body
        body.line(f"{self.count} += tl.where(column_inside, 1.0, 0.0)")
        away = body.named(f"tl.where(column_inside, {element} - {self.mean}, 0.0)", "away")
        # A mean that is off by an exact step's rounding serves as well: both sums are taken about the rounded mean.
        body.line(f"{self.mean} += tl.fdiv({away}, tl.maximum({self.count}, 1.0))")
        body.line(f"{self.squares} += {away} * tl.where(column_inside, {element} - {self.mean}, 0.0)")

    def total(self, mean: str) -> str:
        """After the loop: the sum about `mean`."""
        away = self.body.named(f"{self.mean} - {mean}", "away")
        return _sum(f"{self.squares} + {self.count} * {away} * {away}")


class Exponentials:
    """The lines of a sum of exponentials; the largest element so far is kept with it.

    finite : whether a NaN in the largest element need not be preserved
    """

    def __init__(self, body: RowBody, pair: Pair, finite: bool):
        self.body, self.pair, self.finite = body, pair, finite
        dtype = TYPES[wide(pair.second.outputs[0].dtype)]
        self.largest, self.sum = (body.fresh(name) for name in ("max_so_far", "sum_so_far"))
        body.line(f'{self.largest} = tl.full([ROWS, COLUMNS], float("-inf"), {dtype})')
        body.line(f"{self.sum} = tl.full([ROWS, COLUMNS], 0.0, {dtype})")

    def step(self, element: str) -> None:
        """In the loop, for an element at hand. A lane of which all elements are -inf counts them."""
        body = self.body
        nan = "" if self.finite else ", propagate_nan=tl.PropagateNan.ALL"
        inside = f'tl.where(column_inside, {element}, float("-inf"))'
        new = body.named(f"tl.maximum({self.largest}, {inside}{nan})", "largest")
        body.line(f"{self.sum} *= {_exponential(self.largest, new)}")
        body.line(f"{self.sum} += tl.where(column_inside, {_exponential(element, new)}, 0.0)")
        body.line(f"{self.largest} = {new}")

    def total(self, largest: str) -> str:
        """After the loop: the sum for the largest element of the row."""
        return _sum(f"{self.sum} * tl.exp({self.largest} - {largest})")

    def part(self, largest: str) -> str:
        """After the loop over a part of a row, of which all elements may be -inf."""
        return _sum(f"{self.sum} * {_exponential(self.largest, largest)}")


def _exponential(of: str, largest: str) -> str:
    """exp(of - largest); 1 for -inf of which -inf is the largest."""
    return f"tl.where({of} == {largest}, 1.0, tl.exp({of} - {largest}))"


def _sum(text: str) -> str:
    return f"tl.sum({text}, axis=1, keep_dims=True)"


def centre_of(body: RowBody, pair: Pair) -> str:
    """The name of the first reduction's result, as the data is compared with it; the result itself is known."""
    place = body.space.place(body.row, body.column)
    return body.value(pair.centre, broadcast_place(place, pair.centre.shape))


def named_total(body: RowBody, pair: Pair, text: str) -> None:
    """The second reduction's result in a line of its own."""
    body.results[pair.second] = body.named(text, short(pair.second.op.name), pair.second)


def part_of_pair(body: RowBody, pair: Pair, first: str, second: str) -> str:
    """A part's contribution to the second reduction of its row. first, second : the names of the part's stored
    results
    """
    if not pair.squares:
        return f"{second} * tl.exp({first} - {body.results[pair.first]})"
    count = body.named("tl.minimum(per_part, elements - column * per_part)", "count")
    away = body.named(f"{first} / tl.maximum({count}, 1) - {centre_of(body, pair)}", "away")
    return f"{second} + {count} * {away} * {away}"
