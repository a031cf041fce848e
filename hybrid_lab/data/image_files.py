"""Bytes of image files to arrays and back, through OpenCV as in MXNet.

OpenCV is loaded when an image is read or written (`ops/kernels/opencv.py`). An orientation that a camera wrote into the
file is ignored, as MXNet does.
"""

from __future__ import annotations

import numpy as np

from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.ops.kernels.opencv import opencv

__all__ = ["ImageError", "decode", "encode"]


class ImageError(HybridLabError, ValueError):
    """Bytes that are no image, or an image of an unusable form."""


def decode(data: bytes, color: bool | None = True) -> np.ndarray:
    """An image as uint8 (height, width, 3) in red, green, blue, or (height, width, 1) in gray; transparency is dropped,
    and of 16 bits the upper eight count.

    color : None for the image's own type
    Raises ImageError for bytes that are not an image, MissingPackageError.
    """
    cv2 = opencv()
    wanted = cv2.IMREAD_ANYCOLOR if color is None else cv2.IMREAD_COLOR if color else cv2.IMREAD_GRAYSCALE
    try:
        image = cv2.imdecode(np.frombuffer(data, "uint8"), wanted | cv2.IMREAD_IGNORE_ORIENTATION) if data else None
    except cv2.error as error:  # such as an image of more pixels than OpenCV reads
        raise ImageError(f"{len(data)} bytes cannot be decoded as an image: {error.err}") from None
    if image is None:
        raise ImageError(f"{len(data)} bytes cannot be decoded as an image")
    return image[:, :, None] if image.ndim == 2 else cv2.cvtColor(image, cv2.COLOR_BGR2RGB)


def encode(image: np.ndarray, quality: int, img_fmt: str) -> bytes:
    """The bytes of an image file.

    image : uint8, (height, width, 3) in red, green, blue, or gray as (height, width) or (height, width, 1)
    quality : of a JPEG, 1 to 100; of a PNG its compression, 0 to 9
    img_fmt : '.jpg', '.jpeg' or '.png'
    Raises ImageError, MissingPackageError.
    """
    is_gray = image.ndim == 2 or image.ndim == 3 and image.shape[2] == 1
    if image.dtype != np.uint8 or not (is_gray or image.ndim == 3 and image.shape[2] == 3) or not image.size:
        raise ImageError(
            f"an image to be encoded is uint8 of shape (height, width, 3) or (height, width), "
            f"not {image.dtype} of shape {image.shape}"
        )
    cv2 = opencv()
    setting = {".jpg": cv2.IMWRITE_JPEG_QUALITY, ".jpeg": cv2.IMWRITE_JPEG_QUALITY, ".png": cv2.IMWRITE_PNG_COMPRESSION}
    if img_fmt.lower() not in setting:
        raise ImageError(f"images are encoded as '.jpg' or '.png', not {img_fmt!r}")
    if img_fmt.lower() == ".png" and not 0 <= quality <= 9:
        raise ImageError(f"the quality of a PNG is its compression, 0 to 9, not {quality}")
    pixels = np.ascontiguousarray(image if is_gray else image[:, :, ::-1])
    data: np.ndarray = cv2.imencode(img_fmt, pixels, [setting[img_fmt.lower()], quality])[1]
    return data.tobytes()
