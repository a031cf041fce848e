"""Augmenters for object detection, which change an image and the boxes in it. They draw as MXNet's do.

An augmenter takes and returns an NDArray (height, width, channels) and a label: a NumPy array with a row for each
object, its class and its box (left, top, right, bottom) as fractions of the image, and what else there is.
"""

from __future__ import annotations

import random
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import sqrt
from typing import Any, TypeAlias

import numpy as np

from hybrid_lab import ndarray as nd
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.ndarray import NDArray

from . import cropping
from .augmenting import Augmenter, Channels, Described, ForceResizeAug, ResizeAug, color_augmenters

#: Left, top, width and height in pixels.
Region: TypeAlias = tuple[int, int, int, int]
#: From, to; a number stands for both.
Range: TypeAlias = float | Sequence[float]

_LEFT, _TOP, _RIGHT, _BOTTOM = 1, 2, 3, 4
_BOX = slice(1, 5)


class DetAugmenter(Described):
    """Base of the augmenters for detection; the keyword arguments are what `dumps` writes."""

    def __call__(self, src: NDArray, label: np.ndarray) -> tuple[NDArray, np.ndarray]:
        """The augmented image and its label."""
        raise NotImplementedError(f"{type(self).__name__} does not define __call__()")


class DetBorrowAug(DetAugmenter):
    """An augmenter for classification that leaves all objects where they are."""

    def __init__(self, augmenter: Augmenter) -> None:
        if not isinstance(augmenter, Augmenter):
            raise TypeError(f"DetBorrowAug needs an mx.image.Augmenter, not {augmenter!r:.60}")
        super().__init__(augmenter=augmenter.dumps())
        self.augmenter = augmenter

    def dumps(self) -> list[Any]:
        """The name and what the augmenter dumps."""
        return [type(self).__name__.lower(), self.augmenter.dumps()]

    def __call__(self, src: NDArray, label: np.ndarray) -> tuple[NDArray, np.ndarray]:
        """The augmented image and its label."""
        return self.augmenter(src), label


class DetRandomSelectAug(DetAugmenter):
    """One of several augmenters, drawn for each image; with the probability skip_prob none."""

    def __init__(self, aug_list: Sequence[DetAugmenter] | DetAugmenter, skip_prob: float = 0) -> None:
        super().__init__(skip_prob=skip_prob)
        given = [aug_list] if isinstance(aug_list, DetAugmenter) else aug_list
        self.aug_list: list[DetAugmenter] = list(given)
        for each in self.aug_list:
            if not isinstance(each, DetAugmenter):
                raise ValueError(f"DetRandomSelectAug needs augmenters for detection, not {each!r:.60}")
        self.skip_prob = skip_prob if self.aug_list else 1

    def dumps(self) -> list[Any]:
        """The name and what the augmenters dump."""
        return [type(self).__name__.lower(), [each.dumps() for each in self.aug_list]]

    def __call__(self, src: NDArray, label: np.ndarray) -> tuple[NDArray, np.ndarray]:
        """The augmented image and its label."""
        if random.random() < self.skip_prob:
            return src, label
        random.shuffle(self.aug_list)
        return self.aug_list[0](src, label)


class DetHorizontalFlipAug(DetAugmenter):
    """Left and right exchanged, with the probability p."""

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: NDArray, label: np.ndarray) -> tuple[NDArray, np.ndarray]:
        """The augmented image and its label."""
        if random.random() >= self.p:
            return src, label
        flipped = label.copy()
        flipped[:, _LEFT], flipped[:, _RIGHT] = 1 - label[:, _RIGHT], 1 - label[:, _LEFT]
        return nd.flip(src, axis=1), flipped


class _RegionAug(DetAugmenter, ABC):
    """Base of the augmenters that draw a region until one is right; the image is not changed if none is found.

    aspect_ratio_range : of width / height; area_range : as fractions of the image's area
    max_attempts : how many regions are drawn
    """

    smallest_area: float

    def __init__(self, aspect_ratio_range: Range, area_range: Range, max_attempts: int, **kwargs: object) -> None:
        self.aspect_ratio_range, self.area_range = _range(aspect_ratio_range), _range(area_range)
        super().__init__(
            aspect_ratio_range=self.aspect_ratio_range, area_range=self.area_range, max_attempts=max_attempts, **kwargs
        )
        self.max_attempts = max_attempts
        ratios, areas = self.aspect_ratio_range, self.area_range
        self.enabled = 0 < ratios[0] <= ratios[1] and areas[0] <= areas[1] and areas[1] > self.smallest_area
        if not self.enabled:
            warnings.warn(
                f"{type(self).__name__} leaves all images as they are: no region has an area within {areas} and an "
                f"aspect ratio within {ratios}",
                stacklevel=3,
            )

    def __call__(self, src: NDArray, label: np.ndarray) -> tuple[NDArray, np.ndarray]:
        """The augmented image and its label."""
        height, width = src.shape[:2]
        for _ in range(self.max_attempts if self.enabled and height and width else 0):
            region = self.draw(random.uniform(*self.aspect_ratio_range), height, width)
            changed = None if region is None else self.relabel(label, region, height, width)
            if region is not None and changed is not None:
                return self.apply(src, region), changed
        return src, label

    @abstractmethod
    def draw(self, ratio: float, height: int, width: int) -> Region | None:
        """A random region with this ratio of width to height, or None if the image allows no such region."""

    @abstractmethod
    def relabel(self, label: np.ndarray, region: Region, height: int, width: int) -> np.ndarray | None:
        """The label of a region, or None if the region must be drawn again."""

    @abstractmethod
    def apply(self, src: NDArray, region: Region) -> NDArray:
        """The image of a region."""


