"""Convolutions whose kernels have movable places, under MXNet's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.nn import Activation
from hybrid_lab.gluon.nn.conv import checked_layout, window
from hybrid_lab.gluon.nn.registry import layer

if TYPE_CHECKING:  # else they would be names of this public module
    from hybrid_lab.gluon.nn.conv import Size
    from hybrid_lab.gluon.parameter import Parameter
    from hybrid_lab.gluon.parameter_dict import ParameterDict
    from hybrid_lab.initializer import InitializerLike
    from hybrid_lab.ops.framework.protocols import Functions, Tensor

__all__ = ["DeformableConvolution", "ModulatedDeformableConvolution"]


@layer
class DeformableConvolution(HybridBlock):
    """A convolution that predicts the places of its kernel's elements, with a second convolution (arXiv 1703.06211).

    channels : number of outputs; kernel_size, strides, padding, dilation : a number or (height, width)
    num_deformable_group : number of groups of inputs, each with offsets of its own
    offset_... : of the convolution that predicts the offsets; with weights of 0, the default, nothing is moved
    op_name : for MXNet's calls; adj : must be None, there is no transposed form

    x : (batch, in_channels, height, width) -> (batch, channels, out_height, out_width)
    """

    numbers = 2
    """Predicted numbers for each place of the kernel: y and x."""
    deformable_conv_weight: Parameter

    def __init__(
        self, channels: int, kernel_size: Size = (1, 1), strides: Size = (1, 1), padding: Size = (0, 0),
        dilation: Size = (1, 1), groups: int = 1, num_deformable_group: int = 1, layout: str = "NCHW",
        use_bias: bool = True, in_channels: int = 0, activation: str | None = None,
        weight_initializer: InitializerLike | None = None, bias_initializer: InitializerLike = "zeros",
        offset_weight_initializer: InitializerLike = "zeros", offset_bias_initializer: InitializerLike = "zeros",
        offset_use_bias: bool = True, op_name: str | None = None, adj: None = None, prefix: str | None = None,
        params: ParameterDict | None = None,
    ) -> None:  # fmt: skip
        super().__init__(prefix=prefix, params=params)
        checked_layout(self, layout, ("NCHW",))
        if adj is not None:
            raise ValueError(f"{type(self).__name__}: adj={adj}; there is no transposed deformable convolution")
        kernel = window(kernel_size, 2, "kernel_size")
        shared: dict[str, Any] = {
            "kernel": kernel,
            "stride": window(strides, 2, "strides"),
            "dilate": window(dilation, 2, "dilation"),
            "pad": window(padding, 2, "padding"),
            "num_group": groups,
            "layout": layout,
        }
        self._moved = num_deformable_group * 2 * kernel[0] * kernel[1]
        predicted = self._moved * self.numbers // 2
        self._kwargs_offset = {**shared, "num_filter": predicted, "no_bias": not offset_use_bias}
        self._kwargs_deformable_conv = {
            **shared, "num_filter": channels, "num_deformable_group": num_deformable_group, "no_bias": not use_bias,
        }  # fmt: skip
        within = in_channels // groups
        parameters = {
            "offset_weight": ((predicted, within, *kernel), offset_weight_initializer),
            "offset_bias": ((predicted,) if offset_use_bias else None, offset_bias_initializer),
            "deformable_conv_weight": ((channels, within, *kernel), weight_initializer),
            "deformable_conv_bias": ((channels,) if use_bias else None, bias_initializer),
        }
        with self.name_scope():
            for name in self._order:
                shape, initializer = parameters[name]
                parameter = None
                if shape is not None:
                    parameter = self.params.get(name, shape=shape, init=initializer, allow_deferred_init=True)
                setattr(self, name, parameter)
            self.act = None if activation is None else Activation(activation, prefix=activation + "_")

    _order = ("offset_weight", "offset_bias", "deformable_conv_weight", "deformable_conv_bias")
    """MXNet's order of the parameters, which files without names rely on."""

    def _alias(self) -> str:
        return "deformable_conv"

    def hybrid_forward(
        self, F: Functions, x: Tensor, offset_weight: Tensor, deformable_conv_weight: Tensor,
        offset_bias: Tensor | None = None, deformable_conv_bias: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        offset = F.Convolution(x, offset_weight, offset_bias, **self._kwargs_offset)
        y = self._convolved(F, x, offset, deformable_conv_weight, deformable_conv_bias)
        return y if self.act is None else self.act(y)

    def _convolved(self, F: Functions, x: Tensor, offset: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        contrib: Any = F.contrib
        result: Tensor = contrib.DeformableConvolution(
            x, offset, weight, bias, name="fwd", **self._kwargs_deformable_conv
        )
        return result

    def __repr__(self) -> str:
        kwargs: Any = self._kwargs_deformable_conv
        shape = self.deformable_conv_weight.shape or (0,) * 4
        parts = [f"{shape[1] or None} -> {shape[0]}", f"kernel_size={kwargs['kernel']}", f"stride={kwargs['stride']}"]
        if any(kwargs["pad"]):
            parts.append(f"padding={kwargs['pad']}")
        if any(size != 1 for size in kwargs["dilate"]):
            parts.append(f"dilation={kwargs['dilate']}")
        if kwargs["num_group"] != 1:
            parts.append(f"groups={kwargs['num_group']}")
        if kwargs["no_bias"]:
            parts.append("bias=False")
        if self.act is not None:
            parts.append(repr(self.act))
        return f"{type(self).__name__}({', '.join(parts)})"


@layer
class ModulatedDeformableConvolution(DeformableConvolution):
    """A DeformableConvolution that weights the places of its kernel by predicted masks, too (arXiv 1811.11168).

    Arguments as DeformableConvolution; a mask is twice the sigmoid of the second convolution's prediction.
    """

    numbers = 3
    """Predicted numbers for each place of the kernel: y, x and the mask."""
    _order = ("deformable_conv_weight", "deformable_conv_bias", "offset_weight", "offset_bias")

    def _alias(self) -> str:
        return "modulated_deformable_conv"

    def _convolved(self, F: Functions, x: Tensor, offset: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        moved = F.slice_axis(offset, axis=1, begin=0, end=self._moved)
        mask = F.sigmoid(F.slice_axis(offset, axis=1, begin=self._moved, end=None)) * 2
        contrib: Any = F.contrib
        result: Tensor = contrib.ModulatedDeformableConvolution(
            x, moved, mask, weight, bias, name="fwd", **self._kwargs_deformable_conv
        )
        return result


_suggest_names(__name__)
