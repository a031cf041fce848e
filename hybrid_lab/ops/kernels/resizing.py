"""Images of other sizes by weighted sums of pixels, with the positions, weights and roundings of OpenCV.

uint8 images are computed with weights of 11 bits, as OpenCV does; all other images, and areas, in float64. In cubic and
area interpolation, values at exactly .5 may be rounded to the other side.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

NEAREST, LINEAR, CUBIC, AREA, LANCZOS = range(5)
_BITS = 11
_CUBIC_SHARPNESS = -0.75


class Taps(NamedTuple):
    """Which pixels of a row make each pixel of the resized row: indices and weights of shape (new size, count)."""

    indices: np.ndarray
    weights: np.ndarray


def resize(image: np.ndarray, width: int, height: int, interp: int) -> np.ndarray:
    """An image (height, width, channels) in another size, of the same dtype.

    interp : 0 nearest, 1 bilinear, 2 bicubic, 3 area, 4 Lanczos over 8 x 8 pixels
    """
    if image.shape[:2] == (height, width):
        return image.copy()
    shrinks = image.shape[0] >= height and image.shape[1] >= width
    rows, columns = (taps(old, new, interp, shrinks) for old, new in zip(image.shape, (height, width), strict=False))
    if interp == NEAREST:
        return image[rows.indices[:, 0]][:, columns.indices[:, 0]]
    if image.dtype == np.uint8 and not (interp == AREA and shrinks):
        return _in_fixed_point(image, rows, columns, interp in (LINEAR, AREA))
    sums = _weighted(_weighted(image.astype("float64"), columns, 1), rows, 0)
    return np.clip(np.rint(sums), 0, 255).astype("uint8") if image.dtype == np.uint8 else sums.astype(image.dtype)


def taps(old: int, new: int, interp: int, shrinks: bool = False) -> Taps:
    """Pixels and weights for one axis. shrinks : whether no axis grows, which is when `area` means areas"""
    scale = old / new
    place = np.arange(new)
    if interp == NEAREST:
        return Taps(np.minimum((place * scale).astype(int), old - 1)[:, None], np.ones((new, 1)))
    if interp == AREA and shrinks:
        return _area(old, new)
    if interp == AREA:
        start = np.floor(place * scale).astype(int)
        part = (place + 1 - (start + 1) / scale).astype("float32")
        part = np.where(part <= 0, 0, part - np.floor(part)).astype("float64")
    else:
        at = (place + 0.5) * scale - 0.5
        start = np.floor(at).astype(int)
        part = (at - start).astype("float32").astype("float64")
    weights = weights_between(part, interp)
    first = 1 - weights.shape[1] // 2
    indices = start[:, None] + np.arange(first, first + weights.shape[1])
    return Taps(np.clip(indices, 0, old - 1), weights)


def weights_between(part: np.ndarray, interp: int) -> np.ndarray:
    """The weights (n, 2, 4 or 8) of the pixels around places that are `part` (n,) of a pixel's width behind a pixel."""
    if interp == CUBIC:
        return _cubic(part)
    return _lanczos(part) if interp == LANCZOS else np.stack([1 - part, part], 1)


def _area(old: int, new: int) -> Taps:
    """The part of each old pixel that a new pixel covers."""
    edges = np.arange(new + 1) * (old / new)
    starts = np.floor(edges[:-1] + 1e-9).astype(int)
    count = int(np.max(np.ceil(edges[1:] - 1e-9).astype(int) - starts))
    indices = starts[:, None] + np.arange(count)
    covered = np.minimum(indices + 1, edges[1:, None]) - np.maximum(indices, edges[:-1, None])
    covered = np.where(covered > 1e-9, covered, 0)
    return Taps(np.minimum(indices, old - 1), covered / covered.sum(1, keepdims=True))


def _cubic(part: np.ndarray) -> np.ndarray:
    """Weights of the four pixels around a place (Keys' convolution kernel)."""
    a, rest = _CUBIC_SHARPNESS, 1 - part
    first = ((a * (part + 1) - 5 * a) * (part + 1) + 8 * a) * (part + 1) - 4 * a
    second = ((a + 2) * part - (a + 3)) * part**2 + 1
    third = ((a + 2) * rest - (a + 3)) * rest**2 + 1
    return np.stack([first, second, third, 1 - first - second - third], 1)


def _lanczos(part: np.ndarray) -> np.ndarray:
    """Weights of the eight pixels around a place: sinc(t) sinc(t / 4)."""
    distance = part[:, None] - np.arange(-3, 5)
    weights = np.sinc(distance) * np.sinc(distance / 4)
    return weights / weights.sum(1, keepdims=True)


def _weighted(values: np.ndarray, axis_taps: Taps, axis: int) -> np.ndarray:
    """The weighted sums along an axis, one tap after the other."""
    shape = [1] * values.ndim
    shape[axis] = -1
    total: np.ndarray | None = None
    for indices, weights in zip(axis_taps.indices.T, axis_taps.weights.T, strict=True):
        term = values.take(indices, axis) * weights.reshape(shape)
        total = term if total is None else total + term
    assert total is not None
    return total


def _in_fixed_point(image: np.ndarray, rows: Taps, columns: Taps, linear: bool) -> np.ndarray:
    rows, columns = (
        Taps(each.indices, np.rint(each.weights * (1 << _BITS)).astype("int64")) for each in (rows, columns)
    )
    across = _weighted(image.astype("int64"), columns, 1)
    if linear:  # two taps: each is cut to 16 bits before the sum
        terms = (
            across.take(rows.indices[:, tap], 0) // 16 * rows.weights[:, tap].reshape(-1, 1, 1) >> 16 for tap in (0, 1)
        )
        return np.clip(sum(terms) + 2 >> 2, 0, 255).astype("uint8")
    half = 1 << 2 * _BITS - 1
    return np.clip(_weighted(across, rows, 0) + half >> 2 * _BITS, 0, 255).astype("uint8")
