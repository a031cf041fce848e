"""box_nms in files: a Scan over the boxes, best first, which suppresses the boxes that each box covers.

Not NonMaxSuppression, which gives numbers of boxes instead of rows, and compares other coordinates. The record has no
form of its own, because a region of the ONNX Runtime engine holds no loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from .nodes import subgraph

if TYPE_CHECKING:
    from hybrid_lab.graph.node import Node

    from .emitter import FileEmitter

#: xmin, ymin, xmax, ymax, each (batch, boxes)
Corners = tuple[str, str, str, str]
#: Takes one box's own column, (batch, 1), out of an array (batch, boxes).
Mine = Callable[[str], str]


def emit(g: FileEmitter, node: Node, inputs: Sequence[Any]) -> tuple[str, ...]:
    """The nodes of a box_nms; returns the name of its visible output."""
    op: Any = node.op
    (data,) = inputs
    shape, dtype = g.shape(data), g.dtype(data)
    count, width = shape[-2:]
    if op.topk == 0:
        return (g.declare(g.Identity(data), shape, dtype),)
    most = count if op.topk < 0 else min(count, op.topk)
    batch = prod(shape[:-2])
    rows = g.Reshape(data, [-1, count, width])
    valid = g.Greater(column(g, rows, op.score_index), g.const(op.valid_thresh, dtype))
    if op.id_index >= 0:
        background = g.Equal(column(g, rows, op.id_index), g.const(op.background_id, dtype))
        valid = g.And(valid, g.Not(background))
    key = g.Where(valid, column(g, rows, op.score_index), g.const(-np.inf, dtype))
    _, order = g.TopK(key, [most], axis=1, outputs=2)
    ranked = g.declare(picked(g, rows, order), (batch, most, width), dtype)
    alive = g.GatherElements(valid, order, axis=1)
    left = _kept(g, op, ranked, alive, (batch, most))
    _, place = g.TopK(g.cast(left, "float32"), [most], axis=1, outputs=2)  # kept boxes first, in their order
    found = g.Unsqueeze(g.GatherElements(left, place, axis=1), [2])
    result = g.Where(found, picked(g, _converted(g, op, ranked, width), place), g.const(-1, dtype))
    if most is not count:
        result = g.Pad(result, [0, 0, 0, 0, count - most, 0], g.const(-1, dtype))
    return (g.declare(g.Reshape(result, shape), shape, dtype),)


def column(g: FileEmitter, rows: str, index: int) -> str:
    """One number of each row: (batch, boxes)."""
    return str(g.Squeeze(g.Slice(rows, [index], [index + 1], [2]), [2]))


def picked(g: FileEmitter, rows: str, numbers: str) -> str:
    """Rows by number, each batch by its own numbers."""
    return str(g.GatherND(rows, g.Unsqueeze(numbers, [2]), batch_dims=1))


def _corners(g: FileEmitter, op: Any, rows: str, dtype: np.dtype, given: str) -> Corners:
    first, second, third, fourth = (column(g, rows, op.coord_start + index) for index in range(4))
    if given == "corner":
        return first, second, third, fourth
    half = g.const(2, dtype)
    width, height = g.Div(third, half), g.Div(fourth, half)
    return g.Sub(first, width), g.Sub(second, height), g.Add(first, width), g.Add(second, height)


def kept(g: FileEmitter, alive: str, shape: tuple[Any, Any], covered: Callable[[Mine], str]) -> str:
    """A mask of the boxes, best first, that no better box of the mask covers: bools of (batch, boxes).

    alive : mask of the boxes that count; shape : (batch, boxes); covered : a mask of the boxes that one box covers,
    bools of (batch, boxes), from a function that takes its own column, (batch, 1), out of an array (batch, boxes)
    """
    batch, most = shape
    flags = np.dtype("bool")
    numbers = g.arange(most)
    with g.inside() as nodes:
        number, state = g.unused("number"), g.unused("alive")

        def mine(value: str) -> str:
            return str(g.Unsqueeze(g.Gather(value, number, axis=1), [1]))

        there = g.Gather(state, number, axis=1)
        left = g.And(state, g.Not(g.And(covered(mine), g.Unsqueeze(there, [1]))))
        outputs = ((left, (batch, most), flags), (g.Identity(there), (batch,), flags))
    body = subgraph("suppress", nodes, ((state, (batch, most), flags), (number, (), np.dtype("int64"))), outputs)
    _, found = g.add("Scan", [alive, numbers], 2, {"body": body, "num_scan_inputs": 1})
    return str(g.Transpose(found, perm=[1, 0]))


def shared_area(g: FileEmitter, box: Corners, mine: Mine, zero: str, extra: str | None = None) -> str:
    """The area that one box shares with each: (batch, boxes). extra : 1 for boxes that count their last pixel, None for
    0
    """
    own = [mine(item) for item in box]
    sides = []
    for low, high in ((0, 2), (1, 3)):
        side = g.Sub(g.Min(own[high], box[high]), g.Max(own[low], box[low]))
        sides.append(g.Max(side if extra is None else g.Add(side, extra), zero))
    return str(g.Mul(*sides))


def _kept(g: FileEmitter, op: Any, ranked: str, alive: str, shape: tuple[Any, Any]) -> str:
    dtype = g.dtype(ranked)
    box = _corners(g, op, ranked, dtype, op.in_format)
    areas = _area(g, box, dtype)
    classes = column(g, ranked, op.id_index) if op.id_index >= 0 and not op.force_suppress else None
    zero = g.const(0, dtype)

    def covered(mine: Mine) -> str:
        shared = shared_area(g, box, mine, zero)
        union = g.Sub(g.Add(mine(areas), areas), shared)
        overlap = g.Where(g.Greater(shared, zero), g.Div(shared, union), zero)
        found = g.Greater(overlap, g.const(op.overlap_thresh, dtype))
        return str(found if classes is None else g.And(found, g.Equal(mine(classes), classes)))

    return kept(g, alive, shape, covered)


def _area(g: FileEmitter, box: Corners, dtype: np.dtype) -> str:
    zero = g.const(0, dtype)
    return str(g.Mul(g.Max(g.Sub(box[2], box[0]), zero), g.Max(g.Sub(box[3], box[1]), zero)))


def _converted(g: FileEmitter, op: Any, rows: str, width: int) -> str:
    """Coordinates in out_format; a box that starts below 0 is not changed."""
    if op.in_format == op.out_format:
        return rows
    dtype = g.dtype(rows)
    first, second, third, fourth = _corners(g, op, rows, dtype, "corner")
    if op.out_format == "corner":
        made = _corners(g, op, rows, dtype, "center")
    else:
        half = g.const(2, dtype)
        centers = g.Div(g.Add(first, third), half), g.Div(g.Add(second, fourth), half)
        made = (*centers, g.Sub(third, first), g.Sub(fourth, second))
    box = g.Slice(rows, [op.coord_start], [op.coord_start + 4], [2])
    joined = g.Concat(*(g.Unsqueeze(item, [2]) for item in made), axis=2)
    outside = g.Unsqueeze(g.Less(first, g.const(0, dtype)), [2])
    parts = [g.Where(outside, box, joined)]
    if op.coord_start:
        parts.insert(0, g.Slice(rows, [0], [op.coord_start], [2]))
    if op.coord_start + 4 < width:
        parts.append(g.Slice(rows, [op.coord_start + 4], [width], [2]))
    return str(g.Concat(*parts, axis=2))
