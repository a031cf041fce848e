"""Functions on images as NDArrays (height, width, channels): decode, resize, crop, rotate.

Random sizes and places come from Python's `random`, as in MXNet: with the same seed they are the same.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Sequence
from os import PathLike
from typing import Literal, TypeAlias

import numpy as np

from hybrid_lab import ndarray as nd
from hybrid_lab.data import image_files
from hybrid_lab.data.image_files import ImageError
from hybrid_lab.diagnostics import DTypeError, ShapeError
from hybrid_lab.diagnostics.file_errors import reading
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.numpy_mode import in_mode
from hybrid_lab.ops.kernels import opencv

#: x, y, width and height of a part of an image.
Box: TypeAlias = tuple[int, int, int, int]
_Border: TypeAlias = Literal["constant", "symmetric", "reflect", "edge", "wrap"]
_BORDERS: tuple[_Border, ...] = ("constant", "edge", "symmetric", "wrap", "reflect")


def imdecode(
    buf: bytes | bytearray | np.ndarray | NDArray, flag: int = 1, to_rgb: bool | int = True, out: NDArray | None = None
) -> NDArray:
    """The image in the bytes of a file, uint8.

    flag : 1 for color (height, width, 3), 0 for gray (height, width, 1)
    to_rgb : channels as red, green, blue; else as blue, green, red
    Raises ImageError for bytes that are not an image.
    """
    check_switches("imdecode", to_rgb=to_rgb)
    if isinstance(buf, NDArray):
        buf = buf.asnumpy()
    elif not isinstance(buf, (bytes, bytearray, np.ndarray)):
        raise ValueError(f"the bytes of an image are bytes, a bytearray or an array, not {type(buf).__name__}")
    image = image_files.decode(bytes(buf), color=bool(flag))
    if flag and not to_rgb:
        image = np.ascontiguousarray(image[:, :, ::-1])
    return _result(image, out)


def imread(
    filename: str | PathLike[str], flag: int = 1, to_rgb: bool | int = True, out: NDArray | None = None
) -> NDArray:
    """The image in a file; see `imdecode`. Raises FileError, as MissingFileError for a file that is not there, and
    ImageError for one without an image.
    """
    check_switches("imread", to_rgb=to_rgb)
    with reading(filename), open(filename, "rb") as stream:
        data = stream.read()
    try:
        return imdecode(data, flag, to_rgb, out)
    except ImageError as error:
        raise ImageError(f"{os.fspath(filename)}: {error}") from None


def imresize(src: NDArray, w: int, h: int, interp: int = 1, out: NDArray | None = None) -> NDArray:
    """An image in another size.

    interp : 0 nearest, 1 bilinear, 2 bicubic, 3 area, 4 Lanczos; 9 chooses by the sizes, 10 by chance
    """
    image = host(src)
    if w < 1 or h < 1:
        raise ShapeError(f"an image cannot be resized to a width of {w} and a height of {h}")
    method = choose_interp(interp, (*image.shape[:2], h, w))
    return _result(opencv.resize(image, int(w), int(h), method), out)


def choose_interp(interp: int, sizes: Sequence[int] = ()) -> int:
    """The interpolation of 0 to 4 that `interp` means.

    sizes : old height and width, new height and width
    """
    if interp == 9:
        if not sizes:
            return opencv.CUBIC
        old_height, old_width, height, width = sizes
        if height > old_height and width > old_width:
            return opencv.CUBIC
        return opencv.AREA if height < old_height and width < old_width else opencv.LINEAR
    if interp == 10:
        return random.randint(0, 4)
    if interp not in range(5):
        raise ImageError(f"the interpolation of an image is 0 to 4, 9 or 10, not {interp!r}")
    return interp


def copyMakeBorder(
    src: NDArray,
    top: int,
    bot: int,
    left: int,
    right: int,
    type: int = 0,
    value: float = 0.0,
    values: Sequence[float] = (),
    out: NDArray | None = None,
) -> NDArray:
    """An image with pixels added on its sides.

    type : 0 the given values, 1 the edge, 2 the mirrored image, 3 the image again, 4 mirrored without its edge
    values : one per channel; value : one for all
    """
    image = host(src)
    if type not in range(len(_BORDERS)):
        raise ValueError(f"the type of a border is 0 to 4, not {type!r}")
    sides = ((top, bot), (left, right))
    if type:
        return _result(np.pad(image, (*sides, (0, 0)), mode=_BORDERS[type]), out)
    fill = np.zeros(image.shape[2]) + (np.asarray(values)[: image.shape[2]] if len(values) else value)
    channels = [np.pad(image[:, :, i], sides, constant_values=each) for i, each in enumerate(fill)]
    return _result(np.stack(channels, 2), out)


def scale_down(src_size: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
    """A size (width, height) made to fit into `src_size`; the ratio of the sides stays."""
    width, height = float(size[0]), float(size[1])
    if src_size[1] < height:
        width, height = width * src_size[1] / height, src_size[1]
    if src_size[0] < width:
        width, height = src_size[0], height * src_size[0] / width
    return int(width), int(height)


def resize_short(src: NDArray, size: int, interp: int = 2) -> NDArray:
    """An image whose shorter side is `size`; the ratio of the sides stays."""
    height, width = src.shape[:2]
    if height > width:
        return imresize(src, size, size * height // width, interp)
    return imresize(src, size * width // height, size, interp)


def fixed_crop(
    src: NDArray, x0: int, y0: int, w: int, h: int, size: tuple[int, int] | None = None, interp: int = 2
) -> NDArray:
    """A part of an image, resized to `size` (width, height) if given."""
    part = src[y0 : y0 + h, x0 : x0 + w]
    return part if size is None or (w, h) == tuple(size) else imresize(part, size[0], size[1], interp)


def random_crop(src: NDArray, size: tuple[int, int], interp: int = 2) -> tuple[NDArray, Box]:
    """A part (width, height) at a random place, resized to `size` if the image is smaller; and the part's box."""
    height, width = src.shape[:2]
    w, h = scale_down((width, height), size)
    x0 = random.randint(0, width - w)
    y0 = random.randint(0, height - h)
    return fixed_crop(src, x0, y0, w, h, size, interp), (x0, y0, w, h)


