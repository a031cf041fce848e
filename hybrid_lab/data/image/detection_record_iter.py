"""mx.io.ImageDetRecordIter: batches of images and of the objects in them, from a file of image records."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from hybrid_lab import ndarray as nd
from hybrid_lab.data import recordio
from hybrid_lab.data.io import DataDesc
from hybrid_lab.diagnostics import SettingError
from hybrid_lab.diagnostics.formatting import check_choice
from hybrid_lab.ops.kernels.opencv import change_hls

from .cropping import copyMakeBorder, host, imdecode, imresize, resize_short
from .record_iter import WITHOUT_EFFECT, ImageRecordIter
from .settings import check_data_shape, check_number, refuse_unknown

#: Settings with one number for all crop samplers, or one number for each crop sampler.
_OF_SAMPLERS = (
    *("min_crop_scales", "max_crop_scales", "min_crop_aspect_ratios", "max_crop_aspect_ratios"),
    *("min_crop_overlaps", "max_crop_overlaps", "min_crop_sample_coverages", "max_crop_sample_coverages"),
    *("min_crop_object_coverages", "max_crop_object_coverages", "max_crop_trials"),
)
Numbers = float | Sequence[float]


@dataclass
class DetectionAugmenting:
    """The arguments of ImageDetRecordIter that change images and the boxes of objects with them, in MXNet's order.

    Boxes are left, top, right and bottom, in parts of the image's width and height.
    """

    data_shape: tuple[int, int, int]
    resize: int = -1
    rand_crop_prob: float = 0.0
    min_crop_scales: Numbers = 0.0
    max_crop_scales: Numbers = 1.0
    min_crop_aspect_ratios: Numbers = 1.0
    max_crop_aspect_ratios: Numbers = 1.0
    min_crop_overlaps: Numbers = 0.0
    max_crop_overlaps: Numbers = 1.0
    min_crop_sample_coverages: Numbers = 0.0
    max_crop_sample_coverages: Numbers = 1.0
    min_crop_object_coverages: Numbers = 0.0
    max_crop_object_coverages: Numbers = 1.0
    num_crop_sampler: int = 1
    crop_emit_mode: str = "center"
    emit_overlap_thresh: float = 0.3
    max_crop_trials: Numbers = 25
    rand_pad_prob: float = 0.0
    max_pad_scale: float = 1.0
    max_random_hue: int = 0
    random_hue_prob: float = 0.0
    max_random_saturation: int = 0
    random_saturation_prob: float = 0.0
    max_random_illumination: int = 0
    random_illumination_prob: float = 0.0
    max_random_contrast: float = 0.0
    random_contrast_prob: float = 0.0
    rand_mirror_prob: float = 0.0
    fill_value: int = 127
    inter_method: int = 1
    resize_mode: str = "force"

    def __post_init__(self) -> None:
        check_choice("resize_mode", self.resize_mode, ("force", "shrink", "fit"), SettingError)
        check_choice("crop_emit_mode", self.crop_emit_mode, ("center", "overlap"), SettingError)
        for field in fields(self):
            if field.name not in ("data_shape", "resize_mode", "crop_emit_mode", *_OF_SAMPLERS):
                whole = isinstance(field.default, int)
                check_number(field.name, getattr(self, field.name), whole=whole)
        if self.rand_crop_prob > 0 and self.num_crop_sampler < 1:
            raise SettingError(
                f"rand_crop_prob={self.rand_crop_prob} needs num_crop_sampler of 1 or more, not {self.num_crop_sampler}"
            )
        settings: dict[str, list[float]] = {}
        for name in _OF_SAMPLERS:
            numbers = np.ravel(getattr(self, name)).tolist()
            for number in numbers:
                check_number(name, number)
            if len(numbers) not in (1, self.num_crop_sampler):
                raise SettingError(f"{name} has {len(numbers)} numbers for {self.num_crop_sampler} crop samplers")
            settings[name] = numbers * (self.num_crop_sampler // len(numbers))
        self._samplers = [
            {name: numbers[sampler] for name, numbers in settings.items()} for sampler in range(self.num_crop_sampler)
        ]
        for one in self._samplers:
            if not 0 <= one["min_crop_scales"] < one["max_crop_scales"] <= 1:
                limits = f"{one['min_crop_scales']} and {one['max_crop_scales']}"
                raise SettingError(f"0 <= min_crop_scales < max_crop_scales <= 1 is needed; got {limits}")
            if not 0 <= one["min_crop_aspect_ratios"] <= one["max_crop_aspect_ratios"]:
                limits = f"{one['min_crop_aspect_ratios']} and {one['max_crop_aspect_ratios']}"
                raise SettingError(f"0 <= min_crop_aspect_ratios <= max_crop_aspect_ratios is needed; got {limits}")

    def __call__(self, image: np.ndarray, objects: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """An image (rows, columns, channels) of uint8 and its objects (n, 5 or more) of class and box, changed."""
        if self.resize > 0:
            image = host(resize_short(_array(image), self.resize, self.inter_method))
        image = self._recolored(image)
        if random.random() < self.rand_mirror_prob:
            image, objects = image[:, ::-1], objects.copy()
            objects[:, [1, 3]] = 1 - objects[:, [3, 1]]
        if self.max_pad_scale > 1 and random.random() < self.rand_pad_prob:
            image, objects = self._padded(image, objects)
        if random.random() < self.rand_crop_prob:
            image, objects = self._cropped(image, objects)
        return self._fitted(image), objects

    def _recolored(self, image: np.ndarray) -> np.ndarray:
        def change(most: float, probability: float) -> float:
            amount = random.uniform(-1, 1) * most
            return amount if random.random() < probability else 0.0

        hue = int(change(self.max_random_hue, self.random_hue_prob))
        saturation = int(change(self.max_random_saturation, self.random_saturation_prob))
        lightness = int(change(self.max_random_illumination, self.random_illumination_prob))
        contrast = change(self.max_random_contrast, self.random_contrast_prob)
        if hue or saturation or lightness:
            if image.shape[2] != 3:
                raise SettingError("changes of hue, saturation and illumination need images with 3 channels")
            image = change_hls(image, hue, lightness, saturation)
        if abs(contrast) > 1e-3:
            image = np.clip(np.rint(image * np.float32(contrast + 1)), 0, 255).astype("uint8")
        return image

    def _padded(self, image: np.ndarray, objects: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The image at a random place of a larger one of the value `fill_value`."""
        scale = random.uniform(1, self.max_pad_scale)
        if scale < 1.05:
            return image, objects
        x, y = random.uniform(0, scale - 1), random.uniform(0, scale - 1)
        rows, columns = image.shape[:2]
        left, top = int(x * columns), int(y * rows)
        right, bottom = int((scale - x - 1) * columns), int((scale - y - 1) * rows)
        larger = copyMakeBorder(_array(image), top, bottom, left, right, value=self.fill_value)
        return host(larger), _within(objects, (-x, -y, scale, scale))

    def _cropped(self, image: np.ndarray, objects: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A random part by the first sampler, in a random order, that finds one; else the image itself."""
        rows, columns = image.shape[:2]
        for sampler in random.sample(self._samplers, len(self._samplers)):
            for _ in range(int(sampler["max_crop_trials"])):
                box = _random_box(sampler, columns / rows)
                x, y, width, height = (int(part * size) for part, size in zip(box, (columns, rows) * 2, strict=True))
                chosen = self._objects_in(box, objects, sampler)
                if chosen is not None and width and height:
                    return image[y : y + height, x : x + width], chosen
        return image, objects

    def _objects_in(self, box: tuple[float, ...], objects: np.ndarray, sampler: dict[str, float]) -> np.ndarray | None:
        """The objects of a part of the image; None if it does not keep to the sampler's limits, or has none."""
        if len(objects) == 0:
            return objects
        x, y, width, height = box
        left, top, right, bottom = objects[:, 1:5].T
        across = np.minimum(right, x + width) - np.maximum(left, x)
        down = np.minimum(bottom, y + height) - np.maximum(top, y)
        common, own = np.clip(across, 0, None) * np.clip(down, 0, None), (right - left) * (bottom - top)
        shares = {
            "overlaps": common / (own + width * height - common),
            "sample_coverages": common / (width * height),
            "object_coverages": common / own,
        }
        fits = np.ones(len(objects), bool)
        for name, share in shares.items():
            least, most = sampler[f"min_crop_{name}"], sampler[f"max_crop_{name}"]
            if least > 0 or most < 1:
                fits &= (share >= least) & (share <= most)
        if self.crop_emit_mode == "center":
            middle_x, middle_y = (left + right) / 2, (top + bottom) / 2
            inside = (middle_x >= x) & (middle_x < x + width) & (middle_y >= y) & (middle_y < y + height)
        else:
            inside = common / own > self.emit_overlap_thresh
        return _within(objects[inside], box) if fits.any() and inside.any() else None

    def _fitted(self, image: np.ndarray) -> np.ndarray:
        """The image in the size of the data, or, by resize_mode, as large as fits into it or not larger."""
        height, width = self.data_shape[1:]
        rows, columns = image.shape[:2]
        if self.resize_mode != "force":
            ratio = min(np.float32(height) / np.float32(rows), np.float32(width) / np.float32(columns))
            if self.resize_mode == "shrink" and ratio >= 1:
                return image
            height, width = int(ratio * np.float32(rows)), int(ratio * np.float32(columns))
        return host(imresize(_array(image), width, height, self.inter_method))


def _array(image: np.ndarray) -> nd.NDArray:
    return nd.array(np.ascontiguousarray(image), dtype="uint8")


def _random_box(sampler: dict[str, float], image_ratio: float) -> tuple[float, float, float, float]:
    """Left, top, width and height of a part of an image whose width is `image_ratio` times its height."""
    scale = random.uniform(sampler["min_crop_scales"], sampler["max_crop_scales"]) + 1e-12
    least = max(sampler["min_crop_aspect_ratios"] / image_ratio, scale**2)
    most = min(sampler["max_crop_aspect_ratios"] / image_ratio, scale**-2)
    ratio = random.uniform(least, most) ** 0.5
    width, height = min(1.0, scale * ratio), min(1.0, scale / ratio)
    return random.uniform(0, 1 - width), random.uniform(0, 1 - height), width, height


def _within(objects: np.ndarray, box: tuple[float, ...]) -> np.ndarray:
    """Objects with their boxes in parts of another box (left, top, width, height), limited to it."""
    x, y, width, height = box
    moved = objects.copy()
    moved[:, 1:5] = (objects[:, 1:5] - [x, y, x, y]) / [width, height, width, height]
    moved[:, 1:3], moved[:, 3:5] = np.maximum(moved[:, 1:3], 0), np.minimum(moved[:, 3:5], 1)
    return moved


_AUGMENTING = {field.name for field in fields(DetectionAugmenting)} - {"data_shape"}
#: The arguments of ImageRecordIter that ImageDetRecordIter has, too.
_SHARED = {
    *("path_imgidx", "path_imglist", "shuffle", "seed", "num_parts", "part_index", "round_batch", "dtype"),
    *("data_name", "label_name", "seed_aug", "mean_img", "mean_r", "mean_g", "mean_b", "std_r", "std_g", "std_b"),
    *("scale", *WITHOUT_EFFECT),
}
_OWN = {"path_imgrec", "data_shape", "batch_size", "label_width", "label_pad_width", "label_pad_value", "aug_seq"}


class ImageDetRecordIter(ImageRecordIter):
    """Batches of images (batch, channels, height, width), float32, and their labels (batch, 4 + label_pad_width).

    A label in a record, or in path_imglist, is (size of the head, size of an object, rest of the head, objects); an
    object is (class, left, top, right, bottom, further numbers), in parts of the image's sides. A label of a batch is
    (channels, rows, columns, size of the label, label, padding), where rows and columns are the size of the image
    inside data. If resize_mode makes an image smaller than data_shape, it lies at the top left, and the rest is 0
    before normalization.

    label_width : the size of each label; -1 allows any
    label_pad_width : the size that labels are padded to, with label_pad_value; by default the longest label's size
    resize_mode : "force" resizes to data_shape, "fit" keeps the ratio of the sides, "shrink" only makes images smaller
    rand_crop_prob, num_crop_sampler, min_crop_scales ... : how often and how parts are chosen
    crop_emit_mode : "center" keeps objects whose middle is in the crop; "overlap" keeps those with more than
        emit_overlap_thresh of their area in it
    rand_pad_prob, max_pad_scale, rand_mirror_prob, random_hue_prob, max_random_hue ... : other random changes
    resize, fill_value, inter_method : the shorter side, first of all; the value of added pixels; the interpolation
    path_imgidx, path_imglist, shuffle, seed, num_parts, part_index, round_batch, dtype, data_name, label_name,
    seed_aug, mean_img, mean_r ..., std_r ..., scale : as for ImageRecordIter

    Raises SettingError for unknown arguments (also for augmenters of ImageRecordIter alone, such as rand_crop, rotate
    and mirror), and for labels of another form. Other errors as of ImageRecordIter.
    """

    def __init__(
        self,
        path_imgrec: str,
        data_shape: tuple[int, int, int],
        batch_size: int,
        label_width: int = -1,
        label_pad_width: int = 0,
        label_pad_value: float = -1.0,
        **others: Any,
    ) -> None:
        refuse_unknown("ImageDetRecordIter", others, _AUGMENTING | _SHARED | _OWN)
        check_data_shape(data_shape)
        check_number("label_width", label_width, whole=True)
        check_number("label_pad_width", label_pad_width, least=0, whole=True)
        check_number("label_pad_value", label_pad_value)
        changes = {name: others.pop(name) for name in _AUGMENTING & others.keys()}
        self._augment = DetectionAugmenting(data_shape, **changes)
        if others.pop("aug_seq", "det_aug_default") != "det_aug_default":
            raise SettingError("ImageDetRecordIter has one sequence of augmenters, det_aug_default")
        super().__init__(path_imgrec, data_shape, batch_size, **others)
        self._wanted_width, self._pad_value = label_width, label_pad_value
        longest = max(len(self._label(int(offset))[0]) for offset in self._offsets)
        if longest > label_pad_width > 0:
            raise SettingError(f"label_pad_width={label_pad_width} is less than the longest label, {longest}")
        self.label_width = 4 + max(longest, label_pad_width)
        self.provide_label = [DataDesc(self.provide_label[0].name, (batch_size, self.label_width))]

    def _label(self, offset: int) -> tuple[np.ndarray, bytes]:
        """The label and the image file of a record."""
        header, image = recordio.unpack(self._file.read_at(offset) or b"")
        label = np.asarray(header.label if self._labels is None else self._listed(header.id), "float32").reshape(-1)
        if self._wanted_width > 0 and len(label) != self._wanted_width:
            raise SettingError(f"the record {header.id} has {len(label)} labels, label_width is {self._wanted_width}")
        sizes = label[:2] if len(label) >= 7 and np.isfinite(label[:2]).all() else (0, 0)
        head, width = int(sizes[0]), int(sizes[1])
        if not 2 <= head <= len(label) or width < 5 or (len(label) - head) % width:
            raise SettingError(
                f"the label of the record {header.id} is not (size of the head, size of an object, objects ...)"
            )
        return label, image

    def _sample(self, offset: int) -> tuple[np.ndarray, np.ndarray]:
        label, file = self._label(offset)
        head, width = int(label[0]), int(label[1])
        objects = label[head:].reshape(-1, width)
        objects = objects[(objects[:, 3] > objects[:, 1]) & (objects[:, 4] > objects[:, 2])]
        image, objects = self._augment(host(imdecode(file, flag=int(self.data_shape[0] == 3))), objects)
        rows, columns, channels = image.shape
        data = np.zeros(self.data_shape, "uint8")
        data[:, :rows, :columns] = image.transpose(2, 0, 1)
        found = np.concatenate([label[:head], objects.ravel()])
        padded = np.full(self.label_width, self._pad_value, "float32")
        padded[:4] = channels, rows, columns, len(found)
        padded[4 : 4 + len(found)] = found
        return self._images.normalized(data), padded
