"""Convolution layers and their transposes in one, two and three dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any, Unpack

from hybrid_lab.diagnostics import ShapeError
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.gluon.block import BlockOptions
from hybrid_lab.initializer import InitializerLike
from hybrid_lab.ops.framework.protocols import Functions, Tensor

from ..hybrid import HybridBlock
from .activation import Activation
from .registry import layer

Size = int | Sequence[int]


def window(size: Size, dims: int, name: str) -> tuple[int, ...]:
    """One number per spatial dimension; NumPy's numbers too. Raises ShapeError if their count is another."""
    sizes = (size,) * dims if isinstance(size, (int, Integral)) else tuple(size)
    if len(sizes) != dims:
        raise ShapeError(f"{name} must be a number or {dims} numbers, not {size}")
    return tuple(int(each) if isinstance(each, Integral) else each for each in sizes)


#: The layouts of data with this many spatial dimensions; the first is the default.
LAYOUTS = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


def checked_layout(block: HybridBlock, layout: str | None, layouts: Sequence[str]) -> str:
    """The layout, or the first one if it is None. Raises ValueError if it is none of `layouts`."""
    if layout is None:
        return layouts[0]
    if layout not in layouts:
        raise ValueError(f"the layout of {type(block).__name__} must be {' or '.join(layouts)}, not {layout!r}")
    return layout


