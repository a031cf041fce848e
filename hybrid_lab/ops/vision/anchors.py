"""Detectors with anchors in one stage (SSD): targets of every anchor, and boxes from predictions."""

from __future__ import annotations

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError
from hybrid_lab.ops.framework import Operator, Signature, all_into, into, sample
from hybrid_lab.ops.framework.types import Array, Arrays, Outs, PartialShape, PartialShapes, Shape
from hybrid_lab.ops.vision.boxes import corners
from hybrid_lab.ops.vision.suppression import uncovered

_ANCHORS = np.array(
    [[[0.1, 0.1, 0.3, 0.3], [0.5, 0.5, 0.9, 0.8], [0.0, 0.2, 0.4, 0.6], [0.6, 0.1, 0.9, 0.4], [0.3, 0.3, 0.7, 0.7],
      [0.05, 0.55, 0.45, 0.95]]],
    "float32",
)  # fmt: skip
_LABELS = np.array(
    [[[1, 0.12, 0.1, 0.35, 0.3], [0, 0.5, 0.45, 0.85, 0.8], [-1, -1, -1, -1, -1]],
     [[2, 0.3, 0.35, 0.75, 0.7], [-1, -1, -1, -1, -1], [-1, -1, -1, -1, -1]],
     [[-1, -1, -1, -1, -1], [-1, -1, -1, -1, -1], [-1, -1, -1, -1, -1]]],
    "float32",
)  # fmt: skip
_VARIANCES = (0.1, 0.1, 0.2, 0.2)


def _check_variances(op: Operator, variances: tuple[float, ...]) -> None:
    if len(variances) != 4 or not all(variances):
        raise AttributeSpecError(f"{type(op).__name__}: variances={variances} must be four numbers other than 0")


def _check_anchors(op: Operator, anchors: Shape) -> int:
    """How many anchors there are. Raises ShapeError."""
    if len(anchors) != 3 or anchors[0] != 1 or anchors[2] != 4:
        raise ShapeError(
            f"{type(op).__name__}: anchor has shape {anchors}; (1, n, 4) is needed, four coordinates for each anchor"
        )
    if not anchors[1]:
        raise ShapeError(f"{type(op).__name__}: there are no anchors, because anchor has shape {anchors}")
    return anchors[1]


