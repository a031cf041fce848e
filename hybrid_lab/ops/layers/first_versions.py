"""MXNet's first versions of its layers, which old files name: BatchNorm_v1, Convolution_v1, Pooling_v1."""

from __future__ import annotations

from math import prod

from hybrid_lab.diagnostics.errors import AttributeSpecError
from hybrid_lab.ops.framework import forward_shape
from hybrid_lab.ops.framework.lowering import differentiate_lowering, emit_lowering, run_lowering
from hybrid_lab.ops.framework.protocols import Functions, Tensor
from hybrid_lab.ops.framework.types import Shape
from hybrid_lab.ops.layers.conv import Convolution
from hybrid_lab.ops.layers.norm import BatchNorm
from hybrid_lab.ops.layers.pool import Pooled, Pooling


class BatchNormV1(BatchNorm, name="BatchNorm_v1"):
    """BatchNorm with the channels at axis 1; inputs, outputs and attributes as of BatchNorm."""

    samples = [item for item in BatchNorm.samples if "axis" not in item.attributes]

    def check(self) -> None:
        super().check()
        if self.axis != 1:
            raise AttributeSpecError(f"BatchNorm_v1: axis={self.axis}; channels are at axis 1, use BatchNorm")


class ConvolutionV1(Convolution, name="Convolution_v1"):
    """Convolution; inputs, output and attributes are the same."""

    precision = "float32"

    samples = [item for item in Convolution.samples if len(item.inputs[0]) == 4]


class PoolingV1(Pooled, name="Pooling_v1"):
    """Pooling by maxima, means or sums; input, output and attributes as of Pooling.

    Maxima see the padding as zeros. Means divide by the size of the window even if it reaches beyond the padding.
    """

    dtype_kinds = "f"
    numpy, grad, onnx = run_lowering, differentiate_lowering, emit_lowering
    samples = [
        item
        for item in Pooling.samples
        if item.attributes["pool_type"] != "lp"
        and "count_include_pad" not in item.attributes
        and len(item.inputs[0]) == 4
        and item.smooth
    ]

    def check(self) -> None:
        super().check()
        if self.pooling_convention == "same":
            raise AttributeSpecError("Pooling_v1: pooling_convention must be 'valid' or 'full'")
        if self.pool_type == "lp":
            raise AttributeSpecError("Pooling_v1: pool_type='lp' is not supported; use Pooling")

    def infer_shape(self, data: Shape) -> Shape:
        return forward_shape("Pooling", data, **self.shared)

    def lower(self, F: Functions, data: Tensor) -> Tensor:
        if self.pool_type == "max" and any(self.pad) and not self.global_pool:  # maxima see the zeros of the padding
            width = (0, 0, 0, 0, *(border for border in self.pad for _ in range(2)))
            padded = F.Pad(data, mode="constant", pad_width=width, constant_value=0.0)
            return F.Pooling(padded, **{**self.shared, "pad": ()})
        if self.pool_type != "avg" or self.global_pool:
            return F.Pooling(data, **self.shared)
        return F.Pooling(data, **{**self.shared, "pool_type": "sum"}) / prod(self.kernel)
