"""Convolution over one to three spatial axes, and its gradients as operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from math import prod
from typing import Any, ClassVar, Literal

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError, Unmappable
from hybrid_lab.ops.framework import (
    Contraction,
    Element,
    Operator,
    Product,
    Signature,
    contiguous,
    filled,
    forward_shape,
    gradient_samples,
    into,
    sample,
)
from hybrid_lab.ops.framework.attributes import Shape
from hybrid_lab.ops.framework.protocols import Elements, Functions, Gradients, OnnxGraph, Place, Scratch, Tensor, Wanted
from hybrid_lab.ops.framework.types import Array, PartialShape, PartialShapes
from hybrid_lab.ops.kernels import conv_products, convolution, depthwise
from hybrid_lab.ops.kernels.convolution import Geometry
from hybrid_lab.ops.kernels.depthwise import is_depthwise
from hybrid_lab.ops.layers.channels import LAYOUTS, WithLayout, first_shape, last_shape, partial_first, partial_last

#: For kernels of at most this many places, the patches are gathered by a Slice for each place in ONNX Runtime.
MOST_SLICES = 64


def check_axes(op: Operator, title: str, kernel: Shape, steps: Sequence[str], borders: Sequence[str]) -> None:
    """Raise AttributeSpecError unless attributes have one number per axis of `kernel`, or none at all.

    title : how errors call the operator; steps, borders : names of attributes whose numbers are at least 1, at least 0
    """
    if len(kernel) not in LAYOUTS:
        raise AttributeSpecError(f"{title}: kernel={kernel}; one to three spatial axes are supported")
    for name in (*steps, *borders):
        given = getattr(op, name)
        if given and len(given) != len(kernel):
            raise AttributeSpecError(f"{title}: {name}={given} needs one number for each axis of kernel={kernel}")
    if any(number < 1 for name in ("kernel", *steps) for number in getattr(op, name)) or any(
        number < 0 for name in borders for number in getattr(op, name)
    ):
        first = f"{', '.join(('kernel', *steps[:-1]))} and {steps[-1]}"
        raise AttributeSpecError(f"{title}: {first} must be at least 1, {', '.join(borders)} at least 0")


class Spatial(WithLayout):
    """What Convolution, Deconvolution and their gradients have in common. Subclasses declare the attributes.

    title : the operator; prefix : of the names of its gradients
    """

    title: ClassVar[str] = "Convolution"
    prefix: ClassVar[str] = "_conv"
    borders: ClassVar[tuple[str, ...]] = ("pad",)

    kernel: Shape
    stride: Shape
    dilate: Shape
    num_filter: int
    num_group: int
    no_bias: bool
    layout: str | None
    turned = (0, 1)

    def check(self) -> None:
        check_axes(self, self.title, self.kernel, ("stride", "dilate"), self.borders)
        if self.num_filter < 1 or self.num_group < 1 or self.num_filter % self.num_group:
            raise AttributeSpecError(
                f"{self.title}: num_filter={self.num_filter} must be a multiple of num_group={self.num_group}"
            )
        self.check_layout(self.title)

    @cached_property
    def shared(self) -> dict[str, Any]:
        """The attributes that a gradient has in common with the operator."""
        return {name: value for name, value in self.attributes.items() if name not in ("no_bias", "layout")}

    def applied(self, data: Shape, output: Shape) -> Shape:
        """The array for each of whose numbers a row of the weight is applied once: the output, or the data."""
        return output

    def multiply_adds(self, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
        return prod(self.applied(inputs[0], outputs[0])) * prod(inputs[1][1:])

    def weight_shape(self, channels: int | None) -> tuple[int | None, ...]:
        """Shape of the weight for that many input channels, with None if they are not known. Raises ShapeError."""
        raise NotImplementedError

    def group_of(self, channels: int | None) -> int | None:
        """How many input channels a group has. Raises ShapeError."""
        if channels is None:
            return None
        if channels % self.num_group:
            raise ShapeError(f"{self.title}: {channels} channels cannot be cut into num_group={self.num_group} groups")
        return channels // self.num_group

    def check_data(self, data: tuple[int, ...]) -> None:
        """Raises ShapeError if data has another number of axes than the kernel asks for."""
        if len(data) != len(self.kernel) + 2:
            wanted = LAYOUTS[len(self.kernel)]
            raise ShapeError(
                f"{self.title}: data has shape {data}; kernel={self.kernel} needs {len(wanted)} dimensions ({wanted})"
            )

    def check_parameters(self, data: tuple[int, ...], weight: tuple[int, ...], bias: tuple[int, ...] | None) -> None:
        """Raises ShapeError if weight or bias do not fit the data."""
        if data[1] == 0:
            raise ShapeError(f"{self.title}: data {data} has no channels")
        wanted = self.weight_shape(data[1])
        if weight != wanted:
            raise ShapeError(f"{self.title}: data {data} needs a weight of shape {wanted}, it has {weight}")
        if bias is not None and bias != (self.num_filter,):
            raise ShapeError(
                f"{self.title}: the bias has shape {bias}, num_filter={self.num_filter} needs {(self.num_filter,)}"
            )


class Forward(Spatial):
    """Base of Convolution and Deconvolution themselves."""

    precision: ClassVar[Literal["low", "float32"] | None] = "low"
    channels = 1

    @cached_property
    def signature(self) -> Signature:
        return Signature(("data", "weight") if self.no_bias else ("data", "weight", "bias"))

    def complete(self, data: PartialShape, weight: PartialShape = None, bias: PartialShape = None) -> PartialShapes:
        if self.channels_last:
            shapes = self.turned_shapes((data, weight, bias), partial_first)
            return tuple(self.turned_shapes(self.with_channels_first.complete(*shapes), partial_last))
        channels = data[1] if data is not None and len(data) > 1 else None
        if weight is None or (None in weight and channels is not None):
            weight = self.weight_shape(channels)
        return (data, weight) if self.no_bias else (data, weight, filled(bias, (self.num_filter,)))

    def complete_from(self, output: Shape, *shapes: PartialShape) -> PartialShapes:
        """The batch of data."""
        data = shapes[0]
        return shapes if data is None or data[0] is not None else ((output[0], *data[1:]), *shapes[1:])

    def grad(self, F: Functions, data: Tensor, weight: Tensor, *rest: Tensor, wanted: Wanted = None) -> Gradients:
        if self.channels_last:
            turned = (self.first(F, each) for each in (data, weight, rest[-1]))
            ddata, dweight, *dbias = self.with_channels_first.grad(F, *turned, wanted=wanted)
            return tuple(each if each is None else self.last(F, each) for each in (ddata, dweight)) + tuple(dbias)
        dy = rest[-1]
        wanted = (True, True, True) if wanted is None else wanted
        data_gradient, weight_gradient = (getattr(F, f"{self.prefix}_{name}_grad") for name in ("data", "weight"))
        ddata = data_gradient(dy, data, weight, **self.shared) if wanted[0] else None
        dweight = weight_gradient(dy, data, weight, **self.shared) if wanted[1] else None
        if self.no_bias:
            return ddata, dweight
        return ddata, dweight, F.sum(dy, axis=1, exclude=True) if wanted[2] else None


class _ConvolutionGradient(Spatial):
    """Base of both gradients. dy : the operator's output; data, weight : its inputs"""

    mxnet = None

    def first_shape(self, dy: Shape, data: Shape, weight: Shape) -> Shape:
        return forward_shape(self.title, data, weight, no_bias=True, **self.shared)

    def multiply_adds(self, inputs: Sequence[Shape], outputs: Sequence[Shape]) -> int:
        dy, data, weight = inputs
        return prod(self.applied(data, dy)) * prod(weight[1:])


