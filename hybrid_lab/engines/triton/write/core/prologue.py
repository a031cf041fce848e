"""Prologues: which operators on a product's factors are computed while a tile of the factor is loaded."""

from __future__ import annotations

from collections.abc import Sequence

from hybrid_lab.engines.triton.write import tiles
from hybrid_lab.engines.triton.write.kinds import product_of
from hybrid_lab.engines.triton.write.sizes import Sizes
from hybrid_lab.graph.node import Node

#: Operators that are worth computing again for each tile that reads them: a load from memory costs more.
CHEAP = frozenset((
    "broadcast_add", "broadcast_sub", "broadcast_mul", "broadcast_maximum", "broadcast_minimum", "negative", "abs",
    "square", "relu", "clip", "where", "Cast", "_cast_like", "_masked_scale", "_relu_grad", "identity",
    "broadcast_equal", "broadcast_not_equal", "broadcast_greater", "broadcast_greater_equal", "broadcast_lesser",
    "broadcast_lesser_equal",
))  # fmt: skip
#: A prologue has at most so many of them.
MOST = 6


def no_prologue(node: Node, group: Sequence[Node], product: Node, stored: bool) -> str:
    """Why a factor's operator stays outside of the product's kernel; "" where it may be computed tile by tile.

    stored : whether somebody else reads it, so that it is in memory anyway
    """
    if stored:
        return "somebody else reads this factor, so it is in memory"
    if node.op.name not in CHEAP:
        return f"{node.op.name} would be computed again for each tile that reads it"
    if sum(other.op.name in CHEAP and not other.op.view for other in before(product, group)) >= MOST:
        return f"{MOST} operators are computed for each tile already"
    read, made = sum(value.nbytes for value in node.values_in), node.outputs[0].nbytes
    if _times(product) * (read - made) > read + made:
        return "what it is made of would be read again for each tile, and is more than itself"
    return ""


def before(product: Node, group: Sequence[Node]) -> set[Node]:
    """The operators of the group that the product's factors are made of."""
    inside, waiting = set(group), [product]
    found: set[Node] = set()
    while waiting:
        for value in waiting.pop().values_in:
            if value.node in inside and value.node not in found:
                found.add(value.node)
                waiting.append(value.node)
    return found


def _times(product: Node) -> int:
    """How often a factor is read, at most: once for each tile along the other factor's axis."""
    found = product_of(product)
    assert found is not None
    sizes = Sizes.of(found)
    blocks = tiles.for_product(sizes.rows, sizes.columns, sizes.inner, sizes.batches, exact=True).blocks
    return max(-(-sizes.rows // blocks["ROWS"]), -(-sizes.columns // blocks["COLUMNS"]))
