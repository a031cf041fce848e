"""Bounding boxes of object detection: overlaps, non-maximum suppression, matching, offsets, anchors.

A box is four numbers: "corner" (xmin, ymin, xmax, ymax) or "center" (x, y, width, height).
"""

from __future__ import annotations

from math import prod
from typing import Any, Literal

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError, Unmappable
from hybrid_lab.ops.framework import Operator, Signature, all_into, in_c_order, into, ints, sample
from hybrid_lab.ops.framework.lowering import emit_lowering, run_lowering
from hybrid_lab.ops.framework.protocols import Functions, Gradients, OnnxGraph, Tensor
from hybrid_lab.ops.framework.types import Array, Arrays, Outs, Shape
from hybrid_lab.ops.vision.suppression import uncovered

Format = Literal["corner", "center"]

_BOXES = np.array(
    [
        [[0, 0.5, 0.1, 0.1, 0.3, 0.3], [1, 0.4, 0.1, 0.12, 0.3, 0.32], [0, 0.3, 0.1, 0.1, 0.28, 0.29],
         [2, 0.6, 0.5, 0.5, 0.7, 0.8], [0, 0.05, 0.5, 0.5, 0.7, 0.8]],
        [[1, 0.2, 0.0, 0.0, 0.5, 0.5], [1, 0.9, 0.05, 0.0, 0.5, 0.5], [2, 0.8, 0.6, 0.6, 0.9, 0.9],
         [2, 0.01, 0.6, 0.6, 0.8, 0.9], [0, 0.7, 0.6, 0.62, 0.9, 0.9]],
    ],
    "float32",
)  # fmt: skip


def corners(boxes: np.ndarray, box_format: str) -> tuple[np.ndarray, ...]:
    """xmin, ymin, xmax, ymax of boxes (..., 4)."""
    first, second, third, fourth = (boxes[..., index] for index in range(4))
    if box_format == "corner":
        return first, second, third, fourth
    return first - third / 2, second - fourth / 2, first + third / 2, second + fourth / 2


def _areas(box: tuple[np.ndarray, ...]) -> np.ndarray:
    return np.maximum(box[2] - box[0], 0) * np.maximum(box[3] - box[1], 0)


def overlaps(first: tuple[np.ndarray, ...], second: tuple[np.ndarray, ...]) -> np.ndarray:
    """Intersection over union of two broadcastable sets of corners; 0 if they do not meet."""
    width = np.minimum(first[2], second[2]) - np.maximum(first[0], second[0])
    height = np.minimum(first[3], second[3]) - np.maximum(first[1], second[1])
    shared = np.maximum(width, 0) * np.maximum(height, 0)
    union = _areas(first) + _areas(second) - shared
    return np.divide(shared, union, out=np.zeros_like(shared), where=shared > 0)


def _without_elements(*boxes: Any) -> None:
    """Raise Unmappable for empty arrays, whose sizes say something else in a Reshape."""
    if any(0 in item.shape for item in boxes):
        raise Unmappable("an empty array")


def _parts(F: Functions, boxes: Tensor, box_format: str = "corner") -> tuple[Tensor, ...]:
    """As `corners`, each with a last axis of 1."""
    first, second, third, fourth = (F.slice_axis(boxes, axis=-1, begin=index, end=index + 1) for index in range(4))
    if box_format == "corner":
        return first, second, third, fourth
    width, height = third * 0.5, fourth * 0.5
    return first - width, second - height, first + width, second + height


def _four(name: str, **shapes: tuple[int, ...]) -> None:
    for key, shape in shapes.items():
        if len(shape) < 2 or shape[-1] != 4:
            raise ShapeError(f"{name}: {key} has shape {shape}; (..., n, 4) is needed, a box is four numbers")


