"""ATen's convolutions, pooling, normalizations and dropout."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from hybrid_lab.onnx.reading.importers.layers import per_channel
from hybrid_lab.onnx.reading.importers.pooling import max_and_places
from hybrid_lab.ops.framework.sizes import SymbolicSize
from hybrid_lab.torch.importers.functions import Functions, Result, Size, Tensor
from hybrid_lab.torch.importers.table import MODES, aten, onnx


@aten("convolution", "_convolution")
def _convolution(
    F: Functions, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int, *_: object,
) -> Tensor:  # fmt: skip
    rank = weight.rank - 2
    stride, padding, dilation, more = (_each(item, rank) for item in (stride, padding, dilation, output_padding))
    batch = x if x.rank == weight.rank else F.reshape_to(x, (1, *x.shape))
    names = {"strides": stride, "pads": (*padding, *padding), "dilations": dilation, "group": groups}
    if transposed:
        made = onnx("ConvTranspose")(F, batch, weight, bias, output_padding=more, **names)
    else:
        made = onnx("Conv")(F, batch, weight, bias, **names)
    return made if batch is x else F.reshape_to(made, made.shape[1:])


def _each(numbers: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """A number for each axis, where one may stand for all."""
    numbers = (numbers,) if isinstance(numbers, int) else tuple(numbers)
    return numbers * rank if len(numbers) == 1 else numbers


# -- pooling ---------------------------------------------------------------------------------------------------------


@aten("max_pool2d_with_indices", "max_pool3d_with_indices", "max_pool1d", "max_pool2d", "max_pool3d")
def _max_pool(
    F: Functions, x: Tensor, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = (),
    padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1, ceil_mode: bool = False,
) -> Result:  # fmt: skip
    several = isinstance(F.result, (tuple, list))
    rank = next(number for number in (1, 2, 3) if f"pool{number}d" in F.operator)
    kernel = _each(kernel_size, rank)
    batch = x if x.rank == rank + 2 else F.reshape_to(x, (1, *x.shape))
    pads, strides = _each(padding, rank), _each(stride, rank) if stride else kernel
    if 1 in F.used:
        found = max_and_places(F, batch, kernel, strides, _each(dilation, rank), pads, ceil_mode)
        return found if batch is x else tuple(F.reshape_to(item, item.shape[1:]) for item in found)
    made = onnx("MaxPool")(
        F,
        batch,
        kernel_shape=kernel,
        strides=strides,
        pads=(*pads, *pads),
        dilations=_each(dilation, rank),
        ceil_mode=int(ceil_mode),
    )
    made = made if batch is x else F.reshape_to(made, made.shape[1:])
    return (made, None) if several else made


@aten("avg_pool1d", "avg_pool2d", "avg_pool3d")
def _avg_pool(
    F: Functions, x: Tensor, kernel_size: int | Sequence[int], stride: int | Sequence[int] | None = (),
    padding: int | Sequence[int] = 0, ceil_mode: bool = False, count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    rank = next(number for number in (1, 2, 3) if f"pool{number}d" in F.operator)
    kernel = _each(kernel_size, rank)
    batch = x if x.rank == rank + 2 else F.reshape_to(x, (1, *x.shape))
    pads = _each(padding, rank)
    made = onnx("AveragePool")(
        F, batch, kernel_shape=kernel, strides=_each(stride, rank) if stride else kernel,
        pads=(*pads, *pads), ceil_mode=int(ceil_mode),
        count_include_pad=int(count_include_pad or divisor_override is not None),
    )  # fmt: skip
    if divisor_override is not None:
        made = made * (prod(kernel) / divisor_override)
    return made if batch is x else F.reshape_to(made, made.shape[1:])


def _parts(size: int, length: int) -> list[tuple[int, int]]:
    """Where the windows of an adaptive pooling begin and end."""
    return [(place * size // length, -((place + 1) * size // -length)) for place in range(length)]


@aten(
    "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"
)
def _adaptive_avg_pool(F: Functions, x: Tensor, output_size: Sequence[int]) -> Tensor:
    rank = len(output_size)
    if all(size == 1 for size in output_size):
        return F.reduced("mean", x, range(x.rank - rank, x.rank), True)
    for number, length in enumerate(output_size):
        axis = x.rank - rank + number
        size = _closed(F, x, axis)
        if length != size:
            weights = np.zeros((size, length))
            for place, (first, last) in enumerate(_parts(size, length)):
                weights[first:last, place] = 1.0 / (last - first)
            order = [*(k for k in range(x.rank) if k != axis), axis]
            made = F.dot(F.transposed(x, order), F.constant(weights, x.dtype))
            x = F.transposed(made, [order.index(k) for k in range(x.rank)])
    return x


@aten("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def _adaptive_max_pool(F: Functions, x: Tensor, output_size: Sequence[int]) -> Result:
    if 1 in F.used:
        raise F.unsupported("the places of the maxima (return_indices=True) are not supported")
    rank = len(output_size)
    for number, length in enumerate(output_size):
        axis = x.rank - rank + number
        parts = [
            F.reduced("max", F.slice_axis(x, axis=axis, begin=first, end=last), (axis,), True)
            for first, last in _parts(_closed(F, x, axis), length)
        ]
        x = F.Concat(*parts, dim=axis) if len(parts) > 1 else parts[0]
    return x, None


def _closed(F: Functions, x: Tensor, axis: int) -> int:
    size = x.shape[axis]
    if isinstance(size, SymbolicSize):
        raise F.unsupported(f"axis {axis} is open, and its parts depend on its length; {F.close_sizes}")
    return int(size)


# -- normalizations --------------------------------------------------------------------------------------------------


def _vector(F: Functions, item: Tensor | None, shape: Sequence[Size], number: float, dtype: np.dtype | None) -> Tensor:
    return F.constant(np.full(tuple(shape), number), dtype) if item is None else item


@aten("batch_norm", domain=MODES)
def _batch_norm(
    F: Functions, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, momentum: float,
    eps: float,
) -> Tensor:  # fmt: skip
    """In both modes: batch statistics and new running statistics in training, running statistics in prediction."""
    shape = mean.shape
    gamma, beta = _vector(F, weight, shape, 1.0, mean.dtype), _vector(F, bias, shape, 0.0, mean.dtype)
    if mean.is_parameter and var.is_parameter:
        F.states.update((mean.name, var.name))
        return F.BatchNorm(x, gamma, beta, mean, var, eps=eps, momentum=1.0 - momentum, fix_gamma=False)
    scale, shift, mean, var = (per_channel(F, F.cast(item, x.dtype), x.rank) for item in (gamma, beta, mean, var))
    return (x - mean) / F.sqrt(var + eps) * scale + shift


@aten(
    "_native_batch_norm_legit_no_training",
    "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit",
    "batch_norm",
    "native_batch_norm",
)
def _native_batch_norm(
    F: Functions, x: Tensor, weight: Tensor | None, bias: Tensor | None, *rest: Tensor | bool | float | None
) -> Result:
    momentum, eps = [item for item in rest if isinstance(item, (int, float)) and not isinstance(item, bool)]
    statistics = [item for item in rest if isinstance(item, Tensor)]
    if not statistics:
        return _of_batch(F, x, weight, bias, eps), None, None
    mean, var = statistics
    return _batch_norm(F, x, weight, bias, mean, var, momentum, eps), None, None, mean, var


def _of_batch(F: Functions, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """Normalized by the statistics of the batch in both modes."""
    axes = [axis for axis in range(x.rank) if axis != 1]
    centred = x - F.reduced("mean", x, axes, True)
    made = centred * F.rsqrt(F.reduced("mean", F.square(centred), axes, True) + eps)
    made = made if weight is None else made * per_channel(F, weight, x.rank)
    return made if bias is None else made + per_channel(F, bias, x.rank)


@aten("native_layer_norm", "layer_norm")
def _layer_norm(
    F: Functions, x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5, *_: object,
) -> Result:  # fmt: skip
    if F.used & {1, 2}:
        raise F.unsupported("mean and deviation of a layer norm are not supported as results")
    shape = F.numbers(F.constant(np.array(list(normalized_shape), object)), "the shape")
    scale, shift = _vector(F, weight, shape, 1.0, x.dtype), _vector(F, bias, shape, 0.0, x.dtype)
    made = onnx("LayerNormalization")(F, x, scale, shift, axis=-len(shape), epsilon=eps)
    made = made[0] if isinstance(made, tuple) else made
    return (made, None, None) if isinstance(F.result, (tuple, list)) else made


@aten("rms_norm", "_fused_rms_norm")
def _rms_norm(
    F: Functions, x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Result:
    shape = F.numbers(F.constant(np.array(list(normalized_shape), object)), "the shape")
    eps = float(np.finfo(x.dtype if x.dtype.itemsize > 2 else np.float32).eps) if eps is None else eps
    made = onnx("RMSNormalization")(F, x, _vector(F, weight, shape, 1.0, x.dtype), axis=-len(shape), epsilon=eps)
    return (made, None) if isinstance(F.result, (tuple, list)) else made


@aten("native_group_norm")
def _native_group_norm(
    F: Functions,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: Size,
    C: int,
    HxW: Size,
    group: int,
    eps: float,
) -> Result:
    if F.used & {1, 2}:
        raise F.unsupported("mean and deviation of a group norm are not supported as results")
    return _group_norm(F, x, group, weight, bias, eps), None, None


@aten("group_norm")
def _group_norm(
    F: Functions, x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
    eps: float = 1e-5, *_: object,
) -> Tensor:  # fmt: skip
    shape = (x.shape[1],)
    scale, shift = _vector(F, weight, shape, 1.0, x.dtype), _vector(F, bias, shape, 0.0, x.dtype)
    return onnx("GroupNormalization")(F, x, scale, shift, num_groups=num_groups, epsilon=eps)


@aten("instance_norm")
def _instance_norm(
    F: Functions, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None, var: Tensor | None,
    use_input_stats: bool, momentum: float, eps: float, *_: object,
) -> Tensor:  # fmt: skip
    if not use_input_stats and mean is not None and var is not None:
        return _batch_norm(F, x, weight, bias, mean, var, momentum, eps)
    shape = (x.shape[1],)
    return F.InstanceNorm(x, _vector(F, weight, shape, 1.0, x.dtype), _vector(F, bias, shape, 0.0, x.dtype), eps=eps)


# -- dropout ---------------------------------------------------------------------------------------------------------


@aten("dropout", domain=MODES)
def _dropout(F: Functions, x: Tensor, p: float) -> Tensor:
    """In both modes: in prediction x itself."""
    return F.Dropout(x, p=p) if p else x


@aten("dropout")
def _dropout_of_a_mode(F: Functions, x: Tensor, p: float, train: bool) -> Tensor:
    return x if not train or p == 0 else _drawn_dropout(F, x, p)


@aten("native_dropout")
def native_dropout(F: Functions, x: Tensor, p: float, train: bool | None = True) -> Result:
    """The same in training and prediction."""
    return (_drawn_dropout(F, x, p) if train and p != 0 else x), None


def _drawn_dropout(F: Functions, x: Tensor, p: float) -> Tensor:
    return onnx("Dropout")(F, x, F.constant(p, np.float32), F.constant(True), outputs=1)
