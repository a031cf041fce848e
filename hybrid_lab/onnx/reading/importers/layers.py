"""ONNX's normalizations and Dropout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab.onnx.reading.importers.functions import Functions, Result, Tensor
from hybrid_lab.onnx.reading.importers.table import operator


def per_channel(F: Functions, vector: Tensor, rank: int, axis: int = 1) -> Tensor:
    """A vector of one number per channel, shaped to broadcast."""
    return F.reshape_to(vector, [vector.shape[0] if place == axis else 1 for place in range(rank)])


@operator("BatchNormalization", 7)
def _batch_norm(
    F: Functions, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, *, epsilon: float = 1e-5,
    momentum: float = 0.9, spatial: int = 1, training_mode: int = 0, outputs: int = 1,
) -> Result:  # fmt: skip
    if training_mode and not F.training:
        return _batch_norm_of_batch(F, x, scale, bias, mean, var, epsilon, momentum)
    parameters = (scale, bias, mean, var)
    # A BatchNorm without a scale is written with constant ones.
    ones = scale.is_constant and bool(np.all(scale.array == 1))
    known = all(item.is_parameter for item in parameters[1:]) and (scale.is_parameter or ones)
    if known and len({item.dtype for item in parameters}) == 1:
        # Running statistics that another node reads too, such as zeros that are stored once, are copied.
        if not F.training:
            mean, var = (
                F.own_copy(item, f"{F.node_name}.{name}")
                if item.name in F.parameters or item.name in (scale.name, bias.name)
                else item
                for item, name in ((mean, "running_mean"), (var, "running_var"))
            )
        F.states.update((mean.name, var.name))
        y = F.BatchNorm(
            x, scale, bias, mean, var, eps=epsilon, momentum=momentum, fix_gamma=ones,
            use_global_stats=F.training and not training_mode,
        )  # fmt: skip
        return (y, mean, var) if training_mode else y
    if training_mode:
        raise F.unsupported("its scale, bias or running statistics are no initializers")
    scale, bias, mean, var = (per_channel(F, F.cast(item, x.dtype), x.rank) for item in parameters)
    return (x - mean) / F.sqrt(var + epsilon) * scale + bias


def _batch_norm_of_batch(
    F: Functions, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, epsilon: float, momentum: float
) -> tuple[Any, Any, Any]:
    axes = [axis for axis in range(x.rank) if axis != 1]
    own = F.reduced("mean", x, axes, True)
    spread = F.reduced("mean", F.square(x - own), axes, True)
    y = (x - own) / F.sqrt(spread + epsilon) * per_channel(F, scale, x.rank) + per_channel(F, bias, x.rank)
    running = [
        old * momentum + F.reshape_to(new, old.shape) * (1.0 - momentum) for old, new in ((mean, own), (var, spread))
    ]
    return y, *running


@operator("InstanceNormalization", 6)
def _instance_norm(F: Functions, x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    return F.InstanceNorm(x, scale, bias, eps=epsilon)


@operator("LayerNormalization", 17)
def _layer_norm(
    F: Functions, x: Tensor, scale: Tensor, bias: Tensor | None = None, *, axis: int = -1, epsilon: float = 1e-5,
    stash_type: int = 1, outputs: int = 1,
) -> Result:  # fmt: skip
    axis = F.axis(axis, x.rank)
    last = axis == x.rank - 1 and scale.rank == 1 and scale.shape == x.shape[-1:]
    if last and outputs == 1 and bias is not None and bias.rank == 1:
        return F.LayerNorm(x, scale, bias, axis=-1, eps=epsilon)
    axes = range(axis, x.rank)
    wide = F.cast(x, "float32") if x.dtype.itemsize < 4 else x
    mean = F.reduced("mean", wide, axes, True)
    centred = wide - mean
    inverse = F.rsqrt(F.reduced("mean", F.square(centred), axes, True) + epsilon)
    y = F.cast(centred * inverse, x.dtype) * scale
    return y if bias is None and outputs == 1 else (y if bias is None else y + bias, mean, inverse)


@operator("RMSNormalization", 23)
def _rms_norm(
    F: Functions, x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    wide = F.cast(x, "float32") if x.dtype.itemsize < 4 else x
    axes = range(F.axis(axis, x.rank), x.rank)
    inverse = F.rsqrt(F.reduced("mean", F.square(wide), axes, True) + epsilon)
    return F.cast(F.cast(wide * inverse, x.dtype), scale.dtype) * scale


@operator("GroupNormalization", 21)
def _group_norm(
    F: Functions, x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    channels = x.shape[1]
    grouped = F.Reshape(x, shape=(0, num_groups, -1))
    mean = F.reduced("mean", grouped, (2,), True)
    centred = grouped - mean
    spread = F.reduced("mean", F.square(centred), (2,), True)
    y = F.reshape_like(centred / F.sqrt(spread + epsilon), x)
    if scale.shape[0] != channels:  # of opset 18: one number per group
        count = channels // num_groups
        scale, bias = (F.Reshape(F.repeat(item, repeats=count, axis=0), shape=(-1,)) for item in (scale, bias))
    return y * per_channel(F, scale, x.rank) + per_channel(F, bias, x.rank)


@operator("GroupNormalization", 18)
def _group_norm_per_group(
    F: Functions, x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5
) -> Tensor:
    return _group_norm(F, x, scale, bias, num_groups=num_groups, epsilon=epsilon)


@operator("LRN", 1)
def _lrn(F: Functions, x: Tensor, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0) -> Tensor:
    if size % 2:
        return F.LRN(x, nsize=size, alpha=alpha, beta=beta, knorm=bias)
    squared, channels = F.square(x), x.shape[1]
    before, after = (size - 1) // 2, -(-(size - 1) // 2)
    F.table(channels, channels)
    lines = np.arange(channels)
    band = (lines[None, :] >= lines[:, None] - before) & (lines[None, :] <= lines[:, None] + after)
    flat = F.Reshape(squared, shape=(0, 0, -1))
    total = F.reshape_like(
        F.transposed(F.dot(F.transposed(flat, (0, 2, 1)), F.constant(band.T, x.dtype)), (0, 2, 1)), x
    )
    return x / F.broadcast_power(total * (alpha / size) + bias, beta)


@operator("LpNormalization", 1)
def _lp_normalization(F: Functions, x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    axis = F.axis(axis, x.rank)
    if p == 1:
        length = F.reduced("sum", F.abs(x), (axis,), True)
    else:
        length = F.sqrt(F.reduced("sum", F.square(x), (axis,), True))
    zero = F.truth(F.broadcast_equal(length, 0.0))
    return F.select(zero, F.zeros_like(x), x / F.select(zero, F.ones_like(length), length))


@operator("MeanVarianceNormalization", 9)
def _mean_variance(F: Functions, x: Tensor, *, axes: Sequence[int] = (0, 2, 3)) -> Tensor:
    mean = F.reduced("mean", x, axes, True)
    centred = x - mean
    spread = F.reduced("mean", F.square(centred), axes, True)
    return centred / (F.sqrt(spread) + 1e-9)


@operator("Dropout", 7)
def _dropout_before_12(F: Functions, x: Tensor, *, ratio: float = 0.5, outputs: int = 1) -> Result:
    y = F.Dropout(x, p=ratio)
    return (y, F.cast(F.ones_like(x), "bool")) if outputs > 1 else y


@operator("Dropout", 12)
def _dropout(
    F: Functions, x: Tensor, ratio: Tensor | None = None, training_mode: Tensor | None = None, *,
    seed: int | None = None, outputs: int = 1,
) -> Result:  # fmt: skip
    rate = 0.5 if ratio is None else float(F.number(ratio, "the ratio"))
    if ratio is not None and ratio.dtype == np.float32:
        rate = float(str(np.float32(rate)))  # 0.3, which was meant, for 0.30000001192092896
    training = training_mode is not None and bool(F.number(training_mode, "training_mode"))
    if not 0 <= rate < 1:
        raise F.unsupported(f"a ratio of {rate} is not from 0 to 1")
    if training and rate and not F.training:
        kept = F._dropout_mask(x, p=rate)
        y = F._masked_scale(x, kept, scale=1.0 / (1.0 - rate))
        return (y, F.cast(kept, "bool")) if outputs > 1 else y
    y = F.Dropout(x, p=rate) if rate and training == F.training else x
    return (y, F.cast(F.ones_like(x), "bool")) if outputs > 1 else y
