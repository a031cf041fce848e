"""mx.io.ImageRecordIter: batches of augmented images from a file of image records, with MXNet's arguments."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab import ndarray as nd
from hybrid_lab import recordio
from hybrid_lab.diagnostics import SettingError
from hybrid_lab.diagnostics.file_errors import reading
from hybrid_lab.io import DataBatch, DataDesc, DataIter
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.ndarray import check_dtype

from .augmenting import _EIGENVALUES, _EIGENVECTORS, Augmenter, ColorJitterAug, LightingAug, ResizeAug
from .cropping import choose_interp, copyMakeBorder, fixed_crop, host, imdecode, imresize
from .iterating import read_list
from .settings import check_data_shape, check_number, check_numbers, check_path, check_switches
from .warping import RandomAffine, change_hls

#: Arguments of MXNet that name its threads, buffers and devices. They change no number, and do nothing here.
_WITHOUT_EFFECT = (
    *("preprocess_threads", "prefetch_buffer", "verbose", "device_id", "ctx"),
    *("shuffle_chunk_size", "shuffle_chunk_seed"),
)

#: The arguments of `_Images` that are whole numbers, and those that are numbers.
_WHOLE = (
    *("resize", "fill_value", "inter_method", "max_crop_size", "min_crop_size", "random_h", "random_s", "random_l"),
    *("pad", "max_rotate_angle", "rotate"),
)
_NUMBERS = (
    *("max_aspect_ratio", "max_random_area", "min_random_area", "max_shear_ratio", "max_img_size", "min_img_size"),
    *("brightness", "contrast", "saturation", "pca_noise", "mean_r", "mean_g", "mean_b", "std_r", "std_g", "std_b"),
    *("scale", "max_random_contrast", "max_random_illumination", "max_random_scale", "min_random_scale"),
)

_SWITCHES = ("rand_crop", "random_resized_crop", "mirror", "rand_mirror")


class Augmenting(TypedDict, total=False):
    """The arguments of ImageRecordIter that change images, and those that MXNet's scripts give without an effect."""

    resize: int
    pad: int
    fill_value: int
    inter_method: int
    rand_crop: bool
    random_resized_crop: bool
    max_crop_size: int
    min_crop_size: int
    max_aspect_ratio: float
    min_aspect_ratio: float | None
    max_random_area: float
    min_random_area: float
    max_rotate_angle: int
    rotate: int
    max_shear_ratio: float
    max_random_scale: float
    min_random_scale: float
    max_img_size: float
    min_img_size: float
    brightness: float
    contrast: float
    saturation: float
    pca_noise: float
    random_h: int
    random_s: int
    random_l: int
    mirror: bool
    rand_mirror: bool
    mean_img: str
    mean_r: float
    mean_g: float
    mean_b: float
    std_r: float
    std_g: float
    std_b: float
    scale: float
    max_random_contrast: float
    max_random_illumination: float
    preprocess_threads: int
    prefetch_buffer: int
    verbose: bool
    device_id: int
    ctx: str
    shuffle_chunk_size: int
    shuffle_chunk_seed: int


