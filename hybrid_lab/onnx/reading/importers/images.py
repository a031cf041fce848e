"""ONNX's operators on images: Resize and Upsample, GridSample, RoiAlign."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor
from typing import Any

import numpy as np

from hybrid_lab.onnx.reading.importers import sizes
from hybrid_lab.onnx.reading.importers.functions import Functions, Tensor
from hybrid_lab.onnx.reading.importers.indexing import positions
from hybrid_lab.onnx.reading.importers.table import operator

_LARGEST = 1 << 16
"""Elements of the longest axis that is resized."""


class _Resize:
    """The numbers that say how one axis is resized.

    size, length : elements before and after; scale : their ratio as the file gives it
    first, last : of the region of interest, for coordinate mode tf_crop_and_resize
    """

    def __init__(self, size: int, length: int, scale: float, first: float, last: float, mode: str) -> None:
        self.size, self.length, self.scale = size, length, scale
        self.coordinates = self._coordinates(mode, first, last)

    def _coordinates(self, mode: str, first: float, last: float) -> np.ndarray:
        """Where in the input each element of the output lies."""
        x, size, length, scale = np.arange(self.length, dtype=np.float64), self.size, self.length, self.scale
        if mode == "half_pixel":
            return (x + 0.5) / scale - 0.5
        if mode == "half_pixel_symmetric":
            adjusted = length / (scale * size)
            return size / 2 * (1 - adjusted) + (x + 0.5) / scale - 0.5
        if mode == "pytorch_half_pixel":
            return (x + 0.5) / scale - 0.5 if length > 1 else np.full(length, -0.5)
        if mode == "asymmetric":
            return x / scale
        if mode == "align_corners":
            return x * (size - 1) / (scale * size - 1) if length > 1 else np.zeros(length)
        if mode == "tf_crop_and_resize":
            if length > 1:
                return first * (size - 1) + x * (last - first) * (size - 1) / (length - 1)
            return np.full(length, 0.5 * (first + last) * (size - 1))
        raise ValueError(f"the coordinate mode {mode!r} is not known")

    def nearest(self, rounding: str) -> np.ndarray:
        """The positions that mode nearest takes."""
        x = self.coordinates
        if rounding.startswith("round_prefer"):
            whole = np.ceil(x - 0.5) if rounding == "round_prefer_floor" else np.floor(x + 0.5)
        else:
            whole = np.ceil(x) if rounding == "ceil" else np.floor(x)
        return np.clip(whole, 0, self.size - 1).astype(np.int64)

    def weights(self, mode: str, cubic: float, exclude_outside: bool, antialias: bool) -> np.ndarray:
        """The matrix (length, size) that a linear or cubic interpolation multiplies by."""
        wide = max(1.0, 1.0 / self.scale) if antialias else 1.0
        radius = (2.0 if mode == "cubic" else 1.0) * wide
        made = np.zeros((self.length, self.size))
        for row, x in enumerate(self.coordinates):
            places = np.arange(floor(x - radius) + 1, ceil(x + radius))
            if len(places) == 0:
                places = np.array([floor(x)])
            distance = np.abs(places - x) / wide
            values = _cubic(distance, cubic) if mode == "cubic" else np.maximum(1.0 - distance, 0.0)
            if exclude_outside:
                values = np.where((places >= 0) & (places < self.size), values, 0.0)
            if exclude_outside or antialias:
                values = values / values.sum()
            np.add.at(made[row], np.clip(places, 0, self.size - 1), values)
        return made


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    """Keys' cubic kernel."""
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _lengths(
    F: Functions, spatial: Sequence[int], scales: Any, wanted: Any, policy: str
) -> tuple[list[int], list[float]]:
    """Output sizes and scales."""
    if scales is not None:
        if any(not scale > 0 for scale in scales):
            raise F.unsupported(f"scales {tuple(scales)} must be greater than 0")
        return [floor(size * scale) for size, scale in zip(spatial, scales, strict=True)], list(scales)
    ratios = [new / size for new, size in zip(wanted, spatial, strict=True)]
    if policy != "stretch":
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        return [floor(ratio * size + 0.5) for size in spatial], [ratio] * len(ratios)
    return list(wanted), ratios