def center_crop(src: NDArray, size: tuple[int, int], interp: int = 2) -> tuple[NDArray, Box]:
    """The middle part (width, height), resized to `size` if the image is smaller; and the part's box."""
    height, width = src.shape[:2]
    w, h = scale_down((width, height), size)
    x0, y0 = (width - w) // 2, (height - h) // 2
    return fixed_crop(src, x0, y0, w, h, size, interp), (x0, y0, w, h)


def random_size_crop(
    src: NDArray,
    size: tuple[int, int],
    area: float | tuple[float, float],
    ratio: tuple[float, float],
    interp: int = 2,
) -> tuple[NDArray, Box]:
    """A part of random area, ratio of sides and place, resized to `size` (width, height), and where it was.

    area : the least part of the image's area, or the least and the most; ratio : least and most width / height
    After ten tries that do not fit into the image it is the middle part.
    """
    height, width = src.shape[:2]
    least, most = area if isinstance(area, tuple | list) else (area, 1.0)
    for _ in range(10):
        target = random.uniform(least, most) * height * width
        sides = math.exp(random.uniform(math.log(ratio[0]), math.log(ratio[1])))
        w, h = round(math.sqrt(target * sides)), round(math.sqrt(target / sides))
        if w <= width and h <= height:
            x0 = random.randint(0, width - w)
            y0 = random.randint(0, height - h)
            return fixed_crop(src, x0, y0, w, h, size, interp), (x0, y0, w, h)
    return center_crop(src, size, interp)


def color_normalize(src: NDArray, mean: NDArray | float | None, std: NDArray | float | None = None) -> NDArray:
    """(src - mean) / std, in place."""
    if mean is not None:
        src -= mean
    if std is not None:
        src /= std
    return src


