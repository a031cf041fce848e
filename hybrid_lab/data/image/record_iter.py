"""mx.io.ImageRecordIter: batches of augmented images from a file of image records, with MXNet's arguments."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab import ndarray as nd
from hybrid_lab.data import recordio
from hybrid_lab.data.io import DataBatch, DataDesc, MXDataIter, positions
from hybrid_lab.data.io.parts import DataPart, part_of
from hybrid_lab.diagnostics import HybridLabError, SettingError
from hybrid_lab.diagnostics.file_errors import reading
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.ndarray import check_dtype
from hybrid_lab.system.provided import signed_like

from .cropping import imdecode
from .iterating import read_list
from .record_augmenting import ImageAugmenting
from .settings import check_data_shape, check_number, check_path, check_switches

#: Arguments of MXNet that name its threads, buffers and devices. They change no number, and do nothing here.
WITHOUT_EFFECT = (
    *("preprocess_threads", "prefetch_buffer", "verbose", "device_id", "ctx"),
    *("shuffle_chunk_size", "shuffle_chunk_seed"),
)
#: Arguments that change images.
AUGMENTING = {field.name for field in fields(ImageAugmenting)} - {"data_shape", "dtype"}


class ImageRecordIter(MXDataIter):
    """Batches of images (batch, channels, height, width), float32, and their labels (batch,) or (batch, label_width).

    path_imgrec : a file of image records; path_imgidx : its index, which saves a pass over the file
    path_imglist : a file with lines "number TAB labels TAB path", whose labels replace the labels in the records
    shuffle, seed : a new order in each pass
    num_parts, part_index : read one of equal parts; by default the part of this worker among the joined workers
    round_batch : fill the last batch with the first images, which the next pass then leaves out; else its last images
        repeat its first images. `pad` of the batch counts them
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
    dtype : uint8 gives the pixels unchanged; int8 gives them less the rounded mean, limited to -128 to 127. As in
        MXNet, these two ignore std_r ..., scale, max_random_contrast and max_random_illumination, and uint8 the mean

    Images are read and changed when they are asked for, in this thread; `mx.io.PrefetchingIter` reads ahead. Raises
    SettingError for unknown arguments and values of another kind, DTypeError for a dtype that arrays cannot have, and
    FileError (MissingFileError if the file of records is missing).
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
        num_parts: int | None = None,
        part_index: int | None = None,
        round_batch: bool = True,
        dtype: DTypeLike = "float32",
        data_name: str = "data",
        label_name: str = "softmax_label",
        seed_aug: int | None = None,
        **augmenting: Any,
    ) -> None:
        check_number("batch_size", batch_size, least=1, whole=True)
        super().__init__(batch_size)
        check_data_shape(data_shape)
        check_path("path_imgrec", path_imgrec)
        part = part_of(num_parts, part_index)
        part_index, num_parts = part.number, part.parts
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
        for name, value in augmenting.items():
            if name not in AUGMENTING and name not in WITHOUT_EFFECT:
                raise SettingError(
                    f"ImageRecordIter has no {name}={value!r}; mx.image.ImageIter takes other augmenters"
                )
        changes = {name: value for name, value in augmenting.items() if name in AUGMENTING}
        self._images = ImageAugmenting(self.data_shape, self.dtype, **changes)
        self._labels = read_list(path_imglist, "float32") if path_imglist else None
        for path in (path_imgrec, path_imgidx):
            if path:
                with reading(path), open(path, "rb"):
                    pass
        self._offsets = np.array(_part(path_imgrec, path_imgidx, part))
        if len(self._offsets) < batch_size:
            raise SettingError(f"{path_imgrec} has {len(self._offsets)} images to read, less than a batch")
        self._file = recordio.MXRecordIO(path_imgrec, "r")
        self._order = np.random.default_rng(seed) if shuffle else None
        self._drawing = None if seed_aug is None else (random.Random(seed_aug).getstate(), _numpy_state(seed_aug))
        self.round_batch = round_batch
        self.epoch = -1
        self._place = self._taken = 0
        self._batch: DataBatch | None = None
        self._start()

    def _start(self) -> None:
        if self._order is not None:
            self._order.shuffle(self._offsets)
        self.epoch += 1
        self._place, self._taken = self._taken, 0

    def get_state(self) -> dict[str, Any]:
        """Where it stands, as data: the epoch, the order of the images, which come next, and its random numbers."""
        return {
            "samples": len(self._offsets),
            "epoch": self.epoch,
            "place": self._place,
            "taken": self._taken,
            "offsets": self._offsets.copy(),
            "order": None if self._order is None else self._order.bit_generator.state,
            "drawing": self._drawing,
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to the position of `get_state`: the next batches are the batches that followed it.

        Raises HybridLabError for the state of another iterator; this one is as before then.
        """
        samples, epoch, place, taken = positions.whole_numbers(state, ("samples", "epoch", "place", "taken"))
        if samples != len(self._offsets) or place > samples + self.batch_size or taken > self.batch_size:
            raise HybridLabError(f"the iterator has {len(self._offsets)} images, that of the saved position {samples}")
        offsets = positions.same_entries(state.get("offsets"), self._offsets.tolist())
        order, drawing = state.get("order"), state.get("drawing")
        if (order is None) is not (self._order is None) or (drawing is None) is not (self._drawing is None):
            raise HybridLabError("the saved position is of an iterator with other settings: shuffle or seed_aug")
        generator = None if order is None else positions.generator_at(order)
        self._drawing = None if drawing is None else positions.random_state(drawing)
        self._order, self._offsets = generator, np.array(offsets)
        self.epoch, self._place, self._taken, self._batch = epoch, place, taken, None

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

    @signed_like(ImageRecordIter.__init__)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, "dtype": "uint8"})


class ImageRecordIter_v1(ImageRecordIter):
    """ImageRecordIter as MXNet had it first: float32 only, and the parts of num_parts are always parts of the file's
    bytes, so `path_imgidx` has no effect.
    """

    @signed_like(ImageRecordIter.__init__)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, **_of_first_version("float32", options)})


class ImageRecordUInt8Iter_v1(ImageRecordIter):
    """`ImageRecordIter_v1` with pixels of uint8."""

    @signed_like(ImageRecordIter.__init__)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, **_of_first_version("uint8", options)})


def _of_first_version(dtype: str, options: Mapping[str, Any]) -> dict[str, str]:
    """The arguments that the first version does not choose. Raises SettingError for another dtype."""
    if np.dtype(check_dtype(options.get("dtype", dtype))) != dtype:
        raise SettingError(f"this iterator gives {dtype} only, not {options['dtype']}; use mx.io.ImageRecordIter")
    return {"dtype": dtype, "path_imgidx": ""}


class ImageRecordInt8Iter(ImageRecordIter):
    """`ImageRecordIter(..., dtype="int8")`, under MXNet's older name."""

    @signed_like(ImageRecordIter.__init__)
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, "dtype": "int8"})


def _part(records: str, index: str, chosen: DataPart) -> list[int]:
    """The offsets of one of equal parts: of the records by the index, or of the bytes of the file without one."""
    part, parts, of_workers = chosen
    if index:
        indexed = recordio.MXIndexedRecordIO(index, records, "r")
        offsets = sorted(indexed.idx.values())
        indexed.close()
        if of_workers:
            return offsets[chosen.slice(len(offsets))]
        size = -(-len(offsets) // parts)
        return offsets[part * size : (part + 1) * size]
    if of_workers:
        offsets = list(recordio.record_offsets(records))
        return offsets[chosen.slice(len(offsets))]
    size = -(-os.path.getsize(records) // parts)
    return [each for each in recordio.record_offsets(records) if part * size <= each < (part + 1) * size]


def _numpy_state(seed: int) -> dict[str, object]:
    return np.random.RandomState(seed).get_state(legacy=False)
