"""Bytes of image files to arrays and back, through Pillow, with the numbers that MXNet gives.

Pillow is an optional package; it is loaded when an image is read or written. An orientation that a camera wrote into
the file is ignored, as MXNet does.
"""

from __future__ import annotations

import io
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from hybrid_lab.diagnostics import HybridLabError

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["ImageError", "channels", "decode", "encode"]

#: libpng's weights of red, green and blue in gray, in 1/32768; OpenCV's for other files, in 1/16384.
_PNG_GRAY = np.array([9797, 19234, 3737])
_OTHER_GRAY = np.array([4899, 9617, 1868])


class ImageError(HybridLabError, ValueError):
    """Bytes that are no image, an image of an unusable form, or a missing package for images."""


def decode(data: bytes, color: bool = True) -> np.ndarray:
    """An image as uint8 (height, width, 3) in red, green, blue, or (height, width, 1) in gray; transparency is dropped.

    Raises ImageError for bytes that are not an image.
    """
    pillow = _pillow()
    if not data:
        raise ImageError("an image of 0 bytes cannot be decoded")
    try:
        with pillow.open(io.BytesIO(data)) as image:
            return _color(image) if color else _gray(image)
    except (OSError, SyntaxError, ValueError) as error:  # Pillow raises SyntaxError for some damaged files
        if isinstance(error, ImageError):
            raise
        raise ImageError(f"{len(data)} bytes cannot be decoded as an image: {error}") from None


def channels(data: bytes) -> int:
    """1 for an image in gray, else 3. Raises ImageError for bytes that are not an image."""
    try:
        with _pillow().open(io.BytesIO(data)) as image:
            return 1 if image.mode in ("1", "L", "LA") or image.mode.startswith("I") else 3
    except OSError as error:
        raise ImageError(f"{len(data)} bytes cannot be decoded as an image: {error}") from None


def _color(image: Image) -> np.ndarray:
    if image.mode.startswith("I"):  # 16 bits: the upper eight count
        return np.repeat(_upper_bits(image), 3, axis=2)
    return np.array(image.convert("RGB"))


def _gray(image: Image) -> np.ndarray:
    if image.mode.startswith("I"):
        return _upper_bits(image)
    if image.format == "JPEG":
        image.draft("L", image.size)  # a JPEG stores brightness; decode that alone
    if image.mode == "L":
        return np.array(image)[:, :, None]
    values = np.asarray(image.convert("RGB")).astype("int32")
    gray = values @ _PNG_GRAY >> 15 if image.format == "PNG" else values @ _OTHER_GRAY + 8192 >> 14
    return gray.astype("uint8")[:, :, None]


def _upper_bits(image: Image) -> np.ndarray:
    return (np.asarray(image).astype("uint16") >> 8).astype("uint8")[:, :, None]


def encode(image: np.ndarray, quality: int, img_fmt: str) -> bytes:
    """The bytes of an image file.

    image : uint8, (height, width, 3) in red, green, blue, or gray as (height, width) or (height, width, 1)
    quality : of a JPEG, 1 to 100; of a PNG its compression, 0 to 9
    img_fmt : '.jpg', '.jpeg' or '.png'
    """
    if image.ndim == 3 and image.shape[2] == 1:
        image = image[:, :, 0]
    if image.dtype != np.uint8 or not (image.ndim == 2 or image.ndim == 3 and image.shape[2] == 3):
        raise ImageError(
            f"an image to be encoded is uint8 of shape (height, width, 3) or (height, width), "
            f"not {image.dtype} of shape {image.shape}"
        )
    settings: dict[str, tuple[str, dict[str, int]]] = {
        ".jpg": ("JPEG", {"quality": quality, "subsampling": 2}),
        ".jpeg": ("JPEG", {"quality": quality, "subsampling": 2}),
        ".png": ("PNG", {"compress_level": quality}),
    }
    if img_fmt.lower() not in settings:
        raise ImageError(f"images are encoded as '.jpg' or '.png', not {img_fmt!r}")
    file_format, options = settings[img_fmt.lower()]
    if file_format == "PNG" and not 0 <= quality <= 9:
        raise ImageError(f"the quality of a PNG is its compression, 0 to 9, not {quality}")
    written = io.BytesIO()
    _pillow().fromarray(np.ascontiguousarray(image)).save(written, file_format, **options)
    return written.getvalue()


def _pillow() -> ModuleType:
    try:
        from PIL import Image
    except ImportError:
        raise ImageError("images are read and written with Pillow; install it: pip install pillow") from None
    return Image
