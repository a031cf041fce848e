"""NumPy kernels of convolution: patches gathered with the batch as the last axis, then one matrix product per group.

With the batch last every copied row is `width * batch` numbers long, so that small images cost no more than large
ones; and the product is
one large matrix product. Batches are cut into pieces whose patches stay in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from hybrid_lab.ops import blas

#: Patches gathered at a time, in numbers.
PIECE = 1 << 18


class Geometry(NamedTuple):
    """The numbers of one convolution, one entry per spatial axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilate: tuple[int, ...]
    pad: tuple[int, ...]
    groups: int

    def output(self, spatial: tuple[int, ...]) -> tuple[int, ...]:
        """Spatial size of the output; zero or negative where the kernel does not fit."""
        return tuple(
            (size + 2 * pad - dilate * (kernel - 1) - 1) // stride + 1
            for size, kernel, stride, dilate, pad in zip(
                spatial, self.kernel, self.stride, self.dilate, self.pad, strict=True
            )
        )

    @property
    def pointwise(self) -> bool:
        """A 1x1 convolution: nothing needs gathering."""
        return prod(self.kernel) == 1 and prod(self.stride) == 1 and not any(self.pad)

    def places(self, output: tuple[int, ...]) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        """Every kernel position with the part of the padded input that it meets."""
        for place in product(*map(range, self.kernel)):
            yield (
                place,
                tuple(
                    slice(at * dilate, at * dilate + (size - 1) * stride + 1, stride)
                    for at, dilate, size, stride in zip(place, self.dilate, output, self.stride, strict=True)
                ),
            )


