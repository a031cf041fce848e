"""Operators of detectors in files: anchors, boxes from predictions, region proposals, pooled regions.

As for box_nms, the forms are for files alone: their suppression is a Scan, and a region of the ONNX Runtime engine
holds no loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from hybrid_lab.diagnostics.errors import Unmappable

from . import box_nms
from .box_nms import Mine, column, picked

if TYPE_CHECKING:
    from hybrid_lab.graph.node import Node

    from .emitter import FileEmitter

AnyOperator: TypeAlias = Any
"""An Operator, with the attributes of its own class."""
Emit = Callable[["FileEmitter", "Node", Sequence[Any]], tuple[str, ...]]


def _multibox_prior(g: FileEmitter, node: Node, inputs: Sequence[Any]) -> tuple[str, ...]:
    """The anchors as an array: they follow from the height and width of the map."""
    dtype = g.dtype(inputs[0])
    height, width = (int(size) for size in g.shape(inputs[0])[2:])
    anchors = np.asarray(node.op.numpy(np.zeros((1, 1, height, width), dtype)))
    return (g.declare(g.Identity(g.const(anchors, dtype)), anchors.shape, dtype),)


def _multibox_detection(g: FileEmitter, node: Node, inputs: Sequence[Any]) -> tuple[str, ...]:
    op: Any = node.op
    scores, offsets, anchors = inputs
    batch, classes, count = g.shape(scores)
    if not isinstance(classes, int) or classes < 2:
        raise Unmappable("MultiBoxDetection without classes")
    count = int(count)
    dtype = g.dtype(scores)
    boxes = _detected_boxes(g, op, g.Reshape(offsets, [-1, count, 4]), anchors, dtype)
    best, kind = g.TopK(g.Slice(scores, [1], [classes], [1]), [1], axis=1, outputs=2)
    score, number = g.Squeeze(best, [1]), g.cast(g.Squeeze(kind, [1]), dtype)
    valid = g.Not(g.Less(score, g.const(op.threshold, dtype)))
    rows = g.Concat(g.Unsqueeze(number, [2]), g.Unsqueeze(score, [2]), boxes, axis=2)
    _, order = g.TopK(g.cast(valid, "float32"), [count], axis=1, outputs=2)  # valid boxes first, in their order
    result = picked(g, rows, order)
    if 0 < op.nms_threshold <= 1:
        most = min(op.nms_topk, count) if op.nms_topk > 0 else count
        _, ranks = g.TopK(g.Where(valid, score, g.const(-np.inf, dtype)), [most], axis=1, outputs=2)
        ranked = g.declare(picked(g, rows, ranks), (batch, most, 6), dtype)
        left = _kept(g, op, ranked, g.GatherElements(valid, ranks, axis=1), (batch, most))
        parts = [_with_classes(g, ranked, g.Unsqueeze(left, [2]), dtype)]
        if most < count:
            rest = g.Slice(result, [most], [count], [1])
            parts.append(_with_classes(g, rest, g.const(np.zeros((1, 1, 1), np.bool_), "bool"), dtype))
        result = g.Concat(*parts, axis=1) if len(parts) > 1 else parts[0]
    there = g.Unsqueeze(g.GatherElements(valid, order, axis=1), [2])
    return (g.declare(g.Where(there, result, g.const(-1, dtype)), (batch, count, 6), dtype),)


def _detected_boxes(g: FileEmitter, op: AnyOperator, moves: str, anchors: str, dtype: np.dtype) -> str:
    """Corners, (batch, anchors, 4), from offsets in variances."""
    low, high = g.Slice(anchors, [0], [2], [2]), g.Slice(anchors, [2], [4], [2])
    size, two = g.Sub(high, low), g.const(2, dtype)
    scale = [g.const(np.array(part, dtype), dtype) for part in (op.variances[:2], op.variances[2:])]
    center = g.Mul(g.Mul(g.Slice(moves, [0], [2], [2]), scale[0]), size)
    center = g.Add(center, g.Div(g.Add(low, high), two))
    half = g.Div(g.Mul(g.Exp(g.Mul(g.Slice(moves, [2], [4], [2]), scale[1])), size), two)
    boxes = g.Concat(g.Sub(center, half), g.Add(center, half), axis=2)
    return str(g.Min(g.Max(boxes, g.const(0, dtype)), g.const(1, dtype)) if op.clip else boxes)


def _with_classes(g: FileEmitter, rows: str, kept: str, dtype: np.dtype) -> str:
    """Rows whose class is -1 if they are not kept."""
    kind = g.Where(kept, g.Slice(rows, [0], [1], [2]), g.const(-1, dtype))
    return str(g.Concat(kind, g.Slice(rows, [1], [6], [2]), axis=2))


def _kept(g: FileEmitter, op: AnyOperator, ranked: str, alive: str, shape: tuple[Any, Any]) -> str:
    dtype = g.dtype(ranked)
    left, top, right, bottom = (column(g, ranked, index) for index in (2, 3, 4, 5))
    box = left, top, right, bottom
    areas = g.Mul(g.Sub(right, left), g.Sub(bottom, top))
    classes = None if op.force_suppress else column(g, ranked, 0)
    zero = g.const(0, dtype)

    def covered(mine: Mine) -> str:
        shared = box_nms.shared_area(g, box, mine, zero)
        union = g.Sub(g.Add(mine(areas), areas), shared)
        overlap = g.Where(g.Equal(union, zero), zero, g.Div(shared, union))
        found = g.Not(g.Less(overlap, g.const(op.nms_threshold, dtype)))
        return str(found if classes is None else g.And(found, g.Equal(mine(classes), classes)))

    return box_nms.kept(g, alive, shape, covered)


def _roi_pooling(g: FileEmitter, node: Node, inputs: Sequence[Any]) -> tuple[str, ...]:
    op: Any = node.op
    if g.dtype(inputs[0]) != np.float32:
        raise Unmappable(f"ROIPooling of {g.dtype(inputs[0])}: ONNX Runtime has it for float32")
    data, rois = inputs
    images = g.cast(g.Sub(g.Slice(g.Shape(data), [0], [1], [0]), g.const([1], "int64")), g.dtype(rois))
    image, boxes = g.Split(rois, [1, 4], axis=1, outputs=2)
    image = g.Min(g.Max(image, g.const(0, g.dtype(rois))), images)  # of an image that is not there: the nearest one
    regions = g.cast(g.Concat(image, boxes, axis=1), "float32")
    made = g.MaxRoiPool(data, regions, pooled_shape=list(op.pooled_size), spatial_scale=op.spatial_scale)
    return (g.declare(made, node.outputs[0].shape, g.dtype(data)),)


def _proposal(g: FileEmitter, node: Node, inputs: Sequence[Any]) -> tuple[str, ...]:
    op: Any = node.op
    scores = inputs[0]
    batch = int(g.shape(scores)[0])
    height, width = (int(size) for size in g.shape(scores)[2:])
    dtype, count, after = g.dtype(scores), height * width * len(op.base), op.rpn_post_nms_top_n
    boxes, score = _moved(g, op, inputs, (height, width))
    most = min(op.rpn_pre_nms_top_n, count) if op.rpn_pre_nms_top_n > 0 else count
    ranked_score, order = g.TopK(score, [most], axis=1, outputs=2)
    ranked = g.declare(picked(g, boxes, order), (batch, most, 4), dtype)
    left, top, right, bottom = (column(g, ranked, index) for index in range(4))
    box = left, top, right, bottom
    zero, one = g.const(0, dtype), g.const(1, dtype)
    areas = g.Mul(g.Add(g.Sub(right, left), one), g.Add(g.Sub(bottom, top), one))

    def covered(mine: Mine) -> str:
        shared = box_nms.shared_area(g, box, mine, zero, one)
        union = g.Sub(g.Add(mine(areas), areas), shared)
        return str(g.Greater(g.Div(shared, union), g.const(op.threshold, dtype)))

    alive = g.const(np.ones((batch, most), np.bool_), "bool")
    kept = box_nms.kept(g, g.Identity(alive), (batch, most), covered)
    number = min(after, most)
    _, places = g.TopK(g.cast(kept, "float32"), [number], axis=1, outputs=2)
    found = g.Min(g.ReduceSum(g.cast(kept, "int64"), [1], keepdims=1), g.const([[number]], "int64"))
    # If too few boxes are left they come again, from the best on.
    again = g.Mod(g.const(np.arange(after)[None].repeat(batch, 0), "int64"), found)
    chosen = g.GatherElements(places, again, axis=1)
    image = g.const(np.arange(batch).reshape(-1, 1, 1).repeat(after, 1), dtype)
    regions = g.Reshape(g.Concat(image, picked(g, ranked, chosen), axis=2), [-1, 5])
    made = g.Reshape(g.GatherElements(ranked_score, chosen, axis=1), [-1, 1])
    shapes = (batch * after, 5), (batch * after, 1)
    return tuple(g.declare(name, shape, dtype) for name, shape in zip((regions, made), shapes, strict=True))


def _moved(g: FileEmitter, op: AnyOperator, inputs: Sequence[str], size: tuple[int, int]) -> tuple[str, str]:
    """Boxes, (batch, anchors, 4), and their scores; -1 for small boxes and boxes outside of the image."""
    (scores, moves, info), (height, width) = inputs, size
    anchors, dtype = len(op.base), g.dtype(scores)
    y, x = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    shift = np.stack([x, y, x, y], axis=2)[:, :, None] * op.feature_stride
    boxes = (op.base + shift).reshape(1, -1, 4).astype(dtype)
    parts = g.Transpose(g.Reshape(moves, [-1, anchors, 4, height, width]), perm=[0, 3, 4, 1, 2])
    parts = g.Reshape(parts, [-1, boxes.shape[1], 4])
    half, one = g.const(0.5, dtype), g.const(1, dtype)
    if op.iou_loss:
        made = g.Add(parts, g.const(boxes, dtype))
    else:
        extent = boxes[..., 2:] - boxes[..., :2] + 1
        middle = boxes[..., :2] + (extent - 1) / 2
        center = g.Add(g.Mul(g.Slice(parts, [0], [2], [2]), g.const(extent, dtype)), g.const(middle, dtype))
        reach = g.Mul(g.Exp(g.Slice(parts, [2], [4], [2])), g.const(extent, dtype))
        reach = g.Mul(half, g.Sub(reach, one))
        made = g.Concat(g.Sub(center, reach), g.Add(center, reach), axis=2)
    rows, columns, scale = (g.Slice(info, [index], [index + 1], [1]) for index in range(3))
    limit = g.Unsqueeze(g.Sub(g.Concat(columns, rows, columns, rows, axis=1), one), [1])
    made = g.Max(g.Min(made, limit), g.const(0, dtype))
    score = g.Transpose(g.Slice(scores, [anchors], [2 * anchors], [1]), perm=[0, 2, 3, 1])
    score = g.Reshape(score, [-1, boxes.shape[1]])
    outside = None
    for grid, edge in ((y, rows), (x, columns)):
        cells = g.const(grid.reshape(1, -1, 1).repeat(anchors, 2).reshape(1, -1), dtype)
        beyond = g.Not(g.Less(cells, g.Floor(g.Div(edge, g.const(op.feature_stride, dtype)))))
        outside = beyond if outside is None else g.Or(outside, beyond)
    least = g.Mul(scale, g.const(op.rpn_min_size, dtype))
    left, top, right, bottom = (column(g, made, index) for index in range(4))
    small = g.Or(*(g.Less(g.Add(g.Sub(high, low), one), least) for low, high in ((left, right), (top, bottom))))
    score = g.Where(g.Or(outside, small), g.const(-1, dtype), score)
    grown = g.Mul(g.const(np.array([[[-0.5, -0.5, 0.5, 0.5]]], dtype), dtype), g.Unsqueeze(least, [2]))
    return str(g.Where(g.Unsqueeze(small, [2]), g.Add(made, grown), made)), str(score)


def _multibox_target(g: FileEmitter, node: Node, inputs: Sequence[Any]) -> tuple[str, ...]:
    """Refused: its matching of anchors with labels is a loop over the labels, which only a loss reads."""
    raise Unmappable(
        "MultiBoxTarget makes the targets of a loss from labels, which prediction does not have: export a Block that "
        "does not call it. `hybrid-lab convert` and gluon.SymbolBlock.imports leave it out of a file with its label"
    )


FORMS: dict[str, Emit] = {
    "_contrib_box_nms": box_nms.emit,
    "_contrib_MultiBoxPrior": _multibox_prior,
    "_contrib_MultiBoxTarget": _multibox_target,
    "_contrib_MultiBoxDetection": _multibox_detection,
    "_contrib_Proposal": _proposal,
    "_contrib_MultiProposal": _proposal,
    "ROIPooling": _roi_pooling,
}
"""Operators whose form is one of files alone, and one that prediction does not have."""
