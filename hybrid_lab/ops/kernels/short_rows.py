"""Many short rows, such as a batch of probabilities of ten classes.

NumPy reduces the last axis row by row, at 30 to 50 ns a row whatever it holds. Over the first axis it works on whole
vectors, so a block of rows is copied with rows and columns exchanged, small enough to stay in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

#: Rows of up to this many elements are short ...
LONGEST = 16
#: ... and this many rows are many: with fewer rows the copy costs as much as it saves.
FEWEST = 128
_BLOCK_BYTES = 1 << 16


def are_short(data: np.ndarray, axis: int) -> bool:
    """Whether a reduction of data over `axis`, counted from the front, is one of many short rows."""
    shape = data.shape
    return axis == len(shape) - 1 and 1 < shape[axis] <= LONGEST and data.size >= shape[axis] * FEWEST


def blocks(rows: np.ndarray) -> Sequence[slice]:
    """All of rows, (count, columns), in parts that fit the cache."""
    if rows.nbytes <= _BLOCK_BYTES:
        return (slice(None),)
    step = max(_BLOCK_BYTES // (rows.shape[1] * rows.itemsize), FEWEST)
    return [slice(start, start + step) for start in range(0, len(rows), step)]


def turned(rows: np.ndarray) -> np.ndarray:
    """A contiguous copy of rows, (count, columns), as (columns, count)."""
    copy = np.empty(rows.shape[::-1], rows.dtype, like=rows)
    np.copyto(copy, rows.T)
    return copy


def reduced(function: np.ufunc, data: np.ndarray, axes: tuple[int, ...], out: np.ndarray) -> np.ndarray:
    """function.reduce of data over `axes` (from the front, in order) into `out`, which has them as 1, in its dtype."""
    if len(axes) == 1 and are_short(data, axes[0]) and out.flags.c_contiguous:
        rows, results = data.reshape(-1, data.shape[-1]), out.reshape(-1)
        for part in blocks(rows):
            function.reduce(turned(rows[part]), 0, out.dtype, results[part])
        return out
    return function.reduce(data, axis=axes, keepdims=True, dtype=out.dtype, out=out)
