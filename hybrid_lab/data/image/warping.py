"""Affine maps and changes of hue, lightness and saturation of images in 8 bits, computed as OpenCV does."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from hybrid_lab.diagnostics import SettingError
from hybrid_lab.ops.kernels import resizing

from .cropping import choose_interp
from .settings import LONGEST_SIDE

#: Places between pixels are multiples of 1 / 32. Coordinates are computed as multiples of 1 / 1024 and rounded to that.
_PLACE_BITS, _COORDINATE_BITS = 5, 10
#: Weights of pixels are multiples of 1 / 32768.
_WEIGHT_BITS = 15


@dataclass(frozen=True)
class RandomAffine:
    """A rotation, a shear and a change of size of an image about its middle, the same or drawn anew for each image.

    angle : in degrees; where it is 0, a whole number of -max_angle to max_angle
    max_shear : the largest shear; scales : the least and the largest factor of the sides
    ratios : the least and the largest change of the ratio of the sides; sizes : limits of the new sides
    """

    angle: int = 0
    max_angle: int = 0
    max_shear: float = 0.0
    scales: tuple[float, float] = (1.0, 1.0)
    ratios: tuple[float, float] = (1.0, 1.0)
    sizes: tuple[float, float] = (0.0, 1e10)

    def __call__(self, image: np.ndarray, interp: int, fill: int) -> np.ndarray:
        """The mapped image; `fill` is the value of what lies outside of `image`."""
        rows, columns = image.shape[:2]
        shear = random.uniform(-self.max_shear, self.max_shear)
        angle = np.deg2rad(self.angle or random.randint(-self.max_angle, self.max_angle))
        cos, sin = np.cos(angle), np.sin(angle)
        scale, ratio = random.uniform(*self.scales), random.uniform(*self.ratios)
        high = 2 * scale / (1 + ratio)
        wide = ratio * high
        width, height = (max(self.sizes[0], min(self.sizes[1], scale * size)) for size in (columns, rows))
        if max(width, height) > LONGEST_SIDE:
            raise SettingError(
                f"a random scale of {scale:.4g} makes an image of {rows} x {columns} pixels larger than "
                f"{LONGEST_SIDE} rows or columns; set max_img_size, or a smaller max_random_scale"
            )
        linear = np.array(
            [[high * cos - shear * sin * wide, high * sin + shear * cos * wide], [-sin * wide, cos * wide]]
        )
        shift = (np.array([width, height]) - linear @ np.array([columns, rows])) / 2
        forward = np.column_stack([linear, shift]).astype("float32")
        method = choose_interp(interp, (rows, columns, int(height), int(width)))
        return affine(image, forward, max(int(width), 1), max(int(height), 1), method, fill)


def affine(image: np.ndarray, forward: np.ndarray, width: int, height: int, interp: int, fill: int) -> np.ndarray:
    """An image (rows, columns, channels) of uint8, mapped into an image (height, width, channels).

    forward : (2, 3), the place (x, y, 1) of a pixel -> its place in the result
    interp : 1 bilinear, 2 bicubic, 3 as 1, 4 Lanczos over 8 x 8 pixels
    fill : the value of what lies outside of the image
    """
    linear = np.linalg.inv(forward[:, :2].astype("float64"))
    shift = -linear @ forward[:, 2]
    scale = 1 << _COORDINATE_BITS
    across = np.rint(linear[:, :1] * np.arange(width) * scale).astype("int64")
    down = np.rint((linear[:, 1:] * np.arange(height) + shift[:, None]) * scale).astype("int64")
    rounding = 1 << _COORDINATE_BITS - _PLACE_BITS - 1
    places = down[:, :, None] + across[:, None, :] + rounding >> _COORDINATE_BITS - _PLACE_BITS
    start, part = places >> _PLACE_BITS, places & (1 << _PLACE_BITS) - 1
    weights = _weights(interp)
    count = weights.shape[-1]
    before, total = count // 2 - 1, np.zeros((height, width, image.shape[2]))
    x, y = start
    for row in range(count):
        for column in range(count):
            weight = weights[part[1], part[0], row, column]
            total += weight[:, :, None] * _pixels(image, x + column - before, y + row - before, fill)
    return np.clip(np.floor(total / (1 << _WEIGHT_BITS) + 0.5), 0, 255).astype("uint8")


@lru_cache(maxsize=5)
def _weights(interp: int) -> np.ndarray:
    """Whole weights of the pixels around each place between pixels: (32 down, 32 across, rows, columns)."""
    line = resizing.weights_between(np.arange(1 << _PLACE_BITS) / (1 << _PLACE_BITS), interp).astype("float32")
    weights = np.rint(line[:, None, :, None] * line[None, :, None, :] * (1 << _WEIGHT_BITS))
    # Rounded weights must sum to 1 << _WEIGHT_BITS. One of the four middle weights takes the difference: the smallest
    # if the sum is too large, else the largest.
    middle = line.shape[1] // 2
    for place in np.ndindex(weights.shape[:2]):
        excess = weights[place].sum() - (1 << _WEIGHT_BITS)
        four = weights[place][middle : middle + 2, middle : middle + 2]
        if excess and four.size:
            four.flat[four.argmin() if excess > 0 else four.argmax()] -= excess
    return weights


def _pixels(image: np.ndarray, x: np.ndarray, y: np.ndarray, fill: int) -> np.ndarray:
    rows, columns = image.shape[:2]
    pixels = image[np.clip(y, 0, rows - 1), np.clip(x, 0, columns - 1)].astype("float64")
    pixels[(x < 0) | (x >= columns) | (y < 0) | (y >= rows)] = fill
    return pixels


def change_hls(image: np.ndarray, hue: int, lightness: int, saturation: int) -> np.ndarray:
    """An image (rows, columns, 3) of uint8, red first, with these numbers added to its hues (in steps of two degrees,
    limited to 0 to 180), lightnesses and saturations (limited to 0 to 255).
    """
    limits = np.array([180, 255, 255])
    changed = np.clip(_hls(image) + np.array([hue, lightness, saturation]), 0, limits)
    return _rgb(changed.astype("float32"))


def _hls(image: np.ndarray) -> np.ndarray:
    """Hue in steps of two degrees, lightness and saturation of 0 to 255, as whole numbers."""
    red, green, blue = np.moveaxis(image * np.float32(1 / 255), 2, 0)
    most, least = np.maximum(np.maximum(red, green), blue), np.minimum(np.minimum(red, green), blue)
    spread, lightness = most - least, (most + least) / 2
    gray = spread <= np.finfo("float32").eps
    divisor = np.where(gray, 1, spread)
    hue = np.select(
        [most == red, most == green],
        [(green - blue) / divisor * 60, (blue - red) / divisor * 60 + 120],
        (red - green) / divisor * 60 + 240,
    )
    hue = np.where(hue < 0, hue + 360, hue)
    saturation = divisor / np.where(gray, 1, np.where(lightness < 0.5, most + least, 2 - most - least))
    parts = np.where(gray, 0, hue / 2), lightness * 255, np.where(gray, 0, saturation * 255)
    return np.rint(np.stack(parts, 2)).astype("int64")


def _rgb(hls: np.ndarray) -> np.ndarray:
    """The inverse of `_hls`, uint8, red first."""
    hue, lightness, saturation = np.moveaxis(hls * np.array([1 / 30, 1 / 255, 1 / 255], "float32"), 2, 0)
    high = np.where(lightness <= 0.5, lightness * (1 + saturation), lightness + saturation - lightness * saturation)
    low = 2 * lightness - high
    sector = np.floor(hue)
    rising, falling = low + (high - low) * (hue - sector), high - (high - low) * (hue - sector)
    table = np.stack([high, low, falling, rising], 2)
    # Per sixth of the circle, which of these four are red, green and blue.
    order = np.array([[0, 3, 1], [2, 0, 1], [1, 0, 3], [1, 2, 0], [3, 1, 0], [0, 1, 2]])[sector.astype(int) % 6]
    colors = np.take_along_axis(table, order, 2)
    return np.clip(np.rint(colors * 255), 0, 255).astype("uint8")
