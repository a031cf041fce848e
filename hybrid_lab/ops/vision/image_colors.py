"""Changes of the colors of an image (height, width, 3), by random or given amounts: nd.image.random_hue ..."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError
from hybrid_lab.ops.framework import Operator, into, sample
from hybrid_lab.ops.framework.types import Array, Shape
from hybrid_lab.ops.kernels import color, philox
from hybrid_lab.ops.random.distributions import draw_normal

Key = tuple[int, int]


class _Color(Operator):
    """Base: an image in, an image out. MXNet gives the gradient of a copy; here there is none."""

    dtype_kinds = "fiu"
    refuses_gradient = True

    def infer_shape(self, data: Shape) -> Shape:
        if len(data) != 3 or data[2] not in (1, 3):
            raise ShapeError(f"{self.name}: data has shape {data}; (height, width, 3) is needed, or 1 channel")
        if not data[0] * data[1]:
            raise ShapeError(f"{self.name}: data {data} has no pixels")
        return data


class _RandomFactor(_Color):
    """Base: a change by a number between min_factor and max_factor."""

    random = True
    change: ClassVar[Any]
    min_factor: float
    max_factor: float
    samples = [
        sample((4, 5, 3), min_factor=0.3, max_factor=1.4, low=0.0, gradient=False),
        sample((3, 4, 3), min_factor=0.5, max_factor=0.5, dtype="uint8", high=240, gradient=False),
    ]

    def check(self) -> None:
        if not 0 <= self.min_factor <= self.max_factor:
            raise AttributeSpecError(
                f"{self.name}: min_factor={self.min_factor} must be at least 0 and at most max_factor={self.max_factor}"
            )

    def numpy(self, data: Array, out: Array | None = None, rng: Key | None = None) -> Array:
        share = float(philox.uniform(*(rng or (0, 0)), 1, "float64")[0])
        factor = self.min_factor + (self.max_factor - self.min_factor) * share
        return into(type(self).change(data, factor), out)


class RandomBrightness(_RandomFactor, name="_image_random_brightness"):
    """All values times one random factor. data : (h, w, c); returns : as data, uint8 cut off at 255."""

    change = staticmethod(color.brighten)


class RandomContrast(_RandomFactor, name="_image_random_contrast"):
    """The distance from the mean brightness times one random factor. data : (h, w, c); returns : as data."""

    change = staticmethod(color.change_contrast)


class RandomSaturation(_RandomFactor, name="_image_random_saturation"):
    """The distance of colors from gray times one random factor. data : (h, w, c); returns : as data."""

    change = staticmethod(color.saturate)


class RandomHue(_RandomFactor, name="_image_random_hue"):
    """All hues turned by one random number of full turns. data : (h, w, c); returns : as data."""

    change = staticmethod(color.turn_hue)


class RandomColorJitter(_Color, name="_image_random_color_jitter"):
    """Brightness, contrast, saturation and hue changed by random factors, in a random order.

    brightness, contrast, saturation : factors are from 1 - x to 1 + x; hue : turns are from -x to x; 0 changes nothing
    data : (h, w, c); returns : as data
    """

    random = True
    brightness: float
    contrast: float
    saturation: float
    hue: float
    samples = [
        sample((4, 5, 3), brightness=0.3, contrast=0.2, saturation=0.4, hue=0.1, low=0.0, gradient=False),
        sample((4, 5, 3), brightness=0.0, contrast=0.0, saturation=0.0, hue=0.0, low=0.0, gradient=False),
    ]

    def check(self) -> None:
        for name in ("brightness", "contrast", "saturation", "hue"):
            if not self.attributes[name] >= 0:
                raise AttributeSpecError(
                    f"image.random_color_jitter: {name}={self.attributes[name]} must be at least 0"
                )

    def numpy(self, data: Array, out: Array | None = None, rng: Key | None = None) -> Array:
        drawn = philox.uniform(*(rng or (0, 0)), 8, "float64")
        changes: list[tuple[Callable[[np.ndarray, float], np.ndarray], float, float]] = [
            (color.brighten, self.brightness, 1.0), (color.change_contrast, self.contrast, 1.0),
            (color.saturate, self.saturation, 1.0), (color.turn_hue, self.hue, 0.0),
        ]  # fmt: skip
        result = data.copy()
        for place in np.argsort(drawn[:4]):
            change, amount, middle = changes[place]
            if amount > 0:
                result = change(result, middle + amount * (2 * float(drawn[4 + place]) - 1))
        return into(result, out)


class AdjustLighting(_Color, name="_image_adjust_lighting"):
    """A mixture of the principal colors of photographs added to every pixel, as for AlexNet.

    alpha : three weights; data : (h, w, c); returns : as data
    """

    alpha: tuple[float, ...]
    samples = [
        sample((4, 5, 3), alpha=(0.1, 0.2, -0.1), gradient=False),
        sample((3, 4, 3), alpha=(0.5, -0.2, 0.1), dtype="uint8", high=240, gradient=False),
    ]

    def check(self) -> None:
        if len(self.alpha) != 3:
            raise AttributeSpecError(f"image.adjust_lighting: alpha={self.alpha} must be three numbers")

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        return into(color.light(data, np.array(self.alpha, np.float32)), out)


class RandomLighting(_Color, name="_image_random_lighting"):
    """As adjust_lighting, with normally distributed weights. alpha_std : their standard deviation."""

    random = True
    alpha_std: float = 0.05
    samples = [sample((4, 5, 3), gradient=False), sample((3, 4, 3), alpha_std=0.2, gradient=False)]

    def check(self) -> None:
        if not self.alpha_std >= 0:
            raise AttributeSpecError(f"image.random_lighting: alpha_std={self.alpha_std} must be at least 0")

    def numpy(self, data: Array, out: Array | None = None, rng: Key | None = None) -> Array:
        weights = draw_normal(rng or (0, 0), np.zeros(3), np.full(3, self.alpha_std))
        return into(color.light(data, weights), out)
