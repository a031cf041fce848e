"""Operators of detectors as helper functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .rules import needs, rule

if TYPE_CHECKING:
    from hybrid_lab.graph.node import Node

    from .rules import AnyOperator
    from .writer import SourceWriter


@rule("_contrib_MultiBoxDetection")
def _multibox_detection(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    settings = (op.clip, op.threshold, op.nms_threshold, op.force_suppress, tuple(op.variances), op.nms_topk)
    return f"{writer.helper('multibox_detection')}({', '.join([*inputs, *map(repr, settings)])})"


@rule("_contrib_box_nms")
def _box_nms(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    settings = (
        op.overlap_thresh, op.valid_thresh, op.topk, op.coord_start, op.score_index, op.id_index, op.background_id,
        op.force_suppress, op.in_format == "center", op.out_format == "center",
    )  # fmt: skip
    return f"{writer.helper('box_nms')}({inputs[0]}, {', '.join(map(repr, settings))})"


@rule("ROIPooling")
def _roi_pooling(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    return f"{writer.helper('roi_pooling')}({', '.join(inputs)}, {tuple(op.pooled_size)}, {op.spatial_scale!r})"


@rule("_contrib_ROIAlign")
def _roi_align(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> str:
    needs(not op.position_sensitive, node, "position_sensitive")
    settings = (tuple(op.pooled_size), op.spatial_scale, op.sample_ratio, op.aligned)
    return f"{writer.helper('roi_align')}({', '.join([*inputs, *map(repr, settings)])})"


@rule("_contrib_Proposal", "_contrib_MultiProposal")
def _proposal(writer: SourceWriter, node: Node, op: AnyOperator, inputs: Sequence[str]) -> list[str] | str:
    base = [[float(number) for number in box] for box in op.base]
    settings = (
        base, op.feature_stride, op.rpn_pre_nms_top_n, op.rpn_post_nms_top_n, op.threshold, op.rpn_min_size,
        op.iou_loss,
    )  # fmt: skip
    call = f"{writer.helper('proposal')}({', '.join([*inputs, *map(repr, settings)])})"
    return call if op.output_score else f"{call}[0]"
