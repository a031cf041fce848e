"""Images by OpenCV, which MXNet uses: other sizes, affine maps, hues.

OpenCV is the optional package `opencv-python-headless`; it is loaded by the first call that needs it. Its versions 4.12
to 4.14 give every pixel of uint8 as the one in MXNet does. Affine maps of OpenCV 5 differ by up to 2 of 255.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType

import numpy as np

from hybrid_lab.diagnostics.errors import MissingPackageError

NEAREST, LINEAR, CUBIC, AREA, LANCZOS = range(5)
"""OpenCV's numbers of the interpolations."""
_DTYPES = ("uint8", "float32", "float64")
"""Types that are resized as they are; the others are in float64."""
_CHANNELS = 4
"""The most that every interpolation of OpenCV takes at once."""


def opencv() -> ModuleType:
    """The module `cv2`, of any package that brings it. Raises MissingPackageError."""
    try:
        import cv2
    except ImportError as error:
        raise MissingPackageError(
            f'images are read, written and resized by OpenCV: pip install "hybrid-lab[images]" ({error})'
        ) from None
    return cv2


@contextlib.contextmanager
def _as_in_mxnet() -> Iterator[ModuleType]:
    """OpenCV without Intel's IPP, which packages for x86 have: its bicubic interpolation rounds otherwise, and by the
    instructions of the processor. The switch belongs to the thread.
    """
    cv2 = opencv()
    before = cv2.ipp.useIPP()
    cv2.ipp.setUseIPP(False)
    try:
        yield cv2
    finally:
        cv2.ipp.setUseIPP(before)


def resize(image: np.ndarray, width: int, height: int, interp: int) -> np.ndarray:
    """An image (height, width, channels) in another size, of the same dtype.

    interp : 0 nearest, 1 bilinear, 2 bicubic, 3 area, 4 Lanczos over 8 x 8 pixels
    Raises MissingPackageError.
    """
    if image.shape[:2] == (height, width):
        return image.copy()
    values = np.ascontiguousarray(image, None if image.dtype.name in _DTYPES else "float64")
    with _as_in_mxnet() as cv2:
        try:
            resized = cv2.resize(values, (width, height), interpolation=interp)
        except cv2.error:
            if image.shape[2] <= _CHANNELS:
                raise
            starts = range(0, image.shape[2], _CHANNELS)
            parts = [resize(values[:, :, start : start + _CHANNELS], width, height, interp) for start in starts]
            resized = np.concatenate(parts, 2)
    if resized.dtype.kind == "f" and image.dtype.kind in "iu" and image.dtype.itemsize < 8:
        limits = np.iinfo(image.dtype)  # bicubic and Lanczos weights go beyond the values of an image
        resized = np.clip(resized, limits.min, limits.max)
    return resized.reshape(height, width, -1).astype(image.dtype, copy=False)


def affine(image: np.ndarray, forward: np.ndarray, width: int, height: int, interp: int, fill: int) -> np.ndarray:
    """An image (rows, columns, 1 or 3) of uint8, mapped into an image (height, width, as before).

    forward : (2, 3), the place (x, y, 1) of a pixel -> its place in the result
    interp : as in `resize`; 3 is bilinear here; fill : the value of what lies outside of the image
    Raises MissingPackageError.
    """
    with _as_in_mxnet() as cv2:
        warped: np.ndarray = cv2.warpAffine(
            np.ascontiguousarray(image),
            forward,
            (width, height),
            flags=interp,
            borderMode=cv2.BORDER_CONSTANT,
            borderValue=(fill,) * image.shape[2],
        )
    return warped.reshape(height, width, -1)


def change_hls(image: np.ndarray, hue: int, lightness: int, saturation: int) -> np.ndarray:
    """An image (rows, columns, 3) of uint8, red first, with these numbers added to its hues (in steps of two degrees,
    limited to 0 to 180), lightnesses and saturations (limited to 0 to 255). Raises MissingPackageError.
    """
    with _as_in_mxnet() as cv2:
        hls = cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2HLS)
        changed = np.clip(hls + np.array([hue, lightness, saturation]), 0, [180, 255, 255])
        rgb: np.ndarray = cv2.cvtColor(changed.astype("uint8"), cv2.COLOR_HLS2RGB)
    return rgb


def turn_hue(image: np.ndarray, turn: float) -> np.ndarray:
    """An image (rows, columns, 3) of float32, red first, with every hue turned on the circle of colors; lightness and
    saturation stay. Raises MissingPackageError.

    turn : in turns, 0.5 for the opposite color
    """
    with _as_in_mxnet() as cv2:
        hls = cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2HLS)
        hls[:, :, 0] = (hls[:, :, 0] + 360 * turn) % 360
        rgb: np.ndarray = cv2.cvtColor(hls, cv2.COLOR_HLS2RGB)
    return rgb