def _overlaps(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Intersection over union of boxes (n, 4) and (m, 4), corners: (n, m); 0 if the union is 0."""
    a, b = (corners(item, "corner") for item in (first[:, None], second[None]))
    width = np.maximum(np.minimum(a[2], b[2]) - np.maximum(a[0], b[0]), 0)
    height = np.maximum(np.minimum(a[3], b[3]) - np.maximum(a[1], b[1]), 0)
    shared = width * height
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared
    return np.divide(shared, union, out=np.zeros_like(shared), where=union != 0)


class MultiBoxTarget(Operator, name="_contrib_MultiBoxTarget"):
    """The targets of every anchor: the offset of the box it is matched with, and its class. No gradient.

    anchor : (1, n, 4), corners; label : (b, m, 5 or more), class and corners, rows of -1 behind the last box
    cls_pred : (b, classes, n), read if negatives are mined
    Every box takes its best anchor; anchors that overlap a box by more than overlap_threshold take it, too. The others
    are background. With negative_mining_ratio > 0 only the anchors whose background class is least likely are
    background, negative_mining_ratio of them for each positive anchor; the remaining anchors get ignore_label, as all
    anchors of an image without boxes do.
    returns : offsets (b, 4 n), in variances; masks (b, 4 n); classes (b, n), 0 is background
    """

    dtype_kinds = "f"
    precision = "float32"
    overlap_threshold: float = 0.5
    ignore_label: float = -1.0
    negative_mining_ratio: float = -1.0
    negative_mining_thresh: float = 0.5
    minimum_negative_samples: int = 0
    variances: tuple[float, ...] = _VARIANCES
    signature = Signature(outputs=3)
    samples = [
        sample(_ANCHORS, _LABELS, (3, 4, 6), gradient=False),
        sample(_ANCHORS, _LABELS, (3, 4, 6), negative_mining_ratio=2.0, overlap_threshold=0.3, gradient=False),
        sample(_ANCHORS, _LABELS, (3, 4, 6), ignore_label=-2.0, variances=(1.0, 1.0, 1.0, 1.0), gradient=False),
    ]

    def check(self) -> None:
        _check_variances(self, self.variances)
        if self.negative_mining_ratio > 0 and not self.negative_mining_thresh > 0:
            raise AttributeSpecError(
                f"MultiBoxTarget: negative_mining_thresh={self.negative_mining_thresh} must be positive"
            )

    def infer_shape(self, anchor: Shape, label: Shape, cls_pred: Shape) -> list[Shape]:
        count = _check_anchors(self, anchor)
        if len(label) != 3 or not label[1] or label[2] < 5:
            raise ShapeError(f"MultiBoxTarget: label has shape {label}; (b, m, 5) is needed: class, x1, y1, x2, y2")
        if len(cls_pred) != 3 or cls_pred[2] != count or cls_pred[0] != label[0]:
            raise ShapeError(f"MultiBoxTarget: cls_pred {cls_pred} must be ({label[0]}, classes, {count})")
        return [(label[0], 4 * count), (label[0], 4 * count), (label[0], count)]

    def numpy(self, anchor: Array, label: Array, cls_pred: Array, out: Outs = None) -> Array | Arrays:
        batch, count = len(label), anchor.shape[1]
        offsets, masks = np.zeros((2, batch, count, 4), anchor.dtype, like=anchor)
        classes = np.full((batch, count), self.ignore_label, anchor.dtype, like=anchor)
        for index, rows in enumerate(label):
            ends = np.flatnonzero(rows[:, 0] == -1)
            boxes = rows[: ends[0]] if len(ends) else rows
            if not len(boxes):
                continue
            matched, positive, best = self._matched(_overlaps(anchor[0], boxes[:, 1:5]).astype(np.float32))
            classes[index, self._negative(positive, best, cls_pred[index])] = 0
            chosen = boxes[matched[positive]]
            classes[index, positive] = chosen[:, 0] + 1
            masks[index, positive] = 1
            offsets[index, positive] = self._offsets(anchor[0, positive], chosen[:, 1:5])
        return all_into([offsets.reshape(batch, -1), masks.reshape(batch, -1), classes], out)

    def _matched(self, overlaps: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The box of every anchor, where it counts as a match, and the largest overlap."""
        matched, best = overlaps.argmax(axis=1), overlaps.max(axis=1)
        positive = np.zeros(len(overlaps), np.bool_, like=overlaps)
        if self.overlap_threshold > 0:
            positive = best > np.float32(self.overlap_threshold)
        left = overlaps.copy()
        for _ in range(overlaps.shape[1]):
            anchor, box = np.unravel_index(left.argmax(), left.shape)
            if not left[anchor, box] > 1e-6:
                break
            matched[anchor], best[anchor], positive[anchor] = box, left[anchor, box], True
            left[anchor], left[:, box] = -1, -1
        return matched, positive, best

    def _negative(self, positive: np.ndarray, best: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """The numbers of the anchors that are background."""
        if not self.negative_mining_ratio > 0:
            return np.flatnonzero(~positive)
        found = int(positive.sum())
        count = min(int(found * np.float32(self.negative_mining_ratio)), len(positive) - found)
        able = np.flatnonzero(~positive & (best < np.float32(self.negative_mining_thresh)))
        shifted = np.exp(scores - scores.max(axis=0))
        background = (shifted[0] / shifted.sum(axis=0))[able]
        return able[np.argsort(background, kind="stable")[:count]]

    def _offsets(self, anchors: np.ndarray, boxes: np.ndarray) -> np.ndarray:
        low, high = anchors[:, :2], anchors[:, 2:]
        size, box_size = high - low, boxes[:, 2:] - boxes[:, :2]
        half = anchors.dtype.type(0.5)
        moved = ((boxes[:, :2] + boxes[:, 2:]) * half - (low + high) * half) / size
        with np.errstate(divide="ignore", invalid="ignore"):
            grown = np.log(box_size / size)
        result: np.ndarray = np.concatenate([moved, grown], axis=1) / np.array(self.variances, anchors.dtype)
        return result


class MultiBoxDetection(Operator, name="_contrib_MultiBoxDetection"):
    """Boxes from the predictions of a detector with anchors, after non-maximum suppression. No gradient.

    cls_prob : (b, classes, n), class 0 is background; loc_pred : (b, 4 n), offsets in variances; anchor : (1, n, 4)
    returns : (b, n, 6), rows of class (without background; -1 for none), score, corners, the best first
    """

    dtype_kinds = "f"
    precision = "float32"
    clip: bool = True
    threshold: float = 0.01
    background_id: int = 0
    nms_threshold: float = 0.5
    force_suppress: bool = False
    variances: tuple[float, ...] = _VARIANCES
    nms_topk: int = -1
    samples = [
        sample((2, 3, 6), (2, 24), _ANCHORS, low=0.0, gradient=False),
        sample(
            (2, 3, 6), (2, 24), _ANCHORS, low=0.0, nms_threshold=0.2, force_suppress=True, clip=False, gradient=False
        ),
        sample((2, 3, 6), (2, 24), _ANCHORS, low=0.0, threshold=0.5, nms_topk=2, nms_threshold=0.1, gradient=False),
        sample((1, 3, 6), (1, 24), _ANCHORS, low=0.0, nms_threshold=0.0, gradient=False),
    ]

    def check(self) -> None:
        _check_variances(self, self.variances)

    def complete(self, cls_prob: PartialShape, loc_pred: PartialShape, anchor: PartialShape) -> PartialShapes:
        return cls_prob, loc_pred, anchor

    def infer_shape(self, cls_prob: Shape, loc_pred: Shape, anchor: Shape) -> Shape:
        count = _check_anchors(self, anchor)
        if len(cls_prob) != 3 or cls_prob[2] != count or cls_prob[1] < 1:
            raise ShapeError(f"MultiBoxDetection: cls_prob {cls_prob} must be (b, classes, {count})")
        if loc_pred != (cls_prob[0], 4 * count):
            raise ShapeError(f"MultiBoxDetection: loc_pred {loc_pred} must be {(cls_prob[0], 4 * count)}")
        return (cls_prob[0], count, 6)

    def numpy(self, cls_prob: Array, loc_pred: Array, anchor: Array, out: Array | None = None) -> Array:
        batch, classes, count = cls_prob.shape
        result = np.full((batch, count, 6), -1, cls_prob.dtype, like=cls_prob)
        if classes > 1:
            boxes = self._boxes(anchor[0], loc_pred.reshape(batch, count, 4))
            best, score = cls_prob[:, 1:].argmax(axis=1), cls_prob[:, 1:].max(axis=1)
            for index in range(batch):
                kept = np.flatnonzero(~(score[index] < cls_prob.dtype.type(self.threshold)))
                if len(kept):
                    rows = np.column_stack([best[index, kept], score[index, kept], boxes[index, kept]])
                    result[index, : len(kept)] = self._suppressed(rows.astype(cls_prob.dtype))
        return into(result, out)

    def _boxes(self, anchors: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        low, high = anchors[:, :2], anchors[:, 2:]
        size, scale = high - low, np.array(self.variances, anchors.dtype)
        center = offsets[..., :2] * scale[:2] * size + (low + high) / 2
        half = np.exp(offsets[..., 2:] * scale[2:]) * size / 2
        boxes = np.concatenate([center - half, center + half], axis=-1)
        return np.clip(boxes, 0, 1) if self.clip else boxes

    def _suppressed(self, rows: np.ndarray) -> np.ndarray:
        """Rows of one image, the best first; class -1 if a better one covers them."""
        if not 0 < self.nms_threshold <= 1:
            return rows
        order = np.argsort(-rows[:, 1], kind="stable")
        count = min(self.nms_topk, len(rows)) if self.nms_topk > 0 else len(rows)
        result = rows.copy()
        result[count:, 0] = -1
        result[:count] = rows[order[:count]]
        best, threshold = result[:count], rows.dtype.type(self.nms_threshold)
        classes = best[:, 0].copy()

        def covers(some: np.ndarray, others: np.ndarray) -> np.ndarray:
            covered = _overlaps(best[some, 2:], best[others, 2:]) >= threshold
            return covered if self.force_suppress else covered & (classes[some, None] == classes[others])

        best[:, 0] = -1
        kept = uncovered(count, covers, like=order)
        best[kept, 0] = classes[kept]
        return result
