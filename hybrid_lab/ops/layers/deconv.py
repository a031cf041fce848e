"""Transposed convolution (Deconvolution) over one to three spatial axes, and its gradients as operators."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError
from hybrid_lab.ops.framework import Contraction, Product, contiguous, gradient_samples, into, sample
from hybrid_lab.ops.framework.attributes import Shape
from hybrid_lab.ops.framework.protocols import Functions, OnnxGraph, Scratch, Tensor
from hybrid_lab.ops.framework.types import Array
from hybrid_lab.ops.kernels import conv_products, convolution
from hybrid_lab.ops.kernels.convolution import Geometry
from hybrid_lab.ops.layers.channels import first_shape, last_shape
from hybrid_lab.ops.layers.conv import ConvWeightGrad, DataGradient, Forward, Spatial, WeightGradient, onnx_attributes


class Transposed(NamedTuple):
    """A transposed convolution of data of one size: the underlying convolution, and the output size."""

    geometry: Geometry
    adj: tuple[int, ...]
    output: tuple[int, ...]


class _Deconvolving(Spatial):
    """Base of Deconvolution and its gradients: the shared attributes."""

    title = "Deconvolution"
    prefix = "_deconv"
    borders = ("pad", "adj", "target_shape")

    kernel: Shape
    stride: Shape = ()
    dilate: Shape = ()
    pad: Shape = ()
    adj: Shape = ()
    target_shape: Shape = ()
    num_filter: int
    num_group: int = 1
    no_bias: bool = True
    layout: str | None = None

    def check(self) -> None:
        super().check()
        if not any(self.target_shape) and any(  # which replaces adj
            adj >= step for adj, step in zip(self.adj, self.stride or (1,) * len(self.kernel), strict=False)
        ):
            raise AttributeSpecError(f"Deconvolution: adj={self.adj} must be smaller than stride={self.stride or 1}")

    @lru_cache(1024)  # noqa: B019 - operators are interned and live for ever
    def sizes(self, spatial: tuple[int, ...]) -> Transposed:
        """Padding and output for data of that spatial size; target_shape decides both. Raises ShapeError."""
        return self.transposed_sizes(spatial)

    def transposed_sizes(self, spatial: Shape) -> Transposed:
        """The same for sizes that may be symbolic."""
        if 0 in spatial:
            raise ShapeError(f"Deconvolution: data of size {spatial} has no pixels")
        rank = len(self.kernel)
        stride, dilate = self.stride or (1,) * rank, self.dilate or (1,) * rank
        full = tuple(
            step * (size - 1) + spread * (kernel - 1) + 1
            for size, step, spread, kernel in zip(spatial, stride, dilate, self.kernel, strict=True)
        )
        pad, adj = self.pad or (0,) * rank, self.adj or (0,) * rank
        if any(self.target_shape):
            surplus = [size - target for size, target in zip(full, self.target_shape, strict=True)]
            if any(number < 0 for number in surplus):
                raise ShapeError(f"Deconvolution: target_shape={self.target_shape} is larger than {full}")
            pad, adj = tuple((number + 1) // 2 for number in surplus), tuple(number % 2 for number in surplus)
        output = tuple(size - 2 * border + more for size, border, more in zip(full, pad, adj, strict=True))
        if any(size < 1 for size in output):
            raise ShapeError(
                f"Deconvolution: pad={pad} removes the whole output of size {full} that data of size {spatial} gives"
            )
        return Transposed(Geometry(self.kernel, stride, dilate, pad, self.num_group), adj, output)

    def applied(self, data: Shape, output: Shape) -> Shape:
        return data

    def weight_shape(self, channels: int | None) -> tuple[int | None, ...]:
        self.group_of(channels)
        return (channels, self.num_filter // self.num_group, *self.kernel)


class Deconvolution(Forward, _Deconvolving, name="Deconvolution"):
    """The transpose of a Convolution: every number of data adds its multiple of a kernel to the output.

    data : (n, c, *spatial); weight : (c, num_filter / num_group, *kernel); bias (no_bias=False) : (num_filter,)
    returns : (n, num_filter, *output), output = stride (size - 1) + dilate (kernel - 1) + 1 - 2 pad + adj;
    target_shape names the output and replaces pad and adj
    layout : None, or NWC, NHWC or NDHWC for data, weight (c, *kernel, num_filter / num_group) and output
    """

    samples = [
        sample((2, 3, 5), (3, 4, 3), kernel=3, num_filter=4),
        sample((2, 3, 5), (3, 2, 4), (2,), kernel=4, stride=3, adj=2, pad=1, num_filter=2, no_bias=False),
        sample((2, 3, 4, 5), (3, 2, 3, 2), (2,), kernel=(3, 2), num_filter=2, no_bias=False),
        sample((2, 4, 3, 4), (4, 3, 4, 4), kernel=(4, 4), stride=(2, 2), pad=(1, 1), num_filter=3),
        sample((1, 4, 3, 4), (4, 3, 3, 3), kernel=(3, 3), stride=(2, 3), pad=(1, 0), adj=(1, 2), num_filter=3),
        sample(
            (2, 4, 4, 3), (4, 3, 3, 3), (6,), kernel=(3, 3), dilate=(2, 1), num_group=2, num_filter=6, no_bias=False
        ),
        sample(
            (1, 3, 3, 3), (3, 1, 4, 4), kernel=(4, 4), stride=(2, 2), num_group=3, num_filter=3, target_shape=(6, 7)
        ),
        sample((2, 3, 4, 4), (3, 5, 1, 1), kernel=(1, 1), num_filter=5),
        sample((1, 2, 2, 3, 2), (2, 3, 2, 3, 2), kernel=(2, 3, 2), stride=(2, 1, 2), pad=(0, 1, 0), num_filter=3),
    ]

    def infer_shape(self, data: Shape, weight: Shape, bias: tuple[int, ...] | None = None) -> Shape:
        if self.channels_last:
            return last_shape(self.with_channels_first.infer_shape(first_shape(data), first_shape(weight), bias))
        self.check_data(data)
        self.check_parameters(data, weight, bias)
        return (data[0], self.num_filter, *self.transposed_sizes(data[2:]).output)

    def numpy(
        self, data: Array, weight: Array, bias: Array | None = None, out: Array | None = None,
        scratch: Scratch = np.empty,
    ) -> Array:  # fmt: skip
        if self.channels_last:
            return self.run_with_channels_first((data, weight, bias), out, scratch)
        geometry, _, output = self.sizes(data.shape[2:])
        target = contiguous(out, (data.shape[0], self.num_filter, *output), data.dtype)
        convolution.data_gradient(data, weight, geometry, target, scratch)
        if bias is not None:
            target += bias.reshape(-1, *(1,) * len(output))
        return into(target, out)

    def scaled_weight(self, F: Functions, weight: Tensor, scale: Tensor) -> Tensor:
        groups = F.Reshape(weight, shape=(-4, self.num_group, -1, 0, -1))
        scaled = groups * F.Reshape(scale, shape=(self.num_group, 1, -1, 1))
        return F.reshape_like(scaled, weight)

    @Product
    def triton(self, *shapes: tuple[int, ...]) -> Contraction:
        data, geometry = shapes[0], self.sizes(shapes[0][2:]).geometry
        output = self.infer_shape(*shapes)
        return conv_products.data_gradient(geometry, output, data, weight=1, bias=None if self.no_bias else 2)

    def onnx(self, g: OnnxGraph, data: str, weight: str, bias: str | None = None) -> str:
        sizes = self.sizes(g.shape(data)[2:])
        given = [bias] if bias else []
        return g.ConvTranspose(data, weight, *given, output_padding=list(sizes.adj), **onnx_attributes(sizes.geometry))


class DeconvDataGrad(DataGradient, _Deconvolving, name="_deconv_data_grad"):
    """The gradient of Deconvolution's data.

    dy : its output; data : read for its shape; weight; returns : the shape of data.
    """

    samples = gradient_samples(Deconvolution, "dy", "data", "weight")

    def numpy(
        self, dy: Array, data: Array, weight: Array, out: Array | None = None, scratch: Scratch = np.empty
    ) -> Array:
        geometry = self.sizes(data.shape[2:]).geometry
        target = contiguous(out, data.shape, dy.dtype)
        return into(convolution.forward(dy, weight, None, geometry, target, scratch), out)

    @Product
    def triton(self, *shapes: tuple[int, ...]) -> Contraction:
        dy, data, _ = shapes
        return conv_products.convolution(self.sizes(data[2:]).geometry, dy, data, weight=2)

    def onnx(self, g: OnnxGraph, dy: str, data: str, weight: str) -> str:
        return g.Conv(dy, weight, **onnx_attributes(self.sizes(g.shape(data)[2:]).geometry))


class DeconvWeightGrad(WeightGradient, _Deconvolving, name="_deconv_weight_grad"):
    """The gradient of Deconvolution's weight.

    dy : its output; data; weight : read for its shape; returns : the shape of weight.
    """

    samples = DeconvDataGrad.samples

    def numpy(
        self, dy: Array, data: Array, weight: Array, out: Array | None = None, scratch: Scratch = np.empty
    ) -> Array:
        geometry = self.sizes(data.shape[2:]).geometry
        target = contiguous(out, weight.shape, dy.dtype)
        return into(convolution.weight_gradient(data, dy, geometry, target, scratch), out)

    @Product
    def triton(self, *shapes: tuple[int, ...]) -> Contraction:
        dy, data, _ = shapes
        return conv_products.weight_gradient(self.sizes(data[2:]).geometry, dy, data, dy=1, number=0)

    def onnx(self, g: OnnxGraph, dy: str, data: str, weight: str) -> str:
        # The weight gradient of the convolution that is turned round: data and dy change places.
        geometry = self.sizes(g.shape(data)[2:]).geometry
        record: Any = ConvWeightGrad.bind(
            kernel=geometry.kernel, stride=geometry.stride, dilate=geometry.dilate, pad=geometry.pad,
            num_filter=g.shape(data)[1], num_group=self.num_group,
        )  # fmt: skip
        return record.onnx(g, data, dy, weight)
