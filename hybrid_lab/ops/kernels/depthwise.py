"""Convolutions whose groups have one channel each, in kernels: windows of single channels, no matrix products."""

from __future__ import annotations

from itertools import product
from math import prod

from hybrid_lab.ops.framework.protocols import Elements, Functions, Place, Tensor
from hybrid_lab.ops.kernels.convolution import Geometry
from hybrid_lab.ops.kernels.windows import MOST_PLACES, added


def is_depthwise(geometry: Geometry, channels: int, filters: int) -> bool:
    """Whether each of several groups has one channel, and few enough filters and places to write them out one by one.

    channels, filters : of all groups
    """
    groups = geometry.groups
    return groups > 1 and channels == groups and prod(geometry.kernel) * (filters // groups) <= MOST_PLACES


def convolved(elements: Elements, geometry: Geometry, filters: int, place: Place) -> str:
    """An element of the output: data is input 0, the weight input 1."""
    image, number, *output = place
    channel, size = elements.quotient(number, filters // geometry.groups), elements.shape(0)[2:]
    parts = []
    for at in product(*map(range, geometry.kernel)):
        pixel = [
            index * stride + (offset * dilate - pad)
            for index, offset, stride, dilate, pad in zip(
                output, at, geometry.stride, geometry.dilate, geometry.pad, strict=True
            )
        ]
        guard = " & ".join(filter(None, map(elements.guard, pixel, size)))
        weight = elements.read(1, (number, elements.zero, *(elements.zero + offset for offset in at)))
        parts.append(f"{elements.inside(0, guard, elements.read(0, (image, channel, *pixel), guard))} * {weight}")
    return added(elements, parts)


def data_gradient(elements: Elements, geometry: Geometry, filters: int, place: Place) -> str:
    """An element of the gradient of the data: dy is input 0, the weight input 2."""
    image, channel, *pixel = place
    several, size, parts = filters // geometry.groups, elements.shape(0)[2:], []
    for at in product(*map(range, geometry.kernel)):
        output, guards = [], []
        for index, offset, stride, dilate, pad, last in zip(
            pixel, at, geometry.stride, geometry.dilate, geometry.pad, size, strict=True
        ):
            step, guard = elements.divided(index + (pad - offset * dilate), stride, last)
            output.append(step)
            guards += [guard] * bool(guard)
        guard = " & ".join(guards)
        for which in range(several):
            number = channel * several + which
            weight = elements.read(2, (number, elements.zero, *(elements.zero + offset for offset in at)))
            parts.append(f"{elements.inside(0, guard, elements.read(0, (image, number, *output), guard))} * {weight}")
    return added(elements, parts)


def weight_gradient(F: Functions, geometry: Geometry, dy: Tensor, data: Tensor, weight: Tensor) -> Tensor:
    """The gradient of the weight as sums over windows: every place of the kernel is a row."""
    windows = F.im2col(
        data, kernel=geometry.kernel, stride=geometry.stride, dilate=geometry.dilate, pad=geometry.pad
    )  # fmt: skip
    windows = F.expand_dims(F.Reshape(windows, shape=(0, -4, geometry.groups, -1, 0)), axis=2)
    dy = F.Reshape(F.Reshape(dy, shape=(0, 0, -1)), shape=(0, -4, geometry.groups, -1, 0))
    return F.reshape_like(F.sum(F.broadcast_mul(F.expand_dims(dy, axis=3), windows), axis=(0, 4)), weight)
