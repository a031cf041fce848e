"""Changes of the colors of images (height, width, 3), which MXNet computes itself; turns of hues by OpenCV."""

from __future__ import annotations

import numpy as np

from . import opencv

_GRAY = np.array([0.299, 0.587, 0.114], "float32")
#: Eigenvectors times eigenvalues of the colors of ImageNet, a column for each; from the AlexNet paper's method.
_PRINCIPAL = np.array(
    [
        [55.46 * -0.5675, 4.794 * 0.7192, 1.148 * 0.4009],
        [55.46 * -0.5808, 4.794 * -0.0045, 1.148 * -0.8140],
        [55.46 * -0.5836, 4.794 * -0.6948, 1.148 * 0.4203],
    ],
    "float32",
)


def saturated(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Values in the dtype of an image: of uint8 cut off at 0 and 255, without rounding."""
    return np.clip(values, 0, 255).astype("uint8") if dtype == np.uint8 else values.astype(dtype)


def brighten(image: np.ndarray, factor: float) -> np.ndarray:
    """Every value times a factor."""
    return saturated(image.astype("float32") * np.float32(factor), image.dtype)


def change_contrast(image: np.ndarray, factor: float) -> np.ndarray:
    """The distance of every value from the mean brightness, times a factor."""
    values = image.astype("float32")
    mean = (values @ _GRAY if image.shape[2] > 1 else values).mean(dtype="float64").astype("float32")
    return saturated(values * np.float32(factor) + np.float32(1 - factor) * mean, image.dtype)


def saturate(image: np.ndarray, factor: float) -> np.ndarray:
    """The distance of every color from its brightness, times a factor."""
    if image.shape[2] == 1:
        return image.copy()
    values = image.astype("float32")
    gray = (values @ _GRAY)[:, :, None]
    return saturated(values * np.float32(factor) + gray * np.float32(1 - factor), image.dtype)


def turn_hue(image: np.ndarray, turn: float) -> np.ndarray:
    """Every hue turned on the circle of colors; lightness and saturation stay.

    turn : in turns, 0.5 for the opposite color
    """
    if image.shape[2] == 1:
        return image.copy()
    turned = opencv.turn_hue(image.astype("float32") * np.float32(1 / 255), turn)
    return saturated(turned * np.float32(255), image.dtype)


def light(image: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """A color added to every pixel: the principal colors of photographs, weighted by `alpha`."""
    if image.shape[2] == 1:
        return image.copy()
    return saturated(image.astype("float32") + _PRINCIPAL @ alpha.astype("float32"), image.dtype)
