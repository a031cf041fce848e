"""Regions of feature maps brought to one size: ROIPooling (maxima) and ROIAlign (means of interpolated points)."""

from __future__ import annotations

from functools import reduce
from math import inf, prod
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import ArrayIndexError, AttributeSpecError, ShapeError, Unmappable
from hybrid_lab.ops.arrays.reduce import chosen
from hybrid_lab.ops.framework import (
    Adjoint,
    Derived,
    Operator,
    Signature,
    all_into,
    forward_shape,
    in_c_order,
    into,
    sample,
)
from hybrid_lab.ops.framework.attributes import Shape
from hybrid_lab.ops.framework.protocols import Functions, Gradients, OnnxGraph, Tensor
from hybrid_lab.ops.framework.types import Array, Arrays, Outs
from hybrid_lab.ops.kernels.pixels import Terms, channels_first, channels_last, corner_terms, gather, scatter


def _regions(values: list[Any]) -> np.ndarray:
    """Regions of images of about 8 x 9 pixels, of two images: inside, reaching out, turned over, of one pixel."""
    return np.array(
        [[0, 1.2, 0.7, 6.4, 5.1], [1, 0.0, 2.0, 8.7, 7.9], [1, -2.3, 3.1, 4.4, 11.2], [0, 5.3, 5.2, 3.1, 4.0],
         [1, 3.4, 2.6, 3.4, 2.6]],
        "float32",
    )  # fmt: skip


_ROIS = Derived(_regions)
#: Values and the numbers of the pixels where they were found.
Table = tuple[np.ndarray, np.ndarray]


class _Pooled(Operator):
    """Base: the size of the result and the scale from the regions' coordinates to the map's."""

    typed_like = 0
    dtype_kinds = "f"
    pooled_size: Shape
    spatial_scale: float

    def check(self) -> None:
        if len(self.pooled_size) != 2 or min(self.pooled_size) < 1:
            raise AttributeSpecError(
                f"{self.name}: pooled_size={self.pooled_size} must be (height, width), both positive"
            )
        largest = 1.0 if self.name == "_contrib_ROIAlign" else inf
        if not 0 < self.spatial_scale <= largest:
            raise AttributeSpecError(
                f"{self.name}: spatial_scale={self.spatial_scale} must be positive, of ROIAlign at most 1"
            )

    def checked(self, data: tuple[int, ...], rois: tuple[int, ...], columns: tuple[int, ...]) -> None:
        """Raise ShapeError for shapes that do not fit."""
        if len(data) != 4:
            raise ShapeError(f"{self.name}: data has shape {data}; four dimensions are needed (n, c, h, w)")
        if len(rois) != 2 or rois[1] not in columns:
            raise ShapeError(f"{self.name}: rois have the shape {rois}; (regions, 5) is needed: image, x1, y1, x2, y2")
        if rois[0] and not data[0] * data[2] * data[3]:
            raise ShapeError(f"{self.name}: data {data} has no pixels: nothing to choose from")


