"""SeparableConv2D: a convolution of each channel by itself, then one across channels."""

from __future__ import annotations

from typing import Any, Unpack

from hybrid_lab import ndarray as nd
from hybrid_lab.gluon.block import BlockOptions
from hybrid_lab.initializer import InitializerLike
from hybrid_lab.ops.framework.protocols import Functions, Tensor
from hybrid_lab.symbol import Symbol, tracing

from ..hybrid import HybridBlock
from .activation import Activation
from .conv import Conv2D, Size, window
from .registry import layer


def _channels_of(x: nd.NDArray | Symbol) -> int:
    """The channels of a batch. In a trace, `x.shape` would make a graph for this shape alone; but the weight fixes the
    number of channels anyway, so the graph is for all shapes that the weight fits.
    """
    trace = tracing.of_arrays()
    known = trace.known_type(x.outputs[0]) if trace is not None and isinstance(x, Symbol) else None
    shape = x.shape if known is None else known[0]
    return shape[1] if len(shape) > 1 else 1  # Convolution refuses less than four dimensions


@layer
class DepthwiseConv2D(HybridBlock):
    """Convolution of each channel with filters of its own.

    kernel_size, strides, padding, dilation : a number or one per dimension
    depth_multiplier : filters of each channel; in_channels : number of inputs, 0 takes it from the first batch
    weight : (in_channels * depth_multiplier, 1, height, width); bias : (in_channels * depth_multiplier,)

    x : (batch, in_channels, height, width) -> (batch, in_channels * depth_multiplier, out_height, out_width)
    """

    def __init__(
        self,
        kernel_size: Size,
        strides: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        depth_multiplier: int = 1,
        use_bias: bool = False,
        weight_initializer: InitializerLike | None = None,
        bias_initializer: InitializerLike = "zeros",
        in_channels: int = 0,
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        super().__init__(**kwargs)
        if depth_multiplier < 1:
            raise ValueError(f"depth_multiplier is a number of filters from 1 on, not {depth_multiplier}")
        self._multiplier = depth_multiplier
        self._kwargs: dict[str, Any] = {
            "kernel": window(kernel_size, 2, "kernel_size"),
            "stride": window(strides, 2, "strides"),
            "pad": window(padding, 2, "padding"),
            "dilate": window(dilation, 2, "dilation"),
            "no_bias": not use_bias,
        }
        channels = in_channels * depth_multiplier
        with self.name_scope():
            shape = (channels, 1, *self._kwargs["kernel"])
            self.weight = self.params.get("weight", shape=shape, init=weight_initializer, allow_deferred_init=True)
            self.bias = None
            if use_bias:
                self.bias = self.params.get("bias", shape=(channels,), init=bias_initializer, allow_deferred_init=True)

    def forward(self, x: nd.NDArray) -> nd.NDArray:
        """With the number of channels of `x`, which `hybrid_forward` could not ask for."""
        known = self.weight.shape[0] if self.weight.shape else 0
        channels = known or _channels_of(x) * self._multiplier
        ctx = x.ctx if isinstance(x, nd.NDArray) else None
        parameters = [each.data(ctx) for each in (self.weight, self.bias) if each is not None]
        groups = channels // self._multiplier
        settings = {**self._kwargs, "num_filter": channels, "num_group": groups, "name": "fwd"}
        return nd.Convolution(x, *parameters, **settings)

    def __repr__(self) -> str:
        channels = self.weight.shape[0] if self.weight.shape else 0
        parts = [f"{channels // self._multiplier or None} -> {channels or None}"]
        parts += [f"{name}={self._kwargs[name]}" for name in ("kernel", "stride", "pad")]
        return f"{type(self).__name__}({', '.join(parts)})"


@layer
class SeparableConv2D(HybridBlock):
    """Depthwise separable convolution (arXiv 1610.02357): `depthwise`, a convolution of each channel by itself, then
    `pointwise`, a Conv2D of kernel size 1 across the channels.

    channels : number of outputs; the remaining arguments as in Conv2D, kernel_size to dilation for `depthwise`
    depth_multiplier : outputs of `depthwise` for each input
    use_bias, bias_initializer, activation : of `pointwise`

    x : (batch, in_channels, height, width) -> (batch, channels, out_height, out_width)
    """

    def __init__(
        self,
        channels: int,
        kernel_size: Size,
        strides: Size = 1,
        padding: Size = 0,
        dilation: Size = 1,
        depth_multiplier: int = 1,
        activation: str | None = None,
        use_bias: bool = True,
        weight_initializer: InitializerLike | None = None,
        bias_initializer: InitializerLike = "zeros",
        in_channels: int = 0,
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.depthwise = DepthwiseConv2D(
                kernel_size,
                strides,
                padding,
                dilation,
                depth_multiplier,
                weight_initializer=weight_initializer,
                in_channels=in_channels,
            )
            self.pointwise = Conv2D(
                channels,
                1,
                use_bias=use_bias,
                weight_initializer=weight_initializer,
                bias_initializer=bias_initializer,
                in_channels=in_channels * depth_multiplier,
            )
            self.act = None if activation is None else Activation(activation, prefix=activation + "_")

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        y = self.pointwise(self.depthwise(x))
        return y if self.act is None else self.act(y)