class DataGradient(_ConvolutionGradient):
    """Base of the gradient of data. dy : the operator's output; data : read for its shape, which the result has."""

    shaped_like = 1
    shape_only = ("data",)

    def grad(self, F: Functions, dy: Tensor, data: Tensor, weight: Tensor, y: Tensor, d: Tensor) -> Gradients:
        dweight = getattr(F, f"{self.prefix}_weight_grad")(dy, d, weight, **self.shared)
        return getattr(F, self.title)(d, weight, no_bias=True, **self.shared), None, dweight


class WeightGradient(_ConvolutionGradient):
    """Base of the gradient of weight. dy : the operator's output; weight : read for its shape, which the result has."""

    shaped_like = 2
    shape_only = ("weight",)

    def grad(self, F: Functions, dy: Tensor, data: Tensor, weight: Tensor, y: Tensor, d: Tensor) -> Gradients:
        ddata = getattr(F, f"{self.prefix}_data_grad")(dy, data, d, **self.shared)
        return getattr(F, self.title)(data, d, no_bias=True, **self.shared), ddata, None


def geometry_of(kernel: Shape, stride: Shape, dilate: Shape, pad: Shape, groups: int) -> Geometry:
    """The numbers of a convolution with these attributes, of which all but `kernel` may be empty."""
    ones, zeros = (1,) * len(kernel), (0,) * len(kernel)
    return Geometry(kernel, stride or ones, dilate or ones, pad or zeros, groups)