class BoxIoU(Operator, name="_contrib_box_iou"):
    """Overlap of every box of lhs with every box of rhs: intersection over union. No gradient, as in MXNet.

    lhs : (..., 4); rhs : (..., 4), floating; returns : lhs' shape without the 4, then rhs' without the 4
    """

    dtype_kinds = "f"
    format: Format = "corner"
    onnx = emit_lowering
    samples = [
        sample(_BOXES[0, :, 2:], _BOXES[1, :3, 2:], gradient=False),
        sample(_BOXES[:, :, 2:], _BOXES[1, :, 2:], format="center", gradient=False),
    ]

    def infer_shape(self, lhs: Shape, rhs: Shape) -> Shape:
        _four("box_iou", lhs=lhs, rhs=rhs)
        return (*lhs[:-1], *rhs[:-1])

    def numpy(self, lhs: Array, rhs: Array, out: Array | None = None) -> Array:
        first = tuple(item[:, None] for item in corners(lhs.reshape(-1, 4), self.format))
        second = tuple(item[None] for item in corners(rhs.reshape(-1, 4), self.format))
        return into(overlaps(first, second).reshape(self.infer_shape(lhs.shape, rhs.shape)), out)

    def lower(self, F: Functions, lhs: Tensor, rhs: Tensor) -> Tensor:
        _without_elements(lhs, rhs)
        rows, columns = prod(lhs.shape[:-1]), prod(rhs.shape[:-1])
        first = _parts(F, F.Reshape(lhs, shape=(rows, 1, 4)), self.format)
        second = _parts(F, F.Reshape(rhs, shape=(1, columns, 4)), self.format)

        def area(box: tuple[Tensor, ...]) -> Tensor:
            width, height = box[2] - box[0], box[3] - box[1]
            return F.broadcast_maximum(width, 0.0) * F.broadcast_maximum(height, 0.0)

        low, high = map(F.broadcast_maximum, first[:2], second[:2]), map(F.broadcast_minimum, first[2:], second[2:])
        shared = area((*low, *high))
        met = F.broadcast_greater(shared, 0.0)
        union = F.where(met, area(first) + area(second) - shared, 1.0)
        return F.Reshape(F.where(met, shared / union, 0.0), shape=self.infer_shape(lhs.shape, rhs.shape))


