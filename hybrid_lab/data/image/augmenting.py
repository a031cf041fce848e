"""Augmenters: changes of training images, applied one after the other. They draw as MXNet's do, from Python's `random`.

An augmenter takes and returns an NDArray (height, width, channels).
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from hybrid_lab import ndarray as nd
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.ndarray import NDArray

from . import cropping

_GRAY = (0.299, 0.587, 0.114)
_FROM_YIQ = np.array([[1.0, 0.956, 0.621], [1.0, -0.272, -0.647], [1.0, -1.107, 1.705]])
_TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
_EIGENVALUES = np.array([55.46, 4.794, 1.148])
_EIGENVECTORS = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])
MEAN, STD = (123.68, 116.28, 103.53), (58.395, 57.12, 57.375)


#: A number for each channel.
Channels: TypeAlias = NDArray | np.ndarray | Sequence[float]


class Described:
    """Base of what `dumps` describes by its name and its keyword arguments: all augmenters."""

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = {
            name: value.asnumpy().tolist() if isinstance(value, NDArray) else _plain(value)
            for name, value in kwargs.items()
        }

    def dumps(self) -> str | list[Any]:
        """The augmenter as JSON: its name in lower case and its arguments."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])


class Augmenter(Described):
    """Base of the augmenters; the keyword arguments are what `dumps` writes."""

    def __call__(self, src: NDArray) -> NDArray:
        """The augmented image."""
        raise NotImplementedError(f"{type(self).__name__} does not define __call__()")


def _plain(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray) else value


class SequentialAug(Augmenter):
    """Augmenters in their order."""

    def __init__(self, ts: Sequence[Augmenter]) -> None:
        super().__init__()
        self.ts = list(ts)

    def dumps(self) -> list[Any]:
        """The name and what the augmenters dump."""
        return [type(self).__name__.lower(), [each.dumps() for each in self.ts]]

    def __call__(self, src: NDArray) -> NDArray:
        """The augmented image."""
        for each in self.ts:
            src = each(src)
        return src


class RandomOrderAug(SequentialAug):
    """Augmenters in a random order."""

    def __call__(self, src: NDArray) -> NDArray:
        """The augmented image."""
        random.shuffle(self.ts)
        return super().__call__(src)


