"""Transforms of images, as Blocks: `dataset.transform_first(Compose([ToTensor(), Normalize(0.13, 0.31)]))`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab import ndarray as nd
from hybrid_lab.diagnostics import ShapeError
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.ndarray import NDArray

from ...block import Block
from ...nn import Lambda, Sequential

__all__ = ["Cast", "Compose", "Normalize", "ToTensor"]


class Compose(Sequential):
    """Transforms one after the other."""

    def __init__(self, transforms: Sequence[Block | Callable[[Any], Any]]) -> None:
        super().__init__()
        self.add(*(each if isinstance(each, Block) else Lambda(each) for each in transforms))


class Cast(Block):
    """To another dtype."""

    def __init__(self, dtype: DTypeLike | None = "float32") -> None:
        super().__init__()
        self._dtype = dtype

    def forward(self, x: Any) -> Any:
        return _array(x).astype(self._dtype)


class ToTensor(Block):
    """An image (height, width, channels) of 0..255 to float32 (channels, height, width) in [0, 1].

    There may be a batch axis in front.
    """

    def forward(self, x: Any) -> Any:
        values = _host(x)
        if values.ndim not in (3, 4):
            raise ShapeError(
                "ToTensor takes images of shape (height, width, channels), with or without a batch axis in front, "
                f"not {values.shape}"
            )
        moved = np.moveaxis(values, -1, -3).astype("float32")
        moved /= 255.0
        return nd.array(np.ascontiguousarray(moved), dtype="float32")


class Normalize(Block):
    """(x - mean) / std per channel.

    mean, std : a number, or one per channel
    x : (channels, height, width), with or without a batch axis in front -> the same
    """

    def __init__(self, mean: float | Sequence[float] = 0.0, std: float | Sequence[float] = 1.0) -> None:
        super().__init__()
        self._mean = np.asarray(mean, "float32").reshape(-1, 1, 1)
        self._std = np.asarray(std, "float32").reshape(-1, 1, 1)

    def forward(self, x: Any) -> Any:
        values = _host(x)
        return nd.array((values - self._mean) / self._std, dtype="float32")


def _host(x: object) -> np.ndarray:
    return x.raw() if isinstance(x, NDArray) else np.asarray(x)


def _array(x: object) -> NDArray:
    return x if isinstance(x, NDArray) else nd.array(x, dtype=np.asarray(x).dtype)


_suggest_names(__name__)