class BoxNMS(Operator, name="_contrib_box_nms", aliases=("_contrib_box_non_maximum_suppression",)):
    """Non-maximum suppression: boxes in the order of their scores, without boxes that overlap a better box.

    data : (..., n, k), floating: per box a score at score_index, four coordinates from coord_start on, perhaps a class
    at id_index (then only boxes of one class suppress each other, unless force_suppress), and anything else
    returns : as data, the boxes that are left first, rows of -1 behind them. Left out are also scores of at most
    valid_thresh, the class background_id, and all but the topk best; topk=-1 takes all.
    """

    dtype_kinds = "f"
    overlap_thresh: float = 0.5
    valid_thresh: float = 0.0
    topk: int = -1
    coord_start: int = 2
    score_index: int = 1
    id_index: int = -1
    background_id: int = -1
    force_suppress: bool = False
    in_format: Format = "corner"
    out_format: Format = "corner"
    signature = Signature(outputs=2, visible=1)
    samples = [
        sample(_BOXES, overlap_thresh=0.5, id_index=0, smooth=False),
        sample(_BOXES, overlap_thresh=0.5, id_index=0, force_suppress=True, valid_thresh=0.1, smooth=False),
        sample(_BOXES[0], overlap_thresh=0.9, topk=3),
        sample(_BOXES, overlap_thresh=0.3, id_index=0, background_id=2, smooth=False),
        sample(_BOXES, overlap_thresh=0.3, in_format="center", gradient=False),
        sample(_BOXES, overlap_thresh=0.3, out_format="center", gradient=False),
        sample(_BOXES[:1], valid_thresh=2.0),
        sample(_BOXES, topk=0),
    ]

    def infer_shape(self, data: Shape) -> list[Shape]:
        coordinates = range(self.coord_start, self.coord_start + 4)
        used = [*coordinates, self.score_index, *([self.id_index] if self.id_index >= 0 else [])]
        if len(data) < 2:
            raise ShapeError(f"box_nms: data has shape {data}; (..., n, k) is needed, k numbers for each of n boxes")
        if min(used) < 0 or max(used) >= data[-1] or len(set(used)) != len(used):
            identity = f", the class at id_index={self.id_index}" if self.id_index >= 0 else ""
            raise ShapeError(
                f"box_nms: the score at score_index={self.score_index}{identity} and the four coordinates from "
                f"coord_start={self.coord_start} on must be different ones of the numbers of a box, which are numbered "
                f"from 0 to {data[-1] - 1}; data has shape {data}"
            )
        return [data, (*data[:-1], 1)]

    def numpy(self, data: Array, out: Outs = None) -> tuple[Array | None, ...]:
        rows, count = data.reshape(prod(data.shape[:-2]), *data.shape[-2:]), data.shape[-2]
        if self.topk == 0:
            result, record = rows.copy(), np.arange(len(rows) * count, like=data).reshape(len(rows), count)
        else:
            result, record = np.full_like(rows, -1), np.full(rows.shape[:2], -1, like=data)
            for image, boxes in enumerate(rows):
                kept = self._kept(boxes)
                result[image, : len(kept)] = self._converted(boxes[kept])
                record[image, : len(kept)] = kept + image * count
        made = result.reshape(data.shape), record.reshape(*data.shape[:-1], 1)
        return tuple(into(item, target, data.dtype) for item, target in zip(made, out or (None, None), strict=True))

    def _kept(self, rows: np.ndarray) -> np.ndarray:
        """The numbers of the boxes of one image (n, k) that are left, best first."""
        scores = rows[:, self.score_index]
        valid = scores > self.valid_thresh
        if self.id_index >= 0:
            valid &= rows[:, self.id_index] != self.background_id
        order = np.argsort(np.where(valid, -scores, np.inf), kind="stable")[: None if self.topk < 0 else self.topk]
        order = order[valid[order]]
        place = slice(self.coord_start, self.coord_start + 4)
        box = [*map(in_c_order, corners(rows[order, place], self.in_format))]
        groups = [np.arange(len(order), like=rows)]
        if self.id_index >= 0 and not self.force_suppress:
            _, of_class = np.unique(rows[order, self.id_index], return_inverse=True, equal_nan=False)
            groups = [np.flatnonzero(of_class == number) for number in range(of_class.max(initial=-1) + 1)]

        def kept(group: np.ndarray) -> np.ndarray:
            own = [item[group] for item in box]

            def covers(some: np.ndarray, others: np.ndarray) -> np.ndarray:
                shared = overlaps(tuple(item[some, None] for item in own), tuple(item[others] for item in own))
                return shared > self.overlap_thresh

            return group[uncovered(len(group), covers, like=group)]

        return order[np.sort(np.concatenate([*map(kept, groups), np.zeros(0, np.int64, like=rows)]))]

    def _converted(self, rows: np.ndarray) -> np.ndarray:
        """Coordinates in out_format; a box that starts below 0 is not changed, as in MXNet."""
        if self.in_format == self.out_format:
            return rows
        result = rows.copy()
        place = slice(self.coord_start, self.coord_start + 4)
        box = rows[..., place]
        if self.out_format == "corner":
            made = np.stack(corners(box, "center"), axis=-1)
        else:
            low, high = box[..., :2], box[..., 2:]
            made = np.concatenate([(low + high) / 2, high - low], axis=-1)
        result[..., place] = np.where(box[..., :1] < 0, box, made)
        return result

    def grad(self, F: Functions, data: Tensor, y: Tensor, record: Tensor, dy: Tensor) -> Tensor:
        return F._rows_by_record(dy, record, back=True)


