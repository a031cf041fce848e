"""ImageIter: batches of augmented images from a file of records, or from image files and a list of labels."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hybrid_lab import ndarray as nd
from hybrid_lab.data import recordio
from hybrid_lab.data.image_files import ImageError
from hybrid_lab.data.io import DataBatch, DataIter, positions
from hybrid_lab.data.io.parts import part_of
from hybrid_lab.diagnostics.errors import HybridLabError, ShapeError
from hybrid_lab.diagnostics.file_errors import reading
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.ndarray import NDArray

from .augmenting import Augmenter, CreateAugmenter
from .cropping import imdecode

_LAST = ("pad", "discard", "roll_over")


class ImageIter(DataIter):
    """Batches of images (batch, 3, height, width) and their labels.

    path_imgrec : a file of image records; path_imgidx : its index, which shuffling and parts need
    path_imglist : a file with lines "number TAB labels TAB path"; imglist : a list of [label, path]
    path_root : the folder of the paths
    label_width : labels of one image; dtype : of the labels
    part_index, num_parts : read one of equal parts; by default the part of this worker among the joined workers
    aug_list : augmenters; by default `CreateAugmenter(data_shape, **kwargs)`
    last_batch_handle : 'pad' fills the last batch with the first images, 'discard' leaves it out, 'roll_over' keeps
        its images for the next pass
    """

    def __init__(
        self,
        batch_size: int,
        data_shape: tuple[int, int, int],
        label_width: int = 1,
        path_imgrec: str | None = None,
        path_imglist: str | None = None,
        path_root: str | None = None,
        path_imgidx: str | None = None,
        shuffle: bool = False,
        part_index: int | None = None,
        num_parts: int | None = None,
        aug_list: Sequence[Augmenter] | None = None,
        imglist: list[Any] | None = None,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: str = "float32",
        last_batch_handle: str = "pad",
        **kwargs: Any,
    ) -> None:
        check_switches("ImageIter", shuffle=shuffle)
        super().__init__(batch_size)
        if not path_imgrec and not path_imglist and not isinstance(imglist, list):
            raise ValueError("an ImageIter needs path_imgrec, path_imglist or imglist")
        if last_batch_handle not in _LAST:
            raise ValueError(f"last_batch_handle is one of {', '.join(_LAST)}, not {last_batch_handle!r}")
        self.check_data_shape(data_shape)
        self.data_shape, self.label_width, self.shuffle = tuple(data_shape), label_width, shuffle
        self.path_root, self.last_batch_handle = path_root or "", last_batch_handle
        self.provide_data = [(data_name, (batch_size, *data_shape))]
        self.provide_label: list[tuple[str, tuple[int, ...]]] = [
            (label_name, (batch_size, label_width) if label_width > 1 else (batch_size,))
        ]
        self.imglist = (
            read_list(path_imglist, dtype) if path_imglist else None if imglist is None else as_table(imglist, dtype)
        )
        part = part_of(num_parts, part_index)
        self.imgrec: recordio.MXRecordIO | None = None
        self.seq: list[Any] | None = None if self.imglist is None else list(self.imglist)
        if path_imgrec and path_imgidx:
            self.imgrec = recordio.MXIndexedRecordIO(path_imgidx, path_imgrec, "r")
            self.seq = list(self.imgrec.keys)
        elif path_imgrec:
            self.imgrec, self.seq = recordio.MXRecordIO(path_imgrec, "r"), None
            if shuffle or part.parts > 1:
                workers = " (num_parts=1 lets every worker read all images)" if part.of_workers else ""
                raise ValueError(f"shuffle and num_parts need path_imgidx, the index of the file of records{workers}")
        if self.seq is not None and part.parts > 1:
            if not 0 <= part.number < part.parts:
                raise ValueError(f"part_index {part.number} is not one of 0 to {part.parts - 1}")
            size = len(self.seq) // part.parts
            own = slice(part.number * size, (part.number + 1) * size)
            self.seq = self.seq[part.slice(len(self.seq)) if part.of_workers else own]
        self.num_image = None if self.seq is None else len(self.seq)
        self.auglist = list(CreateAugmenter(data_shape, **kwargs) if aug_list is None else aug_list)
        self.cur = 0
        self.epoch = -1
        self._ended = False
        self._kept: tuple[list[np.ndarray], list[Any]] | None = None
        self.reset()

    def reset(self) -> None:
        """Start again at the first image, in a new order if shuffled; images kept by 'roll_over' stay."""
        if self.seq is not None and self.shuffle:
            random.shuffle(self.seq)
        if self.imgrec is not None:
            self.imgrec.reset()
        self.epoch += 1
        self.cur, self._ended = 0, False

    def get_state(self) -> dict[str, Any]:
        """Its position, as data: the epoch, the order of the images, the next images, and the images that 'roll_over'
        has kept.
        """
        kept = None if self._kept is None else ([*self._kept[0]], [np.asarray(each) for each in self._kept[1]])
        where = {"epoch": self.epoch, "cur": self.cur, "ended": self._ended, "kept": kept}
        return {**where, "seq": None if self.seq is None else list(self.seq)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to the position of `get_state`: the next batches are the batches that followed it.

        Raises HybridLabError for the state of another iterator; this one is as before then.
        """
        epoch, cur = positions.whole_numbers(state, ("epoch", "cur"))
        ended, kept, order = state.get("ended"), state.get("kept"), state.get("seq")
        if type(ended) is not bool or (order is None) is not (self.seq is None) or not self._may_keep(kept):
            raise HybridLabError("this is not a saved position of such an iterator over images")
        if self.seq is not None:
            order = positions.same_entries(order, self.seq)
            if cur > len(self.seq):
                raise HybridLabError(f"the iterator has {len(self.seq)} images, the saved position is behind {cur}")
        if self.imgrec is not None:
            self.imgrec.reset()
            for _ in range(cur if self.seq is None else 0):  # a file without an index is read up to there
                if self.imgrec.read() is None:
                    raise HybridLabError(f"the file has fewer records than {cur}, where the saved position is")
        self.seq, self.epoch, self.cur, self._ended = order, epoch, cur, ended
        self._kept = None if kept is None else ([*kept[0]], [*kept[1]])

    def _may_keep(self, kept: object) -> bool:
        """Whether these may be images and labels kept by 'roll_over'."""
        if kept is None:
            return True
        if not (isinstance(kept, (tuple, list)) and len(kept) == 2 and all(isinstance(each, list) for each in kept)):
            return False
        images, labels = kept
        arrays = all(isinstance(each, np.ndarray) for each in (*images, *labels))
        return arrays and len(images) == len(labels) < self.batch_size

    def hard_reset(self) -> None:
        """Start again, without the images kept by 'roll_over'."""
        self._kept = None
        self.reset()

    def next_sample(self) -> tuple[Any, bytes]:
        """The label and the bytes of the next image. Raises StopIteration after the last."""
        if self.seq is None:
            assert self.imgrec is not None
            record = self.imgrec.read()
            if record is None:
                raise StopIteration
            header, data = recordio.unpack(record)
            self.cur += 1
            return header.label, data
        if self.cur >= len(self.seq):
            raise StopIteration
        key = self.seq[self.cur]
        self.cur += 1
        if isinstance(self.imgrec, recordio.MXIndexedRecordIO):
            header, data = recordio.unpack(self.imgrec.read_idx(key) or b"")
            return (header.label if self.imglist is None else self.imglist[key][0]), data
        assert self.imglist is not None
        label, name = self.imglist[key]
        return label, self.read_image(name)

    def next(self) -> DataBatch:
        """The next batch."""
        if self._ended:
            raise StopIteration
        images, labels = self._kept or ([], [])
        self._kept = None
        self._read(images, labels)
        pad = self.batch_size - len(images)
        if not images or (pad and self.last_batch_handle == "discard"):
            self._ended = True
            raise StopIteration
        if pad:
            self._ended = True
            if self.last_batch_handle == "roll_over":
                self._kept = images, labels
                raise StopIteration
            while len(images) < self.batch_size:
                if self.imgrec is not None:
                    self.imgrec.reset()
                self.cur, before = 0, len(images)
                self._read(images, labels)
                if len(images) == before:
                    raise ImageError("no image is left to fill the last batch: the augmenters leave all of them out")
        shape = self.provide_label[0][1]
        label = np.stack([np.asarray(each, "float32").reshape(shape[1:]) for each in labels])
        return DataBatch([nd.array(np.stack(images))], [nd.array(label)], pad=pad)

    def _read(self, images: list[np.ndarray], labels: list[Any]) -> None:
        """Add images and labels up to a batch, or to the end of the data."""
        while len(images) < self.batch_size:
            try:
                label, data = self.next_sample()
            except StopIteration:
                return
            images.append(self.finished(self.augmentation_transform(self.imdecode(data))))
            labels.append(label)

    def finished(self, image: NDArray) -> np.ndarray:
        """An augmented image as it stands in a batch. Raises ShapeError for another shape than `data_shape`."""
        pixels = self.postprocess_data(image).asnumpy()
        if pixels.shape != self.data_shape:
            raise ShapeError(
                f"image {self._name()} has the shape {pixels.shape} after the augmenters; data_shape is "
                f"{self.data_shape}. ForceResizeAug(({self.data_shape[2]}, {self.data_shape[1]})) makes it so"
            )
        return pixels

    def _name(self) -> object:
        """The path or the number of the image that was read last."""
        key = self.cur - 1 if self.seq is None else self.seq[self.cur - 1]
        return key if self.imglist is None else self.imglist[key][1]

    def check_data_shape(self, data_shape: Sequence[int]) -> None:
        """Raises ValueError for another shape than (3, height, width)."""
        if len(data_shape) != 3 or data_shape[0] != 3:
            raise ValueError(f"data_shape is (3, height, width), not {tuple(data_shape)}")

    def imdecode(self, s: bytes) -> NDArray:
        """The image in bytes. Raises ImageError that names the image."""
        try:
            return imdecode(s)
        except ImageError as error:
            raise ImageError(f"image {self._name()}: {error}") from None

    def read_image(self, fname: str) -> bytes:
        """The bytes of an image file in `path_root`. Raises FileError."""
        path = os.path.join(self.path_root, fname)
        with reading(path), open(path, "rb") as stream:
            return stream.read()

    def augmentation_transform(self, data: NDArray) -> NDArray:
        """The augmented image."""
        for each in self.auglist:
            data = each(data)
        return data

    def postprocess_data(self, datum: NDArray) -> NDArray:
        """(height, width, channels) as (channels, height, width)."""
        return nd.transpose(datum, axes=(2, 0, 1))


def read_list(path: str, dtype: str) -> dict[Any, tuple[np.ndarray, str]]:
    """The labels and paths of a file with lines "number TAB labels TAB path", by number. Raises FileError."""
    table: dict[Any, tuple[np.ndarray, str]] = {}
    with reading(path), open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            parts = line.strip().split("\t")
            try:
                table[int(parts[0])] = np.array([float(each) for each in parts[1:-1]], dtype), parts[-1]
            except ValueError:
                raise ValueError(f"{path}, line {number} is not a number, labels and a path") from None
    return table


def as_table(entries: Sequence[Sequence[Any]], dtype: str) -> dict[Any, tuple[np.ndarray, str]]:
    """The labels and paths of a list of [label, ..., path], by number as text."""
    table: dict[Any, tuple[np.ndarray, str]] = {}
    for number, (*labels, path) in enumerate(entries, 1):
        values = labels[0] if len(labels) == 1 else labels
        table[str(number)] = np.asarray(values, dtype).reshape(-1), path
    return table
