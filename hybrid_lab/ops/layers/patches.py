"""Patches of images as columns, and columns added up to images: im2col, col2im."""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import ShapeError, Unmappable
from hybrid_lab.ops.framework import Adjoint, Element, Operator, into, sample
from hybrid_lab.ops.framework.attributes import Shape
from hybrid_lab.ops.framework.protocols import Elements, Functions, OnnxGraph, Place, Scratch, Tensor
from hybrid_lab.ops.framework.types import Array
from hybrid_lab.ops.kernels.convolution import Geometry
from hybrid_lab.ops.layers.channels import LAYOUTS
from hybrid_lab.ops.layers.conv import check_axes, geometry_of, left_over, onnx_attributes

#: In ONNX a convolution picks the places of a window, with a weight of this many numbers squared for each channel.
MOST_PLACES = 256
#: Numbers in the largest such weight, over all channels.
LARGEST_WEIGHT = 1 << 24


class _Patches(Operator):
    """Base: the windows of a convolution, and both directions between an image and its columns."""

    kernel: Shape
    stride: Shape = ()
    dilate: Shape = ()
    pad: Shape = ()

    def check(self) -> None:
        check_axes(self, self.name, self.kernel, ("stride", "dilate"), ("pad",))

    @cached_property
    def geometry(self) -> Geometry:
        return geometry_of(self.kernel, self.stride, self.dilate, self.pad, 1)

    @property
    def shared(self) -> dict[str, Any]:
        """The attributes of the windows, for the operator in the other direction."""
        return {name: getattr(self, name) for name in ("kernel", "stride", "dilate", "pad")}

    def windows(self, spatial: tuple[int, ...]) -> tuple[int, ...]:
        """How many windows there are along each axis. Raises ShapeError."""
        if len(spatial) != len(self.kernel):
            raise ShapeError(f"{self.name}: kernel={self.kernel} needs {len(self.kernel)} spatial axes, not {spatial}")
        output = self.geometry.output(spatial)
        if any(size < 1 for size in output):
            raise ShapeError(f"{self.name}: kernel={self.kernel} with pad={self.pad} does not fit into {spatial}")
        return output

    def _padded(self, spatial: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[Any, ...]]:
        sizes = tuple(size + 2 * border for size, border in zip(spatial, self.geometry.pad, strict=True))
        inside = tuple(slice(border, border + size) for size, border in zip(spatial, self.geometry.pad, strict=True))
        return sizes, (..., *inside)

    def columns(self, image: np.ndarray, out: np.ndarray | None, scratch: Scratch) -> np.ndarray:
        """(n, c, *spatial) -> (n, c * prod(kernel), windows)."""
        output, lead = self.windows(image.shape[2:]), image.shape[:2]
        if any(self.geometry.pad):
            sizes, inside = self._padded(image.shape[2:])
            padded = scratch((*lead, *sizes), image.dtype)
            padded.fill(0)
            padded[inside] = image
            image = padded
        result = np.empty((*lead, *self.kernel, *output), image.dtype)
        for place, where in self.geometry.places(output):
            result[(slice(None), slice(None), *place)] = image[(..., *where)]
        return into(result.reshape(lead[0], lead[1] * prod(self.kernel), prod(output)), out)

    def element_of_columns(self, elements: Elements, place: Place) -> str:
        """In kernels: an element of the columns of input 0, an image."""
        (batch, row, window), shape = place, elements.shape(0)
        channel, *places = elements.unravel((row,), (shape[1] * prod(self.kernel),), (shape[1], *self.kernel))
        output = self.windows(shape[2:])
        steps, geometry = elements.unravel((window,), (prod(output),), output), self.geometry
        pixels = [
            step * stride + inner * dilate + -pad
            for step, stride, inner, dilate, pad in zip(
                steps, geometry.stride, places, geometry.dilate, geometry.pad, strict=True
            )
        ]
        guards = [elements.guard(pixel, size) for pixel, size in zip(pixels, shape[2:], strict=True)]
        guard = " & ".join(item for item in guards if item)
        return str(elements.where(guard, elements.read(0, (batch, channel, *pixels), guard), elements.literal(0)))

    def element_of_image(self, elements: Elements, place: Place, shape: tuple[int, ...]) -> str:
        """In kernels: an element of an image of this shape that the columns in input 0 are added up to."""
        if prod(self.kernel) > 64:
            raise Unmappable(f"a window of {prod(self.kernel)} places; kernels have up to 64")
        geometry, output, parts = self.geometry, self.windows(shape[2:]), []
        for number, inner in enumerate(np.ndindex(*self.kernel)):
            steps, guards = [], []
            for pixel, at, stride, dilate, pad, size in zip(
                place[2:], inner, geometry.stride, geometry.dilate, geometry.pad, output, strict=True
            ):
                step, guard = elements.divided(pixel + (pad - at * dilate), stride, size)
                steps.append(step)
                guards += [guard] * bool(guard)
            guard = " & ".join(guards)
            row = place[1] * prod(self.kernel) + number
            (window,) = elements.unravel(tuple(steps), output, (prod(output),))
            parts.append(
                str(elements.where(guard, elements.read(0, (place[0], row, window), guard), elements.literal(0)))
            )
        return " + ".join(parts)

    def image(
        self, columns: np.ndarray, shape: tuple[int, ...], out: np.ndarray | None, scratch: Scratch
    ) -> np.ndarray:
        """(n, c * prod(kernel), windows) -> `shape` (n, c, *spatial), where windows overlap added up."""
        output = self.windows(shape[2:])
        parts = columns.reshape(*shape[:2], *self.kernel, *output)
        sizes, inside = self._padded(shape[2:])
        total = scratch((*shape[:2], *sizes), columns.dtype)
        total.fill(0)
        for place, where in self.geometry.places(output):
            total[(..., *where)] += parts[(slice(None), slice(None), *place)]
        return into(total[inside], np.empty(shape, columns.dtype) if out is None else out)

    def emit_selector(self, g: OnnxGraph, channels: int, dtype: np.dtype) -> tuple[str, dict[str, Any]]:
        """A convolution's weight that picks every place of the window of every channel, and its ONNX attributes."""
        geometry, places = self.geometry, prod(self.kernel)
        if places > MOST_PLACES or channels * places**2 > LARGEST_WEIGHT:
            raise Unmappable(f"a window of {places} places: the weight that picks each would be too large")
        weight = np.tile(np.eye(places).reshape(places, 1, *self.kernel), (channels, *(1,) * (len(self.kernel) + 1)))
        return g.const(weight, dtype), onnx_attributes(geometry._replace(groups=channels))