def left_over(geometry: Geometry, data: Shape, output: Shape) -> list[int]:
    """The pixels at the far end of data that no window reaches, per axis: ONNX' output_padding."""
    reach = zip(data, geometry.pad, geometry.dilate, geometry.kernel, output, geometry.stride, strict=True)
    return [
        size + 2 * pad - dilate * (kernel - 1) - 1 - (count - 1) * step
        for size, pad, dilate, kernel, count, step in reach
    ]


def onnx_attributes(geometry: Geometry) -> dict[str, Any]:
    """ONNX attributes of a convolution."""
    return {
        "kernel_shape": list(geometry.kernel),
        "strides": list(geometry.stride),
        "dilations": list(geometry.dilate),
        "pads": [*geometry.pad, *geometry.pad],
        "group": geometry.groups,
    }


class Convolving(Spatial):
    """Base of Convolution and its gradients: the shared attributes."""

    kernel: Shape
    stride: Shape = ()
    dilate: Shape = ()
    pad: Shape = ()
    num_filter: int
    num_group: int = 1
    no_bias: bool = False
    layout: str | None = None

    @cached_property
    def geometry(self) -> Geometry:
        return geometry_of(self.kernel, self.stride, self.dilate, self.pad, self.num_group)

    def output_shape(self, data: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the output for that data. Raises ShapeError."""
        self.check_data(data)
        output = self.geometry.output(data[2:])
        if any(size < 1 for size in output):
            raise ShapeError(
                f"Convolution: kernel={self.kernel} (dilate={self.dilate}, pad={self.pad}) "
                f"does not fit into data {data}"
            )
        return (data[0], self.num_filter, *output)

    def weight_shape(self, channels: int | None) -> tuple[int | None, ...]:
        return (self.num_filter, self.group_of(channels), *self.kernel)


class Convolution(Forward, Convolving, name="Convolution"):
    """Cross-correlation of data with `num_filter` kernels, in num_group independent groups of channels.

    data : (n, c, *spatial); weight : (num_filter, c / num_group, *kernel); bias : (num_filter,)
    returns : (n, num_filter, *output), output = (size + 2 pad - dilate (kernel - 1) - 1) // stride + 1
    layout : None, or NWC, NHWC or NDHWC for data, weight (num_filter, *kernel, c / num_group) and output
    """

    samples = [
        sample((2, 3, 7), (4, 3, 3), (4,), kernel=3, num_filter=4),
        sample((2, 3, 7, 6), (4, 3, 3, 2), (4,), kernel=(3, 2), num_filter=4),
        sample((2, 3, 7, 6), (4, 3, 3, 3), kernel=(3, 3), stride=(2, 1), pad=(1, 2), num_filter=4, no_bias=True),
        sample((2, 4, 8, 8), (6, 2, 3, 3), (6,), kernel=(3, 3), dilate=(2, 2), num_group=2, num_filter=6),
        sample((1, 3, 6, 6), (3, 1, 3, 3), kernel=(3, 3), pad=(1, 1), num_group=3, num_filter=3, no_bias=True),
        sample((2, 4, 5, 5), (6, 4, 1, 1), (6,), kernel=(1, 1), num_filter=6),
        sample((2, 4, 5, 5), (6, 4, 1, 1), kernel=(1, 1), stride=(2, 2), num_filter=6, no_bias=True),
        sample((1, 2, 4, 5, 4), (3, 2, 2, 2, 2), (3,), kernel=(2, 2, 2), num_filter=3),
    ]

    def infer_shape(self, data: Shape, weight: Shape, bias: tuple[int, ...] | None = None) -> Shape:
        if self.channels_last:
            return last_shape(self.with_channels_first.infer_shape(first_shape(data), first_shape(weight), bias))
        result = self.output_shape(data)
        self.check_parameters(data, weight, bias)
        return result

    def numpy(
        self, data: Array, weight: Array, bias: Array | None = None, out: Array | None = None,
        scratch: Scratch = np.empty,
    ) -> Array:  # fmt: skip
        if self.channels_last:
            return self.run_with_channels_first((data, weight, bias), out, scratch)
        target = contiguous(out, self.output_shape(data.shape), data.dtype)
        return into(convolution.forward(data, weight, bias, self.geometry, target, scratch), out)

    def _contraction(self, *shapes: tuple[int, ...]) -> Contraction | None:
        data = shapes[0]
        if is_depthwise(self.geometry, data[1], self.num_filter):
            return None
        bias = None if self.no_bias else 2
        return conv_products.convolution(self.geometry, data, self.output_shape(data), bias=bias)

    def _depthwise(self, elements: Elements, place: Place) -> str:
        total = depthwise.convolved(elements, self.geometry, self.num_filter, place)
        return total if self.no_bias else f"{total} + {elements.read(2, place[1:2])}"

    triton = Product(_contraction, otherwise=Element(_depthwise))

    def bound(self, sizes: Sequence[float], shapes: Sequence[Shape], filters: Callable[[int], float]) -> float:
        return sizes[0] * filters(1) + sum(sizes[2:])

    def onnx(self, g: OnnxGraph, data: str, weight: str, bias: str | None = None) -> str:
        return g.Conv(data, weight, *([bias] if bias else []), **onnx_attributes(self.geometry))


class ConvDataGrad(DataGradient, Convolving, name="_conv_data_grad"):
    """The gradient of Convolution's data.

    dy : its output; data : read for its shape; weight; returns : the shape of data.
    """

    samples = gradient_samples(Convolution, "dy", "data", "weight")

    def numpy(
        self, dy: Array, data: Array, weight: Array, out: Array | None = None, scratch: Scratch = np.empty
    ) -> Array:
        target = contiguous(out, data.shape, dy.dtype)
        return into(convolution.data_gradient(dy, weight, self.geometry, target, scratch), out)

    def _contraction(self, *shapes: tuple[int, ...]) -> Contraction | None:
        dy, data, _ = shapes
        if is_depthwise(self.geometry, data[1], self.num_filter):
            return None
        return conv_products.data_gradient(self.geometry, data, dy)

    def _depthwise(self, elements: Elements, place: Place) -> str:
        return depthwise.data_gradient(elements, self.geometry, self.num_filter, place)

    triton = Product(_contraction, otherwise=Element(_depthwise))

    def onnx(self, g: OnnxGraph, dy: str, data: str, weight: str) -> str:
        rest = left_over(self.geometry, g.shape(data)[2:], g.shape(dy)[2:])
        return g.ConvTranspose(dy, weight, output_padding=rest, **onnx_attributes(self.geometry))


class ConvWeightGrad(WeightGradient, Convolving, name="_conv_weight_grad"):
    """The gradient of Convolution's weight.

    dy : its output; data; weight : read for its shape; returns : the shape of weight.
    """

    samples = ConvDataGrad.samples

    def numpy(
        self, dy: Array, data: Array, weight: Array, out: Array | None = None, scratch: Scratch = np.empty
    ) -> Array:
        target = contiguous(out, weight.shape, dy.dtype)
        return into(convolution.weight_gradient(dy, data, self.geometry, target, scratch), out)

    def lower(self, F: Functions, dy: Tensor, data: Tensor, weight: Tensor) -> Tensor:
        if self.num_group == 1:
            raise Unmappable("the weight gradient of one group is one product")
        return depthwise.weight_gradient(F, self.geometry, dy, data, weight)

    @Product
    def triton(self, *shapes: tuple[int, ...]) -> Contraction | None:
        dy, data, _ = shapes
        if is_depthwise(self.geometry, data[1], self.num_filter):
            return None
        return conv_products.weight_gradient(self.geometry, data, dy)

    def onnx(self, g: OnnxGraph, dy: str, data: str, weight: str) -> str:
        if prod(self.kernel) > MOST_SLICES:
            return self._as_convolution(g, dy, data, g.shape(weight))
        return self._as_product(g, dy, data, weight)

    def _as_convolution(self, g: OnnxGraph, dy: str, data: str, shape: tuple[int, ...]) -> str:
        """A convolution of data with dy as its filters: images and channels change places, and so do stride and
        dilation. It takes a few nodes whatever the size of the kernel.
        """
        geometry, groups, spatial = self.geometry, self.num_group, list(range(2, len(self.kernel) + 2))
        exchange = [1, 0, *spatial]
        if groups == 1:
            data = g.Transpose(data, perm=exchange)
        else:
            images, channels, size = g.shape(data)[0], shape[1], g.shape(data)[2:]
            data = g.Reshape(data, [images, groups, channels, *size])
            data = g.Transpose(data, perm=[2, 1, 0, *(axis + 1 for axis in spatial)])
            data = g.Reshape(data, [channels, groups * images, *size])
        result = g.Conv(
            data, g.Transpose(dy, perm=exchange), kernel_shape=list(g.shape(dy)[2:]), strides=list(geometry.dilate),
            dilations=list(geometry.stride), pads=[*geometry.pad, *geometry.pad], group=groups,
        )  # fmt: skip
        # If the stride does not divide the image there are more results than places in the kernel.
        return g.Transpose(g.Slice(result, [0] * len(spatial), self.kernel, spatial), perm=exchange)

    def _as_product(self, g: OnnxGraph, dy: str, data: str, weight: str) -> str:
        """One matrix product of dy with the patches of data, which Slice and Concat gather."""
        geometry, shape, output = self.geometry, g.shape(data), g.shape(dy)[2:]
        rank, groups, channels = len(output), self.num_group, shape[1]
        if any(geometry.pad):
            data = g.Pad(data, [0, 0, *geometry.pad] * 2, g.const(0, g.dtype(data)))
        order = [1, 0, *range(2, rank + 2)]
        turned = g.Transpose(data, perm=order)
        parts = []
        for _, where in geometry.places(output):
            starts, ends = [part.start for part in where], [part.stop for part in where]
            part = g.Slice(turned, starts, ends, order[2:], geometry.stride)
            parts.append(g.Reshape(part, [groups, channels // groups, 1, -1]))
        patches = g.Concat(*parts, axis=2) if len(parts) > 1 else parts[0]
        rows = channels // groups * len(parts)
        patches = g.Reshape(patches, [groups, rows, -1])
        left = g.Reshape(g.Transpose(dy, perm=order), [groups, self.num_filter // groups, -1])
        result = g.MatMul(left, g.Transpose(patches, perm=[0, 2, 1]))
        return g.Reshape(result, g.shape(weight))