class _Conv(HybridBlock):
    """The common part of the convolutions; `dims` is the number of spatial dimensions, `operator` the operator that
    they call.
    """

    dims: int
    operator = "Convolution"

    def __init__(
        self,
        channels: int,
        kernel_size: Size,
        strides: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        layout: str | None = None,
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: InitializerLike | None = None,
        bias_initializer: InitializerLike = "zeros",
        in_channels: int = 0,
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        check_switches("_Conv", use_bias=use_bias)
        super().__init__(**kwargs)
        layouts = LAYOUTS[self.dims] if self.dims > 1 else ("NCW",)  # as in MXNet
        layout = checked_layout(self, layout, layouts)
        if groups < 1 or channels % groups or in_channels % groups:
            raise ShapeError(
                f"{type(self).__name__}: channels={channels} and in_channels={in_channels} must be multiples of "
                f"groups={groups}"
            )
        kernel = window(kernel_size, self.dims, "kernel_size")
        self._channels = channels
        self._in_channels = in_channels
        self._kwargs: dict[str, Any] = {
            "kernel": kernel,
            "stride": window(strides, self.dims, "strides"),
            "dilate": window(dilation, self.dims, "dilation"),
            "pad": window(padding, self.dims, "padding"),
            "num_filter": channels,
            "num_group": groups,
            "no_bias": not use_bias,
            "layout": layout,
        }
        with self.name_scope():
            self.weight = self.params.get(
                "weight", shape=self._weight_shape(), init=weight_initializer, allow_deferred_init=True
            )
            self.bias = None
            if use_bias:
                self.bias = self.params.get("bias", shape=(channels,), init=bias_initializer, allow_deferred_init=True)
            self.act = None if activation is None else Activation(activation, prefix=activation + "_")

    def _weight_shape(self) -> tuple[int, ...]:
        kernel, inputs = self._kwargs["kernel"], self._in_channels // self._kwargs["num_group"]
        if self._kwargs["layout"][1] == "C":
            return (self._channels, inputs, *kernel)
        return (self._channels, *kernel, inputs)

    def _alias(self) -> str:
        return "conv"

    def hybrid_forward(self, F: Functions, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        y = getattr(F, self.operator)(x, weight, bias, name="fwd", **self._kwargs)
        return y if self.act is None else self.act(y)

    def __repr__(self) -> str:
        kwargs = self._kwargs
        shape = self.weight.shape or (0,) * (self.dims + 2)
        inputs = shape[1] if kwargs["layout"][1] == "C" else shape[-1]
        parts = [f"{inputs or None} -> {shape[0]}", f"kernel_size={kwargs['kernel']}", f"stride={kwargs['stride']}"]
        if any(kwargs["pad"]):
            parts.append(f"padding={kwargs['pad']}")
        if any(size != 1 for size in kwargs["dilate"]):
            parts.append(f"dilation={kwargs['dilate']}")
        if kwargs["num_group"] != 1:
            parts.append(f"groups={kwargs['num_group']}")
        if self.bias is None:
            parts.append("bias=False")
        if self.act is not None:
            parts.append(repr(self.act))
        return f"{type(self).__name__}({', '.join(parts)})"


@layer
class Conv1D(_Conv):
    """Convolution over one spatial dimension.

    channels : number of outputs; kernel_size, strides, padding, dilation : a number or one per dimension
    groups : the number of independent convolutions into which inputs and outputs are split
    layout : 'NCW'
    activation : a name as `Activation` takes it, or None
    in_channels : number of inputs; 0 takes it from the first batch
    weight : (channels, in_channels // groups, kernel); bias : (channels,)

    x : (batch, in_channels, width) -> (batch, channels, out),
    out = (width + 2 padding - dilation (kernel_size - 1) - 1) // stride + 1
    """

    dims = 1


@layer
class Conv2D(_Conv):
    """Convolution over two spatial dimensions; arguments as `Conv1D`.

        layer = nn.Conv2D(8, kernel_size=3, padding=1)
        layer.initialize()
        layer(nd.ones((2, 3, 16, 16))).shape

    layout : 'NCHW' (the default), or 'NHWC' with channels last
    weight : (channels, in_channels // groups, height, width), or (channels, height, width, in_channels // groups)

    x : (batch, in_channels, height, width) -> (batch, channels, out_height, out_width), or channels last
    """

    dims = 2


@layer
class Conv3D(_Conv):
    """Convolution over three spatial dimensions; arguments as `Conv1D`.

    layout : 'NCDHW' (the default), or 'NDHWC' with channels last

    x : (batch, in_channels, depth, height, width) -> (batch, channels, out_depth, out_height, out_width)
    """

    dims = 3


class _ConvTranspose(_Conv):
    """Base of the transposed convolutions."""

    operator = "Deconvolution"

    def __init__(
        self,
        channels: int,
        kernel_size: Size,
        strides: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        layout: str | None = None,
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: InitializerLike | None = None,
        bias_initializer: InitializerLike = "zeros",
        in_channels: int = 0,
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        check_switches("_ConvTranspose", use_bias=use_bias)
        super().__init__(
            channels, kernel_size, strides, padding, dilation, groups, layout, activation, use_bias,
            weight_initializer, bias_initializer, in_channels, **kwargs,
        )  # fmt: skip
        self._kwargs["adj"] = window(output_padding, self.dims, "output_padding")

    def _weight_shape(self) -> tuple[int, ...]:
        kernel, outputs = self._kwargs["kernel"], self._channels // self._kwargs["num_group"]
        if self._kwargs["layout"][1] == "C":
            return (self._in_channels, outputs, *kernel)
        return (self._in_channels, *kernel, outputs)


@layer
class Conv1DTranspose(_ConvTranspose):
    """The transpose of a convolution over one spatial dimension: it makes larger outputs, a convolution smaller
    outputs.

    channels : number of outputs; kernel_size, strides, padding, dilation : a number or one per dimension
    output_padding : a number or one per dimension, added to one side of the output, below strides
    groups : the number of independent groups into which inputs and outputs are split
    activation : a name as `Activation` takes it, or None
    in_channels : number of inputs; 0 takes it from the first batch
    weight : (in_channels, channels // groups, kernel); bias : (channels,)

    x : (batch, in_channels, width) -> (batch, channels, out),
    out = (width - 1) strides - 2 padding + dilation (kernel_size - 1) + 1 + output_padding
    """

    dims = 1


@layer
class Conv2DTranspose(_ConvTranspose):
    """The transpose of a convolution over two spatial dimensions; arguments as `Conv1DTranspose`.

    x : (batch, in_channels, height, width) -> (batch, channels, out_height, out_width)
    """

    dims = 2


@layer
class Conv3DTranspose(_ConvTranspose):
    """The transpose of a convolution over three spatial dimensions; arguments as `Conv1DTranspose`.

    x : (batch, in_channels, depth, height, width) -> (batch, channels, out_depth, out_height, out_width)
    """

    dims = 3