class RowsByRecord(Operator, name="_rows_by_record"):
    """The rows of data that box_nms recorded, zeros if it recorded -1; or, with back, rows put back there.

    data : (..., n, k); record : (..., n, 1), numbers of rows of all batches, or -1; returns : as data
    """

    arrays_only = ("record",)
    back: bool = False
    shaped_like = 0
    typed_like = 0
    mxnet = None
    samples = [
        sample((2, 3, 2), np.array([[[2], [0], [-1]], [[5], [-1], [-1]]], "float32"), gradient=False),
        sample((2, 3, 2), np.array([[[2], [0], [-1]], [[5], [-1], [-1]]], "float32"), back=True, gradient=False),
    ]

    def numpy(self, data: Array, record: Array, out: Array | None = None) -> Array:
        rows, places = data.reshape(-1, data.shape[-1]), record.reshape(-1).astype(np.int64)
        found = places >= 0
        result = np.zeros_like(rows)
        if self.back:
            result[places[found]] = rows[found]
        else:
            result[found] = rows[places[found]]
        return into(result.reshape(data.shape), out)

    def grad(self, F: Functions, data: Tensor, record: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        return F._rows_by_record(dy, record, back=not self.back), None


class BipartiteMatching(Operator, name="_contrib_bipartite_matching"):
    """Rows and columns of a score matrix matched one to one, the best score first. No gradient, as in MXNet.

    data : (..., rows, columns); threshold : worse scores match nothing; is_ascend : small scores are good
    returns : the column of every row (..., rows) and the row of every column (..., columns), -1 for none
    """

    dtype_kinds = "f"
    is_ascend: bool = False
    threshold: float
    topk: int = -1
    signature = Signature(outputs=2)
    samples = [
        sample((3, 2), threshold=0.0, gradient=False),
        sample((2, 3, 4), threshold=-2.0, gradient=False),
        sample((2, 4, 3), threshold=0.3, is_ascend=True, gradient=False),
        sample((4, 4), threshold=-2.0, topk=2, gradient=False),
    ]

    def infer_shape(self, data: Shape) -> list[Shape]:
        if len(data) < 2:
            raise ShapeError(f"bipartite_matching: data has shape {data}; (..., rows, columns) is needed")
        return [data[:-1], (*data[:-2], data[-1])]

    def numpy(self, data: Array, out: Outs = None) -> Array | Arrays:
        rows, columns = data.shape[-2:]
        batch = prod(data.shape[:-2])
        wide = np.float64 if data.dtype == np.float64 else np.float32
        scores: Array = data.reshape(batch, rows, columns).astype(wide)
        scores = -scores if self.is_ascend else scores.copy()
        threshold = -self.threshold if self.is_ascend else self.threshold
        first, second = np.full((batch, rows), -1, like=data), np.full((batch, columns), -1, like=data)
        line = np.arange(batch, like=data)
        # MXNet stops behind match number topk + 1.
        limit = min(rows, columns, self.topk + 1 if self.topk > 0 else rows)
        for _ in range(limit):
            best = scores.reshape(batch, rows * columns).argmax(axis=1)
            row, column = np.divmod(best, max(columns, 1))
            good = scores[line, row, column] > threshold
            if not good.any():
                break
            chosen = line[good], row[good], column[good]
            first[chosen[0], chosen[1]] = chosen[2]
            second[chosen[0], chosen[2]] = chosen[1]
            scores[chosen[0], chosen[1], :] = -np.inf
            scores[chosen[0], :, chosen[2]] = -np.inf
        shapes = self.infer_shape(data.shape)
        made = [item.reshape(shape).astype(data.dtype) for item, shape in zip((first, second), shapes, strict=True)]
        return all_into(made, out)


class BoxEncode(Operator, name="_contrib_box_encode"):
    """The targets of a detector per anchor: the offset of its matched box, normalized; and a mask. No gradient.

    samples : (b, n), above 0.5 where the anchor is a positive one; matches : (b, n), numbers of boxes in refs
    anchors : (b, n, 4), refs : (b, m, 4), corners; means, stds : (4,)
    returns : targets (b, n, 4): center offset / anchor size and log(size / anchor size), minus means, over stds;
    masks (b, n, 4); both 0 if the anchor is not positive
    """

    dtype_kinds = "f"
    signature = Signature(outputs=2)
    samples = [
        sample(
            ints((2, 5), -1, 2), ints((2, 5), 0, 3), _BOXES[:, :, 2:], _BOXES[::-1, 1:4, 2:].copy(),
            np.array([0.0, 0.1, 0.2, 0.0], "float32"), np.array([0.1, 0.1, 0.2, 0.2], "float32"), gradient=False,
        ),
    ]  # fmt: skip

    def infer_shape(
        self, samples: Shape, matches: Shape, anchors: Shape, refs: Shape, means: Shape, stds: Shape
    ) -> list[Shape]:
        _four("box_encode", anchors=anchors, refs=refs)
        if len(anchors) != 3 or len(refs) != 3 or samples != anchors[:2] or matches != anchors[:2]:
            raise ShapeError(
                f"box_encode: samples {samples} and matches {matches} need the first dimensions of anchors {anchors}; "
                f"refs is (b, m, 4), it has {refs}"
            )
        if means != (4,) or stds != (4,):
            raise ShapeError(f"box_encode: means {means} and stds {stds} need four numbers each")
        if anchors[0] * anchors[1] and not refs[1]:
            raise ShapeError(f"box_encode: refs {refs} has no boxes that anchors {anchors} could be matched with")
        return [anchors, anchors]

    def numpy(
        self, samples: Array, matches: Array, anchors: Array, refs: Array, means: Array, stds: Array, out: Outs = None
    ) -> tuple[Array | None, ...]:
        places = np.clip(matches.astype(np.int64), 0, max(refs.shape[1] - 1, 0))
        box = np.take_along_axis(refs, places[..., None], axis=1)
        size, anchor_size = box[..., 2:] - box[..., :2], anchors[..., 2:] - anchors[..., :2]
        half = anchors.dtype.type(0.5)
        offset = (box[..., :2] + size * half - anchors[..., :2] - anchor_size * half) / anchor_size
        with np.errstate(divide="ignore", invalid="ignore"):
            growth = np.log(size / anchor_size)
            target = (np.concatenate([offset, growth], axis=-1) - means) / stds
        positive = (samples > 0.5)[..., None]
        made = np.where(positive, target, 0), np.broadcast_to(positive, target.shape)
        return tuple(into(item, memory, anchors.dtype) for item, memory in zip(made, out or (None, None), strict=True))

    def lower(
        self, F: Functions, samples: Tensor, matches: Tensor, anchors: Tensor, refs: Tensor, means: Tensor, stds: Tensor
    ) -> tuple[Tensor, ...]:
        _without_elements(anchors, refs)
        batch, count, _ = refs.shape
        first = F._arange(start=0, stop=batch * count, step=count, dtype=matches.dtype.name)
        places = F.clip(matches, a_min=0, a_max=count - 1) + F.Reshape(first, shape=(batch, 1))
        box = F.take(F.Reshape(refs, shape=(batch * count, 4)), places)
        (low, high), (anchor_low, anchor_high) = (
            [F.slice_axis(item, axis=-1, begin=begin, end=begin + 2) for begin in (0, 2)] for item in (box, anchors)
        )
        size, anchor_size = high - low, anchor_high - anchor_low
        offset = (low + size * 0.5 - anchor_low - anchor_size * 0.5) / anchor_size
        target = (F.Concat(offset, F.log(size / anchor_size), dim=-1) - means) / stds
        positive = F.expand_dims(F.broadcast_greater(samples, 0.5), axis=-1)
        return F.where(positive, target, 0.0), F.broadcast_like(F._cast_like(positive, anchors), anchors)


class BoxDecode(Operator, name="_contrib_box_decode"):
    """Boxes from the offsets a detector predicts: the inverse of box_encode. No gradient, as in MXNet.

    data : (b, n, 4) offsets, multiplied by std0 ... std3; anchors : (1, n, 4), in `format`
    clip : above 0, the most that the logarithm of a size may be; returns : (b, n, 4), corners
    """

    dtype_kinds = "f"
    std0: float = 1.0
    std1: float = 1.0
    std2: float = 1.0
    std3: float = 1.0
    clip: float = -1.0
    format: Format = "center"
    numpy = run_lowering
    onnx = emit_lowering
    samples = [
        sample((2, 5, 4), _BOXES[:1, :, 2:], gradient=False),
        sample((2, 5, 4), _BOXES[:1, :, 2:], format="corner", std0=0.1, std1=0.1, std2=0.2, std3=0.2, gradient=False),
        sample((1, 5, 4), _BOXES[:1, :, 2:], clip=0.5, gradient=False),
    ]

    def infer_shape(self, data: Shape, anchors: Shape) -> Shape:
        _four("box_decode", data=data, anchors=anchors)
        if len(data) != 3 or anchors != (1, *data[1:]):
            raise ShapeError(f"box_decode: data {data} needs anchors of shape {(1, *data[1:])}, they have {anchors}")
        return data

    def lower(self, F: Functions, data: Tensor, anchors: Tensor) -> Tensor:
        low, high = (F.slice_axis(anchors, axis=-1, begin=begin, end=begin + 2) for begin in (0, 2))
        center, size = low, high
        if self.format == "corner":
            size = high - low
            center = low + size * 0.5
        offset = self._scaled(F, data, 0, (self.std0, self.std1))
        growth = self._scaled(F, data, 2, (self.std2, self.std3))
        if self.clip > 0:
            growth = F.broadcast_minimum(growth, self.clip)
        middle, half = offset * size + center, F.exp(growth) * size * 0.5
        return F.Concat(middle - half, middle + half, dim=-1)

    @staticmethod
    def _scaled(F: Functions, data: Tensor, begin: int, factors: tuple[float, float]) -> Tensor:
        parts = (F.slice_axis(data, axis=-1, begin=begin + index, end=begin + index + 1) for index in (0, 1))
        return F.Concat(*(part * factor for part, factor in zip(parts, factors, strict=True)), dim=-1)


class MultiBoxPrior(Operator, name="_contrib_MultiBoxPrior"):
    """Anchor boxes around every pixel of a feature map, in fractions of the image. No gradient.

    data : (n, c, h, w), read for its shape and dtype
    sizes : of boxes with the first of the ratios (width / height); boxes of the first size have all ratios
    steps : (y, x) between centers, or -1 for 1 / h and 1 / w; offsets : of the first center, in steps
    returns : (1, h w (len(sizes) + len(ratios) - 1), 4), corners; clip limits them to [0, 1]
    """

    dtype_kinds = "f"
    precision = "float32"
    sizes: tuple[float, ...] = (1.0,)
    ratios: tuple[float, ...] = (1.0,)
    clip: bool = False
    steps: tuple[float, ...] = (-1.0, -1.0)
    offsets: tuple[float, ...] = (0.5, 0.5)
    shape_only = ("data",)
    samples = [
        sample((1, 2, 2, 3), gradient=False),
        sample((2, 1, 3, 2), sizes=(0.4, 0.2), ratios=(1.0, 2.0, 0.5), gradient=False),
        sample((1, 1, 2, 2), sizes=(1.5,), clip=True, steps=(0.5, 0.25), offsets=(0.0, 1.0), gradient=False),
    ]

    def check(self) -> None:
        if not self.sizes or not self.ratios or len(self.steps) != 2 or len(self.offsets) != 2:
            raise AttributeSpecError(
                "MultiBoxPrior: sizes and ratios need at least one number, steps and offsets two numbers"
            )
        if not all(0 <= offset <= 1 for offset in self.offsets):
            raise AttributeSpecError(f"MultiBoxPrior: offsets={self.offsets} must be in [0, 1]")

    def infer_shape(self, data: Shape) -> Shape:
        if len(data) != 4:
            raise ShapeError(f"MultiBoxPrior: data has shape {data}; four dimensions are needed (n, c, h, w)")
        if not data[2] * data[3]:
            raise ShapeError(f"MultiBoxPrior: data {data} has no pixels to place boxes at")
        return (1, data[2] * data[3] * (len(self.sizes) + len(self.ratios) - 1), 4)

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        h, w = data.shape[2:]
        step_y, step_x = (step if step > 0 else 1 / size for step, size in zip(self.steps, data.shape[2:], strict=True))
        first, roots, sizes = np.sqrt(self.ratios[0]), np.sqrt(self.ratios[1:]), np.array(self.sizes)
        widths = np.concatenate([sizes * first, sizes[0] * roots]) * h / w / 2
        heights = np.concatenate([sizes / first, sizes[0] / roots]) / 2
        boxes = np.empty((h, w, len(widths), 4), data.dtype)
        y = ((np.arange(h) + self.offsets[0]) * step_y)[:, None, None]
        x = ((np.arange(w) + self.offsets[1]) * step_x)[None, :, None]
        boxes[..., 0], boxes[..., 1], boxes[..., 2], boxes[..., 3] = x - widths, y - heights, x + widths, y + heights
        if self.clip:
            np.clip(boxes, 0, 1, out=boxes)
        return into(boxes.reshape(self.infer_shape(data.shape)), out)

    def onnx(self, g: OnnxGraph, data: str) -> str:
        # No box depends on the batch, which may be open.
        stand_in = np.broadcast_to(np.zeros((), g.dtype(data)), (1, 1, *g.shape(data)[2:]))
        return g.Identity(g.const(self.numpy(stand_in), g.dtype(data)))
