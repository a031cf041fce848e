"""ATen's operators on images: resizing, sampling, columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from hybrid_lab.torch.importers.functions import Functions, Tensor
from hybrid_lab.torch.importers.table import Function, aten, onnx

Scales: TypeAlias = Sequence[float] | float | None


def _resized(
    F: Functions, x: Tensor, output_size: Sequence[int], scales: Sequence[float | None], mode: str, coordinates: str,
    antialias: bool = False,
) -> Tensor:  # fmt: skip
    axes = list(range(2, x.rank))
    given: list[Any] = [None if scale is None else float(scale) for scale in scales]
    if len(given) == len(axes) and all(scale is not None for scale in given):
        ratios, sizes = F.constant(np.array(given), np.float32), None
    else:
        ratios, sizes = None, F.constant(np.array(list(output_size or F.result.shape[2:]), object))
    return onnx("Resize")(
        F, x, None, ratios, sizes, axes=axes, mode=mode, coordinate_transformation_mode=coordinates,
        nearest_mode="floor", antialias=int(antialias), exclude_outside=0,
    )  # fmt: skip


def _factors(F: Functions, rest: Sequence[Scales]) -> list[float | None]:
    """Scales of an overload: a list in the form `vec`, else one argument for each axis."""
    if F.overload == "vec":
        return [*rest[0]] if rest and isinstance(rest[0], Sequence) else []
    return [item for item in rest if not isinstance(item, Sequence)]


@aten("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def _nearest(F: Functions, x: Tensor, output_size: Sequence[int], *scales: Scales) -> Tensor:
    return _resized(F, x, output_size, _factors(F, scales), "nearest", "asymmetric")


@aten("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d")
def _nearest_exact(F: Functions, x: Tensor, output_size: Sequence[int], *scales: Scales) -> Tensor:
    axes = list(range(2, x.rank))
    sizes = F.constant(np.array(list(output_size or F.result.shape[2:]), object))
    return onnx("Resize")(
        F, x, None, None, sizes, axes=axes, mode="nearest", coordinate_transformation_mode="half_pixel",
        nearest_mode="round_prefer_ceil",
    )  # fmt: skip


def _interpolated(mode: str, antialias: bool = False) -> Function:
    def function(F: Functions, x: Tensor, output_size: Sequence[int], align_corners: bool, *scales: Scales) -> Tensor:
        coordinates = "align_corners" if align_corners else "half_pixel"
        factors = [] if align_corners else _factors(F, scales)
        return _resized(F, x, output_size, factors, mode, coordinates, antialias)

    return function


for _name, _mode in (
    ("upsample_linear1d", "linear"), ("upsample_bilinear2d", "linear"), ("upsample_trilinear3d", "linear"),
    ("upsample_bicubic2d", "cubic"),
):  # fmt: skip
    aten(_name)(_interpolated(_mode))
aten("_upsample_bilinear2d_aa")(_interpolated("linear", True))
aten("_upsample_bicubic2d_aa")(_interpolated("cubic", True))


@aten("grid_sampler_2d", "grid_sampler", "grid_sampler_3d")
def _grid_sampler(
    F: Functions, x: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    return onnx("GridSample")(
        F, x, grid, mode=("linear", "nearest", "cubic")[interpolation_mode],
        padding_mode=("zeros", "border", "reflection")[padding_mode], align_corners=int(align_corners),
    )  # fmt: skip


@aten("im2col")
def _im2col(
    F: Functions, x: Tensor, kernel_size: Sequence[int], dilation: Sequence[int], padding: Sequence[int],
    stride: Sequence[int],
) -> Tensor:  # fmt: skip
    return F.im2col(x, kernel=tuple(kernel_size), dilate=tuple(dilation), pad=tuple(padding), stride=tuple(stride))


@aten("col2im")
def _col2im(
    F: Functions, x: Tensor, output_size: Sequence[int], kernel_size: Sequence[int], dilation: Sequence[int],
    padding: Sequence[int], stride: Sequence[int],
) -> Tensor:  # fmt: skip
    return F.col2im(
        x, output_size=tuple(output_size), kernel=tuple(kernel_size), dilate=tuple(dilation), pad=tuple(padding),
        stride=tuple(stride),
    )  # fmt: skip
