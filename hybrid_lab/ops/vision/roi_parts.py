"""Position-sensitive and rotated regions: PSROIPooling, DeformablePSROIPooling and RROIAlign.

In position-sensitive maps every part of a region has channels of its own: part (i, j) of channel k reads channel
(k group_size + i) group_size + j (R-FCN, arXiv 1605.06409).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from hybrid_lab.diagnostics.errors import ArrayIndexError, AttributeSpecError, ShapeError
from hybrid_lab.ops.framework import Adjoint, Derived, Operator, Signature, all_into, forward_shape, into, sample
from hybrid_lab.ops.framework.attributes import Shape
from hybrid_lab.ops.framework.protocols import Functions, Gradients, Tensor
from hybrid_lab.ops.framework.types import Array, Arrays, Outs, Shapes
from hybrid_lab.ops.kernels.pixels import Terms, channels_first, channels_last, gather, scatter

_REGIONS = [[0, 1.2, 0.7, 6.4, 5.1], [1, 0.0, 2.0, 8.7, 6.4], [1, -2.3, 3.1, 4.4, 11.2]]
_ROIS = Derived(lambda values: np.array(_REGIONS, "float32"))


def _check_map(op: Operator, data: Shape, rois: Shape, columns: str) -> None:
    """Raise ShapeError unless data is (n, c, h, w) and rois (regions, the columns)."""
    count = len(columns.split(","))
    if len(data) != 4 or len(rois) != 2 or rois[1] != count:
        raise ShapeError(
            f"{op.name}: data {data} and rois {rois}; (n, c, h, w) and (regions, {count}) are needed: {columns}"
        )
    if rois[0] and not data[0] * data[2] * data[3]:
        raise ShapeError(f"{op.name}: data {data} has no pixels: nothing to take a mean of")


def _images(op: Operator, rois: np.ndarray, count: int) -> np.ndarray:
    """The number of every region's image. Raises ArrayIndexError if there is no such image."""
    image = rois[:, 0].astype(np.int64)
    if len(image) and not 0 <= image.min() <= image.max() < count:
        raise ArrayIndexError(f"{op.name}: rois name images {image.min()} to {image.max()}; data has {count}")
    return image


def _rounded(numbers: np.ndarray) -> np.ndarray:
    """Halves away from zero, as in C."""
    return np.copysign(np.floor(np.abs(numbers) + 0.5), numbers)


class _Parted(Operator):
    """Base of the operators on position-sensitive maps."""

    dtype_kinds = "f"
    typed_like = 0
    half_in_float32 = True
    spatial_scale: float
    output_dim: int
    pooled_size: int
    group_size: int = 0

    def check(self) -> None:
        if min(self.output_dim, self.pooled_size) < 1 or self.group_size < 0 or not self.spatial_scale > 0:
            raise AttributeSpecError(
                f"{self.name}: output_dim and pooled_size must be at least 1, group_size at least 0, and "
                "spatial_scale positive"
            )

    @property
    def groups(self) -> int:
        """Parts along each side that have channels of their own."""
        return self.group_size or self.pooled_size

    def pooled(self, data: Shape, rois: Shape) -> Shape:
        """The shape of the result. Raises ShapeError."""
        _check_map(self, data, rois, "image, x1, y1, x2, y2")
        if data[1] != self.output_dim * self.groups**2:
            raise ShapeError(
                f"{self.name}: data {data} needs output_dim group_size^2 = {self.output_dim * self.groups**2} channels"
            )
        return (rois[0], self.output_dim, self.pooled_size, self.pooled_size)

    @cached_property
    def channels(self) -> np.ndarray:
        """The channel that every element of a region reads: (output_dim, parts, parts)."""
        group = np.minimum(np.arange(self.pooled_size) * self.groups // self.pooled_size, self.groups - 1)
        place = group[:, None] * self.groups + group
        return np.arange(self.output_dim)[:, None, None] * self.groups**2 + place

    def edges(self, rois: np.ndarray, shift: float) -> tuple[np.ndarray, np.ndarray]:
        """Starts (x, y) and sizes (width, height) of the regions on the map: (regions, 2) each."""
        kind, scale = rois.dtype.type, rois.dtype.type(np.float32(self.spatial_scale))
        start = _rounded(rois[:, 1:3]) * scale - kind(shift)
        stop = (_rounded(rois[:, 3:5]) + kind(1)) * scale - kind(shift)
        return start, np.maximum(stop - start, kind(0.1))


class _Means(_Parted):
    """Base of PSROIPooling and its gradient."""

    def parts(self, rois: np.ndarray, shape: Shape) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...], int]]:
        """Per part that holds pixels: its place in the result, its pixels in data, and how many they are."""
        image, (start, size) = _images(self, rois, shape[0]), self.edges(rois, 0.0)
        line = np.arange(self.pooled_size + 1, dtype=rois.dtype, like=rois)
        step = size / rois.dtype.type(self.pooled_size)
        limits = np.array([shape[3], shape[2]], like=rois)[:, None]
        first = np.floor(line[:-1] * step[..., None] + start[..., None])
        last = np.ceil(line[1:] * step[..., None] + start[..., None])
        low, high = (np.clip(ends, 0, limits).astype(int).tolist() for ends in (first, last))
        for region, number in enumerate(image.tolist()):
            for row in range(self.pooled_size):
                rows = slice(low[region][1][row], high[region][1][row])
                for column in range(self.pooled_size):
                    columns = slice(low[region][0][column], high[region][0][column])
                    count = (rows.stop - rows.start) * (columns.stop - columns.start)
                    if rows.stop > rows.start and columns.stop > columns.start:
                        pixels = (number, self.channels[:, row, column], rows, columns)
                        yield (region, slice(None), row, column), pixels, count


