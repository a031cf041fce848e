"""HeatMap: a small picture of an array's values, as a PNG with a transparent background, for light and dark themes.

It is written here, with a palette (`_png`, 20 lines), because the package alone, without an extra, has no library for
images.

The last two axes are the rows and columns of a facet. Of the two axes before them, the longer axis is the row of
facets, the shorter axis the column.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybrid_lab.insight.summary import number, values_of
from hybrid_lab.ndarray.ndarray import NDArray

_WIDTH, _HEIGHT = 192, 128
"""Values beside and below one another at most."""
_ROW = 96
"""Values of an array with one axis at most."""
_FACET = 24
"""Rows and columns that a facet keeps at least, however many facets there are."""
_PIXELS = 12
"""Pixels of a value's side at most."""

_ORANGE, _BLUE, _MAGENTA, _GREY = (214, 92, 0), (20, 108, 214), (208, 0, 190), (128, 128, 128)
_LEVELS = 20
"""Shades of either colour."""
_ODD, _EDGE = 2 * _LEVELS + 1, 2 * _LEVELS + 2
"""Colours of the palette behind the shades: for NaN and infinities, and between facets."""


@dataclass(frozen=True)
class HeatMap:
    """png : the file's bytes; part : which values are shown, as an index ("[:8, :16, ::7, ::7]"), "" for all
    scale : the meaning of the colours, in words
    """

    png: bytes
    part: str
    scale: str

    @property
    def uri(self) -> str:
        """The picture as the source of an <img>."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode()

    @property
    def caption(self) -> str:
        """The shown part, in words."""
        return f"{self.scale}; shown: {self.part}" if self.part else self.scale


def heat_map(array: NDArray | np.ndarray) -> HeatMap | None:
    """The picture of an array; None for one of fewer than two values."""
    if math.prod(array.shape) < 2:
        return None
    index, swapped = _index(array.shape)
    values = values_of(array, lambda memory: memory[index]).astype(np.float64)
    values = values.reshape((1,) * (4 - values.ndim) + values.shape)
    values = values.swapaxes(0, 1) if swapped else values
    finite = np.isfinite(values)
    middle, limit = _scale(values[finite])
    with np.errstate(invalid="ignore"):
        shades = np.rint(np.clip(values / limit - middle / limit, -1, 1) * _LEVELS) + _LEVELS
        below, above = (shades < _LEVELS).any(), (shades > _LEVELS).any()
    words = f"{number(middle)} is clear"
    words += f", {number(middle + limit)} orange" if above else ""
    words += f", {number(middle - limit)} blue" if below else ""
    words += ", NaN and infinite are magenta" if not finite.all() else ""
    colours = np.where(finite, shades, _ODD).astype(np.uint8)
    whole = all(item in (0, slice(None)) for item in index) and math.prod(array.shape) == values.size
    return HeatMap(_png(_pixels(colours)), "" if whole else f"[{', '.join(map(_text, index))}]", words)


def _index(shape: tuple[int, ...]) -> tuple[tuple[Any, ...], bool]:
    """The values that are shown, and whether the axes of facets are swapped.

    The picture shows values of the last four axes with more than one value: as many facets as fit, every n-th value of
    long rows and columns, and the first values of the axes before them.
    """
    axes = [axis for axis, size in enumerate(shape) if size > 1][-4:]
    index: list[Any] = [0] * len(shape)
    if len(axes) == 1:
        index[axes[0]] = _every(shape[axes[0]], _ROW)
        return tuple(index), False
    below, beside = [None, None, *axes[:-2]][-2:]
    swapped = len(axes) == 4 and shape[axes[0]] > shape[axes[1]]
    if swapped:
        below, beside = beside, below
    for room, inner, outer in ((_HEIGHT, axes[-2], below), (_WIDTH, axes[-1], beside)):
        shown = 1
        if outer is not None:
            shown = min(shape[outer], max(room // min(shape[inner], _FACET), 1))
            index[outer] = slice(None, shown) if shown < shape[outer] else slice(None)
        index[inner] = _every(shape[inner], room // shown)
    return tuple(index), swapped


def _every(size: int, most: int) -> slice:
    """Every n-th value of an axis, so that at most `most` remain."""
    return slice(None, None, -(-size // most)) if size > most else slice(None)


def _text(item: int | slice) -> str:
    """An index as Python code."""
    if isinstance(item, int):
        return str(item)
    return f":{item.stop or ''}" + (f":{item.step}" if item.step else "")


def _scale(values: np.ndarray) -> tuple[float, float]:
    """The transparent value, and the distance from it with the full colour.

    The distance is three times the root of the mean square, so that few outliers do not make everything else pale. For
    values close together and far from zero, distances are taken from the middle of their range.
    """
    if not values.size:
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    largest = max(abs(low), abs(high))
    if low < high and (low > 0 or high < 0) and high / largest - low / largest < 0.5:
        return low / 2 + high / 2, high / 2 - low / 2 or 1.0
    if not largest:
        return 0.0, 1.0
    typical = 3 * math.sqrt(float(np.mean((values / largest) ** 2)))
    return 0.0, largest * min(1.0, typical) or 1.0


def _pixels(colours: np.ndarray) -> np.ndarray:
    """The picture's pixels of facets (rows of facets, columns of facets, rows, columns), with lines between them."""
    down, across, rows, columns = colours.shape
    side = max(1, min(_PIXELS, 2 * _WIDTH // (across * columns), 2 * _HEIGHT // (down * rows)))
    cells = colours.repeat(side, axis=2).repeat(side, axis=3)
    facets = np.full((down, across, rows * side + 1, columns * side + 1), _EDGE, np.uint8)
    facets[:, :, 1:, 1:] = cells
    image = facets.transpose(0, 2, 1, 3).reshape(down * facets.shape[2], across * facets.shape[3])
    return np.pad(image, ((0, 1), (0, 1)), constant_values=_EDGE)


def _png(pixels: np.ndarray) -> bytes:
    """A PNG file (W3C Portable Network Graphics, third edition) of pixels that are numbers of the palette's colours."""
    alphas = np.rint(np.linspace(0, 255, _LEVELS + 1)).astype(int).tolist()
    palette = [_BLUE] * _LEVELS + [_ORANGE] * (_LEVELS + 1) + [_MAGENTA, _GREY]
    opacity = alphas[:0:-1] + alphas + [255, 110]
    height, width = pixels.shape
    rows = np.pad(pixels, ((0, 0), (1, 0))).tobytes()  # each row begins with the number of its filter: 0, none
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", bytes(part for colour in palette for part in colour)),
        (b"tRNS", bytes(opacity)),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    )
    parts = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
