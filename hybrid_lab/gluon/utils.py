"""Splitting batches over contexts, clipping gradients, downloads: under the name MXNet gives this module."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from hybrid_lab import ndarray as nd
from hybrid_lab.diagnostics import ShapeError
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.gluon.files.downloading import (  # noqa: F401 - libraries take the names with an underscore from here
    DownloadError,
    _get_repo_file_url,
    _get_repo_url,
    check_sha1,
    download,
)
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.context import Context
from hybrid_lab.ndarray.numpy_mode import in_mode
from hybrid_lab.ops.framework.dtypes import is_narrow

from .hooks import HookHandle

__all__ = [
    "DownloadError",
    "HookHandle",
    "check_sha1",
    "clip_global_norm",
    "download",
    "replace_file",
    "split_and_load",
    "split_data",
]


replace_file = os.replace
"""Move a file to another place, over one that is there, at once."""


def split_data(data: NDArray, num_slice: int, batch_axis: int = 0, even_split: bool = True) -> list[NDArray]:
    """Cut an array into `num_slice` parts along `batch_axis`; if the size does not divide evenly, the first parts are
    larger by one.

    Raises ShapeError for too few elements, and with even_split=True for parts of different sizes.
    """
    check_switches("split_data", even_split=even_split)
    size = data.shape[batch_axis]
    if size < num_slice:
        raise ShapeError(f"an array of shape {data.shape} cannot be cut into {num_slice} parts along axis {batch_axis}")
    if even_split and size % num_slice:
        raise ShapeError(
            f"an array of shape {data.shape} cannot be cut into {num_slice} equal parts along axis {batch_axis}; "
            f"use even_split=False, or a batch size divisible by {num_slice}"
        )
    if num_slice == 1:
        return [data]
    step, rest = divmod(size, num_slice)
    ends = [part * step + min(part, rest) for part in range(num_slice + 1)]
    pairs = list(zip(ends, ends[1:], strict=False))
    if data.stype == "csr" and batch_axis == 0:
        return [data[start:end] for start, end in pairs]
    return [nd.slice_axis(data, axis=batch_axis, begin=start, end=end) for start, end in pairs]


def split_and_load(
    data: object, ctx_list: Sequence[Context], batch_axis: int = 0, even_split: bool = True
) -> list[NDArray]:
    """As `split_data`, one part for each context, loaded there."""
    check_switches("split_and_load", even_split=even_split)
    if not isinstance(data, NDArray):
        data = cast(NDArray, in_mode(nd.array(data, ctx=ctx_list[0])))
    parts = split_data(data, len(ctx_list), batch_axis, even_split)
    return [part.as_in_context(ctx) for part, ctx in zip(parts, ctx_list, strict=True)]


def clip_global_norm(arrays: Sequence[NDArray], max_norm: float, check_isfinite: bool = True) -> float | NDArray:
    """Scale all arrays in place so that the norm of all their elements together is at most `max_norm`.

        gradients = [nd.array([3.0]), nd.array([4.0])]
        gluon.utils.clip_global_norm(gradients, 1.0)
        gradients[0]

    Returns the norm before: a float, or an NDArray (1,) if check_isfinite is False, as in MXNet.

    check_isfinite : warn if the norm is nan or infinite; the arrays are unchanged then in any case
    """
    check_switches("clip_global_norm", check_isfinite=check_isfinite)
    if not arrays:
        raise ValueError("there are no arrays to clip")
    total = math.sqrt(sum(_squared_norm(array) for array in arrays))
    if math.isfinite(total):
        scale = max_norm / (total + 1e-8)
        if scale < 1.0:
            for array in arrays:
                if array.buffer.stored:
                    array[:] = array * scale
                    continue
                np.multiply(array.raw(), scale, out=array.raw(), casting="unsafe")
                array.written()
    elif check_isfinite:
        warnings.warn("nan or inf in the gradients: clip_global_norm leaves them as they are", stacklevel=2)
    return total if check_isfinite else nd.array([total])


def _squared_norm(array: NDArray) -> float:
    """The sum of the squares; of half precision in float32, in which it does not overflow."""
    stored: Any = array
    values: np.ndarray = stored.data.asnumpy() if array.buffer.stored else array.raw()
    flat = values.astype("float32") if is_narrow(values.dtype) else values
    return float(np.vdot(flat, flat))


_suggest_names(__name__)
