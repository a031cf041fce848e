"""Convolutions of 8 bits as oneDNN computes them on a processor without VNNI, for comparisons with the real MXNet.

Such a processor multiplies unsigned data by signed weights and adds the products of two neighbouring channels in 16
bits: a sum beyond their range stays at its end. oneDNN moves signed data up by 128, and halves their weights before it
rounds them. Depthwise convolutions are exact.
"""

from __future__ import annotations

import numpy as np

from hybrid_lab.ops.layers.quantized import QuantizedConvolution, rounded

#: Added to signed data.
SHIFT = 128


def install() -> None:
    """Let `_sg_mkldnn_conv` compute so in this process."""
    QuantizedConvolution.sums = sums  # type: ignore[method-assign]


def sums(op: QuantizedConvolution, data: np.ndarray, weight: np.ndarray, scratch: object) -> np.ndarray:
    """The sums of products (n, filters, h, w). data : (n, c, h, w); weight : the scaled weights (filters, c, y, x)"""
    shift, scale = (SHIFT, 0.5) if data.dtype == np.int8 else (0, 1.0)
    whole = rounded(weight * np.float32(scale), "int8").astype(np.int32)
    geometry, shape = op.geometry, op.output_shape(data.shape)
    pads = [(pad, pad) for pad in geometry.pad]
    moved = np.pad(data.astype(np.int32) + shift, ((0, 0), (0, 0), *pads), constant_values=shift)
    total = np.zeros(shape)
    for place in np.ndindex(*whole.shape[2:]):
        window = tuple(
            slice(start, start + stride * (size - 1) + 1, stride)
            for start, stride, size in zip(place, geometry.stride, shape[2:], strict=True)
        )
        total += products(moved[:, :, *window], whole[:, :, *place], op.num_group > 1)
    total -= shift * whole.sum(axis=(1, 2, 3))[:, None, None]
    return total / scale


def products(data: np.ndarray, weight: np.ndarray, depthwise: bool) -> np.ndarray:
    """The sums over the channels at one place of the kernel. data : (n, c, h, w); weight : (filters, c)"""
    if depthwise:
        return data * weight[:, 0, None, None]
    odd = (0, data.shape[1] % 2)
    pairs = np.pad(data, ((0, 0), odd, (0, 0), (0, 0))).reshape(len(data), -1, 2, *data.shape[2:])
    factors = np.pad(weight, ((0, 0), odd)).reshape(len(weight), -1, 2, 1, 1)
    limits = np.iinfo(np.int16)
    return np.stack([np.clip((pairs * each).sum(axis=2), limits.min, limits.max).sum(axis=1) for each in factors], 1)