class PSROIPooling(_Means, name="_contrib_PSROIPooling"):
    """The mean over each part of every region, from channels of the part's own.

    data : (n, output_dim group_size^2, h, w); rois : (regions, 5), each the number of an image, then x1, y1, x2, y2
    returns : (regions, output_dim, pooled_size, pooled_size); 0 for a part without pixels. No gradient of the regions.
    """

    samples = [
        sample((2, 8, 7, 9), _ROIS, spatial_scale=1.0, output_dim=2, pooled_size=2),
        sample((2, 4, 5, 4), _ROIS, spatial_scale=0.5, output_dim=1, pooled_size=3, group_size=2),
    ]

    def infer_shape(self, data: Shape, rois: Shape) -> Shape:
        return self.pooled(data, rois)

    def numpy(self, data: Array, rois: Array, out: Array | None = None) -> Array:
        result = np.zeros(self.pooled(data.shape, rois.shape), data.dtype, like=data)
        for place, pixels, count in self.parts(rois.astype(data.dtype), data.shape):
            result[place] = data[pixels].sum(axis=(1, 2)) / data.dtype.type(count)
        return into(result, out)

    def grad(self, F: Functions, data: Tensor, rois: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        return F._psroi_pooling_grad(dy, data, rois, **self.attributes), None


class PSROIPoolingGrad(Adjoint, _Means, name="_psroi_pooling_grad"):
    """The gradient of PSROIPooling. dy : its output; data : read for its shape; rois; returns : the shape of data."""

    adjoint_of = "_contrib_PSROIPooling"
    samples = [sample((3, 2, 2, 2), (2, 8, 7, 9), _ROIS, spatial_scale=1.0, output_dim=2, pooled_size=2)]

    def numpy(self, dy: Array, data: Array, rois: Array, out: Array | None = None) -> Array:
        result = np.zeros(data.shape, dy.dtype, like=dy)
        for place, pixels, count in self.parts(rois.astype(dy.dtype), data.shape):
            result[pixels] += (dy[place] / dy.dtype.type(count))[:, None, None]
        return into(result, out)


class _Points(NamedTuple):
    """The sources of every element of the result. terms : of the elements of data, (elements, 4 points);
    by_x, by_y : how the weights change with the offsets
    """

    terms: Terms
    by_x: np.ndarray
    by_y: np.ndarray


class _Moved(_Parted):
    """Base of DeformablePSROIPooling and its gradient: parts that are moved by offsets."""

    part_size: int = 0
    sample_per_part: int = 1
    trans_std: float = 0.0
    no_trans: bool = False

    def check(self) -> None:
        super().check()
        if self.sample_per_part < 1 or self.part_size < 0:
            raise AttributeSpecError(f"{self.name}: sample_per_part must be at least 1, part_size at least 0")

    def check_offsets(self, rois: Shape, trans: Shape | None) -> None:
        """Raises ShapeError."""
        side = self.part_size or self.pooled_size
        if trans is not None and (
            len(trans) != 4 or trans[0] != rois[0] or trans[2:] != (side, side) or trans[1] % 2 or not trans[1]
        ):
            raise ShapeError(f"{self.name}: trans has shape {trans}; (regions, 2 classes, {side}, {side}) is needed")

    def _offset_places(self, trans: Shape) -> tuple[np.ndarray, np.ndarray]:
        """The class and the part whose offset every element takes: (output_dim,) and (parts,)."""
        side = self.part_size or self.pooled_size
        classes = np.arange(self.output_dim) // max(self.output_dim // (trans[1] // 2), 1)
        return classes, np.arange(self.pooled_size) * side // self.pooled_size

    def points(self, rois: np.ndarray, trans: np.ndarray | None, shape: Shape) -> _Points:
        """The points of all elements. shape : of data."""
        n, channels, height, width = shape
        parts, count, regions = self.pooled_size, self.sample_per_part, len(rois)
        image, (start, size) = _images(self, rois, n), self.edges(rois, 0.5)
        kind = rois.dtype.type
        full = (regions, self.output_dim, parts, parts, count, count)
        moved: list[Any] = [0, 0]
        if trans is not None:
            classes, part = self._offset_places(trans.shape)
            picked = trans.reshape(regions, trans.shape[1] // 2, 2, *trans.shape[2:])[:, classes][..., part, :][
                ..., part
            ]
            moved = [
                (picked[:, :, axis] * kind(self.trans_std) * size[:, axis, None, None, None])[..., None, None]
                for axis in (0, 1)
            ]
        step, line = size / kind(parts), np.arange(parts, dtype=rois.dtype, like=rois)
        inner = (step / kind(count))[..., None] * np.arange(count, dtype=rois.dtype, like=rois)
        begin = line * step[..., None] + start[..., None]
        x = begin[:, 0, None, None, :, None, None] + moved[0] + inner[:, 0, None, None, None, None, :]
        y = begin[:, 1, None, :, None, None, None] + moved[1] + inner[:, 1, None, None, None, :, None]
        x, y = np.broadcast_to(x, full), np.broadcast_to(y, full)
        inside = (x >= -0.5) & (x <= width - 0.5) & (y >= -0.5) & (y <= height - 0.5)
        used = np.maximum(inside.sum(axis=(4, 5), keepdims=True), 1).astype(rois.dtype)
        x, y = np.clip(np.where(inside, x, 0), 0, width - 1), np.clip(np.where(inside, y, 0), 0, height - 1)
        first = image[:, None, None, None] * channels + self.channels
        first = np.broadcast_to((first * (height * width))[..., None, None], full)
        low_x, low_y, high_x, high_y = np.floor(x), np.floor(y), np.ceil(x), np.ceil(y)
        share_x, share_y = x - low_x, y - low_y
        rows, weights, by_x, by_y = (list[np.ndarray]() for _ in range(4))
        for at_y, part_y, turn_y in ((low_y, 1 - share_y, -1), (high_y, share_y, 1)):
            for at_x, part_x, turn_x in ((low_x, 1 - share_x, -1), (high_x, share_x, 1)):
                rows.append(first + (at_y * width + at_x).astype(np.int64))
                for item, value in ((weights, part_y * part_x), (by_x, part_y * turn_x), (by_y, part_x * turn_y)):
                    item.append(np.where(inside, value, 0) / used)
        elements = regions * self.output_dim * parts * parts
        flat = [np.stack(item, axis=-1).reshape(elements, count * count * 4) for item in (rows, weights, by_x, by_y)]
        kinds = [item.astype(rois.dtype, copy=False) for item in flat[1:]]
        return _Points(Terms(flat[0], kinds[0]), kinds[1], kinds[2])


class DeformablePSROIPooling(_Moved, name="_contrib_DeformablePSROIPooling"):
    """The mean of interpolated points in each part of every region, where offsets move the parts (arXiv 1703.06211).

    data : (n, output_dim group_size^2, h, w); rois : (regions, 5), each the number of an image, then x1, y1, x2, y2
    trans : (regions, 2 classes, part_size, part_size), offsets in x and y, in regions times trans_std; left out with
    no_trans; returns : (regions, output_dim, pooled_size, pooled_size). The regions have no gradient.
    """

    precision = "float32"

    group_size: int
    pooled_size: int
    part_size: int = 0
    sample_per_part: int = 1
    trans_std: float = 0.0
    no_trans: bool = False
    samples = [
        sample(
            (2, 4, 7, 9), _ROIS, (3, 2, 2, 2), spatial_scale=1.0, output_dim=1, group_size=2, pooled_size=2,
            sample_per_part=2, trans_std=0.1,
        ),
        sample(
            (2, 8, 5, 4), _ROIS, spatial_scale=0.5, output_dim=2, group_size=2, pooled_size=3, sample_per_part=2,
            no_trans=True,
        ),
    ]  # fmt: skip

    @cached_property
    def signature(self) -> Signature:
        return Signature(("data", "rois") if self.no_trans else ("data", "rois", "trans"))

    def infer_shape(self, data: Shape, rois: Shape, trans: tuple[int, ...] | None = None) -> Shape:
        shape = self.pooled(data, rois)
        self.check_offsets(rois, trans)
        return shape

    def numpy(self, data: Array, rois: Array, trans: Array | None = None, out: Array | None = None) -> Array:
        points = self.points(rois.astype(data.dtype), trans, data.shape)
        made = gather(data.reshape(-1, 1), points.terms)
        return into(made.reshape(self.pooled(data.shape, rois.shape)), out)

    def grad(self, F: Functions, data: Tensor, rois: Tensor, *rest: Tensor) -> Gradients:
        trans = () if self.no_trans else rest[:1]
        found: Any = F._deformable_psroi_pooling_grad(rest[-1], data, rois, *trans, **self.attributes)
        return (found, None) if self.no_trans else (found[0], None, found[1])


class DeformablePSROIPoolingGrad(_Moved, name="_deformable_psroi_pooling_grad"):
    """The gradients of data and trans of DeformablePSROIPooling. dy : its output; data, rois, trans : its inputs."""

    mxnet = None
    refuses_gradient = True
    samples = [
        sample(
            (3, 1, 2, 2), (2, 4, 7, 9), _ROIS, (3, 2, 2, 2), spatial_scale=1.0, output_dim=1, group_size=2,
            pooled_size=2, sample_per_part=2, trans_std=0.1, gradient=False,
        ),
    ]  # fmt: skip

    @cached_property
    def signature(self) -> Signature:
        inputs = ("dy", "data", "rois")
        return Signature(inputs, 1) if self.no_trans else Signature((*inputs, "trans"), 2)

    def infer_shape(self, dy: Shape, data: Shape, rois: Shape, trans: tuple[int, ...] | None = None) -> Shapes:
        given = (data, rois) if trans is None else (data, rois, trans)
        wanted = forward_shape("_contrib_DeformablePSROIPooling", *given, **self.attributes)
        if dy != wanted:
            raise ShapeError(f"{self.name}: dy has shape {dy}; it needs {wanted}")
        return data if trans is None else [data, trans]

    def numpy(
        self, dy: Array, data: Array, rois: Array, trans: Array | None = None, out: Array | Outs = None
    ) -> Array | Arrays:
        data, rois = data.astype(dy.dtype, copy=False), rois.astype(dy.dtype)
        points, values = self.points(rois, trans, data.shape), dy.reshape(-1, 1)
        ddata = scatter(values, points.terms, data.size).reshape(data.shape)
        if trans is None:
            return all_into([ddata], out)
        classes, part = self._offset_places(trans.shape)
        size = self.edges(rois, 0.5)[1]
        dtrans = np.zeros((len(rois), trans.shape[1] // 2, 2, *trans.shape[2:]), dy.dtype, like=dy)
        for axis, turn in enumerate((points.by_x, points.by_y)):
            slope = gather(data.reshape(-1, 1), Terms(points.terms.rows, turn)).reshape(dy.shape)
            slope = slope * dy * dy.dtype.type(self.trans_std) * size[:, axis, None, None, None]
            place = (slice(None), classes[:, None, None], axis, part[:, None], part)
            np.add.at(dtrans, place, slope)  # type: ignore[arg-type]
        return all_into([ddata, dtrans.reshape(trans.shape)], out)


class RROIAlign(Operator, name="_contrib_RROIAlign"):
    """The mean of interpolated points in each of pooled_size parts of every rotated region. No gradient, as in MXNet.

    data : (n, c, h, w); rois : (regions, 6), each the number of an image, x and y of the center, width, height, and an
    angle in degrees; sampling_ratio : points along each side of a part, or -1 for as many as it has pixels
    returns : (regions, c, *pooled_size)
    """

    dtype_kinds = "f"
    half_in_float32 = True
    refuses_gradient = True
    pooled_size: Shape
    spatial_scale: float
    sampling_ratio: int = -1
    samples = [
        sample(
            (2, 3, 8, 9), np.array([[0, 4.2, 3.7, 5.4, 3.1, 30], [1, 5.0, 4.0, 7.7, 7.9, -75]], "float32"),
            pooled_size=(2, 3), spatial_scale=1.0, sampling_ratio=2, gradient=False,
        ),
        sample(
            (1, 2, 6, 5), np.array([[0, 5.2, 4.7, 6.4, 9.1, 45], [0, 1.0, 1.0, 30.0, 2.0, 10]], "float32"),
            pooled_size=(1, 2), spatial_scale=0.5, gradient=False,
        ),
    ]  # fmt: skip

    def check(self) -> None:
        if len(self.pooled_size) != 2 or min(self.pooled_size) < 1 or not 0 < self.spatial_scale <= 1:
            raise AttributeSpecError(
                f"RROIAlign: pooled_size={self.pooled_size} must be (height, width), both positive, and "
                f"spatial_scale={self.spatial_scale} above 0 and at most 1"
            )

    def infer_shape(self, data: Shape, rois: Shape) -> Shape:
        _check_map(self, data, rois, "image, x, y, width, height, angle")
        return (rois[0], data[1], *self.pooled_size)

    def numpy(self, data: Array, rois: Array, out: Array | None = None) -> Array:
        shape = self.infer_shape(data.shape, rois.shape)
        n, channels, height, width = data.shape
        images = channels_last(data).reshape(n, height * width, channels)
        result = np.zeros((len(rois), *self.pooled_size, channels), data.dtype, like=data)
        for number, (image, roi) in enumerate(zip(_images(self, rois, n), rois, strict=True)):
            result[number] = gather(images[image], self._terms(roi, (height, width))).reshape(result.shape[1:])
        return channels_first(result.reshape(len(rois) * result.shape[1] * result.shape[2], channels), shape, out)

    def _terms(self, roi: np.ndarray, spatial: tuple[int, ...]) -> Terms:
        """The pixels of all parts of one region."""
        if not np.isfinite(roi).all():
            raise ShapeError(f"{self.name}: the region {roi.tolist()} has elements that are no numbers")
        scale, angle = np.float32(self.spatial_scale), roi[5] * np.pi / 180
        size = np.maximum(roi[[4, 3]] * scale, 1)
        steps = [side / parts for side, parts in zip(size, self.pooled_size, strict=True)]
        counts = [self.sampling_ratio if self.sampling_ratio > 0 else int(np.ceil(step)) for step in steps]
        along = [
            -side / 2 + (np.arange(parts)[:, None] + (np.arange(count) + 0.5) / count) * step
            for side, parts, count, step in zip(size, self.pooled_size, counts, steps, strict=True)
        ]
        down, right = along[0][:, None, :, None], along[1][None, :, None, :]
        x = right * np.cos(angle) + down * np.sin(angle) + roi[1] * scale
        y = down * np.cos(angle) - right * np.sin(angle) + roi[2] * scale
        height, width = spatial
        inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
        x, y = np.clip(x, 0, width - 1), np.clip(y, 0, height - 1)
        low_x, low_y = np.floor(x), np.floor(y)
        share_x, share_y = x - low_x, y - low_y
        high_x, high_y = np.minimum(low_x + 1, width - 1), np.minimum(low_y + 1, height - 1)
        rows, weights = [], []
        for at_y, part_y in ((low_y, 1 - share_y), (high_y, share_y)):
            for at_x, part_x in ((low_x, 1 - share_x), (high_x, share_x)):
                rows.append((at_y * width + at_x).astype(np.int64))
                weights.append(np.where(inside, part_y * part_x, 0) / (counts[0] * counts[1]))
        points = self.pooled_size[0] * self.pooled_size[1]
        stacked = [np.stack(item, axis=-1).reshape(points, -1) for item in (rows, weights)]
        return Terms(stacked[0], stacked[1].astype(roi.dtype))