@operator("Resize", 11)
def _resize(
    F: Functions, x: Tensor, roi: Tensor | None = None, scales: Tensor | None = None, wanted: Tensor | None = None, *,
    antialias: int = 0, axes: Sequence[int] | None = None, coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75, exclude_outside: int = 0, extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest", nearest_mode: str = "round_prefer_floor",
) -> Tensor:  # fmt: skip
    chosen = [F.axis(axis, x.rank) for axis in (range(x.rank) if axes is None else axes)]
    given = None if scales is None else F.known(scales, "scales").reshape(-1)
    factors = None if given is None or not given.size else [float(item) for item in given]
    targets = None if wanted is None else list(F.ints(wanted, "sizes"))
    if (factors is None) == (targets is None) or len(factors or targets or ()) != len(chosen):
        raise F.unsupported(f"either scales or sizes must be given, one for each of {len(chosen)} axes")
    changed = _changed_axes(x, chosen, factors, targets)
    places = [chosen.index(axis) for axis in changed]
    spatial = F.numbers(F.constant(sizes.shape_of(tuple(x.shape[axis] for axis in changed))), "sizes that change")
    lengths, ratios = _lengths(
        F, spatial, None if factors is None else [factors[k] for k in places],
        None if targets is None else F.numbers(F.constant(np.array([targets[k] for k in places], object)), "sizes"),
        keep_aspect_ratio_policy,
    )  # fmt: skip
    region = None if roi is None else F.known(roi, "roi").reshape(-1)
    outside: Any = None
    for number, axis in enumerate(changed):
        first, last = (0.0, 1.0)
        if coordinate_transformation_mode == "tf_crop_and_resize":
            if region is None or region.size != 2 * len(chosen):
                raise F.unsupported("coordinate mode tf_crop_and_resize needs roi")
            first, last = float(region[places[number]]), float(region[len(chosen) + places[number]])
        if max(lengths[number], spatial[number]) > _LARGEST:
            raise F.unsupported(f"an axis of {max(lengths[number], spatial[number])} elements")
        if outside is not None or coordinate_transformation_mode == "tf_crop_and_resize":
            F.table(*(lengths[: number + 1]))
        how = _Resize(spatial[number], lengths[number], ratios[number], first, last, coordinate_transformation_mode)
        x = _along(F, x, axis, how, mode, nearest_mode, cubic_coeff_a, bool(exclude_outside), bool(antialias))
        if coordinate_transformation_mode == "tf_crop_and_resize":
            beyond = (how.coordinates < 0) | (how.coordinates > how.size - 1)
            beyond = beyond.reshape([-1 if k == axis else 1 for k in range(x.rank)])
            outside = beyond if outside is None else outside | beyond
    if outside is not None:
        return F.select(F.constant(outside), F.zeros_like(x) + F.like(extrapolation_value, x), x)
    return x


def _changed_axes(x: Tensor, chosen: Sequence[int], factors: Any, targets: Any) -> list[int]:
    """The axes whose size or grid changes."""
    found = []
    for place, axis in enumerate(chosen):
        size = x.shape[axis]
        same = factors[place] == 1.0 if factors is not None else (size is targets[place] or size == targets[place])
        if not same or x.rank - axis <= 2:
            found.append(axis)
    return found


def _along(
    F: Functions, x: Tensor, axis: int, how: _Resize, mode: str, rounding: str, cubic: float, exclude: bool,
    antialias: bool,
) -> Tensor:  # fmt: skip
    if mode == "nearest":
        made: Tensor = F.take(x, F.constant(how.nearest(rounding)), axis=axis)
        return made
    if mode not in ("linear", "cubic"):
        raise F.unsupported(f"mode={mode!r}; the modes are nearest, linear and cubic")
    F.table(how.length, how.size)
    matrix = how.weights(mode, cubic, exclude, antialias)
    if matrix.shape[0] == matrix.shape[1] and (matrix == np.eye(len(matrix))).all():
        return x
    wide = x if x.is_floating else F.cast(x, "float32")
    order = [*(k for k in range(x.rank) if k != axis), axis]
    back = [order.index(k) for k in range(x.rank)]
    product = F.dot(F.transposed(wide, order), F.constant(matrix.T, wide.dtype))
    return F.cast(F.transposed(product, back), x.dtype)


@operator("Resize", 10)
@operator("Upsample", 9)
def _upsample(F: Functions, x: Tensor, scales: Tensor, *, mode: str = "nearest") -> Tensor:
    return _resize(
        F, x, None, scales, coordinate_transformation_mode="asymmetric", nearest_mode="floor",
        mode="linear" if mode in ("linear", "bilinear") else mode,
    )  # fmt: skip


@operator("Upsample", 7)
def _upsample_by_attribute(F: Functions, x: Tensor, *, scales: Sequence[float], mode: str = "nearest") -> Tensor:
    return _upsample(F, x, F.constant(scales, np.float32), mode=mode)


# -- GridSample ------------------------------------------------------------------------------------------------------


