"""Making one batch of several samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics import ShapeError
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray import array as nd_array
from hybrid_lab.ndarray.numpy_mode import in_mode


def default_batchify_fn(data: Sequence[object]) -> Any:
    """Stack samples along a new first axis: arrays to an NDArray, tuples part by part to a list of them.

    NumPy arrays, numbers and lists of them keep their dtype; a list is one array. Raises ShapeError where shapes
    differ.
    """
    first = data[0]
    if isinstance(first, tuple):
        return [default_batchify_fn(part) for part in zip(*data, strict=True)]
    arrays = [_as_array(item) for item in data]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise ShapeError(f"samples of different shapes cannot become one batch: {', '.join(map(str, sorted(shapes)))}")
    return as_batch(np.stack(arrays))


def _as_array(item: object) -> np.ndarray:
    """A sample, or one part of it, as an array. Raises ShapeError for a list whose parts differ in shape."""
    if isinstance(item, NDArray):
        return item.raw()
    if not isinstance(item, list):
        return np.asarray(item)
    parts = [_as_array(part) for part in item]
    shapes = {part.shape for part in parts}
    if len(shapes) > 1:
        raise ShapeError(
            f"a sample is a list of parts of different shapes, {', '.join(map(str, sorted(shapes)))}: "
            "return a tuple to get a batch of each part"
        )
    return np.stack(parts) if parts else np.asarray(item)


def as_batch(values: np.ndarray) -> NDArray:
    """The array of a batch: an NDArray, or with NumPy semantics an `mx.np` array."""
    return in_mode(nd_array(values, dtype=values.dtype))


default_mp_batchify_fn = default_batchify_fn