def _pieces(batch: int, patch: int) -> Iterator[slice]:
    step = max(1, min(batch, PIECE // max(patch, 1)))
    for start in range(0, batch, step):
        yield slice(start, min(start + step, batch))


class _Slots:
    """Temporary memory by name, the same for every piece: the first piece is the largest."""

    def __init__(self, scratch: Any):
        self._scratch = scratch
        self._memory: dict[str, np.ndarray] = {}

    def __call__(self, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        count = prod(shape)
        if name not in self._memory:
            self._memory[name] = self._scratch((count,), dtype)
        return self._memory[name][:count].reshape(shape)


def _batch_last(x: np.ndarray, pad: tuple[int, ...], slots: _Slots, name: str = "x") -> np.ndarray:
    """(n, c, *spatial) -> (c, *padded spatial, n), contiguous."""
    turned = np.moveaxis(x, 0, -1)
    if not any(pad) and turned.flags.c_contiguous:
        return turned
    shape = (x.shape[1], *(size + 2 * border for size, border in zip(x.shape[2:], pad, strict=True)), x.shape[0])
    padded = slots(name, shape, x.dtype)
    if any(pad):
        padded.fill(0)
    np.copyto(padded[_inside(x.shape[2:], pad)], turned)
    return padded


def _inside(spatial: tuple[int, ...], pad: tuple[int, ...]) -> tuple[slice, ...]:
    return (slice(None), *(slice(border, border + size) for size, border in zip(spatial, pad, strict=True)))


def _gather(x: np.ndarray, geometry: Geometry, output: tuple[int, ...], slots: _Slots) -> np.ndarray:
    """Patches of (c, *spatial, n) as a matrix per group: (groups, c/groups * kernel, output * n)."""
    rank = len(output)
    kernel_strides = tuple(
        stride * dilate for stride, dilate in zip(x.strides[1 : rank + 1], geometry.dilate, strict=True)
    )
    output_strides = tuple(stride * step for stride, step in zip(x.strides[1 : rank + 1], geometry.stride, strict=True))
    shape = (x.shape[0], *geometry.kernel, *output, x.shape[-1])
    view: np.ndarray = np.ndarray(shape, x.dtype, x, 0, (x.strides[0], *kernel_strides, *output_strides, x.strides[-1]))
    patches = slots("patches", shape, x.dtype)
    np.copyto(patches, view)
    return patches.reshape(geometry.groups, -1, prod(output) * x.shape[-1])


def _wide(array: np.ndarray) -> np.ndarray:
    """float16 is computed in float32."""
    return array.astype(np.float32) if array.dtype == np.float16 else array


def forward(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, geometry: Geometry, out: np.ndarray, scratch: Any
) -> np.ndarray:
    """out[n, o] = sum over c, k of x[n, c, at stride + k dilate - pad] weight[o, c, k] + bias[o].

    out : contiguous, filled.
    """
    if x.dtype == np.float16:
        wide = np.empty(out.shape, np.float32)
        forward(_wide(x), _wide(weight), None if bias is None else _wide(bias), geometry, wide, scratch)
        np.copyto(out, wide, casting="same_kind")
        return out
    output, filters, groups = out.shape[2:], weight.shape[0], geometry.groups
    matrix = weight.reshape(groups, filters // groups, -1)
    if geometry.pointwise:
        target = out.reshape(x.shape[0], groups, filters // groups, -1)
        blas.matmul(matrix, x.reshape(x.shape[0], groups, x.shape[1] // groups, -1), out=target)
        if bias is not None:
            out += bias.reshape(-1, *(1,) * len(output))
        return out
    slots = _Slots(scratch)
    for piece in _pieces(x.shape[0], x.shape[1] * prod(geometry.kernel) * prod(output)):
        part = _batch_last(x[piece], geometry.pad, slots)
        patches = _gather(part, geometry, output, slots)
        count = part.shape[-1]
        if count == 1:
            product_ = blas.matmul(matrix, patches, out=out[piece].reshape(groups, filters // groups, -1))
        else:
            product_ = blas.matmul(
                matrix, patches, out=slots("y", (groups, filters // groups, patches.shape[-1]), x.dtype)
            )
        turned = np.moveaxis(product_.reshape(filters, *output, count), -1, 0)
        if bias is not None:
            np.add(turned, bias.reshape(-1, *(1,) * len(output)), out=out[piece])
        elif count != 1:
            np.copyto(out[piece], turned)
    return out


def data_gradient(dy: np.ndarray, weight: np.ndarray, geometry: Geometry, out: np.ndarray, scratch: Any) -> np.ndarray:
    """The gradient of forward's x. dy : (n, filters, *output); out : (n, c, *spatial), contiguous, filled."""
    if dy.dtype == np.float16:
        wide = np.empty(out.shape, np.float32)
        np.copyto(out, data_gradient(_wide(dy), _wide(weight), geometry, wide, scratch), casting="same_kind")
        return out
    output, filters, groups, channels = dy.shape[2:], weight.shape[0], geometry.groups, out.shape[1]
    matrix = weight.reshape(groups, filters // groups, -1).swapaxes(1, 2)
    if geometry.pointwise:
        source = dy.reshape(dy.shape[0], groups, filters // groups, -1)
        blas.matmul(matrix, source, out=out.reshape(dy.shape[0], groups, channels // groups, -1))
        return out
    spatial, pad = out.shape[2:], geometry.pad
    padded = tuple(size + 2 * border for size, border in zip(spatial, pad, strict=True))
    slots = _Slots(scratch)
    for piece in _pieces(dy.shape[0], channels * prod(geometry.kernel) * prod(output)):
        count = dy[piece].shape[0]
        part = _batch_last(dy[piece], (0,) * len(output), slots, "dy").reshape(groups, filters // groups, -1)
        patches = blas.matmul(matrix, part, out=slots("patches", (groups, matrix.shape[1], part.shape[-1]), dy.dtype))
        patches = patches.reshape(channels, *geometry.kernel, *output, count)
        total = slots("dx", (channels, *padded, count), dy.dtype)
        total.fill(0)
        for place, where in geometry.places(output):
            total[(slice(None), *where)] += patches[(slice(None), *place)]
        np.copyto(out[piece], np.moveaxis(total[_inside(spatial, pad)], -1, 0))
    return out


def weight_gradient(dy: np.ndarray, x: np.ndarray, geometry: Geometry, out: np.ndarray, scratch: Any) -> np.ndarray:
    """The gradient of forward's weight.

    dy : (n, filters, *output); x : (n, c, *spatial); out : the weight's shape, contiguous, filled.
    """
    if dy.dtype == np.float16:
        wide = np.empty(out.shape, np.float32)
        np.copyto(out, weight_gradient(_wide(dy), _wide(x), geometry, wide, scratch), casting="same_kind")
        return out
    output, filters, groups, channels = dy.shape[2:], out.shape[0], geometry.groups, x.shape[1]
    target = out.reshape(groups, filters // groups, -1)
    if geometry.pointwise:
        left: Any = dy.reshape(dy.shape[0], groups, filters // groups, -1)
        right = x.reshape(x.shape[0], groups, channels // groups, -1).swapaxes(-1, -2)
        products = blas.matmul(left, right, out=scratch((dy.shape[0], *target.shape), dy.dtype))
        np.add.reduce(products, axis=0, out=target)
        return out
    first = True
    slots = _Slots(scratch)
    for piece in _pieces(dy.shape[0], channels * prod(geometry.kernel) * prod(output)):
        part = _batch_last(x[piece], geometry.pad, slots)
        patches = _gather(part, geometry, output, slots).swapaxes(1, 2)
        left = _batch_last(dy[piece], (0,) * len(output), slots, "dy").reshape(groups, filters // groups, -1)
        if first:
            blas.matmul(left, patches, out=target)
            first = False
        else:
            target += blas.matmul(left, patches, out=slots("dw", target.shape, dy.dtype))
    if first:
        out.fill(0)
    return out
