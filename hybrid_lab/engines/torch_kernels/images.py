"""The table's entries for images and normalizations: convolution, pooling, BatchNorm, LayerNorm and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.engines.torch_kernels.registry import Kernel, dtype_of, entry, needs, shape_of

if TYPE_CHECKING:
    from types import ModuleType

    from torch import Tensor

    from hybrid_lab.graph.node import Node
    from hybrid_lab.ops.framework.operator import Operator
    from hybrid_lab.ops.kernels.convolution import Geometry
    from hybrid_lab.ops.layers.affine import ChannelAffine
    from hybrid_lab.ops.layers.conv import ConvDataGrad, Convolution, ConvWeightGrad
    from hybrid_lab.ops.layers.fused_gradient import BatchNormGrad, LayerNormGrad, LogSoftmaxGrad, SoftmaxGrad
    from hybrid_lab.ops.layers.norm import BatchNorm, LayerNorm
    from hybrid_lab.ops.layers.pool import MaxPoolGrad, Pooled, Pooling, SpreadPoolGrad

# -- convolution and pooling ---------------------------------------------------------------------------------------


@entry("Convolution")
def _convolution(torch: ModuleType, node: Node, op: Convolution) -> Kernel:
    shape = op.geometry
    rest = (shape.stride, shape.pad, shape.dilate, False, (0,) * len(shape.kernel), op.num_group)
    convolution = torch.convolution
    return lambda x, weight, bias=None: convolution(x, weight, bias, *rest)


def _convolution_backward(torch: ModuleType, node: Node, op: ConvDataGrad | ConvWeightGrad, wanted: int) -> Kernel:
    shape = op.geometry
    rest = (None, shape.stride, shape.pad, shape.dilate, False, (0,) * len(shape.kernel), op.num_group)
    mask = [index == wanted for index in range(3)]
    backward = torch.ops.aten.convolution_backward
    return lambda dy, x, weight: backward(dy, x, weight, *rest, mask)[wanted]


@entry("_conv_data_grad")
def _conv_data_grad(torch: ModuleType, node: Node, op: ConvDataGrad) -> Kernel:
    shape = op.geometry
    if _is_plain(shape) and set(shape.kernel) == {1} and max(shape.stride) > 1 and not any(shape.pad):
        return _spread_product(torch, node, op)
    return _convolution_backward(torch, node, op, 0)


@entry("_conv_weight_grad")
def _conv_weight_grad(torch: ModuleType, node: Node, op: ConvWeightGrad) -> Kernel:
    (batch, _, *positions), weight = shape_of(node, 0), node.outputs[0].shape
    few = batch * math.prod(positions) <= FEW_WINDOWS and math.prod(weight[1:]) >= MANY_COLUMNS
    if _is_plain(op.geometry) and few:
        return _unfolded_product(torch, node, op)
    return _convolution_backward(torch, node, op, 1)


#: Up to FEW_WINDOWS windows of at least MANY_COLUMNS numbers each, the gradient of a weight is one product of unfolded
#: windows. oneDNN is slower there: 8 images of 512 channels, 1 x 1: 23.8 ms and 0.9 (Zen 3), 68 and 0.7 (Zen 5). With 8
#: images of 256 channels, 2 x 2, both take as long; from there on oneDNN is faster.
FEW_WINDOWS, MANY_COLUMNS = 32, 256


def _is_plain(shape: Geometry) -> bool:
    """Whether these are images in one group, without dilation."""
    return len(shape.kernel) == 2 and shape.groups == 1 and set(shape.dilate) == {1}


def _unfolded_product(torch: ModuleType, node: Node, op: ConvWeightGrad) -> Kernel:
    """The gradient of a weight: one product with the windows of all images as rows."""
    shape, (batch, filters), result = op.geometry, shape_of(node, 0)[:2], node.outputs[0].shape
    columns, unfold = math.prod(result[1:]), torch.nn.functional.unfold

    def kernel(dy: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        rows = unfold(x, shape.kernel, 1, shape.pad, shape.stride).transpose(1, 2).reshape(-1, columns)
        left = dy.reshape(batch, filters, -1).transpose(0, 1).reshape(filters, -1)
        return torch.mm(left, rows).reshape(result)

    return kernel


def _spread_product(torch: ModuleType, node: Node, op: ConvDataGrad) -> Kernel:
    """The gradient of the data of a 1 x 1 convolution with strides: a product over channels, at every stride-th place.

    oneDNN takes 8.8 ms for 2 images of 256 channels, 56 x 56, from 128 of 28 x 28; this 1.6.
    """
    (down, right), result = op.geometry.stride, node.outputs[0].shape
    batch, filters, height, width = shape_of(node, 0)

    def kernel(dy: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        product = torch.matmul(weight.reshape(filters, -1).t(), dy.reshape(batch, filters, -1))
        gradient = dy.new_zeros(result)
        gradient[:, :, ::down, ::right] = product.reshape(batch, -1, height, width)
        return gradient

    return kernel


def _window(op: Pooled, data: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], bool]:
    """kernel, stride, pad and whether sizes round up, as torch counts. Raises Unmappable if it counts otherwise."""
    needs(len(data) == 4, "pooling over one or three axes")
    windows = op.windows(data[2:])
    for ceil in (False, True):
        sizes = []
        for size, kernel, stride, pad in zip(data[2:], windows.kernel, windows.stride, windows.pad, strict=True):
            steps = (size + 2 * pad - kernel) / stride
            count = (math.ceil(steps) if ceil else math.floor(steps)) + 1
            sizes.append(count - (ceil and (count - 1) * stride >= size + pad))
        if tuple(sizes) == tuple(windows.output):
            needs(all(2 * pad <= kernel for pad, kernel in zip(windows.pad, windows.kernel, strict=True)), "wide pad")
            return tuple(windows.kernel), tuple(windows.stride), tuple(windows.pad), ceil
    raise Unmappable("windows that reach beyond the padding")


@entry("Pooling")
def _pooling(torch: ModuleType, node: Node, op: Pooling) -> Kernel:
    kernel, stride, pad, ceil = _window(op, shape_of(node, 0))
    if op.pool_type == "max" and op.global_pool:
        return lambda x: torch.amax(x, (2, 3), True)
    if op.pool_type == "max":
        return _max_pool(torch, node, op)
    needs(op.pool_type != "lp", "pool_type='lp'")
    if op.global_pool:
        reduce = torch.mean if op.pool_type == "avg" else torch.sum
        return lambda x: reduce(x, (2, 3), True)
    divisor = None if op.pool_type == "avg" else 1
    counted = op.count_include_pad is not False
    average = torch.nn.functional.avg_pool2d
    return lambda x: average(x, kernel, stride, pad, ceil, counted, divisor)


def _max_pool(torch: ModuleType, node: Node, op: Pooling) -> Kernel:
    """The maximum over windows, one axis after the other, on whole slices: 3 to 30 times as fast as torch.max_pool2d,
    which looks at every element of every window.
    """
    size = shape_of(node, 0)[2:]
    windows = op.windows(size)
    border = [
        width
        for pad, reach, length in zip(windows.pad, windows.reach, size, strict=True)
        for width in (max(0, reach - length - pad), pad)
    ][::-1]
    rows, columns = (
        [slice(at, at + (count - 1) * step + 1, step) for at in range(length)]
        for length, step, count in zip(windows.kernel, windows.stride, windows.output, strict=True)
    )

    def largest(parts: list[Tensor]) -> Tensor:
        result = torch.maximum(parts[0], parts[1]) if len(parts) > 1 else parts[0].clone()
        for part in parts[2:]:
            torch.maximum(result, part, out=result)
        return result

    def pool(x: Tensor) -> Tensor:
        if any(border):
            x = torch.nn.functional.pad(x, border, value=-math.inf)
        x = largest([x[..., part, :] for part in rows])
        return largest([x[..., part] for part in columns])

    return pool


#: From this many channels on, max_pool2d_with_indices is two to four times as fast with the channels as the last axis
#: in memory, copies included: there torch compares all channels of a pixel at once.
MANY_CHANNELS = 4


@entry("_max_pool_grad")
def _max_pool_grad(torch: ModuleType, node: Node, op: MaxPoolGrad) -> Kernel:
    data = shape_of(node, 1)
    kernel, stride, pad, ceil = _window(op, data)
    layout = torch.channels_last if data[1] >= MANY_CHANNELS else torch.contiguous_format
    forward = torch.ops.aten.max_pool2d_with_indices
    backward = torch.ops.aten.max_pool2d_with_indices_backward

    def gradient(dy: Tensor, x: Tensor, y: Tensor) -> Tensor:
        _, places = forward(x.contiguous(memory_format=layout), kernel, stride, pad, (1, 1), ceil)
        # No place holds a maximum that is NaN; torch would choose one.
        return backward(dy.masked_fill(y != y, 0), x, kernel, stride, pad, (1, 1), ceil, places.contiguous())

    return gradient


@entry("_spread_pool_grad", shared=True)
def _spread_pool_grad(torch: ModuleType, node: Node, op: SpreadPoolGrad) -> Kernel:
    shape = node.outputs[0].shape
    kernel, stride, pad, ceil = _window(op, shape_of(node, 1))
    if op.global_pool:
        factor = 1.0 / math.prod(shape[2:]) if op.pool_type == "avg" else 1.0
        return lambda dy, x: (dy * factor).expand(shape)
    backward = torch.ops.aten.avg_pool2d_backward
    divisor = None if op.pool_type == "avg" else 1
    counted = op.count_include_pad is not False
    return lambda dy, x: backward(dy, x, kernel, stride, pad, ceil, counted, divisor)


# -- normalization -------------------------------------------------------------------------------------------------


#: Rows up to which a sum of float32, taken one after the other, is off by at most 1e-5 of itself.
_MOST_ROWS = 256


def _needs_exact_sums(shape: Sequence[int]) -> None:
    """With one element per channel and row, torch adds the rows up one after the other in float32."""
    few = shape[0] <= _MOST_ROWS or math.prod(shape[2:]) > 1
    needs(few, f"more than {_MOST_ROWS} rows of one element a channel, whose sums torch rounds too often")


@entry("BatchNorm")
def _batch_norm(torch: ModuleType, node: Node, op: BatchNorm) -> Kernel:
    eps = op.eps
    needs(op.axis % len(shape_of(node, 0)) == 1, "channels that are not axis 1")
    normalize, fixed = torch.native_batch_norm, op.fix_gamma
    if op.from_batch:
        _needs_exact_sums(shape_of(node, 0))
        # torch computes x * scale - mean * scale, which is not 0 even if x equals its mean.
        needs(math.prod(shape_of(node, 0)) != shape_of(node, 0)[1], "one element a channel, whose mean it is")
        return lambda x, gamma, beta, mean, variance: normalize(
            x, None if fixed else gamma, beta, None, None, True, 0.0, eps
        )

    def predict(x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, ...]:
        y = normalize(x, None if fixed else gamma, beta, mean, variance, False, 0.0, eps)[0]
        return y, mean.clone(), (variance + eps).rsqrt_()

    return predict


@entry("_channel_affine")
def _channel_affine(torch: ModuleType, node: Node, op: ChannelAffine) -> Kernel:
    rank = len(shape_of(node, 0))
    vector = tuple(-1 if index == op.axis % rank else 1 for index in range(rank))
    fused = torch.addcmul
    return lambda x, scale, shift: fused(shift.view(vector), x, scale.view(vector))


@entry("LayerNorm")
def _layer_norm(torch: ModuleType, node: Node, op: LayerNorm) -> Kernel:
    shape, eps = shape_of(node, 0), op.eps
    needs(op.axis % len(shape) == len(shape) - 1, "an axis that is not the last")

    def normalize(x: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor, ...]:
        y, mean, inverse = torch.native_layer_norm(x, shape[-1:], gamma, beta, eps)
        return y, mean, inverse.reciprocal_()

    return normalize


@entry("_batch_norm_grad", need=True)
def _batch_norm_grad(torch: ModuleType, node: Node, op: BatchNormGrad) -> Kernel:
    fixed = op.fix_gamma
    needs(op.axis % len(shape_of(node, 0)) == 1, "channels that are not axis 1")
    _needs_exact_sums(shape_of(node, 0))
    backward = torch.ops.aten.native_batch_norm_backward
    return lambda dy, x, gamma, mean, inverse, need=(True, True, True): backward(
        dy, x, None if fixed else gamma, None, None, mean, inverse, True, 0.0, need
    )


@entry("_layer_norm_grad", need=True)
def _layer_norm_grad(torch: ModuleType, node: Node, op: LayerNormGrad) -> Kernel:
    shape = shape_of(node, 0)
    needs(op.axis % len(shape) == len(shape) - 1, "an axis that is not the last")
    backward = torch.ops.aten.native_layer_norm_backward
    return lambda dy, x, gamma, mean, deviation, need=(True, True, True): backward(
        dy, x, shape[-1:], mean, deviation.reciprocal(), gamma, gamma, need
    )


@entry("_softmax_grad", "_log_softmax_grad")
def _softmax_grad(torch: ModuleType, node: Node, op: SoftmaxGrad | LogSoftmaxGrad) -> Kernel:
    aten, axis, dtype = torch.ops.aten, op.axis, dtype_of(torch, node)
    backward = aten._softmax_backward_data if op.name == "_softmax_grad" else aten._log_softmax_backward_data
    return lambda dy, y: backward(dy, y, axis, dtype)


@entry("_gelu_grad")
def _gelu_grad(torch: ModuleType, node: Node, op: Operator) -> Kernel:
    return torch.ops.aten.gelu_backward
