"""Deformable convolutions: kernels whose places are moved by predicted offsets, and weighted by predicted masks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError
from hybrid_lab.ops.framework import (
    Adjoint,
    Operator,
    Signature,
    all_into,
    filled,
    forward_shape,
    in_c_order,
    into,
    sample,
)
from hybrid_lab.ops.framework.attributes import Shape
from hybrid_lab.ops.framework.lowering import differentiate_lowering, run_lowering
from hybrid_lab.ops.framework.protocols import Functions, Gradients, Tensor
from hybrid_lab.ops.framework.types import Array, Arrays, Outs, PartialShape, PartialShapes
from hybrid_lab.ops.kernels.convolution import Geometry
from hybrid_lab.ops.kernels.pixels import Terms, channels_last, gather, scatter
from hybrid_lab.ops.layers.conv import check_axes, geometry_of


class _Corners(NamedTuple):
    """The four pixels around every place: rows of the images with channels last, their weights, and the derivatives of
    the weights by y and by x; (points, 4) each.
    """

    rows: np.ndarray
    weights: np.ndarray
    by_y: np.ndarray
    by_x: np.ndarray


class _Placed(Operator):
    """Base: the attributes that give the places of a kernel's elements. mask : whether there is one"""

    mask: ClassVar[bool] = False
    dtype_kinds = "f"
    kernel: Shape
    stride: Shape = ()
    dilate: Shape = ()
    pad: Shape = ()
    num_deformable_group: int = 1

    def check(self) -> None:
        check_axes(self, self.name, self.kernel, ("stride", "dilate"), ("pad",))
        if len(self.kernel) != 2:
            raise AttributeSpecError(f"{self.name}: kernel={self.kernel} must be (height, width)")
        if self.num_deformable_group < 1:
            raise AttributeSpecError(
                f"{self.name}: num_deformable_group={self.num_deformable_group} must be at least 1"
            )

    @cached_property
    def geometry(self) -> Geometry:
        return geometry_of(self.kernel, self.stride, self.dilate, self.pad, 1)

    @property
    def places(self) -> dict[str, Any]:
        """The attributes of this base."""
        return {name: self.attributes[name] for name in ("kernel", "stride", "dilate", "pad", "num_deformable_group")}

    def output(self, data: Shape, offset: Shape, *mask: Shape) -> Shape:
        """Height and width of the result. Raises ShapeError."""
        groups, places = self.num_deformable_group, prod(self.kernel)
        if len(data) != 4 or not data[1] or data[1] % groups:
            raise ShapeError(
                f"{self.name}: data has shape {data}; (n, c, h, w) is needed, "
                f"c a multiple of num_deformable_group={groups}"
            )
        size: Shape = tuple(self.geometry.output(data[2:]))
        if any(number < 1 for number in size):
            raise ShapeError(f"{self.name}: kernel={self.kernel} does not fit into data {data}")
        named = {"offset": (offset, 2), "mask": (mask[0], 1)} if mask else {"offset": (offset, 2)}
        for name, (shape, numbers) in named.items():
            wanted = (data[0], numbers * groups * places, *size)
            if shape != wanted:
                raise ShapeError(f"{self.name}: {name} has shape {shape}; data {data} needs {wanted}")
        return size

    def corners(self, shape: tuple[int, ...], offset: np.ndarray) -> _Corners:
        """Points in the order (image, group, place of the kernel, y, x). shape : of data.

        Without a mask a place outside of the image gives 0, and one beyond the last pixel's center that pixel; with
        one the image continues with zeros, as in MXNet.
        """
        n, _, height, width = shape
        groups, (rows, columns) = self.num_deformable_group, self.kernel
        out_h, out_w = offset.shape[2:]
        moved = offset.reshape(n, groups, rows, columns, 2, out_h, out_w)
        geometry = self.geometry
        (step_y, step_x), (pad_y, pad_x), (wide_y, wide_x) = geometry.stride, geometry.pad, geometry.dilate
        kind = offset.dtype
        y = (np.arange(rows, like=offset) * wide_y - pad_y)[:, None, None, None] + (
            np.arange(out_h, like=offset) * step_y
        )[:, None]
        x = (np.arange(columns, like=offset) * wide_x - pad_x)[:, None, None] + np.arange(out_w, like=offset) * step_x
        y, x = (y.astype(kind) + moved[..., 0, :, :]).reshape(-1), (x.astype(kind) + moved[..., 1, :, :]).reshape(-1)
        image = np.repeat(np.arange(n * groups, like=offset) * height * width, y.size // max(n * groups, 1))
        if self.mask:
            inside = (y > -1) & (x > -1) & (y < height) & (x < width)
        else:
            inside = (y >= 0) & (x >= 0) & (y < height) & (x < width)
        low_y, share_y, slope_y = self._split(y, inside, height)
        low_x, share_x, slope_x = self._split(x, inside, width)
        found, weights, by_y, by_x = [], [], [], []
        for up in (0, 1):
            part_y, turn_y = (share_y, slope_y) if up else (1 - share_y, -slope_y)
            for right in (0, 1):
                part_x, turn_x = (share_x, slope_x) if right else (1 - share_x, -slope_x)
                at_y, at_x = low_y + up, low_x + right
                there = inside & (at_y >= 0) & (at_y < height) & (at_x >= 0) & (at_x < width)
                found.append(np.where(there, image + at_y * width + at_x, 0))
                weights.append(np.where(there, part_y * part_x, 0))
                by_y.append(np.where(there, turn_y * part_x, 0))
                by_x.append(np.where(there, part_y * turn_x, 0))
        stacked = [np.stack(item, axis=-1) for item in (weights, by_y, by_x)]
        return _Corners(np.stack(found, axis=-1).astype(np.int64), *(item.astype(kind) for item in stacked))

    def _split(self, place: np.ndarray, inside: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The pixel below each place, the share of the next one, and how fast that share grows."""
        place = np.where(inside, place, 0)
        low = np.floor(place)
        share, slope = place - low, np.ones_like(place)
        if not self.mask:  # behind the last pixel's center nothing changes
            last = low >= size - 1
            share, slope = np.where(last, 0, share), np.where(last, 0, slope)
        return low.astype(np.int64), share, slope

    def per_point(self, patches: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """(n, c kernel, y, x) -> (points, c / groups), in the order of `corners`."""
        n, channels = shape[:2]
        groups, places, size = self.num_deformable_group, prod(self.kernel), patches.shape[2:]
        apart = patches.reshape(n, groups, channels // groups, places, *size).transpose(0, 1, 3, 4, 5, 2)
        return in_c_order(apart).reshape(-1, channels // groups)

    def as_patches(self, values: np.ndarray, shape: tuple[int, ...], size: tuple[int, ...]) -> np.ndarray:
        """The inverse of `per_point`."""
        n, channels = shape[:2]
        groups, places = self.num_deformable_group, prod(self.kernel)
        apart = values.reshape(n, groups, places, *size, channels // groups).transpose(0, 1, 5, 2, 3, 4)
        return in_c_order(apart).reshape(n, channels * places, *size)

    def grouped(self, data: np.ndarray) -> np.ndarray:
        """The pixels of data (n, c, h, w), a group of channels counting as an image: (n groups h w, c / groups)."""
        n, channels, height, width = data.shape
        groups = self.num_deformable_group
        return channels_last(data.reshape(n * groups, channels // groups, height, width))


class _Patches(_Placed):
    """Base of the patches of an image at moved places."""

    typed_like = 0
    half_in_float32 = True
    mxnet = None
    gradient: ClassVar[str]

    def patches_shape(self, data: Shape, *moved: Shape) -> Shape:
        """The shape of the patches. Raises ShapeError."""
        size = self.output(data, *moved)
        return (data[0], data[1] * prod(self.kernel), *size)

    def patches(self, data: Array, offset: Array, mask: Array | None, out: Array | None) -> Array:
        """The patches, multiplied by the mask."""
        corners = self.corners(data.shape, offset)
        made = gather(self.grouped(data), Terms(corners.rows, corners.weights))
        if mask is not None:
            made *= mask.reshape(-1, 1)
        return into(self.as_patches(made, data.shape, offset.shape[2:]), out)


class DeformedPatches(_Patches, name="_deformed_patches"):
    """Patches of data at moved places, interpolated: what DeformableConvolution multiplies by its weight.

    data : (n, c, h, w); offset : (n, 2 groups kh kw, oh, ow), y and x in turn; returns : (n, c kh kw, oh, ow)
    """

    samples = [
        sample((1, 2, 4, 5), (1, 8, 3, 4), kernel=(2, 2), low=-0.8, high=0.9),
        sample((2, 2, 4, 4), (2, 4, 2, 2), kernel=(1, 1), stride=(2, 2), num_deformable_group=2, gradient=False),
    ]

    def infer_shape(self, data: Shape, offset: Shape) -> Shape:
        return self.patches_shape(data, offset)

    def numpy(self, data: Array, offset: Array, out: Array | None = None) -> Array:
        return self.patches(data, offset, None, out)

    def grad(self, F: Functions, data: Tensor, offset: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        return (
            F._deformed_patches_data_grad(dy, data, offset, **self.places),
            F._deformed_patches_offset_grad(dy, data, offset, **self.places),
        )


class MaskedPatches(_Patches, name="_masked_patches"):
    """Patches of data at moved places, interpolated and multiplied by a mask, for ModulatedDeformableConvolution.

    data : (n, c, h, w); offset : (n, 2 groups kh kw, oh, ow); mask : (n, groups kh kw, oh, ow)
    returns : (n, c kh kw, oh, ow)
    """

    mask = True
    samples = [
        sample((1, 2, 4, 5), (1, 8, 3, 4), (1, 4, 3, 4), kernel=(2, 2), low=-0.8, high=0.9),
        sample((1, 2, 3, 3), (1, 4, 5, 5), (1, 2, 5, 5), kernel=(1, 1), pad=(1, 1), num_deformable_group=2),
    ]

    def infer_shape(self, data: Shape, offset: Shape, mask: Shape) -> Shape:
        return self.patches_shape(data, offset, mask)

    def numpy(self, data: Array, offset: Array, mask: Array, out: Array | None = None) -> Array:
        return self.patches(data, offset, mask, out)

    def grad(self, F: Functions, data: Tensor, offset: Tensor, mask: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        moved: Any = F._masked_patches_offset_grad(dy, data, offset, mask, **self.places)
        return F._masked_patches_data_grad(dy, data, offset, mask, **self.places), moved[0], moved[1]


def _spread(op: _Placed, dy: Array, data: Array, offset: Array, mask: Array | None, out: Array | None) -> Array:
    """The gradient of data: dy added to the pixels that its patches were made of."""
    n, channels, height, width = data.shape
    groups = op.num_deformable_group
    corners, values = op.corners(data.shape, offset.astype(dy.dtype, copy=False)), op.per_point(dy, data.shape)
    if mask is not None:
        values = values * mask.reshape(-1, 1).astype(dy.dtype, copy=False)
    made = scatter(values, Terms(corners.rows, corners.weights), n * groups * height * width)
    image = made.reshape(n, groups, height, width, channels // groups).transpose(0, 1, 4, 2, 3)
    return into(in_c_order(image).reshape(data.shape), out)


class DeformedPatchesDataGrad(Adjoint, _Placed, name="_deformed_patches_data_grad"):
    """The gradient of the data of _deformed_patches. dy : the patches; data : read for its shape; offset."""

    adjoint_of = "_deformed_patches"
    half_in_float32 = True
    samples = [sample((1, 8, 3, 4), (1, 2, 4, 5), (1, 8, 3, 4), kernel=(2, 2), gradient=False)]

    def numpy(self, dy: Array, data: Array, offset: Array, out: Array | None = None) -> Array:
        return _spread(self, dy, data, offset, None, out)


class MaskedPatchesDataGrad(Adjoint, _Placed, name="_masked_patches_data_grad"):
    """The gradient of the data of _masked_patches. dy : the patches; data : read for its shape; offset; mask."""

    mask = True
    adjoint_of = "_masked_patches"
    half_in_float32 = True
    samples = [sample((1, 8, 3, 4), (1, 2, 4, 5), (1, 8, 3, 4), (1, 4, 3, 4), kernel=(2, 2), gradient=False)]

    def numpy(self, dy: Array, data: Array, offset: Array, mask: Array, out: Array | None = None) -> Array:
        return _spread(self, dy, data, offset, mask, out)


def _slopes(op: _Placed, dy: Array, data: Array, offset: Array, mask: Array | None) -> tuple[Array, Array]:
    """How the sum of dy times the patches changes with every offset, and with every element of the mask."""
    data, offset = data.astype(dy.dtype, copy=False), offset.astype(dy.dtype, copy=False)
    corners, values, pixels = op.corners(data.shape, offset), op.per_point(dy, data.shape), op.grouped(data)
    along = [(gather(pixels, Terms(corners.rows, turn)) * values).sum(axis=1) for turn in (corners.by_y, corners.by_x)]
    if mask is not None:
        along = [item * mask.reshape(-1).astype(dy.dtype, copy=False) for item in along]
    n, size = len(data), offset.shape[2:]
    places = op.num_deformable_group * prod(op.kernel)
    doffset = np.stack([item.reshape(n, places, *size) for item in along], axis=2).reshape(offset.shape)
    if mask is None:
        return doffset, doffset
    dmask = (gather(pixels, Terms(corners.rows, corners.weights)) * values).sum(axis=1)
    return doffset, dmask.reshape(mask.shape)


class DeformedPatchesOffsetGrad(_Placed, name="_deformed_patches_offset_grad"):
    """The gradient of the offsets of _deformed_patches. dy : the patches; data; offset; returns : as offset."""

    shaped_like = 2
    typed_like = 0
    half_in_float32 = True
    refuses_gradient = True
    mxnet = None
    samples = [sample((1, 8, 3, 4), (1, 2, 4, 5), (1, 8, 3, 4), kernel=(2, 2), gradient=False)]

    def first_shape(self, dy: Shape, data: Shape, offset: Shape) -> Shape:
        return forward_shape("_deformed_patches", data, offset, **self.places)

    def numpy(self, dy: Array, data: Array, offset: Array, out: Array | None = None) -> Array:
        return into(_slopes(self, dy, data, offset, None)[0], out)


class MaskedPatchesOffsetGrad(_Placed, name="_masked_patches_offset_grad"):
    """The gradients of the offsets and of the mask of _masked_patches.

    dy : the patches; data; offset; mask; returns : as offset, and as mask
    """

    mask = True
    half_in_float32 = True
    refuses_gradient = True
    mxnet = None
    signature = Signature(outputs=2)
    samples = [sample((1, 8, 3, 4), (1, 2, 4, 5), (1, 8, 3, 4), (1, 4, 3, 4), kernel=(2, 2), gradient=False)]

    def infer_shape(self, dy: Shape, data: Shape, offset: Shape, mask: Shape) -> list[Shape]:
        wanted = forward_shape("_masked_patches", data, offset, mask, **self.places)
        if dy != wanted:
            raise ShapeError(f"{self.name}: dy has shape {dy}; it needs {wanted}")
        return [offset, mask]

    def numpy(self, dy: Array, data: Array, offset: Array, mask: Array, out: Outs = None) -> Array | Arrays:
        return all_into(_slopes(self, dy, data, offset, mask), out)


class _Deformable(_Placed):
    """Base of the two convolutions: a product of the weight with patches at moved places."""

    precision = "float32"
    numpy = run_lowering
    grad = differentiate_lowering
    inputs: ClassVar[tuple[str, ...]]
    patches: ClassVar[str]
    kernel: Shape
    stride: Shape = ()
    dilate: Shape = ()
    pad: Shape = ()
    num_filter: int
    num_group: int = 1
    num_deformable_group: int = 1
    no_bias: bool = False
    layout: str | None = None

    def check(self) -> None:
        super().check()
        if self.num_filter < 1 or self.num_group < 1 or self.num_filter % self.num_group:
            raise AttributeSpecError(
                f"{self.name}: num_filter={self.num_filter} must be a multiple of num_group={self.num_group}"
            )
        if self.layout not in (None, "None", "NCHW"):
            raise AttributeSpecError(f"{self.name}: layout {self.layout!r} is not supported; use 'NCHW'")

    @cached_property
    def signature(self) -> Signature:
        return Signature((*self.inputs, "weight") if self.no_bias else (*self.inputs, "weight", "bias"))

    def complete(self, *shapes: PartialShape) -> PartialShapes:
        given = (*shapes, *(None,) * (len(self.signature.inputs) - len(shapes)))
        place = len(self.inputs)
        data = given[0]
        channels = data[1] if data is not None and len(data) > 1 else None
        within = None if channels is None else channels // self.num_group
        weight = filled(given[place], (self.num_filter, within, *self.kernel))
        known = (*given[:place], weight)
        return known if self.no_bias else (*known, filled(given[place + 1], (self.num_filter,)))

    def multiply_adds(self, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
        return prod(outputs[0]) * prod(inputs[len(self.inputs)][1:])

    def result(self, moved: tuple[Shape, ...], weight: Shape, bias: Shape | None) -> Shape:
        """The shape of the result. moved : of data, offset and mask. Raises ShapeError."""
        size, channels = self.output(*moved), moved[0][1]
        if channels % self.num_group:
            raise ShapeError(f"{self.name}: {channels} channels cannot be cut into num_group={self.num_group} groups")
        wanted = (self.num_filter, channels // self.num_group, *self.kernel)
        if weight != wanted or (bias is not None and bias != (self.num_filter,)):
            raise ShapeError(
                f"{self.name}: weight {weight}{'' if bias is None else f' and bias {bias}'}; data {moved[0]} needs "
                f"{wanted}{'' if bias is None else f' and {(self.num_filter,)}'}"
            )
        return (moved[0][0], self.num_filter, *size)

    def lower(self, F: Functions, *inputs: Tensor) -> Tensor:
        count = len(self.inputs)
        patches = getattr(F, self.patches)(*inputs[:count], **self.places)
        weight = F.Reshape(inputs[count], shape=(0, -1, 1, 1))
        return F.Convolution(
            patches, weight, *inputs[count + 1 :], kernel=(1, 1), num_filter=self.num_filter, num_group=self.num_group,
            no_bias=self.no_bias,
        )  # fmt: skip


class DeformableConvolution(_Deformable, name="_contrib_DeformableConvolution"):
    """A convolution whose kernel has its places moved by offsets, one pair for each place and pixel (arXiv 1703.06211).

    data : (n, c, h, w); offset : (n, 2 num_deformable_group kh kw, oh, ow), y and x in turn
    weight : (num_filter, c / num_group, kh, kw); bias : (num_filter,); returns : (n, num_filter, oh, ow)
    """

    inputs = ("data", "offset")
    patches = "_deformed_patches"
    samples = [
        sample((1, 2, 5, 4), (1, 18, 3, 2), (3, 2, 3, 3), (3,), kernel=(3, 3), num_filter=3, low=-0.7, high=0.8),
        sample(
            (2, 4, 5, 5), (2, 16, 3, 3), (4, 2, 2, 2), kernel=(2, 2), stride=(2, 2), pad=(1, 1), num_filter=4,
            num_group=2, num_deformable_group=2, no_bias=True, low=-0.4, high=0.45,
        ),
        sample((1, 1, 6, 6), (1, 8, 4, 4), (2, 1, 2, 2), (2,), kernel=(2, 2), dilate=(2, 2), num_filter=2, low=-0.9),
    ]  # fmt: skip

    def infer_shape(self, data: Shape, offset: Shape, weight: Shape, bias: tuple[int, ...] | None = None) -> Shape:
        return self.result((data, offset), weight, bias)


class ModulatedDeformableConvolution(_Deformable, name="_contrib_ModulatedDeformableConvolution"):
    """A deformable convolution whose places are weighted by a mask, too (arXiv 1811.11168).

    data : (n, c, h, w); offset : (n, 2 num_deformable_group kh kw, oh, ow); mask : (n, num_deformable_group kh kw, oh,
    ow); weight : (num_filter, c / num_group, kh, kw); bias : (num_filter,); returns : (n, num_filter, oh, ow)
    im2col_step : for MXNet's files; nothing depends on it
    """

    mask = True
    inputs = ("data", "offset", "mask")
    patches = "_masked_patches"
    num_filter: int
    num_group: int = 1
    num_deformable_group: int = 1
    no_bias: bool = False
    im2col_step: int = 64
    layout: str | None = None
    samples = [
        sample(
            (1, 2, 5, 4), (1, 18, 3, 2), (1, 9, 3, 2), (3, 2, 3, 3), (3,), kernel=(3, 3), num_filter=3, low=-0.7,
            high=0.8,
        ),
        sample(
            (2, 4, 4, 4), (2, 16, 5, 5), (2, 8, 5, 5), (4, 2, 2, 2), kernel=(2, 2), pad=(1, 1), num_filter=4,
            num_group=2, num_deformable_group=2, no_bias=True, low=-0.4, high=0.45, gradient=False,
        ),
    ]  # fmt: skip

    def infer_shape(
        self, data: Shape, offset: Shape, mask: Shape, weight: Shape, bias: tuple[int, ...] | None = None
    ) -> Shape:
        return self.result((data, offset, mask), weight, bias)