class _Sampler:
    """GridSample of data (n, c, *spatial) at a grid (n, *output, axes), whose last axis has x first."""

    def __init__(self, F: Functions, x: Tensor, grid: Tensor, align: bool, padding: str) -> None:
        self.F, self.padding, self.align = F, padding, align
        rank = x.rank - 2
        self.spatial = F.numbers(F.constant(sizes.shape_of(x.shape[2:])), "the size of the image")
        self.data = F.transposed(x, (0, *range(2, x.rank), 1))
        self.output = grid.shape[1:-1]
        self.points = [self._coordinate(grid, rank - 1 - axis, size) for axis, size in enumerate(self.spatial)]

    def _coordinate(self, grid: Tensor, place: int, size: int) -> Tensor:
        F = self.F
        x = F.reshape_to(F.slice_axis(grid, axis=grid.rank - 1, begin=place, end=place + 1), grid.shape[:-1])
        if self.align:
            return (x + 1.0) * ((size - 1) / 2)
        return ((x + 1.0) * size - 1.0) * 0.5

    def _inside(self, x: Tensor, size: int) -> Tensor:
        """A coordinate brought into the image: to the border, or reflected at it."""
        F = self.F
        if self.padding == "border":
            return F.clip(x, a_min=0.0, a_max=float(size - 1))
        if self.padding == "reflection":
            low, span = (0.0, float(size - 1)) if self.align else (-0.5, float(size))
            if span == 0:
                return F.zeros_like(x)
            turn = F.broadcast_mod(x - low, 2 * span)
            turned = low + F.broadcast_minimum(turn, 2 * span - turn)
            return F.clip(turned, a_min=0.0, a_max=float(size - 1))
        return x

    def pixel(self, places: Sequence[Tensor]) -> Tensor:
        """The pixels at whole coordinates, 0 outside: (n, *output, c)."""
        F = self.F
        rows, valid = [], None
        for x, size in zip(places, self.spatial, strict=True):
            x = self._inside(x, size)
            here = F.broadcast_greater_equal(x, 0.0) * F.broadcast_lesser_equal(x, float(size - 1))
            valid = here if valid is None else valid * here
            rows.append(F.cast(F.clip(x, a_min=0.0, a_max=float(size - 1)), "int64"))
        first = positions(F, rows[0], 0)
        found = F.gather_nd(self.data, F.stack(first, *rows, axis=0))
        assert valid is not None
        return found * F.cast(F.reshape_to(valid, (*valid.shape, 1)), found.dtype)

    def sampled(self, mode: str) -> Tensor:
        """The result with channels last."""
        F = self.F
        points = self.points
        if self.padding != "zeros" and mode != "cubic":
            points = [self._inside(x, size) for x, size in zip(points, self.spatial, strict=True)]
        if mode == "nearest":
            return self.pixel([F.to_even(x) for x in points])
        reach = range(-1, 3) if mode == "cubic" else range(2)
        lows = [F.floor(x) for x in points]
        shares = [
            [self._share(x - low - float(step), mode) for step in reach] for x, low in zip(points, lows, strict=True)
        ]
        total: Any = None
        for steps in np.ndindex(*[len(reach)] * len(points)):
            weight: Any = None
            for axis, step in enumerate(steps):
                weight = shares[axis][step] if weight is None else weight * shares[axis][step]
            pixel = self.pixel([low + float(reach[step]) for low, step in zip(lows, steps, strict=True)])
            part = pixel * F.reshape_to(weight, (*weight.shape, 1))
            total = part if total is None else total + part
        return total

    def _share(self, distance: Any, mode: str) -> Tensor:
        """The weight of a pixel at a distance."""
        F = self.F
        x = F.abs(distance)
        if mode != "cubic":
            return 1.0 - x
        a = -0.75
        near = ((a + 2) * x - (a + 3)) * x * x + 1.0
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return F.select(F.truth(F.broadcast_lesser_equal(x, 1.0)), near, far)


@operator("GridSample", 16)
def _grid_sample(
    F: Functions, x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Tensor:
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    made = _Sampler(F, x, grid, bool(align_corners), padding_mode).sampled(mode)
    return F.transposed(made, (0, made.rank - 1, *range(1, made.rank - 1)))


@operator("RoiAlign", 10)
def _roi_align(
    F: Functions, x: Tensor, rois: Tensor, batch: Tensor, *, coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg", output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:  # fmt: skip
    if mode != "avg":
        raise F.unsupported(f"mode={mode!r}; regions are averaged")
    numbers = F.cast(F.reshape_to(batch, (batch.shape[0], 1)), rois.dtype)
    return F._contrib_ROIAlign(
        x, F.Concat(numbers, rois, dim=1), pooled_size=(output_height, output_width), spatial_scale=spatial_scale,
        sample_ratio=sampling_ratio or -1, aligned=coordinate_transformation_mode == "half_pixel",
    )  # fmt: skip
