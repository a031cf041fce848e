"""Shape rules that records share: axes, reductions, broadcasting, filling unknown sizes."""

from __future__ import annotations

from functools import lru_cache
from math import isqrt, prod

from hybrid_lab.diagnostics.errors import ShapeError
from hybrid_lab.diagnostics.formatting import dimensions
from hybrid_lab.ops.framework.attributes import Axis, Shape
from hybrid_lab.ops.framework.types import PartialShape, PartialShapes


def axis_of(name: str, axis: int, rank: int) -> int:
    """`axis` counted from the front. Raises ShapeError naming the operator."""
    if not -rank <= axis < rank:
        raise ShapeError(f"{name}: axis {axis} does not exist; the input has {dimensions(rank)}")
    return axis % rank


@lru_cache(maxsize=1024)
def reduced_axes(name: str, axis: Axis, rank: int, exclude: bool = False) -> tuple[int, ...]:
    """The sorted, non-negative axes that a reduction removes. No axis means all. Raises ShapeError."""
    if axis is None or axis == ():
        return tuple(range(rank))
    given = (axis,) if isinstance(axis, int) else axis
    chosen = {axis_of(name, item, rank) for item in given}
    if len(chosen) < len(given):
        raise ShapeError(f"{name}: axis={axis} names one axis twice; the input has {dimensions(rank)}")
    return tuple(item for item in range(rank) if (item in chosen) != exclude)


def kept_shape(shape: Shape, axes: tuple[int, ...]) -> Shape:
    """`shape` with the reduced axes as 1."""
    return tuple(1 if index in axes else size for index, size in enumerate(shape))


def broadcast_shapes(name: str, *shapes: Shape) -> Shape:
    """The common shape of broadcast operands. Raises ShapeError naming the operator and the shapes."""
    try:
        return _broadcast(shapes)
    except ValueError:
        text = " and ".join(str(shape) for shape in shapes)
        raise ShapeError(f"{name}: the shapes {text} do not broadcast; each dimension must be equal or 1") from None


def _broadcast(shapes: tuple[Shape, ...]) -> Shape:
    """As np.broadcast_shapes, for sizes of any kind."""
    rank = max(map(len, shapes))
    made = [1] * rank
    for shape in shapes:
        for place, size in enumerate(shape, rank - len(shape)):
            before = made[place]
            if before is not size and before != size:
                if before != 1 and size != 1:
                    raise ValueError
                made[place] = size if before == 1 else before
    return tuple(made)


def known_shape(shape: PartialShape) -> Shape | None:
    """For `complete`: the shape, None if a part of it is unknown."""
    if shape is None:
        return None
    sizes = tuple([size for size in shape if size is not None])
    return sizes if len(sizes) == len(shape) else None


def filled(shape: PartialShape, wanted: PartialShape) -> PartialShape:
    """For `complete`: `shape` if it is known, else `wanted` (which may be unknown as well)."""
    return wanted if shape is None or None in shape else shape


def alike(shapes: PartialShapes) -> PartialShapes:
    """For `complete`: the shapes with unknown sizes filled in from each other, since all are equal."""
    known = next((shape for shape in shapes if shape is not None), None)
    if known is None:
        return shapes
    columns = zip(*(shape for shape in shapes if shape is not None and len(shape) == len(known)), strict=True)
    merged = tuple(next((size for size in column if size is not None), None) for column in columns)

    def completed(shape: PartialShape) -> PartialShape:
        if shape is None or len(shape) != len(merged):
            return merged if shape is None else shape
        return tuple(other if size is None else size for size, other in zip(shape, merged, strict=True))

    return tuple(map(completed, shapes))


def filled_from_each_other(shapes: PartialShapes) -> PartialShapes:
    """For `complete`: every unknown size is taken from another shape of the same rank, as if the shapes were equal. A
    size of 1 is not taken, because it may broadcast.
    """

    def filled(shape: PartialShape) -> PartialShape:
        if shape is None or None not in shape:
            return shape
        columns = zip(*(other for other in shapes if other is not None and len(other) == len(shape)), strict=True)
        found = (next((size for size in column if size not in (None, 1)), None) for column in columns)
        return tuple(other if size is None else size for size, other in zip(shape, found, strict=True))

    return tuple(map(filled, shapes))


def same_rank_shapes(lhs: PartialShape, rhs: PartialShape) -> tuple[PartialShape, PartialShape]:
    """For `complete`: unknown dimensions of one operand from the other, as for equal shapes.

    A wholly unknown shape stays unknown next to a scalar.
    """
    if lhs is None or rhs is None:
        known = lhs if rhs is None else rhs
        return (known, known) if known else (lhs, rhs)
    first, second = filled_from_each_other((lhs, rhs))
    return first, second


def of_product(left: Shape, right: Shape, result: Shape, batch: int = 1) -> int:
    """The multiply-adds of matrix products, from shapes alone: m n k for each of `batch` products (m, k) x (k, n),
    whatever the order of the axes and whichever are transposed.

    The sizes of the three arrays are m k, k n and m n; the root of their product is m n k.
    """
    sizes = prod(left) * prod(right) * prod(result)
    return isqrt(sizes // batch**3) * batch if sizes else 0
