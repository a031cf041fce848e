"""Transforms of images, as Blocks: `dataset.transform_first(Compose([ToTensor(), Normalize(0.13, 0.31)]))`.

An image is an array (height, width, channels) until `ToTensor`. Crops draw from Python's `random`, as in MXNet; flips
and colors draw from `mx.random`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab import ndarray as nd
from hybrid_lab.data import image
from hybrid_lab.data.image import cropping
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.numpy_mode import in_mode
from hybrid_lab.ops.kernels import color

from ...block import Block
from ...hybrid import HybridBlock
from ...nn import HybridSequential, Lambda, Sequential

if TYPE_CHECKING:
    from hybrid_lab.ops.framework.protocols import Functions, Tensor

__all__ = [
    "Cast",
    "CenterCrop",
    "Compose",
    "CropResize",
    "Normalize",
    "RandomApply",
    "RandomBrightness",
    "RandomColorJitter",
    "RandomContrast",
    "RandomFlipLeftRight",
    "RandomFlipTopBottom",
    "RandomHue",
    "RandomLighting",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSaturation",
    "Resize",
    "Rotate",
    "ToTensor",
]


class Compose(Sequential):
    """Transforms one after the other. Neighbors that are HybridBlocks become one HybridSequential.

    `hybridize()` makes one graph of each such group, for images of one size: another size is compiled again.
    """

    def __init__(self, transforms: Sequence[Block | Callable[[Any], Any]]) -> None:
        super().__init__()
        blocks = [each if isinstance(each, Block) else Lambda(each) for each in transforms]
        for is_hybrid, group in groupby(blocks, lambda block: isinstance(block, HybridBlock)):
            found = list(group)
            if is_hybrid and len(found) > 1:
                together = HybridSequential()
                together.add(*found)
                found = [together]
            self.add(*found)

    def forward(self, x: Any) -> Any:
        return super().forward(_array(x) if isinstance(x, np.ndarray) else x)

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Make a graph of each HybridBlock inside."""
        Block.hybridize(self, active, **kwargs)


class _OfArrays(HybridBlock):
    """Base of the transforms that are graphs; they take NumPy arrays, too."""

    def __call__(self, x: Any) -> Any:
        return super().__call__(_array(x) if isinstance(x, np.ndarray) else x)


class Cast(_OfArrays):
    """To another dtype."""

    def __init__(self, dtype: DTypeLike | None = "float32") -> None:
        super().__init__()
        self._dtype = dtype

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        return F.cast(x, dtype=self._dtype)


class ToTensor(_OfArrays):
    """An image (height, width, channels) of 0..255 to float32 (channels, height, width) in [0, 1].

    There may be a batch axis in front.
    """

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        return F._image_to_tensor(x)


class Normalize(_OfArrays):
    """(x - mean) / std per channel.

    mean, std : a number, or one per channel
    x : (channels, height, width), with or without a batch axis in front -> the same
    """

    def __init__(self, mean: float | Sequence[float] = 0.0, std: float | Sequence[float] = 1.0) -> None:
        super().__init__()
        self._mean, self._std = mean, std

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        return F._image_normalize(x, mean=self._mean, std=self._std)


class Resize(_OfArrays):
    """An image, or a batch of images, in another size.

    size : (width, height), or a number for both; with keep_ratio a number is the shorter side
    interpolation : as of `mx.image.imresize`
    """

    def __init__(self, size: int | tuple[int, int], keep_ratio: bool = False, interpolation: int = 1) -> None:
        super().__init__()
        self._size, self._keep, self._interpolation = size, keep_ratio, interpolation

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        return F._image_resize(x, size=self._size, keep_ratio=self._keep, interp=self._interpolation)


class CropResize(_OfArrays):
    """The part of an image, or of a batch of images, at a place, resized if `size` is given.

    x, y, width, height : of the part; size : (width, height), or a number for both
    """

    def __init__(
        self,
        x: int,
        y: int,
        width: int,
        height: int,
        size: int | tuple[int, int] | None = None,
        interpolation: int | None = None,
    ) -> None:
        super().__init__()
        self._part = {"x": x, "y": y, "width": width, "height": height}
        self._size, self._interpolation = size, 1 if interpolation is None else interpolation

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        part = F._image_crop(x, **self._part)
        if self._size is None:
            return part
        return F._image_resize(part, size=self._size, keep_ratio=False, interp=self._interpolation)


class CenterCrop(Block):
    """The middle part of an image; the part is resized if the image is smaller.

    size : (width, height), or a number for both
    """

    def __init__(self, size: int | tuple[int, int], interpolation: int = 1) -> None:
        super().__init__()
        self._size, self._interpolation = _pair(size), interpolation

    def forward(self, x: Any) -> Any:
        return image.center_crop(_array(x), self._size, self._interpolation)[0]


class RandomResizedCrop(Block):
    """A part of random area, ratio of sides and place, resized to `size`.

    size : (width, height), or a number for both
    scale : least and most part of the image's area; ratio : least and most width / height
    """

    def __init__(
        self,
        size: int | tuple[int, int],
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        interpolation: int = 1,
    ) -> None:
        super().__init__()
        self._size, self._scale, self._ratio, self._interpolation = _pair(size), scale, ratio, interpolation

    def forward(self, x: Any) -> Any:
        return image.random_size_crop(_array(x), self._size, self._scale, self._ratio, self._interpolation)[0]


class RandomFlipLeftRight(Block):
    """Left and right of an image exchanged with a probability of one half."""

    def forward(self, x: Any) -> Any:
        return nd.flip(_array(x), axis=1) if _draw(0, 1) < 0.5 else _array(x)