class ResizeAug(Augmenter):
    """The shorter side to `size`."""

    def __init__(self, size: int, interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size, self.interp = size, interp

    def __call__(self, src: NDArray) -> NDArray:
        """The augmented image."""
        return cropping.resize_short(src, self.size, self.interp)


class ForceResizeAug(Augmenter):
    """To `size` (width, height), whatever the ratio of the sides."""

    def __init__(self, size: tuple[int, int], interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size, self.interp = size, interp

    def __call__(self, src: NDArray) -> NDArray:
        """The augmented image."""
        return cropping.imresize(src, self.size[0], self.size[1], self.interp)


class RandomCropAug(ForceResizeAug):
    """A part of `size` (width, height) at a random place."""

    def __call__(self, src: NDArray) -> NDArray:
        """The augmented image."""
        return cropping.random_crop(src, self.size, self.interp)[0]


class CenterCropAug(ForceResizeAug):
    """The middle part of `size` (width, height)."""

    def __call__(self, src: NDArray) -> NDArray:
        """The augmented image."""
        return cropping.center_crop(src, self.size, self.interp)[0]


class RandomSizedCropAug(Augmenter):
    """A part of random area and ratio of sides, resized to `size`; see `random_size_crop`."""

    def __init__(
        self,
        size: tuple[int, int],
        area: float | tuple[float, float],
        ratio: tuple[float, float],
        interp: int = 2,
    ) -> None:
        super().__init__(size=size, area=area, ratio=ratio, interp=interp)
        self.size, self.area, self.ratio, self.interp = size, area, ratio, interp

    def __call__(self, src: NDArray) -> NDArray:
        """The augmented image."""
        return cropping.random_size_crop(src, self.size, self.area, self.ratio, self.interp)[0]


class BrightnessJitterAug(Augmenter):
    """All values times a random factor of 1 - brightness to 1 + brightness, in place."""

    def __init__(self, brightness: float) -> None:
        super().__init__(brightness=brightness)
        self.brightness = brightness

    def __call__(self, src: NDArray) -> NDArray:
        """The augmented image."""
        src *= 1.0 + random.uniform(-self.brightness, self.brightness)
        return src


class ContrastJitterAug(Augmenter):
    """The distance from the mean brightness times a random factor, in place."""

    def __init__(self, contrast: float) -> None:
        super().__init__(contrast=contrast)
        self.contrast = contrast

    def __call__(self, src: NDArray) -> NDArray:
        """The augmented image."""
        factor = 1.0 + random.uniform(-self.contrast, self.contrast)
        gray = src * nd.array([[_GRAY]])
        mean = (3.0 * (1.0 - factor) / gray.size) * nd.sum(gray)
        src *= factor
        src += mean
        return src


class SaturationJitterAug(Augmenter):
    """The distance of each color from its brightness times a random factor, in place."""

    def __init__(self, saturation: float) -> None:
        super().__init__(saturation=saturation)
        self.saturation = saturation

    def __call__(self, src: NDArray) -> NDArray:
        """The augmented image."""
        factor = 1.0 + random.uniform(-self.saturation, self.saturation)
        gray = nd.sum(src * nd.array([[_GRAY]]), axis=2, keepdims=True)
        gray *= 1.0 - factor
        src *= factor
        src += gray
        return src


class HueJitterAug(Augmenter):
    """Colors turned in the plane of hues by a random angle of up to `hue` half turns."""

    def __init__(self, hue: float) -> None:
        super().__init__(hue=hue)
        self.hue = hue

    def __call__(self, src: NDArray) -> NDArray:
        """The augmented image."""
        angle = random.uniform(-self.hue, self.hue) * np.pi
        cos, sin = np.cos(angle), np.sin(angle)
        turn = np.array([[1.0, 0.0, 0.0], [0.0, cos, -sin], [0.0, sin, cos]])
        return nd.dot(src, nd.array((_FROM_YIQ @ turn @ _TO_YIQ).T))


class ColorJitterAug(RandomOrderAug):
    """Brightness, contrast and saturation by random factors, in a random order."""

    def __init__(self, brightness: float, contrast: float, saturation: float) -> None:
        kinds = (
            (BrightnessJitterAug, brightness),
            (ContrastJitterAug, contrast),
            (SaturationJitterAug, saturation),
        )
        super().__init__([kind(amount) for kind, amount in kinds if amount > 0])


class LightingAug(Augmenter):
    """A random mixture of principal colors added to every pixel, in place. It draws from `np.random`.

    alphastd : standard deviation of the weights; eigval (3,), eigvec (3, 3) : of the colors' covariance
    """

    def __init__(self, alphastd: float, eigval: np.ndarray, eigvec: np.ndarray) -> None:
        super().__init__(alphastd=alphastd, eigval=eigval, eigvec=eigvec)
        self.alphastd, self.eigval, self.eigvec = alphastd, eigval, eigvec

    def __call__(self, src: NDArray) -> NDArray:
        """The augmented image."""
        alpha = np.random.normal(0, self.alphastd, size=(3,))
        src += nd.array(np.dot(self.eigvec * alpha, self.eigval))
        return src


class ColorNormalizeAug(Augmenter):
    """(image - mean) / std, in place."""

    def __init__(self, mean: Channels | None, std: Channels | None) -> None:
        super().__init__(mean=mean, std=std)
        self.mean = mean if mean is None else nd.array(mean)
        self.std = std if std is None else nd.array(std)

    def __call__(self, src: NDArray) -> NDArray:
        """The augmented image."""
        return cropping.color_normalize(src, self.mean, self.std)


class RandomGrayAug(Augmenter):
    """Gray in all channels with probability `p`."""

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p
        self.mat = nd.array([[0.21] * 3, [0.72] * 3, [0.07] * 3])

    def __call__(self, src: NDArray) -> NDArray:
        """The augmented image."""
        return nd.dot(src, self.mat) if random.random() < self.p else src


class HorizontalFlipAug(Augmenter):
    """Left and right exchanged with probability `p`."""

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: NDArray) -> NDArray:
        """The augmented image."""
        return nd.flip(src, axis=1) if random.random() < self.p else src


class CastAug(Augmenter):
    """To another dtype."""

    def __init__(self, typ: str = "float32") -> None:
        super().__init__(type=typ)
        self.typ = typ

    def __call__(self, src: NDArray) -> NDArray:
        """The augmented image."""
        return src.astype(self.typ)


def CreateAugmenter(
    data_shape: tuple[int, int, int],
    resize: int = 0,
    rand_crop: bool = False,
    rand_resize: bool = False,
    rand_mirror: bool = False,
    mean: Channels | bool | None = None,
    std: Channels | bool | None = None,
    brightness: float = 0,
    contrast: float = 0,
    saturation: float = 0,
    hue: float = 0,
    pca_noise: float = 0,
    rand_gray: float = 0,
    inter_method: int = 2,
) -> list[Augmenter]:
    """The usual augmenters for images (channels, height, width), in their order.

    resize : of the shorter side first; rand_crop : at a random place; rand_resize : of a random size too
    rand_mirror : flip half of the images; mean, std : one per channel, or True for ImageNet's
    brightness, contrast, saturation, hue, pca_noise : how much; rand_gray : probability
    """
    check_switches("CreateAugmenter", rand_crop=rand_crop, rand_resize=rand_resize, rand_mirror=rand_mirror)
    if rand_resize and not rand_crop:
        raise ValueError("rand_resize needs rand_crop=True")
    augmenters: list[Augmenter] = [ResizeAug(resize, inter_method)] if resize > 0 else []
    size = (data_shape[2], data_shape[1])
    if rand_resize:
        augmenters.append(RandomSizedCropAug(size, 0.08, (3.0 / 4.0, 4.0 / 3.0), inter_method))
    else:
        augmenters.append((RandomCropAug if rand_crop else CenterCropAug)(size, inter_method))
    if rand_mirror:
        augmenters.append(HorizontalFlipAug(0.5))
    return augmenters + color_augmenters(mean, std, brightness, contrast, saturation, hue, pca_noise, rand_gray)


def color_augmenters(
    mean: Channels | bool | None,
    std: Channels | bool | None,
    brightness: float,
    contrast: float,
    saturation: float,
    hue: float,
    pca_noise: float,
    rand_gray: float,
) -> list[Augmenter]:
    """The augmenters that change colours, after an augmenter that converts to float32. Arguments as of
    CreateAugmenter.
    """
    augmenters: list[Augmenter] = [CastAug()]
    if brightness or contrast or saturation:
        augmenters.append(ColorJitterAug(brightness, contrast, saturation))
    if hue:
        augmenters.append(HueJitterAug(hue))
    if pca_noise > 0:
        augmenters.append(LightingAug(pca_noise, _EIGENVALUES, _EIGENVECTORS))
    if rand_gray > 0:
        augmenters.append(RandomGrayAug(rand_gray))
    means, stds = _channels(mean, MEAN), _channels(std, STD)
    if means is not None or stds is not None:
        augmenters.append(ColorNormalizeAug(means, stds))
    return augmenters


def _channels(value: Channels | bool | None, of_imagenet: tuple[float, ...]) -> NDArray | None:
    if value is None:
        return None
    values = nd.array(of_imagenet if value is True else value)
    if values.shape not in ((1,), (3,)):
        raise ValueError(f"mean and std have 1 or 3 numbers, or are True, not {value!r}")
    return values
