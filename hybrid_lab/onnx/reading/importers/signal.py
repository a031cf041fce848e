"""ONNX's operators on signals: Fourier transforms, as products with matrices of sines and cosines."""

from __future__ import annotations

import numpy as np

from hybrid_lab.onnx import element_types
from hybrid_lab.onnx.reading.importers import sizes
from hybrid_lab.onnx.reading.importers.functions import Functions, Tensor
from hybrid_lab.onnx.reading.importers.table import Function, operator

_LARGEST = 1 << 12
"""Points of the longest transform; its matrix has that many rows."""


def _turned(F: Functions, x: Tensor, matrix: np.ndarray, axis: int) -> Tensor:
    """x multiplied along an axis by a matrix (elements before, elements after)."""
    order = [*(k for k in range(x.rank) if k != axis), axis]
    made = F.dot(F.transposed(x, order), F.constant(matrix, x.dtype))
    return F.transposed(made, [order.index(k) for k in range(x.rank)])


def transformed(F: Functions, x: Tensor, axis: int, points: int, inverse: bool, onesided: bool) -> Tensor:
    """The discrete Fourier transform of x (..., 1 or 2) along an axis."""
    if points > _LARGEST or points < 1:
        raise F.unsupported(f"a transform of {points} points; there may be 1 to {_LARGEST}")
    (size,) = F.numbers(F.constant(sizes.shape_of((x.shape[axis],))), "the length of the axis")
    parts = [F.slice_axis(x, axis=x.rank - 1, begin=k, end=k + 1) for k in range(x.shape[-1])]
    back = inverse and onesided
    if back:  # the other half of a real signal's spectrum
        rest = np.arange(points // 2 + 1, points)
        rest = points - rest
        whole = np.concatenate([np.arange(points // 2 + 1), rest])
        signs = np.where(np.arange(points) > points // 2, -1.0, 1.0)
        real = F.take(parts[0], F.constant(whole, np.int64), axis=axis)
        imaginary = F.take(parts[1], F.constant(whole, np.int64), axis=axis)
        imaginary = imaginary * F.constant(signs.reshape([-1 if k == axis else 1 for k in range(x.rank)]), x.dtype)
        parts, size = [real, imaginary], points
    output = points // 2 + 1 if onesided and not inverse else points
    used = min(size, points)
    F.table(used, output)
    if used < size:
        parts = [F.slice_axis(item, axis=axis, begin=0, end=used) for item in parts]
    angle = 2 * np.pi * (np.outer(np.arange(used), np.arange(output)) % points) / points
    cos, sin = np.cos(angle), np.sin(angle) * (1.0 if inverse else -1.0)
    scale = 1.0 / points if inverse else 1.0
    real = _turned(F, parts[0], cos * scale, axis)
    imaginary = _turned(F, parts[0], sin * scale, axis)
    if len(parts) > 1:
        real = real - _turned(F, parts[1], sin * scale, axis)
        imaginary = imaginary + _turned(F, parts[1], cos * scale, axis)
    return real if back else F.Concat(real, imaginary, dim=x.rank - 1)


@operator("DFT", 20)
def _dft(
    F: Functions,
    x: Tensor,
    length: Tensor | None = None,
    axis: Tensor | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
    place = F.axis(-2 if axis is None else F.number(axis, "the axis"), x.rank)
    (size,) = F.numbers(F.constant(sizes.shape_of((x.shape[place],))), "the length of the axis")
    if length is not None:
        size = F.number(length, "the length of the transform")
    elif inverse and onesided:
        size = 2 * (size - 1)
    return transformed(F, x, place, size, bool(inverse), bool(onesided))


@operator("DFT", 17)
def _dft_by_attribute(
    F: Functions, x: Tensor, length: Tensor | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Tensor:
    return _dft(F, x, length, F.constant(axis, np.int64), inverse=inverse, onesided=onesided)


@operator("STFT", 17)
def _stft(
    F: Functions,
    x: Tensor,
    step: Tensor,
    window: Tensor | None = None,
    length: Tensor | None = None,
    *,
    onesided: int = 1,
) -> Tensor:
    hop = F.number(step, "the step")
    (size,) = F.numbers(F.constant(sizes.shape_of((x.shape[1],))), "the length of the signal")
    frame = (
        F.number(length, "the length of a frame")
        if length is not None
        else window.shape[0]
        if window is not None
        else size
    )
    if hop < 1 or not 1 <= frame <= size:
        raise F.unsupported(f"frames of {frame} with a step of {hop} in a signal of {size}")
    F.table((size - frame) // hop + 1, frame)
    places = np.arange((size - frame) // hop + 1)[:, None] * hop + np.arange(frame)
    frames = F.take(F.reshape_to(x, (*x.shape[:2], 1)) if x.rank == 2 else x, F.constant(places, np.int64), axis=1)
    if window is not None:
        frames = frames * F.reshape_to(window, (1, 1, frame, 1))
    return transformed(F, frames, 2, frame, False, bool(onesided))


def _window(first: float, second: float, third: float) -> Function:
    def function(F: Functions, size: Tensor, *, output_datatype: int = 1, periodic: int = 1) -> Tensor:
        count = int(F.number(size, "the length"))
        if count < 0:
            raise F.unsupported(f"a window of {count} elements")
        F.table(count)
        angle = 2 * np.pi * np.arange(count) / max(count if periodic else count - 1, 1)
        values = first - second * np.cos(angle) + third * np.cos(2 * angle)
        return F.constant(values, element_types.dtype_for(element_types.type_name(output_datatype)))

    return function


operator("HannWindow", 17)(_window(0.5, 0.5, 0.0))
operator("HammingWindow", 17)(_window(25 / 46, 21 / 46, 0.0))
operator("BlackmanWindow", 17)(_window(0.42, 0.5, 0.08))


@operator("MelWeightMatrix", 17)
def _mel(
    F: Functions, bins: Tensor, length: Tensor, rate: Tensor, lower: Tensor, upper: Tensor, *, output_datatype: int = 1
) -> Tensor:
    count, points, samples = (int(F.number(item, "its size")) for item in (bins, length, rate))
    low, high = (float(F.number(item, "its bound")) for item in (lower, upper))
    spectrum = points // 2 + 1
    if count * spectrum < 1 or samples < 1:
        raise F.unsupported(f"a matrix of {spectrum} x {count}")
    F.table(count, spectrum)
    edges = np.arange(count + 2) * (2595 * np.log10(1 + high / 700) - 2595 * np.log10(1 + low / 700)) / (count + 2)
    edges = edges + 2595 * np.log10(1 + low / 700)
    places = np.floor((points + 1) * 700 * (10 ** (edges / 2595) - 1) / samples).astype(np.int64)
    made = np.zeros((spectrum, count))
    for column in range(count):
        first, middle, last = places[column : column + 3]
        if middle == first:
            made[middle, column] = 1
        else:
            for row in range(first, middle + 1):
                made[row, column] = (row - first) / (middle - first)
        for row in range(middle, last):
            made[row, column] = (last - row) / (last - middle)
    return F.constant(made, element_types.dtype_for(element_types.type_name(output_datatype)))