class ROIPooling(_Pooled, name="ROIPooling"):
    """The maximum over each of pooled_size parts of every region, whatever its size.

    data : (n, c, h, w); rois : (regions, 5), each the number of an image, then x1, y1, x2, y2 in pixels / spatial_scale
    returns : (regions, c, *pooled_size); 0 if a part lies outside. The regions have no gradient.
    """

    signature = Signature(outputs=2, visible=1)
    samples = [
        sample((2, 3, 8, 9), _ROIS, pooled_size=(2, 3), spatial_scale=1.0),
        sample((2, 2, 8, 9), _ROIS, pooled_size=(3, 2), spatial_scale=0.5),
        sample((2, 1, 5, 4), _ROIS, pooled_size=(1, 1), spatial_scale=0.7),
    ]

    def infer_shape(self, data: Shape, rois: Shape) -> list[Shape]:
        self.checked(data, rois, (5,))
        shape = chosen(self, data, (rois[0], data[1], *self.pooled_size))
        return [shape, shape]

    def infer_type(self, *dtypes: np.dtype) -> list[np.dtype]:
        return [dtypes[0], np.dtype("int64")]

    def numpy(self, data: Array, rois: Array, out: Outs = None) -> Array | Arrays:
        n, channels, height, width = data.shape
        image = np.clip(rois[:, 0].astype(np.int64), 0, n - 1)
        first, last = self._parts(rois, 2, 4, self.pooled_size[0], height, data.dtype)
        left, right = self._parts(rois, 1, 3, self.pooled_size[1], width, data.dtype)
        values, places = _range_maxima(
            channels_last(data).reshape(n, height, width, channels), image, (first, last), (left, right)
        )
        empty = ((last <= first)[:, :, None] | (right <= left)[:, None, :])[..., None]
        filled = np.where(empty, data.dtype.type(0), values), np.where(empty, -1, places)
        made = [item.transpose(0, 3, 1, 2) for item in filled]
        return all_into(list(map(in_c_order, made)) if out is None else made, out)

    def _parts(
        self, rois: np.ndarray, low: int, high: int, parts: int, size: int, dtype: np.dtype
    ) -> tuple[np.ndarray, np.ndarray]:
        """Where the parts of every region start and end along one axis: two (regions, parts) arrays of numbers."""
        edge = rois.astype(np.float32, copy=False) * np.float32(self.spatial_scale)
        start, stop = (np.copysign(np.floor(np.abs(edge[:, index]) + 0.5), edge[:, index]) for index in (low, high))
        step = (np.maximum(stop - start + 1, 1).astype(dtype) / np.dtype(dtype).type(parts))[:, None]
        line = np.arange(parts + 1, dtype=dtype, like=rois)
        first, last = np.floor(line[:-1] * step) + start[:, None], np.ceil(line[1:] * step) + start[:, None]
        return np.clip(first, 0, size).astype(np.int64), np.clip(last, 0, size).astype(np.int64)

    def grad(self, F: Functions, data: Tensor, rois: Tensor, y: Tensor, places: Tensor, dy: Tensor) -> Gradients:
        return F._roi_pooling_grad(dy, data, rois, places), None


