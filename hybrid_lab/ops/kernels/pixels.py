"""Weighted sums of pixels at computed places: what ROIAlign and BilinearSampler are made of.

Images lie with the channels last, so that one pixel is one row; every point has the same number of terms, each the
number of a row and a weight.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hybrid_lab.ops.arrays.index import add_rows
from hybrid_lab.ops.framework.memory import in_c_order


class Terms(NamedTuple):
    """rows, weights : (points, terms), int64 and floating. A weight of 0 makes a term count nothing."""

    rows: np.ndarray
    weights: np.ndarray


def channels_last(data: np.ndarray) -> np.ndarray:
    """(n, c, h, w) -> (n h w, c), contiguous."""
    n, channels, height, width = data.shape
    return in_c_order(data.transpose(0, 2, 3, 1)).reshape(n * height * width, channels)


def channels_first(rows: np.ndarray, shape: tuple[int, ...], out: np.ndarray | None) -> np.ndarray:
    """(n h w, c) -> `shape` (n, c, h, w)."""
    n, channels, h, w = shape
    image = rows.reshape(n, h, w, channels).transpose(0, 3, 1, 2)
    if out is None:
        return in_c_order(image)
    np.copyto(out, image)
    return out


_NUMBERS = 1 << 16
"""Numbers that `gather` computes at once: they stay in a processor's cache."""


def gather(pixels: np.ndarray, terms: Terms) -> np.ndarray:
    """(points, c): for every point the weighted sum of its pixels."""
    total = np.zeros((len(terms.rows), pixels.shape[1]), pixels.dtype, like=pixels)
    size = max(1, _NUMBERS // max(1, pixels.shape[1]))
    for start in range(0, len(total), size):
        rows, weights, sums = (item[start : start + size] for item in (*terms, total))
        for term in range(rows.shape[1]):
            sums += pixels[rows[:, term]] * weights[:, term, None]
    return total


def scatter(values: np.ndarray, terms: Terms, count: int) -> np.ndarray:
    """(count, c): the transpose of `gather`, values (points, c) added to the pixels they were made of."""
    total = np.zeros((count, values.shape[1]), values.dtype, like=values)
    for term in range(terms.rows.shape[1]):
        add_rows(total, terms.rows[:, term], values * terms.weights[:, term, None])
    return total


def corner_terms(
    y: np.ndarray, x: np.ndarray, size: tuple[int, int], first: np.ndarray, inside: np.ndarray | None = None
) -> Terms:
    """The four pixels around places (y, x), bilinear; pixels outside of the image have the weight 0.

    y, x : (points,); size : height and width; first : (points,), the row of each point's image; inside : (points,),
    where False the whole point counts nothing
    """
    height, width = size
    low_y, low_x = np.floor(y), np.floor(x)
    share_y, share_x = y - low_y, x - low_x
    rows, weights = [], []
    for step_y, part_y in ((0, 1 - share_y), (1, share_y)):
        for step_x, part_x in ((0, 1 - share_x), (1, share_x)):
            at_y, at_x = low_y + step_y, low_x + step_x
            there = (at_y >= 0) & (at_y < height) & (at_x >= 0) & (at_x < width)
            if inside is not None:
                there &= inside
            rows.append(np.where(there, first + at_y * width + at_x, 0).astype(np.int64))
            weights.append(np.where(there, part_y * part_x, 0))
    return Terms(np.stack(rows, axis=-1), np.stack(weights, axis=-1))
