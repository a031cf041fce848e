"""Random rotations, shears and changes of size of images in 8 bits."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from hybrid_lab.diagnostics import SettingError
from hybrid_lab.ops.kernels.opencv import affine

from .cropping import choose_interp
from .settings import LONGEST_SIDE


@dataclass(frozen=True)
class RandomAffine:
    """A rotation, a shear and a change of size of an image about its middle, the same or drawn anew for each image.

    angle : in degrees; if it is 0, a whole number of -max_angle to max_angle
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