class RandomFlipTopBottom(Block):
    """Top and bottom of an image exchanged with a probability of one half."""

    def forward(self, x: Any) -> Any:
        return nd.flip(_array(x), axis=0) if _draw(0, 1) < 0.5 else _array(x)


class _RandomFactor(Block):
    """A change of colors by a random factor of max(0, 1 - amount) to 1 + amount."""

    def __init__(self, change: Callable[[np.ndarray, float], np.ndarray], amount: float) -> None:
        super().__init__()
        self._change, self._limits = change, (max(0, 1 - amount), 1 + amount)

    def forward(self, x: Any) -> Any:
        return _array(self._change(cropping.host(x), _draw(*self._limits)))


class RandomBrightness(_RandomFactor):
    """All values times a random factor of max(0, 1 - brightness) to 1 + brightness."""

    def __init__(self, brightness: float) -> None:
        super().__init__(color.brighten, brightness)


class RandomContrast(_RandomFactor):
    """The distance from the mean brightness times a random factor of max(0, 1 - contrast) to 1 + contrast."""

    def __init__(self, contrast: float) -> None:
        super().__init__(color.change_contrast, contrast)


class RandomSaturation(_RandomFactor):
    """The distance of colors from gray times a random factor of max(0, 1 - saturation) to 1 + saturation."""

    def __init__(self, saturation: float) -> None:
        super().__init__(color.saturate, saturation)


class RandomHue(_RandomFactor):
    """Hues turned on the circle of colors by up to `hue` of a full turn."""

    def __init__(self, hue: float) -> None:
        super().__init__(color.turn_hue, hue)


class RandomColorJitter(Block):
    """Brightness, contrast, saturation and hue changed by random factors, in a random order."""

    def __init__(self, brightness: float = 0, contrast: float = 0, saturation: float = 0, hue: float = 0) -> None:
        super().__init__()
        self._changes: list[tuple[Callable[[np.ndarray, float], np.ndarray], float, float]] = [
            (change, max(0, 1 - amount), 1 + amount)
            for change, amount in (
                (color.brighten, brightness),
                (color.change_contrast, contrast),
                (color.saturate, saturation),
            )
            if amount > 0
        ]
        if hue > 0:
            self._changes.append((color.turn_hue, -hue, hue))

    def forward(self, x: Any) -> Any:
        values = cropping.host(x)
        order = np.argsort(nd.random.uniform(shape=(len(self._changes) or 1,)).asnumpy())
        for change, low, high in [self._changes[place] for place in order[: len(self._changes)]]:
            values = change(values, _draw(low, high))
        return _array(values)


class RandomLighting(Block):
    """A random mixture of the principal colors of photographs added to all pixels, as for AlexNet.

    alpha : standard deviation of the three weights
    """

    def __init__(self, alpha: float) -> None:
        super().__init__()
        self._alpha = alpha

    def forward(self, x: Any) -> Any:
        weights = nd.random.normal(0, self._alpha, shape=(3,)) if self._alpha > 0 else nd.zeros((3,))
        return _array(color.light(cropping.host(x), weights.asnumpy()))


class Rotate(Block):
    """Float32 images (channels, height, width), with or without a batch axis, turned around their center.

    rotation_degrees : the angle; zoom_in, zoom_out : as of `mx.image.imrotate`
    """

    def __init__(self, rotation_degrees: float, zoom_in: bool = False, zoom_out: bool = False) -> None:
        super().__init__()
        self._degrees, self._zoom_in, self._zoom_out = rotation_degrees, zoom_in, zoom_out

    def forward(self, x: Any) -> Any:
        return image.imrotate(_array(x), self._degrees, self._zoom_in, self._zoom_out)


class RandomRotation(Block):
    """Images turned by a random angle; see `Rotate`.

    angle_limits : least and largest angle in degrees; rotate_with_proba : how often an image is turned
    """

    def __init__(
        self,
        angle_limits: tuple[float, float],
        zoom_in: bool = False,
        zoom_out: bool = False,
        rotate_with_proba: float = 1.0,
    ) -> None:
        super().__init__()
        if angle_limits[0] >= angle_limits[1]:
            raise ValueError(f"the first of angle_limits is the smaller one, not {tuple(angle_limits)}")
        if not 0 <= rotate_with_proba <= 1:
            raise ValueError(f"rotate_with_proba is a probability, not {rotate_with_proba!r}")
        self._limits, self._zoom_in, self._zoom_out = angle_limits, zoom_in, zoom_out
        self._probability = rotate_with_proba

    def forward(self, x: Any) -> Any:
        if np.random.random() > self._probability:
            return x
        return image.random_rotate(_array(x), self._limits, self._zoom_in, self._zoom_out)


class RandomApply(Sequential):
    """A transform that is applied with probability `p`."""

    def __init__(self, transforms: Callable[[Any], Any], p: float = 0.5) -> None:
        super().__init__()
        self.transforms, self.p = transforms, p

    def forward(self, x: Any) -> Any:
        return x if self.p < random.random() else self.transforms(x)


def _pair(size: int | Sequence[int]) -> tuple[int, int]:
    """(width, height)."""
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def _each(x: NDArray, change: Callable[[NDArray], NDArray]) -> NDArray:
    """A change of an image, or of each image of a batch."""
    return nd.stack(*(change(each) for each in x)) if x.ndim == 4 else change(x)


def _draw(low: float, high: float) -> float:
    return float(nd.random.uniform(low, high, shape=(1,)).asscalar()) if low < high else low


def _host(x: object) -> np.ndarray:
    return x.raw() if isinstance(x, NDArray) else np.asarray(x)


def _array(x: object) -> NDArray:
    return x if isinstance(x, NDArray) else in_mode(nd.array(x, dtype=np.asarray(x).dtype))


_suggest_names(__name__)
