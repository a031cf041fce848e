"""Operators on images (height, width, channels) or batches of them, as data sets give them: nd.image.*."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError
from hybrid_lab.ops.framework import Operator, into, sample
from hybrid_lab.ops.framework.lowering import differentiate_lowering, emit_lowering, run_lowering
from hybrid_lab.ops.framework.protocols import Functions, OnnxGraph, Tensor
from hybrid_lab.ops.framework.types import Array, Shape
from hybrid_lab.ops.kernels import opencv, philox

Key = tuple[int, int]


def check_image(op: Operator, data: Shape) -> None:
    """Raise ShapeError unless data is an image or a batch of images with the channels last."""
    if len(data) not in (3, 4):
        raise ShapeError(f"{op.name}: data has shape {data}; (height, width, channels) or a batch of these is needed")


class ToTensor(Operator, name="_image_to_tensor"):
    """Images as networks take them: channels first, divided by 255. No gradient.

    data : (h, w, c) or (n, h, w, c), of any dtype; returns : (c, h, w) or (n, c, h, w), float32
    """

    numpy = run_lowering
    onnx = emit_lowering
    samples = [sample((4, 5, 3), gradient=False), sample((2, 3, 2, 1), dtype="uint8", high=240, gradient=False)]

    def infer_shape(self, data: Shape) -> Shape:
        check_image(self, data)
        return (*data[:-3], data[-1], *data[-3:-1])

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        return np.dtype("float32")

    def lower(self, F: Functions, data: Tensor) -> Tensor:
        order = (2, 0, 1) if len(data.shape) == 3 else (0, 3, 1, 2)
        return F.transpose(F.Cast(data, dtype="float32"), axes=order) / 255.0


class Normalize(Operator, name="_image_normalize"):
    """(data - mean) / std for every channel.

    data : (c, h, w) or (n, c, h, w), floating, 1 or 3 channels; mean, std : a number for all channels or one for each
    returns : as data
    """

    dtype_kinds = "f"
    mean: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0)
    samples = [
        sample((3, 4, 5), mean=(0.1, 0.2, 0.3), std=(0.5, 2.0, 0.25)),
        sample((2, 1, 3, 2), mean=0.5, std=0.5),
    ]

    def check(self) -> None:
        if not self.mean or not self.std or not all(self.std):
            raise AttributeSpecError(f"image.normalize: mean={self.mean} and std={self.std}; std must not be 0")

    def infer_shape(self, data: Shape) -> Shape:
        if len(data) not in (3, 4) or data[-3] not in (1, 3):
            raise ShapeError(f"image.normalize: data has shape {data}; (c, h, w) is needed with 1 or 3 channels")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) != 1 and len(values) < data[-3]:
                raise ShapeError(
                    f"image.normalize: {name}={values} needs one number, or one for each channel of {data}"
                )
        return data

    def _numbers(self, shape: Shape, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of every channel: (c, 1, 1) each."""
        channels = shape[-3]
        mean, std = (
            np.resize(np.array(values if len(values) == 1 else values[:channels], dtype), (channels, 1, 1))
            for values in (self.mean, self.std)
        )
        return mean, std

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        mean, std = self._numbers(data.shape, data.dtype)
        return into((data - mean) / std, out)

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F._image_normalize(dy, mean=(0.0,), std=self.std)

    def onnx(self, g: OnnxGraph, data: str) -> str:
        dtype = g.dtype(data)
        mean, std = self._numbers(g.shape(data), dtype)
        return g.Div(g.Sub(data, g.const(mean, dtype)), g.const(std, dtype))


class ImageCrop(Operator, name="_image_crop"):
    """A part of images. x, y : its left and upper edge; data : (h, w, c) or (n, h, w, c)
    returns : (height, width, c), or a batch
    """

    x: int
    y: int
    width: int
    height: int
    numpy, grad, onnx = run_lowering, differentiate_lowering, emit_lowering
    samples = [sample((4, 5, 3), x=1, y=2, width=3, height=2), sample((2, 3, 4, 1), x=0, y=1, width=4, height=1)]

    def check(self) -> None:
        if min(self.x, self.y) < 0 or min(self.width, self.height) < 1:
            raise AttributeSpecError(
                f"image.crop: x={self.x} and y={self.y} must be at least 0, width={self.width} and "
                f"height={self.height} at least 1"
            )

    def infer_shape(self, data: Shape) -> Shape:
        check_image(self, data)
        if self.y + self.height > data[-3] or self.x + self.width > data[-2]:
            raise ShapeError(f"image.crop: {self!r} does not fit into an image of {data[-3]} x {data[-2]} pixels")
        return (*data[:-3], self.height, self.width, data[-1])

    def lower(self, F: Functions, data: Tensor) -> Tensor:
        rows = F.slice_axis(data, axis=-3, begin=self.y, end=self.y + self.height)
        return F.slice_axis(rows, axis=-2, begin=self.x, end=self.x + self.width)