def _channels(op: _Patches, columns: tuple[int, ...]) -> int:
    places = prod(op.kernel)
    if len(columns) != 3 or columns[1] % places:
        raise ShapeError(f"{op.name}: data has shape {columns}; (n, channels * {places}, windows) is needed")
    return columns[1] // places


class Im2Col(_Patches, name="im2col"):
    """The windows of a convolution as columns, channel by channel, then by the place in the window.

    data : (n, c, *spatial); returns : (n, c * prod(kernel), number of windows)
    """

    dtype_kinds = "f"
    samples = [
        sample((2, 3, 4, 5), kernel=(2, 3)),
        sample((1, 2, 5, 6), kernel=(3, 2), stride=(2, 1), dilate=(1, 2), pad=(1, 0)),
        sample((2, 2, 4, 4), kernel=(1, 1)),
    ]

    def infer_shape(self, data: Shape) -> Shape:
        if len(data) != len(self.kernel) + 2:
            wanted = LAYOUTS[len(self.kernel)]
            raise ShapeError(f"im2col: data has shape {data}; kernel={self.kernel} needs the dimensions {wanted}")
        return (data[0], data[1] * prod(self.kernel), prod(self.windows(data[2:])))

    def numpy(self, data: Array, out: Array | None = None, scratch: Scratch = np.empty) -> Array:
        return self.columns(data, out, scratch)

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        return self.element_of_columns(elements, place)

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F._im2col_grad(dy, data, **self.shared)

    def onnx(self, g: OnnxGraph, data: str) -> str:
        shape = g.shape(data)
        weight, attributes = self.emit_selector(g, shape[1], g.dtype(data))
        return g.Reshape(g.Conv(data, weight, **attributes), [0, shape[1] * prod(self.kernel), -1])


class Im2ColGrad(Adjoint, _Patches, name="_im2col_grad"):
    """The gradient of im2col: columns added up to an image. data : im2col's input, read for its shape."""

    adjoint_of = "im2col"
    dtype_kinds = "f"
    samples = [
        sample((2, 18, 9), (2, 3, 4, 5), kernel=(2, 3)),
        sample((1, 12, 12), (1, 2, 5, 6), kernel=(3, 2), stride=(2, 1), dilate=(1, 2), pad=(1, 0)),
    ]

    def numpy(self, dy: Array, data: Array, out: Array | None = None, scratch: Scratch = np.empty) -> Array:
        return self.image(dy, data.shape, out, scratch)

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        return self.element_of_image(elements, place, elements.shape(1))


class Col2Im(_Patches, name="col2im"):
    """Columns added up to an image where their windows lie; what im2col's gradient does.

    data : (n, c * prod(kernel), number of windows); returns : (n, c, *output_size)
    """

    dtype_kinds = "f"
    output_size: Shape
    kernel: Shape
    stride: Shape = ()
    dilate: Shape = ()
    pad: Shape = ()
    samples = [
        sample((2, 18, 9), output_size=(4, 5), kernel=(2, 3)),
        sample((1, 12, 12), output_size=(5, 6), kernel=(3, 2), stride=(2, 1), dilate=(1, 2), pad=(1, 0)),
    ]

    def infer_shape(self, data: Shape) -> Shape:
        channels, windows = _channels(self, data), prod(self.windows(self.output_size))
        if data[2] != windows:
            raise ShapeError(f"col2im: output_size={self.output_size} has {windows} windows, data {data} has {data[2]}")
        return (data[0], channels, *self.output_size)

    def numpy(self, data: Array, out: Array | None = None, scratch: Scratch = np.empty) -> Array:
        return self.image(data, self.infer_shape(data.shape), out, scratch)

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        return self.element_of_image(elements, place, self.infer_shape(elements.shape(0)))

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F.im2col(dy, **self.shared)

    def onnx(self, g: OnnxGraph, data: str) -> str:
        channels = _channels(self, g.shape(data))
        weight, attributes = self.emit_selector(g, channels, g.dtype(data))
        output = self.windows(self.output_size)
        parts = g.Reshape(data, [0, channels * prod(self.kernel), *output])
        rest = left_over(self.geometry, self.output_size, output)
        return g.ConvTranspose(parts, weight, output_padding=rest, **attributes)