class ImageRecordIter(DataIter):
    """Batches of images (batch, channels, height, width), float32, and their labels (batch,) or (batch, label_width).

    path_imgrec : a file of image records; path_imgidx : its index, which saves a pass over the file
    path_imglist : a file with lines "number TAB labels TAB path", whose labels replace those in the records
    shuffle, seed : a new order in each pass; num_parts, part_index : read one of equal parts
    round_batch : fill the last batch with the first images, which the next pass then leaves out; else its last images
        repeat its first ones. `pad` of the batch counts them
    resize : the shorter side, first of all; pad, fill_value : a border of pixels
    rand_crop : crop at a random place, not in the middle; min_crop_size, max_crop_size : crop a square of random size
    random_resized_crop : crop a part of random area (min_random_area to max_random_area of the image) and of random
        ratio of its sides (min_aspect_ratio to max_aspect_ratio)
    rotate : turn by this angle, or by a random one of up to max_rotate_angle, in degrees; max_shear_ratio : shear
    min_random_scale, max_random_scale : enlarge or shrink by a random factor; without random_resized_crop,
        max_aspect_ratio changes the ratio of the sides here. min_img_size, max_img_size : limits of the new sides
    brightness, contrast, saturation, pca_noise : how much the colors change; mirror, rand_mirror : flip all, or half
    random_h, random_s, random_l : the largest random changes of hue (half a circle is 90), saturation and lightness
    mean_img : a file of `nd.save` with an image `mean_img`; mean_r, std_r ... : of each channel
    max_random_contrast, max_random_illumination : a random factor and a random summand of all values
    scale : factor of all values at the end; seed_aug : of the random numbers of the images
    dtype : uint8 gives the pixels as they are; int8 gives them less the rounded mean, limited to -128 to 127. As in
        MXNet, these two ignore std_r ..., scale, max_random_contrast and max_random_illumination, and uint8 the mean

    Images are read and changed when they are asked for, in this thread; `mx.io.PrefetchingIter` reads ahead.
    Raises SettingError for arguments that are unknown or have values of another kind, DTypeError for a dtype that
    arrays cannot have, and FileError, as MissingFileError where there is no file of records.
    """

    def __init__(
        self,
        path_imgrec: str,
        data_shape: tuple[int, int, int],
        batch_size: int,
        path_imgidx: str = "",
        path_imglist: str = "",
        label_width: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        num_parts: int = 1,
        part_index: int = 0,
        round_batch: bool = True,
        dtype: DTypeLike = "float32",
        data_name: str = "data",
        label_name: str = "softmax_label",
        seed_aug: int | None = None,
        **augmenting: Unpack[Augmenting],
    ) -> None:
        check_number("batch_size", batch_size, least=1, whole=True)
        super().__init__(batch_size)
        check_data_shape(data_shape)
        check_path("path_imgrec", path_imgrec)
        for name, value, least in (("label_width", label_width, 1), ("part_index", part_index, 0)):
            check_number(name, value, least, whole=True)
        check_number("num_parts", num_parts, least=1, whole=True)
        check_number("seed", seed, least=0, whole=True)
        if seed_aug is not None:
            check_number("seed_aug", seed_aug, least=0, whole=True)
        check_switches({"shuffle": shuffle, "round_batch": round_batch})
        if not 0 <= part_index < num_parts:
            raise SettingError(f"part_index {part_index} is not one of 0 to {num_parts - 1}")
        self.data_shape, self.label_width, self.dtype = tuple(data_shape), label_width, check_dtype(dtype)
        self.provide_data = [DataDesc(data_name, (batch_size, *data_shape), self.dtype)]
        label_shape = (batch_size, label_width) if label_width > 1 else (batch_size,)
        self.provide_label = [DataDesc(label_name, label_shape)]
        check_numbers(augmenting, _WHOLE, whole=True)
        check_numbers(augmenting, _NUMBERS)
        check_switches({name: value for name, value in augmenting.items() if name in _SWITCHES})
        self._images = _Images(self.data_shape, self.dtype, **augmenting)
        self._labels = read_list(path_imglist, "float32") if path_imglist else None
        for path in (path_imgrec, path_imgidx):
            if path:
                with reading(path), open(path, "rb"):
                    pass
        self._offsets = np.array(_part(path_imgrec, path_imgidx, part_index, num_parts))
        if len(self._offsets) < batch_size:
            raise SettingError(f"{path_imgrec} has {len(self._offsets)} images to read, less than a batch")
        self._file = recordio.MXRecordIO(path_imgrec, "r")
        self._order = np.random.default_rng(seed) if shuffle else None
        self._drawing = None if seed_aug is None else (random.Random(seed_aug).getstate(), _numpy_state(seed_aug))
        self.round_batch = round_batch
        self._place = self._taken = 0
        self._batch: DataBatch | None = None
        self._start()

    def _start(self) -> None:
        if self._order is not None:
            self._order.shuffle(self._offsets)
        self._place, self._taken = self._taken, 0

    def reset(self) -> None:
        """Start the next pass, after the images that filled the last batch of this one."""
        self._start()

    def iter_next(self) -> bool:
        """Read the next batch; False after the last."""
        offsets = self._offsets[self._place : self._place + self.batch_size]
        if len(offsets) == 0:
            return False
        self._place += self.batch_size
        pad = self.batch_size - len(offsets)
        if pad and self.round_batch:
            offsets, self._taken = np.concatenate([offsets, self._offsets[:pad]]), pad
        elif pad:
            offsets = np.resize(offsets, self.batch_size)
        with self._own_random_numbers():
            images, labels = zip(*(self._sample(int(offset)) for offset in offsets), strict=True)
        label = np.stack(labels).reshape(self.provide_label[0].shape)
        data = nd.array(np.stack(images), dtype=self.dtype)
        self._batch = DataBatch([data], [nd.array(label)], pad)
        return True

    def _sample(self, offset: int) -> tuple[np.ndarray, np.ndarray]:
        header, image = recordio.unpack(self._file.read_at(offset) or b"")
        label = header.label
        if self._labels is not None:
            label = self._listed(header.id)
        label = np.asarray(label, "float32").reshape(-1)
        if len(label) != self.label_width:
            raise SettingError(f"the record {header.id} has {len(label)} labels, label_width is {self.label_width}")
        return self._images(imdecode(image, flag=int(self.data_shape[0] == 3))), label

    def _listed(self, record: int) -> np.ndarray:
        """The labels that path_imglist has for a record."""
        assert self._labels is not None
        if record not in self._labels:
            raise SettingError(f"the record {record} of {self._file.uri} is not in path_imglist")
        return self._labels[record][0]

    @contextmanager
    def _own_random_numbers(self) -> Iterator[None]:
        """Let the augmenters draw from the stream of seed_aug, if one was given."""
        if self._drawing is None:
            yield
            return
        before = random.getstate(), np.random.get_state()
        random.setstate(self._drawing[0])
        np.random.set_state(self._drawing[1])
        try:
            yield
        finally:
            self._drawing = random.getstate(), np.random.get_state()
            random.setstate(before[0])
            np.random.set_state(before[1])

    def next(self) -> DataBatch:
        """The next batch. Raises StopIteration after the last."""
        if not self.iter_next():
            raise StopIteration
        return self._current()

    def _current(self) -> DataBatch:
        if self._batch is None:
            raise SettingError("there is no batch yet: call next() or iter_next() first")
        return self._batch

    def getdata(self) -> NDArray:
        """The images of the current batch."""
        return self._arrays[0]

    def getlabel(self) -> NDArray:
        """The labels of the current batch."""
        return self._arrays[1]

    @property
    def _arrays(self) -> tuple[NDArray, NDArray]:
        batch = self._current()
        assert batch.data and batch.label
        return batch.data[0], batch.label[0]

    def getpad(self) -> int:
        """How many images at the end only fill the current batch up."""
        return self._current().pad or 0


