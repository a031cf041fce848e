"""Making one batch of several samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics import ShapeError
from hybrid_lab.diagnostics.errors import DTypeError
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray import array as nd_array
from hybrid_lab.ndarray.numpy_mode import in_mode


def default_batchify_fn(data: Sequence[object]) -> Any:
    """Stack samples along a new first axis: arrays to an NDArray, tuples part by part to a list of them, dicts key by
    key to a dict, texts to a list of texts.

    NumPy arrays, numbers and lists of them keep their dtype; a list is one array. Raises ShapeError if shapes, the
    lengths of tuples or the keys of dicts differ, DTypeError for any other type.
    """
    first = data[0]
    if isinstance(first, tuple):
        if len({len(item) if isinstance(item, tuple) else -1 for item in data}) > 1:
            raise ShapeError("samples that are tuples of different lengths cannot become one batch")
        return [default_batchify_fn(part) for part in zip(*data, strict=True)]
    if isinstance(first, Mapping):
        dicts = [item for item in data if isinstance(item, Mapping) and item.keys() == first.keys()]
        if len(dicts) < len(data):
            raise ShapeError("samples that are dicts with different keys cannot become one batch")
        return {key: default_batchify_fn([item[key] for item in dicts]) for key in first}
    if all(isinstance(item, (str, bytes)) for item in data):
        return list(data)
    arrays = [_as_array(item) for item in data]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise ShapeError(f"samples of different shapes cannot become one batch: {', '.join(map(str, sorted(shapes)))}")
    return as_batch(np.stack(arrays))


def _as_array(item: object) -> np.ndarray:
    """A sample, or one part of it, as an array. Raises ShapeError for a list whose parts differ in shape, DTypeError
    for anything but an array.
    """
    if isinstance(item, NDArray):
        return item.raw()
    if not isinstance(item, list):
        array = np.asarray(item)
        if array.dtype.kind in "OUS":
            raise DTypeError(
                f"a sample holds {item!r:.40} of type {type(item).__name__}, which is no array, number or text, nor a "
                "tuple or dict of these; give the DataLoader a batchify_fn that makes batches of it"
            )
        return array
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

_suggest_names(__name__)
