"""Transposed convolution layers in one, two and three dimensions."""

from __future__ import annotations

from typing import Unpack

from hybrid_lab.gluon.block import BlockOptions
from hybrid_lab.initializer import InitializerLike

from .conv import Size, _Conv, window
from .registry import layer


class _ConvTranspose(_Conv):
    """What the transposed convolutions share."""

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
    """The transpose of a convolution over one spatial dimension: larger outputs where a convolution makes smaller ones.

    channels : number of outputs; kernel_size, strides, padding, dilation : a number or one per dimension
    output_padding : a number or one per dimension, added to one side of the output, below strides
    groups : inputs and outputs are split into so many independent ones
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