def _range_maxima(
    images: np.ndarray, image: np.ndarray, rows: tuple[np.ndarray, np.ndarray], columns: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The maximum over every rectangle and its first place (row * width + column); of an empty one anything.

    images : (n, h, w, c); image : (regions,); rows, columns : start and end, (regions, ph) and (regions, pw)
    returns : two arrays (regions, ph, pw, c)

    Tables hold the maxima over all windows of 2^i x 2^j pixels; a rectangle is the union of four overlapping windows.
    """
    n, height, width, channels = images.shape
    places = np.broadcast_to(np.arange(height * width, like=images).reshape(1, height, width, 1), images.shape)
    levels = [_levels(bounds) for bounds in (rows, columns)]
    shape = (len(image), rows[0].shape[1], columns[0].shape[1], channels)
    values, found = np.empty(shape, images.dtype, like=images), np.zeros(shape, np.int64, like=images)
    batch = np.broadcast_to(image[:, None, None], shape[:3])
    high: Table = (images, places)
    for level_y in range(int(levels[0].max(initial=0)) + 1):
        table = high
        for level_x in range(int(levels[1].max(initial=0)) + 1):
            chosen = (levels[0] == level_y)[:, :, None] & (levels[1] == level_x)[:, None, :]
            if chosen.any():
                region, part_y, part_x = np.nonzero(chosen)
                ends = []
                for bounds, part, level, size in (
                    (rows, part_y, level_y, height),
                    (columns, part_x, level_x, width),
                ):
                    low, stop = bounds[0][region, part], bounds[1][region, part] - (1 << level)
                    ends.append([np.clip(at, 0, max(size - (1 << level), 0)) for at in (low, stop)])
                parts = [
                    (table[0][batch[chosen], y, x], table[1][batch[chosen], y, x]) for y in ends[0] for x in ends[1]
                ]
                values[chosen], found[chosen] = reduce(_better, parts)
            table = _doubled(table, 2, 1 << level_x)
        high = _doubled(high, 1, 1 << level_y)
    return values, found


def _levels(bounds: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """The largest i with 2^i at most the length, 0 for an empty range."""
    return np.frexp(np.maximum(bounds[1] - bounds[0], 1).astype(np.float64))[1] - 1


def _better(first: Table, second: Table) -> Table:
    """Element by element the larger value, the smaller place among equals."""
    take = (second[0] > first[0]) | ((second[0] == first[0]) & (second[1] < first[1]))
    return np.where(take, second[0], first[0]), np.where(take, second[1], first[1])


def _doubled(table: Table, axis: int, reach: int) -> Table:
    """Maxima over windows twice as long along `axis`."""
    if table[0].shape[axis] <= reach:
        return table
    lead = (slice(None),) * axis
    near, far = (*lead, slice(None, -reach)), (*lead, slice(reach, None))
    return _better((table[0][near], table[1][near]), (table[0][far], table[1][far]))


class ROIPoolingGrad(Adjoint, name="_roi_pooling_grad"):
    """The gradient of ROIPooling: dy added where the maxima were found.

    dy, places : (regions, c, ph, pw), places numbers of pixels or -1; data : read for its shape; rois : (regions, 5)
    returns : the shape of data
    """

    adjoint_of = "_roi_pooling_pick"
    dtype_kinds = "f"
    samples = [
        sample(
            (5, 3, 1, 2), (2, 3, 8, 9), _ROIS,
            np.array([[[[7, -1]], [[70, 7]], [[0, 7]]]] * 5, "int64"), gradient=False,
        ),
    ]  # fmt: skip

    def numpy(self, dy: Array, data: Array, rois: Array, places: Array, out: Array | None = None) -> Array:
        index, found = _flat_places(data.shape, rois, places)
        wide = np.float32 if dy.dtype == np.float16 else dy.dtype
        if index[found].max(initial=-1) >= np.prod(data.shape):
            raise ArrayIndexError(f"{self.name}: places outside of data {data.shape}")
        total = np.bincount(index[found], weights=dy[found].astype(np.float64), minlength=int(np.prod(data.shape)))
        return into(total.astype(wide).reshape(data.shape).astype(dy.dtype, copy=False), out)


class ROIPoolingPick(Operator, name="_roi_pooling_pick"):
    """The elements of d at the maxima that ROIPooling found; 0 for an empty part.

    d : (n, c, h, w); rois : (regions, 5); places : (regions, c, ph, pw); returns : the shape of places
    """

    shaped_like = 2
    typed_like = 0
    dtype_kinds = "f"
    mxnet = None

    def first_shape(self, d: Shape, rois: Shape, places: Shape) -> Shape:
        pooled = places[2:]
        if len(pooled) != 2 or places != forward_shape("ROIPooling", d, rois, pooled_size=pooled, spatial_scale=1.0):
            raise ShapeError(f"{self.name}: places {places} do not fit data {d} and rois {rois}")
        return d

    samples = [sample((2, 3, 8, 9), _ROIS, np.array([[[[7, -1]], [[70, 7]], [[0, 7]]]] * 5, "int64"), gradient=False)]

    def numpy(self, d: Array, rois: Array, places: Array, out: Array | None = None) -> Array:
        index, found = _flat_places(d.shape, rois, places)
        picked = np.take(d.reshape(-1), np.where(found, index, 0))
        return into(np.where(found, picked, d.dtype.type(0)), out)

    def grad(self, F: Functions, d: Tensor, rois: Tensor, places: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        return F._roi_pooling_grad(dy, d, rois, places), None, None


def _flat_places(shape: tuple[int, ...], rois: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of elements in an array of `shape` (n, c, h, w), and where there is one."""
    n, channels, height, width = shape
    image = np.clip(rois[:, 0].astype(np.int64), 0, n - 1)
    start = (image[:, None] * channels + np.arange(channels, like=rois)) * (height * width)
    return start[..., None, None] + places.astype(np.int64), places >= 0


class _Aligned(_Pooled):
    """Base of ROIAlign and its gradient: which pixels every part of every region is made of."""

    half_in_float32 = True
    sample_ratio: int = -1
    position_sensitive: bool = False
    aligned: bool = False

    def terms(self, rois: np.ndarray, shape: tuple[int, ...]) -> Terms:
        """Rows of the images with channels last, and weights, per region and part. shape : (n, c, h, w)."""
        n, _, height, width = shape
        regions = rois.astype(np.float64, copy=False)
        image = regions[:, 0].astype(np.int64) if rois.shape[1] == 5 else np.zeros(len(rois), np.int64, like=rois)
        edges = regions[:, -4:].astype(np.float32) * np.float32(self.spatial_scale)
        edges = edges.astype(np.float64) - (0.5 if self.aligned else 0.0)
        there = (image >= 0) & (image < n) & np.isfinite(edges).all(axis=1)
        y, used_y, share_y = self._points(edges[:, 1], edges[:, 3], self.pooled_size[0], height)
        x, used_x, share_x = self._points(edges[:, 0], edges[:, 2], self.pooled_size[1], width)
        # (regions, ph, pw, grid y, grid x)
        y, used_y = y[:, :, None, :, None], used_y[:, :, None, :, None]
        x, used_x = x[:, None, :, None, :], used_x[:, None, :, None, :]
        grid = np.broadcast_shapes(y.shape, x.shape)
        inside = np.broadcast_to(used_y & used_x & there[:, None, None, None, None], grid)
        first = np.broadcast_to((np.where(there, image, 0) * height * width)[:, None, None, None, None], grid)
        found = corner_terms(
            np.broadcast_to(y, grid).reshape(-1), np.broadcast_to(x, grid).reshape(-1), (height, width),
            first.reshape(-1), inside.reshape(-1),
        )  # fmt: skip
        points, terms = grid[0] * grid[1] * grid[2], 4 * grid[3] * grid[4]
        share = np.broadcast_to((share_y * share_x)[:, None], (grid[0], grid[1] * grid[2])).reshape(points, 1)
        return Terms(found.rows.reshape(points, terms), found.weights.reshape(points, terms) * share)

    def _points(
        self, low: np.ndarray, high: np.ndarray, parts: int, size: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Places along one axis (regions, parts, points), a mask of the places that count, and the weight of one place
        (regions,).
        """
        length = high - low if self.aligned else np.maximum(high - low, 1.0)
        step = length / parts
        counts = (
            np.full(len(low), self.sample_ratio, like=low) if self.sample_ratio > 0 else np.ceil(step).astype(np.int64)
        )
        counts = np.maximum(counts, 1 if self.sample_ratio > 0 else 0)
        number = np.arange(int(counts.max(initial=1)), like=low)
        offset = (number + 0.5) / np.maximum(counts, 1)[:, None]
        place = low[:, None, None] + (np.arange(parts, like=low)[:, None] + offset[:, None, :]) * step[:, None, None]
        used = (number < counts[:, None])[:, None, :] & (place >= -1.0) & (place <= size)
        return np.clip(place, 0, size - 1), used, 1.0 / np.maximum(counts, 1)

    def positions(self, terms: Terms) -> Terms:
        """For position_sensitive: a pixel has a row for every part."""
        parts = self.pooled_size[0] * self.pooled_size[1]
        part = np.arange(len(terms.rows), like=terms.rows) % parts
        return Terms(terms.rows * parts + part[:, None], terms.weights)


class ROIAlign(_Aligned, name="_contrib_ROIAlign"):
    """The mean of interpolated points in each of pooled_size parts of every region (arXiv 1703.06870).

    data : (n, c, h, w); rois : (regions, 5), each the number of an image (negative: the region gives 0), then x1, y1,
    x2, y2 in pixels / spatial_scale; or (regions, 4) for the first image
    sample_ratio : points along each side of a part, or -1 for one point per pixel
    position_sensitive : part p of channel k comes from channel k ph pw + p; aligned : pixels' centers are at 0.5
    returns : (regions, c, *pooled_size); with position_sensitive c / (ph pw) channels. The regions have no gradient.
    """

    samples = [
        sample((2, 3, 8, 9), _ROIS, pooled_size=(2, 3), spatial_scale=1.0, sample_ratio=2),
        sample((2, 2, 8, 9), _ROIS, pooled_size=(3, 2), spatial_scale=0.5),
        sample((2, 8, 5, 4), _ROIS, pooled_size=(2, 2), spatial_scale=0.5, position_sensitive=True, sample_ratio=2),
        sample(
            (2, 1, 8, 9),
            np.array([[0, 1.2, 0.7, 6.4, 5.1], [1, 0.5, 2.0, 8.7, 7.9]], "float32"),
            pooled_size=(2, 2),
            spatial_scale=1.0,
            aligned=True,
            gradient=False,
        ),
    ]

    def infer_shape(self, data: Shape, rois: Shape) -> Shape:
        self.checked(data, rois, (4, 5))
        parts = self.pooled_size[0] * self.pooled_size[1] if self.position_sensitive else 1
        if data[1] % parts:
            raise ShapeError(f"ROIAlign: the channels of {data} cannot be divided into {parts} equal parts")
        return chosen(self, data, (rois[0], data[1] // parts, *self.pooled_size))

    def numpy(self, data: Array, rois: Array, out: Array | None = None) -> Array:
        shape = self.infer_shape(data.shape, rois.shape)
        terms, pixels = self.terms(rois, data.shape), channels_last(data)
        if self.position_sensitive:
            terms = self.positions(terms)
            apart = pixels.reshape(len(pixels), shape[1], prod(self.pooled_size)).swapaxes(1, 2)
            pixels = in_c_order(apart).reshape(len(pixels) * prod(self.pooled_size), shape[1])
        made = gather(pixels, Terms(terms.rows, terms.weights.astype(data.dtype)))
        return channels_first(made, shape, out)

    def grad(self, F: Functions, data: Tensor, rois: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        return F._roi_align_grad(dy, data, rois, **self.attributes), None

    def onnx(self, g: OnnxGraph, data: str, rois: str) -> str:
        if self.position_sensitive or g.shape(rois)[1] != 5:
            raise Unmappable("ROIAlign with position_sensitive, or regions without the number of their image")
        # onnxruntime refuses missing images and infinite edges: regions with either give 0.
        dtype = g.dtype(rois)
        image, boxes = g.Split(rois, [1, 4], axis=1, outputs=2)
        images = g.cast(g.Slice(g.Shape(data), [0], [1], [0]), dtype)
        edges = g.ReduceSum(g.Mul(boxes, g.const(0, dtype)), [1], keepdims=1)
        there = g.And(g.Greater(image, g.const(-1, dtype)), g.Less(image, images))
        there = g.And(there, g.Equal(edges, g.const(0, dtype)))
        image, boxes = (g.Where(there, item, g.const(0, dtype)) for item in (image, boxes))
        made = g.RoiAlign(
            data, boxes, g.cast(g.Squeeze(image, [1]), "int64"),
            coordinate_transformation_mode="half_pixel" if self.aligned else "output_half_pixel", mode="avg",
            output_height=self.pooled_size[0], output_width=self.pooled_size[1],
            sampling_ratio=max(self.sample_ratio, 0), spatial_scale=self.spatial_scale,
        )  # fmt: skip
        return g.Where(g.Unsqueeze(there, [2, 3]), made, g.const(0, g.dtype(data)))


class ROIAlignGrad(Adjoint, _Aligned, name="_roi_align_grad"):
    """The gradient of ROIAlign: dy shared out among the pixels it was made of.

    dy : ROIAlign's output; data : read for its shape; rois; returns : the shape of data
    """

    adjoint_of = "_contrib_ROIAlign"
    samples = [
        sample((5, 3, 2, 3), (2, 3, 8, 9), _ROIS, pooled_size=(2, 3), spatial_scale=1.0, sample_ratio=2),
        sample((5, 2, 2, 2), (2, 8, 5, 4), _ROIS, pooled_size=(2, 2), spatial_scale=0.5, position_sensitive=True),
    ]

    def numpy(self, dy: Array, data: Array, rois: Array, out: Array | None = None) -> Array:
        terms, (n, channels, height, width) = self.terms(rois, data.shape), data.shape
        pixels, values = n * height * width, channels_last(dy)
        if not self.position_sensitive:
            made = scatter(values, Terms(terms.rows, terms.weights.astype(dy.dtype)), pixels)
            return channels_first(made, data.shape, out)
        parts = self.pooled_size[0] * self.pooled_size[1]
        terms = self.positions(terms)
        made = scatter(values, Terms(terms.rows, terms.weights.astype(dy.dtype)), pixels * parts)
        made = made.reshape(pixels, parts, channels // parts).swapaxes(1, 2).reshape(pixels, channels)
        return channels_first(made, data.shape, out)