def imrotate(src: NDArray, rotation_degrees: float | NDArray, zoom_in: bool = False, zoom_out: bool = False) -> NDArray:
    """Images turned around their center, float32 (channels, height, width), with or without a batch axis.

    rotation_degrees : a number, or one for each image of a batch
    zoom_in : enlarge until no corner is empty; zoom_out : shrink until nothing is cut off
    """
    check_switches("imrotate", zoom_in=zoom_in, zoom_out=zoom_out)
    if zoom_in and zoom_out:
        raise ValueError("zoom_in and zoom_out exclude each other")
    if src.dtype != np.float32:
        raise _NotFloat32(f"imrotate takes float32 images, not {np.dtype(src.dtype)}; use ToTensor first")
    if src.ndim == 3:
        if isinstance(rotation_degrees, NDArray):
            raise TypeError("the angle of one image is a number")
        return imrotate(src.expand_dims(0), rotation_degrees, zoom_in, zoom_out)[0]
    if src.ndim != 4:
        raise ValueError(f"imrotate takes images of 3 dimensions or batches of 4, not {src.shape}")
    given = rotation_degrees.asnumpy() if isinstance(rotation_degrees, NDArray) else rotation_degrees
    if np.ndim(given) and len(given) != len(src):  # type: ignore[arg-type]
        raise ValueError(f"{len(src)} images need {len(src)} angles")
    angles = np.radians(np.broadcast_to(np.asarray(given, "float32"), len(src)))[:, None, None]
    height, width = src.shape[2:]
    half_height, half_width = (height - 1) / 2, (width - 1) / 2
    rows = np.arange(height)[:, None] - half_height
    columns = np.arange(width)[None] - half_width
    grid = np.stack([
        (columns * np.cos(angles) - rows * np.sin(angles)) / half_width,
        (columns * np.sin(angles) + rows * np.cos(angles)) / half_height,
    ], 1)  # fmt: skip
    if zoom_in or zoom_out:
        grid = grid * _zoom(height, width, np.abs(angles), zoom_out)[:, None]
    return nd.BilinearSampler(src, nd.array(grid, dtype="float32"))


class _NotFloat32(DTypeError, TypeError):
    """An image of another dtype, as MXNet's TypeError."""


def _zoom(height: int, width: int, angles: np.ndarray, out: bool) -> np.ndarray:
    """The factor by which the turned image's corners stand out of the image, or its edges within."""
    radius, corner = math.hypot(height, width), math.atan(height / width)
    most_x = np.maximum(np.abs(np.cos(corner + angles)), np.abs(np.cos(corner - angles))) * radius
    most_y = np.maximum(np.abs(np.sin(corner + angles)), np.abs(np.sin(corner - angles))) * radius
    if out:
        return np.asarray(np.maximum(most_x / width, most_y / height))
    return np.asarray(np.minimum(width / most_x, height / most_y))


def random_rotate(
    src: NDArray, angle_limits: tuple[float, float], zoom_in: bool = False, zoom_out: bool = False
) -> NDArray:
    """Images turned by random angles between two limits in degrees, from `np.random`; see `imrotate`."""
    check_switches("random_rotate", zoom_in=zoom_in, zoom_out=zoom_out)
    if src.ndim == 3:
        return imrotate(src, np.random.uniform(*angle_limits), zoom_in, zoom_out)
    return imrotate(src, nd.array(np.random.uniform(*angle_limits, size=len(src))), zoom_in, zoom_out)


def host(image: NDArray | np.ndarray) -> np.ndarray:
    """The values of an image. Raises ShapeError for another shape than (height, width, channels)."""
    values: np.ndarray = image.raw() if isinstance(image, NDArray) else np.asarray(image)
    if values.ndim != 3 or 0 in values.shape:
        raise ShapeError(f"an image has the shape (height, width, channels), not {values.shape}")
    return values


def _result(values: np.ndarray, out: NDArray | None) -> NDArray:
    made = in_mode(nd.array(values, dtype=values.dtype))
    if out is None:
        return made
    out[:] = made
    return out
