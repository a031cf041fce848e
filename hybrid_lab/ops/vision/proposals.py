"""Region proposals of detectors in two stages (Faster R-CNN): anchors moved by predictions, after suppression."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError
from hybrid_lab.ops.framework import Operator, Signature, all_into, filled, in_c_order, sample
from hybrid_lab.ops.framework.types import Array, Arrays, Outs, PartialShape, PartialShapes, Shape
from hybrid_lab.ops.vision.suppression import uncovered

_SCALES, _RATIOS = (4.0, 8.0, 16.0, 32.0), (0.5, 1.0, 2.0)


class _Proposing(Operator):
    """Base of Proposal (one image) and MultiProposal."""

    dtype_kinds = "f"
    rpn_pre_nms_top_n: int = 6000
    rpn_post_nms_top_n: int = 300
    threshold: float = 0.7
    rpn_min_size: int = 16
    scales: tuple[float, ...] = _SCALES
    ratios: tuple[float, ...] = _RATIOS
    feature_stride: int = 16
    output_score: bool = False
    iou_loss: bool = False

    @cached_property
    def signature(self) -> Signature:
        return Signature(self.input_names, outputs=2, visible=1 + self.output_score)

    def check(self) -> None:
        if self.rpn_post_nms_top_n < 1 or self.feature_stride < 1 or not self.scales or not self.ratios:
            raise AttributeSpecError(
                f"{self.name}: rpn_post_nms_top_n and feature_stride must be at least 1, scales and ratios not empty"
            )

    def complete(self, cls_prob: PartialShape, bbox_pred: PartialShape, im_info: PartialShape) -> PartialShapes:
        if cls_prob is None or len(cls_prob) != 4:
            return cls_prob, bbox_pred, im_info
        batch, channels, height, width = cls_prob
        wanted = (batch, None if channels is None else channels * 2, height, width)
        return cls_prob, filled(bbox_pred, wanted), filled(im_info, (batch, 3))

    def infer_shape(self, cls_prob: Shape, bbox_pred: Shape, im_info: Shape) -> list[Shape]:
        name, count = type(self).__name__, len(self.scales) * len(self.ratios)
        if len(cls_prob) != 4 or cls_prob[1] != 2 * count:
            raise ShapeError(
                f"{name}: cls_prob has shape {cls_prob}; (b, {2 * count}, h, w) is needed, two channels for each "
                f"pair of scales={self.scales} and ratios={self.ratios}"
            )
        if not cls_prob[2] * cls_prob[3]:
            raise ShapeError(f"{name}: there are no anchors, because cls_prob, of shape {cls_prob}, has no pixels")
        if bbox_pred != (cls_prob[0], 4 * count, *cls_prob[2:]) or im_info != (cls_prob[0], 3):
            raise ShapeError(
                f"{name}: bbox_pred {bbox_pred} and im_info {im_info}; cls_prob {cls_prob} needs "
                f"{(cls_prob[0], 4 * count, *cls_prob[2:])} and {(cls_prob[0], 3)}"
            )
        rows = cls_prob[0] * self.rpn_post_nms_top_n
        return [(rows, 5), (rows, 1)]

    @cached_property
    def base(self) -> np.ndarray:
        """The anchors of the first pixel, corners: (ratios scales, 4)."""
        side, boxes = np.float32(self.feature_stride), []
        middle = np.float32(0.5) * (side - 1)
        for ratio in np.array(self.ratios, np.float32):
            for scale in np.array(self.scales, np.float32):
                width = np.floor(np.sqrt(np.floor(side * side / ratio)) + np.float32(0.5)) * scale
                height = np.floor(width / scale * ratio + np.float32(0.5)) * scale
                half = np.float32(0.5) * (np.array([width, height], np.float32) - 1)
                boxes.append(np.concatenate([middle - half, middle + half]))
        return np.array(boxes, np.float32)

    def numpy(self, cls_prob: Array, bbox_pred: Array, im_info: Array, out: Outs = None) -> Array | Arrays:
        batch, post, kind = len(cls_prob), self.rpn_post_nms_top_n, cls_prob.dtype
        regions, scores = (
            np.zeros((batch, post, 5), kind, like=cls_prob),
            np.zeros((batch, post, 1), kind, like=cls_prob),
        )
        count = len(self.base)
        for image in range(batch):
            boxes, score = self._moved(bbox_pred[image], cls_prob[image, count:], im_info[image])
            kept = self._kept(boxes, score)
            # If too few boxes are left they come again, from the best on.
            kept = np.resize(kept, post)
            regions[image, :, 0], regions[image, :, 1:], scores[image, :, 0] = image, boxes[kept], score[kept]
        return all_into([regions.reshape(-1, 5), scores.reshape(-1, 1)], out)

    def _moved(self, moves: np.ndarray, scores: np.ndarray, info: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The boxes of one image (h w anchors, 4) and their scores; -1 for small boxes and boxes outside of the
        image.
        """
        anchors, (height, width) = len(self.base), scores.shape[1:]
        if not np.isfinite(info[:2]).all():
            raise ShapeError(f"{self.name}: im_info has the size {info[0]:g} x {info[1]:g}; numbers are needed")
        if height < int(info[0] / self.feature_stride) or width < int(info[1] / self.feature_stride):
            raise ShapeError(
                f"{self.name}: an image of {info[0]:g} x {info[1]:g} has more pixels / feature_stride="
                f"{self.feature_stride} than the maps, {height} x {width}"
            )
        kind = moves.dtype
        down, right = np.arange(height) * self.feature_stride, np.arange(width) * self.feature_stride
        shift = np.zeros((height, width, 1, 4), kind)
        shift[..., 0::2], shift[..., 1::2] = right[None, :, None, None], down[:, None, None, None]
        boxes = self.base.astype(kind) + shift
        offsets = moves.reshape(anchors, 4, height, width).transpose(2, 3, 0, 1)
        if self.iou_loss:
            made = boxes + offsets
        else:
            half, one = kind.type(0.5), kind.type(1)
            size = boxes[..., 2:] - boxes[..., :2] + one
            center = offsets[..., :2] * size + boxes[..., :2] + half * (size - one)
            reach = half * (np.exp(offsets[..., 2:]) * size - one)
            made = np.concatenate([center - reach, center + reach], axis=-1)
        limit = np.stack([info[1], info[0]] * 2).astype(kind) - 1
        made = np.maximum(np.minimum(made, limit), 0)
        score = scores.transpose(1, 2, 0).copy()
        score[int(info[0] / self.feature_stride) :] = -1
        score[:, int(info[1] / self.feature_stride) :] = -1
        least = kind.type(self.rpn_min_size) * info[2]
        small = (made[..., 2:] - made[..., :2] + 1 < least).any(axis=-1)
        score[small] = -1
        grown = np.array([-1, -1, 1, 1], kind) * (least / 2)
        made = np.where(small[..., None], made + grown, made)
        return made.reshape(-1, 4), score.reshape(-1)

    def _kept(self, boxes: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """The numbers of the boxes that are left, the best first."""
        order = np.argsort(-scores, kind="stable")
        if self.rpn_pre_nms_top_n > 0:
            order = order[: self.rpn_pre_nms_top_n]
        left, top, right, bottom = in_c_order(boxes[order].T)
        areas, threshold = (right - left + 1) * (bottom - top + 1), boxes.dtype.type(self.threshold)

        def covers(some: np.ndarray, others: np.ndarray) -> np.ndarray:
            each = some[:, None]
            width = np.maximum(np.minimum(right[each], right[others]) - np.maximum(left[each], left[others]) + 1, 0)
            height = np.maximum(np.minimum(bottom[each], bottom[others]) - np.maximum(top[each], top[others]) + 1, 0)
            shared = width * height
            with np.errstate(divide="ignore", invalid="ignore"):
                return shared / (areas[each] + areas[others] - shared) > threshold

        return order[uncovered(len(order), covers, self.rpn_post_nms_top_n, like=order)]


_INFO = np.array([[32.0, 48.0, 1.0], [30.0, 40.0, 1.0]], "float32")


class Proposal(_Proposing, name="_contrib_Proposal"):
    """Regions of interest of one image from the scores and offsets of a region proposal network. No gradient.

    cls_prob : (1, 2 anchors, h, w), background first; bbox_pred : (1, 4 anchors, h, w); im_info : (1, 3), height,
    width and scale of the image; anchors : one for every pair of ratios and scales, at every feature_stride pixels
    returns : (rpn_post_nms_top_n, 5), 0 and corners in pixels, the best first; with output_score also the scores
    """

    samples = [
        sample(
            (1, 12, 2, 3), (1, 24, 2, 3), _INFO[:1], scales=(1.0, 2.0), ratios=(0.5, 1.0, 2.0), rpn_post_nms_top_n=6,
            rpn_pre_nms_top_n=20, rpn_min_size=4, output_score=True, low=0.0, gradient=False,
        ),
    ]  # fmt: skip

    def infer_shape(self, cls_prob: Shape, bbox_pred: Shape, im_info: Shape) -> list[Shape]:
        if cls_prob[:1] != (1,):
            raise ShapeError(f"Proposal: cls_prob has shape {cls_prob}; use MultiProposal for several images")
        return super().infer_shape(cls_prob, bbox_pred, im_info)


class MultiProposal(_Proposing, name="_contrib_MultiProposal"):
    """As Proposal, for several images.

    cls_prob : (b, 2 anchors, h, w); bbox_pred : (b, 4 anchors, h, w); im_info : (b, 3)
    returns : (b rpn_post_nms_top_n, 5), the number of the image and corners; with output_score also the scores
    """

    samples = [
        sample(
            (2, 4, 2, 3), (2, 8, 2, 3), _INFO, scales=(1.0,), ratios=(0.5, 2.0), rpn_post_nms_top_n=5, threshold=0.5,
            rpn_min_size=8, low=0.0, gradient=False,
        ),
        sample(
            (1, 2, 2, 3), (1, 4, 2, 3), _INFO[:1], scales=(1.0,), ratios=(1.0,), rpn_post_nms_top_n=8, iou_loss=True,
            rpn_min_size=15, output_score=True, low=0.0, gradient=False,
        ),
    ]  # fmt: skip
