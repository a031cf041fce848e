"""ImageDetIter: batches of augmented images and of the objects in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError, SettingError
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ops.kernels.opencv import opencv
from hybrid_lab.system.logger import logger

from .augmenting import MEAN, STD
from .detection import CreateDetAugmenter, DetAugmenter, is_box
from .iterating import ImageIter

#: The numbers of an image's label.
Label: TypeAlias = NDArray | np.ndarray | Sequence[float]

_LEAST = 5
"""Numbers of an object: its class and its box."""


class LabelError(HybridLabError, RuntimeError):
    """The label of an image that does not list objects."""


class ImageDetIter(ImageIter):
    """Batches of images (batch, 3, height, width) and of their objects (batch, objects, width of an object).

    The label of an image is a list of numbers: how many numbers come before the first object (2 or more, these two
    included), how many numbers an object has (5 or more), what else there is; then for each object its class and its
    box: left, top, right, bottom, as fractions of the image. Objects that an image lacks are rows of -1 in a batch.

    aug_list : augmenters for detection; by default `CreateDetAugmenter(data_shape, **kwargs)`
    The remaining arguments are ImageIter's. Raises LabelError for a label of another form. Images of which the
    augmenters leave no object are left out.
    """

    def __init__(
        self,
        batch_size: int,
        data_shape: tuple[int, int, int],
        path_imgrec: str | None = None,
        path_imglist: str | None = None,
        path_root: str | None = None,
        path_imgidx: str | None = None,
        shuffle: bool = False,
        part_index: int | None = None,
        num_parts: int | None = None,
        aug_list: Sequence[DetAugmenter] | None = None,
        imglist: list[Any] | None = None,
        data_name: str = "data",
        label_name: str = "label",
        last_batch_handle: str = "pad",
        **kwargs: Any,
    ) -> None:
        check_switches("ImageDetIter", shuffle=shuffle)
        super().__init__(
            batch_size,
            data_shape,
            path_imgrec=path_imgrec,
            path_imglist=path_imglist,
            path_root=path_root,
            path_imgidx=path_imgidx,
            shuffle=shuffle,
            part_index=part_index,
            num_parts=num_parts,
            aug_list=[],
            imglist=imglist,
            data_name=data_name,
            last_batch_handle=last_batch_handle,
        )
        self.auglist: list[Any] = list(CreateDetAugmenter(data_shape, **kwargs) if aug_list is None else aug_list)
        shapes = [self._objects(label).shape for label in self._labels()]
        if not shapes:
            raise LabelError("there are no images")
        if len({width for _, width in shapes}) > 1:
            raise LabelError(f"the objects of one image have {shapes[0][1]} numbers each, the objects of others do not")
        self.label_shape = max(count for count, _ in shapes), shapes[0][1]
        self.provide_label = [(label_name, (batch_size, *self.label_shape))]

    def _labels(self) -> Iterator[Label]:
        """The label of every image."""
        self.reset()
        if self.imglist is not None and self.seq is not None:
            for key in self.seq:
                self.cur += 1
                yield self.imglist[key][0]
        else:
            while (label := self._next_label()) is not None:
                yield label
        self.reset()

    def _next_label(self) -> Label | None:
        """The label of the next image, or None after the last."""
        try:
            return self.next_sample()[0]
        except StopIteration:
            return None

    def _objects(self, label: Label) -> np.ndarray:
        """The objects of the image that was read last. Raises LabelError that names the image."""
        try:
            return objects_of(label)
        except LabelError as error:
            raise LabelError(f"image {self._name()}: {error}") from None

    def _read(self, images: list[np.ndarray], labels: list[Any]) -> None:
        for image, objects in self._augmented():
            images.append(self.finished(image))
            labels.append(self._padded(objects))
            if len(images) == self.batch_size:
                return

    def _padded(self, objects: np.ndarray) -> np.ndarray:
        """The objects with rows of -1 behind them, as many as labels have."""
        label = np.full(self.label_shape, -1, "float32")
        label[: len(objects)] = objects
        return label

    def _augmented(self) -> Iterator[tuple[NDArray, np.ndarray]]:
        """The images that are left with their objects."""
        while True:
            try:
                label, data = self.next_sample()
            except StopIteration:
                return
            image, objects = self.imdecode(data), self._objects(label)
            image, objects = self.augmentation_transform(image, objects)
            if (is_box(objects) & (objects[:, 0] >= 0)).any():
                yield image, objects
            else:
                logger.debug(f"image {self._name()} is left out: the augmenters left no object")

    def augmentation_transform(  # type: ignore[override]
        self, data: NDArray, label: np.ndarray
    ) -> tuple[NDArray, np.ndarray]:
        """The augmented image and its objects."""
        for each in self.auglist:
            data, label = each(data, label)
        return data, label

    def reshape(
        self, data_shape: tuple[int, int, int] | None = None, label_shape: tuple[int, int] | None = None
    ) -> None:
        """Give batches of images or labels of another shape.

        data_shape : (3, height, width); the augmenters must make such images
        label_shape : (objects, width of an object), at least as many objects as before
        """
        if data_shape is not None:
            self.check_data_shape(data_shape)
            self.provide_data = [(self.provide_data[0][0], (self.batch_size, *data_shape))]
            self.data_shape = tuple(data_shape)
        if label_shape is not None:
            self.check_label_shape(label_shape)
            self.provide_label = [(self.provide_label[0][0], (self.batch_size, *label_shape))]
            self.label_shape = (label_shape[0], label_shape[1])
            if self._kept is not None:
                images, labels = self._kept
                self._kept = images, [self._padded(label) for label in labels]

    def check_label_shape(self, label_shape: Sequence[int]) -> None:
        """Raises ValueError for fewer objects than before, and for objects of another width."""
        count, width = self.label_shape
        if len(label_shape) != 2 or label_shape[0] < count or label_shape[1] != width:
            raise ValueError(f"label_shape must be ({count} or more, {width}), not {tuple(label_shape)}")

    def sync_label_shape(self, it: ImageDetIter, verbose: bool = False) -> ImageDetIter:
        """Give the labels of this iterator and of another one the same shape; returns the other.

        verbose : log the shape if it changes
        """
        check_switches("ImageDetIter.sync_label_shape", verbose=verbose)
        if not isinstance(it, ImageDetIter):
            raise TypeError(f"sync_label_shape needs another ImageDetIter, not {it!r:.60}")
        wanted = max(self.label_shape[0], it.label_shape[0]), self.label_shape[1]
        if verbose and self.label_shape != it.label_shape:
            logger.info(f"labels have the shape {wanted} now")
        it.reshape(label_shape=wanted)
        self.reshape(label_shape=wanted)
        return it

    def draw_next(
        self,
        color: Sequence[int] | None = None,
        thickness: int = 2,
        mean: np.ndarray | bool | None = None,
        std: np.ndarray | bool | None = None,
        clip: bool = True,
        waitKey: int | None = None,
        window_name: str = "draw_next",
        id2labels: Mapping[int, str] | None = None,
    ) -> Iterator[np.ndarray]:
        """The augmented images with their boxes drawn: uint8 (height, width, 3), blue first as in OpenCV.

        color : red, green, blue; default: a random one for each box; thickness : of the lines, in pixels
        mean, std : the numbers with which the augmenters normalize, True for ImageNet's; the normalization is undone
        clip : cut colours off at 0 and 255; id2labels : class -> a name to write into the box
        waitKey, window_name : settings of the window that MXNet opens. No window is opened here: waitKey must be None
        """
        check_switches("ImageDetIter.draw_next", clip=clip)
        if waitKey is not None:
            raise SettingError("draw_next shows no window: leave out waitKey and show the images that it yields")
        for image, objects in self._augmented():
            pixels = image.asnumpy().astype("float32")
            pixels = pixels * (1 if std is None else STD if std is True else std)
            pixels = pixels + (0 if mean is None else MEAN if mean is True else mean)
            pixels = pixels.clip(0, 255) if clip else pixels
            yield _drawn(pixels.astype(np.uint8), objects, color, thickness, id2labels or {})


def objects_of(label: Label) -> np.ndarray:
    """The objects with a box of some area in the label of an image: float32 (objects, width of an object).

    Raises LabelError for another form of label.
    """
    numbers = np.asarray(label.asnumpy() if isinstance(label, NDArray) else label, "float32").ravel()
    if len(numbers) < 2 + _LEAST:
        raise LabelError(f"a label for detection has at least {2 + _LEAST} numbers, not {len(numbers)}")
    start, width = int(numbers[0]), int(numbers[1])
    if start < 2 or width < _LEAST or (len(numbers) - start) % width:
        raise LabelError(
            f"a label begins with the place of its first object and the numbers of an object, at least 2 and {_LEAST}; "
            f"{start} and {width} do not fit {len(numbers)} numbers"
        )
    objects = numbers[start:].reshape(-1, width)
    objects = objects[is_box(objects)]
    if not len(objects):
        raise LabelError("a label for detection needs an object with left < right and top < bottom")
    return objects


def _drawn(
    pixels: np.ndarray,
    objects: np.ndarray,
    color: Sequence[int] | None,
    thickness: int,
    names: Mapping[int, str],
) -> np.ndarray:
    """The image with its boxes, blue first."""
    cv2 = opencv()
    height, width = pixels.shape[:2]
    canvas = np.ascontiguousarray(pixels[:, :, ::-1])
    for number, left, top, right, bottom in objects[objects[:, 1] >= 0, :5]:
        corners = int(left * width), int(top * height), int(right * width), int(bottom * height)
        shade = tuple(int(x) for x in (np.random.rand(3) * 255 if color is None else color))
        cv2.rectangle(canvas, corners[:2], corners[2:], shade[::-1], thickness)
        if int(number) in names:
            place = corners[0] + 5, corners[1] + 5
            cv2.putText(canvas, names[int(number)], place, cv2.FONT_HERSHEY_SIMPLEX, 0.5, (255, 255, 255), 1)
    return canvas