class ImageRecordUInt8Iter(ImageRecordIter):
    """`ImageRecordIter(..., dtype="uint8")`, under MXNet's older name."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, "dtype": "uint8"})


class ImageRecordInt8Iter(ImageRecordIter):
    """`ImageRecordIter(..., dtype="int8")`, under MXNet's older name."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, "dtype": "int8"})


def _part(records: str, index: str, part: int, parts: int) -> list[int]:
    """The offsets of one of equal parts: of the records by the index, or of the bytes of the file without one."""
    if index:
        indexed = recordio.MXIndexedRecordIO(index, records, "r")
        offsets = sorted(indexed.idx.values())
        indexed.close()
        size = -(-len(offsets) // parts)
        return offsets[part * size : (part + 1) * size]
    size = -(-os.path.getsize(records) // parts)
    return [each for each in recordio.record_offsets(records) if part * size <= each < (part + 1) * size]


def _mean_image(path: str) -> np.ndarray:
    """The image (channels, height, width) that a file of `nd.save` has under `mean_img`."""
    arrays = nd.load(path)
    image = arrays.get("mean_img") if isinstance(arrays, dict) else None
    if not isinstance(image, NDArray):
        raise SettingError(f"{path} holds no array of the name mean_img")
    return image.asnumpy()


def _check_ranges(
    ratios: tuple[float, float], min_ratio: float | None, max_ratio: float, areas: tuple[float, float]
) -> None:
    """Raise SettingError for ratios of the sides or areas of random crops whose least is above their largest."""
    if min_ratio is None and not 0 <= max_ratio < 1:
        raise SettingError(f"0 <= max_aspect_ratio < 1 is needed without min_aspect_ratio; got {max_ratio}")
    if min_ratio is not None and not 0 < ratios[0] <= ratios[1]:
        raise SettingError(f"0 < min_aspect_ratio <= max_aspect_ratio is needed; got {min_ratio} and {max_ratio}")
    if not 0 < areas[0] <= areas[1]:
        raise SettingError(f"0 < min_random_area <= max_random_area is needed; got {areas[0]} and {areas[1]}")


def _numpy_state(seed: int) -> dict[str, object]:
    return np.random.RandomState(seed).get_state(legacy=False)


def _recolored(image: NDArray, augmenters: list[Augmenter]) -> NDArray:
    """An image of uint8 with other colors, limited to 0 to 255."""
    for augment in augmenters:
        changed = np.clip(host(augment(image.astype("float32"))), 0, 255)
        image = nd.array(changed.astype("uint8"), dtype="uint8")
    return image


def _random_change(most: int) -> int:
    """A number of -most to most, which is rarely one of the largest."""
    return int(((random.random() + 4 * random.random()) / 5 * 2 - 1) * most)


class _Images:
    """Augments one image in MXNet's order: resize, rotation, border, crop, colors, flip, normalization."""

    def __init__(
        self,
        data_shape: tuple[int, ...],
        dtype: np.dtype,
        resize: int = -1,
        pad: int = 0,
        fill_value: int = 255,
        inter_method: int = 1,
        rand_crop: bool = False,
        random_resized_crop: bool = False,
        max_crop_size: int = -1,
        min_crop_size: int = -1,
        max_aspect_ratio: float = 0.0,
        min_aspect_ratio: float | None = None,
        max_random_area: float = 1.0,
        min_random_area: float = 1.0,
        max_rotate_angle: int = 0,
        rotate: int = -1,
        max_shear_ratio: float = 0.0,
        max_random_scale: float = 1.0,
        min_random_scale: float = 1.0,
        max_img_size: float = 1e10,
        min_img_size: float = 0.0,
        brightness: float = 0.0,
        contrast: float = 0.0,
        saturation: float = 0.0,
        pca_noise: float = 0.0,
        random_h: int = 0,
        random_s: int = 0,
        random_l: int = 0,
        mirror: bool = False,
        rand_mirror: bool = False,
        mean_img: str = "",
        mean_r: float = 0.0,
        mean_g: float = 0.0,
        mean_b: float = 0.0,
        std_r: float = 1.0,
        std_g: float = 1.0,
        std_b: float = 1.0,
        scale: float = 1.0,
        max_random_contrast: float = 0.0,
        max_random_illumination: float = 0.0,
        **others: object,
    ) -> None:
        for name, value in others.items():
            if name not in _WITHOUT_EFFECT:
                raise SettingError(
                    f"ImageRecordIter has no {name}={value!r}; mx.image.ImageIter takes other augmenters"
                )
        if min_aspect_ratio is not None:
            check_number("min_aspect_ratio", min_aspect_ratio)
        check_number("max_rotate_angle", max_rotate_angle, least=0, whole=True)
        check_number("rotate", rotate, least=-1, whole=True)
        check_number("pad", pad, least=0, whole=True)
        ratios = (1 - max_aspect_ratio, 1 + max_aspect_ratio)
        self._ratios = ratios if min_aspect_ratio is None else (min_aspect_ratio, max_aspect_ratio)
        scales = (min_random_scale, max_random_scale)
        if not min(scales) > 0:
            raise SettingError(
                f"min_random_scale and max_random_scale must be above 0, not {scales[0]} and {scales[1]}"
            )
        if random_resized_crop and (rand_crop or max_crop_size != -1 or min_crop_size != -1 or scales != (1, 1)):
            raise SettingError("random_resized_crop excludes rand_crop, crop sizes and random scales")
        _check_ranges(self._ratios, min_aspect_ratio, max_aspect_ratio, (min_random_area, max_random_area))
        warp_ratios = (1.0, 1.0) if random_resized_crop else self._ratios
        sizes = (min_img_size, max_img_size)
        warp = RandomAffine(max(rotate, 0), max_rotate_angle, max_shear_ratio, scales, warp_ratios, sizes)
        self._warp = None if warp == RandomAffine() else warp
        if self._warp is not None and inter_method == 0:
            raise SettingError("rotations, shears and random scales need inter_method 1 to 4, 9 or 10")
        self._hls = (random_h, random_l, random_s)
        if any(self._hls) and data_shape[0] != 3:
            raise SettingError("random_h, random_s and random_l need images with 3 channels")
        self._channels, self._height, self._width = data_shape
        self._interp, self._rand_crop = inter_method, rand_crop
        self._areas = (min_random_area, max_random_area) if random_resized_crop else None
        self._squares = (min_crop_size, max_crop_size)
        self._first: list[Augmenter] = [ResizeAug(resize, inter_method)] if resize > 0 else []
        self._border, self._fill = pad, fill_value
        self._colors: list[Augmenter] = [ColorJitterAug(brightness, contrast, saturation)]
        self._lighting: list[Augmenter] = []
        if pca_noise > 0:
            self._lighting.append(LightingAug(pca_noise, _EIGENVALUES, _EIGENVECTORS))
        self._mirror, self._rand_mirror = mirror, rand_mirror
        self._mean = np.array([mean_r, mean_g, mean_b], "float32")[: self._channels, None, None]
        if mean_img:
            self._mean = _mean_image(mean_img)
        self._std = np.array([std_r, std_g, std_b], "float32")[: self._channels, None, None]
        self._scale, self._contrast, self._light = scale, max_random_contrast, max_random_illumination
        self._dtype = dtype

    def __call__(self, image: NDArray) -> np.ndarray:
        """An image (height, width, channels), uint8, as (channels, height, width): int8 or uint8 for these dtypes, else
        float32.
        """
        for augment in self._first:
            image = augment(image)
        if self._warp is not None:
            image = nd.array(self._warp(host(image), self._interp, self._fill), dtype="uint8")
        if self._border:
            side = self._border
            image = copyMakeBorder(image, side, side, side, side, value=self._fill)
        image = self._cropped(image)
        image = _recolored(image, self._colors)
        if any(self._hls):
            image = nd.array(change_hls(host(image), *map(_random_change, self._hls)), dtype="uint8")
        image = _recolored(image, self._lighting)
        values = self.normalized(host(image).transpose(2, 0, 1))
        return values[:, :, ::-1] if self._mirror or (self._rand_mirror and random.random() < 0.5) else values

    def normalized(self, pixels: np.ndarray) -> np.ndarray:
        """Pixels (channels, height, width), uint8, as the values of the iterator's dtype."""
        if self._dtype == np.uint8:
            return pixels
        if self._dtype == np.int8:
            mean = np.trunc(self._mean + np.copysign(0.5, self._mean))  # halves are rounded away from zero
            return np.clip(pixels - mean, -128, 127).astype("int8")
        values = pixels.astype("float32") - self._mean
        if self._contrast or self._light:
            values = values * (1 + random.uniform(-self._contrast, self._contrast))
            values = values + random.uniform(-self._light, self._light)
        return values * np.float32(self._scale) / self._std

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
        elif self._squares != (-1, -1):
            least, most = self._squares
            if not 0 < least <= most <= min(rows, columns):
                raise SettingError(f"min_crop_size to max_crop_size, {least} to {most}, is not within {image.shape}")
            edge = random.randint(least, most)
            return self._part(image, edge, edge, self._rand_crop)
        if rows < self._height:
            columns = self._height * columns // rows
            image, rows = self._resized(image, columns, self._height), self._height
        if columns < self._width:
            rows = self._width * rows // columns
            image = self._resized(image, self._width, rows)
        return self._part(image, size[1], size[0], self._rand_crop)

    def _part(self, image: NDArray, height: int, width: int, anywhere: bool) -> NDArray:
        """A part at a random place or in the middle, resized to the shape of the data."""
        y, x = image.shape[0] - height, image.shape[1] - width
        y, x = (random.randint(0, y), random.randint(0, x)) if anywhere else (y // 2, x // 2)
        part = fixed_crop(image, x, y, width, height)
        return (
            part if (width, height) == (self._width, self._height) else self._resized(part, self._width, self._height)
        )

    def _resized(self, image: NDArray, width: int, height: int) -> NDArray:
        interp = choose_interp(self._interp, (image.shape[0], image.shape[1], height, width))
        return imresize(image, width, height, interp)