class DetRandomCropAug(_RegionAug):
    """A random part of the image.

    min_object_covered : the part must show more than this fraction of every object that it touches
    min_eject_coverage : objects of which it shows at most this fraction are left out
    """

    smallest_area = 0

    def __init__(
        self,
        min_object_covered: float = 0.1,
        aspect_ratio_range: Range = (0.75, 1.33),
        area_range: Range = (0.05, 1.0),
        min_eject_coverage: float = 0.3,
        max_attempts: int = 50,
    ) -> None:
        super().__init__(
            aspect_ratio_range,
            area_range,
            max_attempts,
            min_object_covered=min_object_covered,
            min_eject_coverage=min_eject_coverage,
        )
        self.min_object_covered, self.min_eject_coverage = min_object_covered, min_eject_coverage

    def draw(self, ratio: float, height: int, width: int) -> Region | None:
        """A random part of the image with this ratio of width to height."""
        least, most = (fraction * height * width for fraction in self.area_range)
        h, highest = round(sqrt(least / ratio)), round(sqrt(most / ratio))
        if round(highest * ratio) > width:
            highest = int((width + 0.4999999) / ratio)
        highest = min(highest, height)
        h = random.randint(h, highest) if h < highest else highest
        w = round(h * ratio)
        if w * h < least:  # rounding made it too small
            h += 1
            w = round(h * ratio)
        if w * h > most:
            h -= 1
            w = round(h * ratio)
        if not (least <= w * h <= most and 0 <= w <= width and 0 <= h <= height):
            return None
        top = random.randint(0, height - h)
        return random.randint(0, width - w), top, w, h

    def relabel(self, label: np.ndarray, region: Region, height: int, width: int) -> np.ndarray | None:
        """The objects that the part shows; None if it shows too little of one, or no object."""
        x, y, w, h = region
        part = np.array([x / width, y / height, (x + w) / width, (y + h) / height])
        areas = _areas(label[:, _BOX])
        large = areas * width * height > 2
        if w * h < 2 or not large.any():
            return None
        seen = np.concatenate([np.maximum(label[:, 1:3], part[:2]), np.minimum(label[:, 3:5], part[2:])], axis=1)
        covered = _areas(seen[large]) / areas[large]
        covered = covered[covered > 0]
        if not covered.size or covered.min() <= self.min_object_covered:
            return None
        moved = label.copy()
        moved[:, (_LEFT, _RIGHT)] = (label[:, (_LEFT, _RIGHT)] - x / width) / (w / width)
        moved[:, (_TOP, _BOTTOM)] = (label[:, (_TOP, _BOTTOM)] - y / height) / (h / height)
        moved[:, _BOX] = moved[:, _BOX].clip(0, 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            shown = _areas(moved[:, _BOX]) * (w / width) * (h / height) / areas
        kept = moved[is_box(moved) & (shown > self.min_eject_coverage)]
        return kept if len(kept) else None

    def apply(self, src: NDArray, region: Region) -> NDArray:
        """The part of the image."""
        return cropping.fixed_crop(src, *region)


class DetRandomPadAug(_RegionAug):
    """The image at a random place of a larger one. pad_val : the colour around it, or one number for all channels"""

    smallest_area = 1

    def __init__(
        self,
        aspect_ratio_range: Range = (0.75, 1.33),
        area_range: Range = (1.0, 3.0),
        max_attempts: int = 50,
        pad_val: float | Sequence[float] = (128, 128, 128),
    ) -> None:
        super().__init__(aspect_ratio_range, area_range, max_attempts, pad_val=pad_val)
        self.pad_val = tuple(pad_val) if isinstance(pad_val, (list, tuple)) else (pad_val,) * 3

    def draw(self, ratio: float, height: int, width: int) -> Region | None:
        """A random larger region with this ratio of width to height; None if it is hardly larger."""
        least, most = (fraction * height * width for fraction in self.area_range)
        h, highest = round(sqrt(least / ratio)), round(sqrt(most / ratio))
        if round(h * ratio) < width:
            h = int((width + 0.499999) / ratio)
        h = min(max(h, height), highest)
        if h < highest:
            h = random.randint(h, highest)
        w = round(h * ratio)
        if h - height < 2 or w - width < 2:
            return None
        top = random.randint(0, h - height)
        return random.randint(0, w - width), top, w, h

    def relabel(self, label: np.ndarray, region: Region, height: int, width: int) -> np.ndarray:
        """The objects in the larger image."""
        x, y, w, h = region
        moved = label.copy()
        moved[:, (_LEFT, _RIGHT)] = (label[:, (_LEFT, _RIGHT)] * width + x) / w
        moved[:, (_TOP, _BOTTOM)] = (label[:, (_TOP, _BOTTOM)] * height + y) / h
        return moved

    def apply(self, src: NDArray, region: Region) -> NDArray:
        """The larger image."""
        x, y, w, h = region
        height, width = src.shape[:2]
        return cropping.copyMakeBorder(src, y, h - y - height, x, w - x - width, values=self.pad_val)


def CreateMultiRandCropAugmenter(
    min_object_covered: float | list[float] = 0.1,
    aspect_ratio_range: Range | list[Any] = (0.75, 1.33),
    area_range: Range | list[Any] = (0.05, 1.0),
    min_eject_coverage: float | list[float] = 0.3,
    max_attempts: int | list[int] = 50,
    skip_prob: float = 0,
) -> DetRandomSelectAug:
    """One of several DetRandomCropAug, drawn for each image. Arguments as there; a list has one value for each sampler.

    skip_prob : the probability that the image stays whole
    """
    given = [min_object_covered, aspect_ratio_range, area_range, min_eject_coverage, max_attempts]
    lists: list[list[Any]] = [each if isinstance(each, list) else [each] for each in given]
    count = max(map(len, lists))
    if any(len(each) not in (1, count) for each in lists):
        raise ValueError(f"lists of arguments must be of equal length, not of {', '.join(str(len(x)) for x in lists)}")
    rows = zip(*(each * count if len(each) == 1 else each for each in lists), strict=True)
    return DetRandomSelectAug([DetRandomCropAug(*row) for row in rows], skip_prob=skip_prob)


def CreateDetAugmenter(
    data_shape: tuple[int, int, int],
    resize: int = 0,
    rand_crop: float = 0,
    rand_pad: float = 0,
    rand_gray: float = 0,
    rand_mirror: bool = False,
    mean: Channels | bool | None = None,
    std: Channels | bool | None = None,
    brightness: float = 0,
    contrast: float = 0,
    saturation: float = 0,
    pca_noise: float = 0,
    hue: float = 0,
    inter_method: int = 2,
    min_object_covered: float | list[float] = 0.1,
    aspect_ratio_range: Range | list[Any] = (0.75, 1.33),
    area_range: Range | list[Any] = (0.05, 3.0),
    min_eject_coverage: float | list[float] = 0.3,
    max_attempts: int | list[int] = 50,
    pad_val: float | Sequence[float] = (127, 127, 127),
) -> list[DetAugmenter]:
    """The usual augmenters for detection in images (channels, height, width), in their order.

    resize : of the shorter side first; rand_crop, rand_pad : probabilities of DetRandomCropAug and DetRandomPadAug,
        whose arguments are the last six; rand_mirror : flip half of the images; others as of CreateAugmenter
    """
    check_switches("CreateDetAugmenter", rand_mirror=rand_mirror)
    augmenters: list[DetAugmenter] = []
    if resize > 0:
        augmenters.append(DetBorrowAug(ResizeAug(resize, inter_method)))
    if rand_crop > 0:
        augmenters.append(
            CreateMultiRandCropAugmenter(
                min_object_covered,
                aspect_ratio_range,
                area_range,
                min_eject_coverage,
                max_attempts,
                skip_prob=1 - rand_crop,
            )
        )
    if rand_mirror:
        augmenters.append(DetHorizontalFlipAug(0.5))
    if rand_pad > 0:
        pad = DetRandomPadAug(aspect_ratio_range, (1.0, _range(area_range)[1]), _one(max_attempts), pad_val)
        augmenters.append(DetRandomSelectAug([pad], 1 - rand_pad))
    colors = color_augmenters(mean, std, brightness, contrast, saturation, hue, pca_noise, rand_gray)
    last = [ForceResizeAug((data_shape[2], data_shape[1]), inter_method), *colors]
    return [*augmenters, *map(DetBorrowAug, last)]


def _range(given: Range | list[Any]) -> tuple[float, float]:
    """A range from a number or a pair. Raises ValueError for anything else."""
    first, last = given if isinstance(given, (list, tuple)) and len(given) == 2 else (given, given)
    if not all(isinstance(end, (int, float, np.number)) for end in (first, last)):
        raise ValueError(f"a range is a number or a pair of numbers, not {given!r}")
    return first, last  # type: ignore[return-value]


def _one(given: int | list[int]) -> int:
    return max(given) if isinstance(given, list) else given


def _areas(boxes: np.ndarray) -> np.ndarray:
    """The area of each (left, top, right, bottom)."""
    return np.maximum(0, boxes[:, 2] - boxes[:, 0]) * np.maximum(0, boxes[:, 3] - boxes[:, 1])


def is_box(label: np.ndarray) -> np.ndarray:
    """For each row of a label, whether its box has a positive width and height."""
    return (label[:, _RIGHT] > label[:, _LEFT]) & (label[:, _BOTTOM] > label[:, _TOP])
