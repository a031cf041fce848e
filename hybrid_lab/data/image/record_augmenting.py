"""How mx.io.ImageRecordIter changes the images that it reads."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields

import numpy as np

from hybrid_lab import ndarray as nd
from hybrid_lab.diagnostics import SettingError
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ops.kernels.opencv import affine, change_hls

from .augmenting import _EIGENVALUES, _EIGENVECTORS, Augmenter, ColorJitterAug, LightingAug, ResizeAug
from .cropping import choose_interp, copyMakeBorder, fixed_crop, host, imresize
from .settings import LONGEST_SIDE, check_number, check_switches

#: The least values of arguments.
_LEAST = {
    **dict.fromkeys(("max_rotate_angle", "pad"), 0),
    **dict.fromkeys(("brightness", "contrast", "saturation", "pca_noise", "max_shear_ratio"), 0),
    "rotate": -1,
}


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


@dataclass
class ImageAugmenting:
    """The arguments of ImageRecordIter that change images. They change one image in MXNet's order: resize, rotation,
    border, crop, colors, flip, normalization.

    Raises SettingError for values of another kind, or out of range.
    """

    data_shape: tuple[int, ...]
    dtype: np.dtype
    resize: int = -1
    pad: int = 0
    fill_value: int = 255
    inter_method: int = 1
    rand_crop: bool = False
    random_resized_crop: bool = False
    max_crop_size: int = -1
    min_crop_size: int = -1
    max_aspect_ratio: float = 0.0
    min_aspect_ratio: float | None = None
    max_random_area: float = 1.0
    min_random_area: float = 1.0
    max_rotate_angle: int = 0
    rotate: int = -1
    max_shear_ratio: float = 0.0
    max_random_scale: float = 1.0
    min_random_scale: float = 1.0
    max_img_size: float = 1e10
    min_img_size: float = 0.0
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    pca_noise: float = 0.0
    random_h: int = 0
    random_s: int = 0
    random_l: int = 0
    mirror: bool = False
    rand_mirror: bool = False
    mean_img: str = ""
    mean_r: float = 0.0
    mean_g: float = 0.0
    mean_b: float = 0.0
    std_r: float = 1.0
    std_g: float = 1.0
    std_b: float = 1.0
    scale: float = 1.0
    max_random_contrast: float = 0.0
    max_random_illumination: float = 0.0

    def __post_init__(self) -> None:
        self._check_kinds()
        self._channels, self._height, self._width = self.data_shape
        ratio = self.max_aspect_ratio
        self._ratios = (1 - ratio, 1 + ratio) if self.min_aspect_ratio is None else (self.min_aspect_ratio, ratio)
        self._check_ranges()
        self._areas = (self.min_random_area, self.max_random_area) if self.random_resized_crop else None
        warp = RandomAffine(
            max(self.rotate, 0),
            self.max_rotate_angle,
            self.max_shear_ratio,
            (self.min_random_scale, self.max_random_scale),
            (1.0, 1.0) if self.random_resized_crop else self._ratios,
            (self.min_img_size, self.max_img_size),
        )
        self._warp = None if warp == RandomAffine() else warp
        if self._warp is not None and self.inter_method == 0:
            raise SettingError("rotations, shears and random scales need inter_method 1 to 4, 9 or 10")
        self._hls = (self.random_h, self.random_l, self.random_s)
        if any(self._hls) and self._channels != 3:
            raise SettingError("random_h, random_s and random_l need images with 3 channels")
        self._first: list[Augmenter] = [ResizeAug(self.resize, self.inter_method)] if self.resize > 0 else []
        self._colors: list[Augmenter] = [ColorJitterAug(self.brightness, self.contrast, self.saturation)]
        self._lighting: list[Augmenter] = []
        if self.pca_noise > 0:
            self._lighting.append(LightingAug(self.pca_noise, _EIGENVALUES, _EIGENVECTORS))
        self._mean = np.array([self.mean_r, self.mean_g, self.mean_b], "float32")[: self._channels, None, None]
        if self.mean_img:
            self._mean = _mean_image(self.mean_img)
        self._std = np.array([self.std_r, self.std_g, self.std_b], "float32")[: self._channels, None, None]

    def _check_kinds(self) -> None:
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            if isinstance(field.default, bool):
                check_switches({name: value})
            elif isinstance(field.default, (int, float)) or (name == "min_aspect_ratio" and value is not None):
                check_number(name, value, _LEAST.get(name), whole=isinstance(field.default, int))
                if np.isinf(value) and name != "max_img_size":
                    raise SettingError(f"{name} must be finite, not {value!r}")
        for name in ("resize", "pad"):
            if getattr(self, name) > LONGEST_SIDE:
                raise SettingError(f"{name} must be at most {LONGEST_SIDE}, not {getattr(self, name)}")

    def _check_ranges(self) -> None:
        """Raise SettingError for limits of a random value whose least is above their largest, and the like."""
        if self.resize != -1 and self.resize < 1:
            raise SettingError(f"resize must be -1, for none, or a whole number of 1 or more, not {self.resize}")
        for name in ("std_r", "std_g", "std_b"):
            if getattr(self, name) == 0:
                raise SettingError(f"{name} must not be 0: the values of its channel are divided by it")
        if self.inter_method not in (0, 1, 2, 3, 4, 9, 10):
            raise SettingError(f"inter_method must be 0 to 4, 9 or 10, not {self.inter_method}")
        scales = (self.min_random_scale, self.max_random_scale)
        if not min(scales) > 0:
            raise SettingError(
                f"min_random_scale and max_random_scale must be above 0, not {scales[0]} and {scales[1]}"
            )
        crop_sizes = (self.min_crop_size, self.max_crop_size)
        if self.random_resized_crop and (self.rand_crop or crop_sizes != (-1, -1) or scales != (1, 1)):
            raise SettingError("random_resized_crop excludes rand_crop, crop sizes and random scales")
        ratios, areas = self._ratios, (self.min_random_area, self.max_random_area)
        if self.min_aspect_ratio is None and not 0 <= self.max_aspect_ratio < 1:
            raise SettingError(
                f"0 <= max_aspect_ratio < 1 is needed without min_aspect_ratio; got {self.max_aspect_ratio}"
            )
        if not 0 < ratios[0] <= ratios[1]:
            raise SettingError(f"0 < min_aspect_ratio <= max_aspect_ratio is needed; got {ratios[0]} and {ratios[1]}")
        if not 0 < areas[0] <= areas[1]:
            raise SettingError(f"0 < min_random_area <= max_random_area is needed; got {areas[0]} and {areas[1]}")

    def __call__(self, image: NDArray) -> np.ndarray:
        """An image (height, width, channels), uint8, as (channels, height, width): int8 or uint8 for these dtypes, else
        float32.
        """
        for augment in self._first:
            image = augment(image)
        if self._warp is not None:
            image = nd.array(self._warp(host(image), self.inter_method, self.fill_value), dtype="uint8")
        if self.pad:
            side = self.pad
            image = copyMakeBorder(image, side, side, side, side, value=self.fill_value)
        image = self._cropped(image)
        image = _recolored(image, self._colors)
        if any(self._hls):
            image = nd.array(change_hls(host(image), *map(_random_change, self._hls)), dtype="uint8")
        image = _recolored(image, self._lighting)
        values = self.normalized(host(image).transpose(2, 0, 1))
        return values[:, :, ::-1] if self.mirror or (self.rand_mirror and random.random() < 0.5) else values

    def normalized(self, pixels: np.ndarray) -> np.ndarray:
        """Pixels (channels, height, width), uint8, as the values of the iterator's dtype."""
        if self.dtype == np.uint8:
            return pixels
        if self.dtype == np.int8:
            mean = np.trunc(self._mean + np.copysign(0.5, self._mean))  # halves are rounded away from zero
            return np.clip(pixels - mean, -128, 127).astype("int8")
        values = pixels.astype("float32") - self._mean
        if self.max_random_contrast or self.max_random_illumination:
            values = values * (1 + random.uniform(-self.max_random_contrast, self.max_random_contrast))
            values = values + random.uniform(-self.max_random_illumination, self.max_random_illumination)
        return values * np.float32(self.scale) / self._std

    def _cropped(self, image: NDArray) -> NDArray:
        rows, columns = image.shape[:2]
        size = (self._width, self._height)
        if self._areas is not None:
            for _ in range(10):
                area = random.uniform(*self._areas) * rows * columns
                ratio = random.uniform(*self._ratios)
                sides = [round((area / ratio) ** 0.5), round((area * ratio) ** 0.5)]
                random.shuffle(sides)
                if sides[0] <= rows and sides[1] <= columns:
                    return self._part(image, sides[0], sides[1], True)
        elif (self.min_crop_size, self.max_crop_size) != (-1, -1):
            least, most = self.min_crop_size, self.max_crop_size
            if not 0 < least <= most <= min(rows, columns):
                raise SettingError(f"min_crop_size to max_crop_size, {least} to {most}, is not within {image.shape}")
            edge = random.randint(least, most)
            return self._part(image, edge, edge, self.rand_crop)
        if rows < self._height:
            columns = self._height * columns // rows
            image, rows = self._resized(image, columns, self._height), self._height
        if columns < self._width:
            rows = self._width * rows // columns
            image = self._resized(image, self._width, rows)
        return self._part(image, size[1], size[0], self.rand_crop)

    def _part(self, image: NDArray, height: int, width: int, anywhere: bool) -> NDArray:
        """A part at a random place or in the middle, resized to the shape of the data."""
        y, x = image.shape[0] - height, image.shape[1] - width
        y, x = (random.randint(0, y), random.randint(0, x)) if anywhere else (y // 2, x // 2)
        part = fixed_crop(image, x, y, width, height)
        return (
            part if (width, height) == (self._width, self._height) else self._resized(part, self._width, self._height)
        )

    def _resized(self, image: NDArray, width: int, height: int) -> NDArray:
        interp = choose_interp(self.inter_method, (image.shape[0], image.shape[1], height, width))
        return imresize(image, width, height, interp)


def _mean_image(path: str) -> np.ndarray:
    """The image (channels, height, width) that a file of `nd.save` has under `mean_img`."""
    arrays = nd.load(path)
    image = arrays.get("mean_img") if isinstance(arrays, dict) else None
    if not isinstance(image, NDArray):
        raise SettingError(f"{path} holds no array of the name mean_img")
    return image.asnumpy()


def _recolored(image: NDArray, augmenters: list[Augmenter]) -> NDArray:
    """An image of uint8 with other colors, limited to 0 to 255."""
    for augment in augmenters:
        changed = np.clip(host(augment(image.astype("float32"))), 0, 255)
        image = nd.array(changed.astype("uint8"), dtype="uint8")
    return image


def _random_change(most: int) -> int:
    """A number of -most to most, which is rarely one of the largest."""
    return int(((random.random() + 4 * random.random()) / 5 * 2 - 1) * most)