class ImageResize(Operator, name="_image_resize"):
    """Images in another size, with the numbers of OpenCV. No gradient.

    data : (h, w, c) or (n, h, w, c), uint8 or floating; size : (width, height), or one number for both, which with
    keep_ratio is the shorter edge; interp : 0 nearest, 1 bilinear, 2 bicubic, 3 area, 4 Lanczos
    returns : (height, width, c), or a batch
    """

    size: Shape = ()
    keep_ratio: bool = False
    interp: int = 1
    samples = [
        sample((4, 5, 3), size=(3, 6), gradient=False),
        sample((2, 4, 6, 1), size=2, keep_ratio=True, gradient=False),
        sample((6, 5, 3), size=3, dtype="uint8", high=240, gradient=False),
    ]

    def check(self) -> None:
        if len(self.size) not in (1, 2) or min(self.size) < 1 or not 0 <= self.interp <= 4:
            raise AttributeSpecError(
                f"image.resize: size={self.size} must be one or two positive numbers, interp={self.interp} 0 to 4"
            )

    def infer_shape(self, data: Shape) -> Shape:
        check_image(self, data)
        height, width = data[-3:-1]
        if not height * width:
            raise ShapeError(f"image.resize: data {data} has no pixels")
        target = self.size[-1], self.size[0]
        if len(self.size) == 1 and self.keep_ratio:
            short = self.size[0]
            target = (height * short // width, short) if height > width else (short, width * short // height)
        return (*data[:-3], *target, data[-1])

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        shape = self.infer_shape(data.shape)
        images = data.reshape(-1, *data.shape[-3:]) if data.size else ()
        made = [opencv.resize(image, shape[-2], shape[-3], self.interp) for image in images]
        result = np.stack(made) if made else np.empty(0)
        return into(result.reshape(shape), out, data.dtype)


class _Flip(Operator):
    """Base of the flips. axis : the axis that is turned around, counted from the end"""

    numpy, onnx = run_lowering, emit_lowering
    axis: ClassVar[int]
    samples = [sample((3, 4, 3)), sample((2, 3, 2, 1), gradient=False), sample((2, 4, 1), gradient=False)]

    def infer_shape(self, data: Shape) -> Shape:
        check_image(self, data)
        return data

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        turned: Tensor = getattr(F, self.name)(dy)
        return turned

    def lower(self, F: Functions, data: Tensor) -> Tensor:
        return F.reverse(data, axis=len(data.shape) + self.axis)


class FlipLeftRight(_Flip, name="_image_flip_left_right"):
    """Left and right exchanged. data : (h, w, c) or (n, h, w, c); returns : as data."""

    axis = -2


class FlipTopBottom(_Flip, name="_image_flip_top_bottom"):
    """Top and bottom exchanged. data : (h, w, c) or (n, h, w, c); returns : as data."""

    axis = -3


class _RandomFlip(Operator):
    """Base of the flips with a probability of p, the same for all images of a batch. They have no gradient."""

    random = True
    refuses_gradient = True
    axis: ClassVar[int]
    p: float = 0.5
    samples = [sample((3, 4, 3), gradient=False), sample((2, 3, 2, 1), p=1.0, gradient=False)]

    def check(self) -> None:
        if not 0 <= self.p <= 1:
            raise AttributeSpecError(f"{self.name}: p={self.p} must be a probability")

    def infer_shape(self, data: Shape) -> Shape:
        check_image(self, data)
        return data

    def numpy(self, data: Array, out: Array | None = None, rng: Key | None = None) -> Array:
        turned = philox.uniform(*(rng or (0, 0)), 1, "float64")[0] < self.p
        return into(np.flip(data, self.axis).copy() if turned else data.copy(), out)


class RandomFlipLeftRight(_RandomFlip, name="_image_random_flip_left_right"):
    """Left and right exchanged with a probability of p. data : (h, w, c) or (n, h, w, c); returns : as data."""

    axis = -2


class RandomFlipTopBottom(_RandomFlip, name="_image_random_flip_top_bottom"):
    """Top and bottom exchanged with a probability of p. data : (h, w, c) or (n, h, w, c); returns : as data."""

    axis = -3
