"""Making one batch of several samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics import ShapeError
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray import array as nd_array


def default_batchify_fn(data: Sequence[Any]) -> Any:
    """Stack samples along a new first axis: arrays to an NDArray, tuples part by part to a list of them.

    NumPy arrays and numbers keep their dtype. Raises ShapeError where shapes differ.
    """
    first = data[0]
    if isinstance(first, (tuple, list)):
        return [default_batchify_fn(part) for part in zip(*data, strict=True)]
    arrays = [item._data if isinstance(item, NDArray) else np.asarray(item) for item in data]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise ShapeError(f"samples of different shapes cannot become one batch: {', '.join(map(str, sorted(shapes)))}")
    return as_batch(np.stack(arrays))


def as_batch(values: np.ndarray) -> NDArray:
    """The NDArray of a batch, which takes the memory over."""
    return nd_array(values, dtype=values.dtype)


default_mp_batchify_fn = default_batchify_fn
