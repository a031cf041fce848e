"""Summaries of many arrays, as of all values of a graph: small arrays of equal sizes are read together."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hybrid_lab.insight.summary import CHUNK, Summary, flat_sample, summary_of, type_name, values_of
from hybrid_lab.ndarray.ndarray import NDArray

SMALL = 1 << 12
"""Arrays of at most this many values are read together. For larger ones NumPy's work counts, not that of each call."""


class _Waiting(NamedTuple):
    """One array. number : among all; values : float64[size]"""

    number: int
    shape: tuple[int, ...]
    dtype: np.dtype
    values: np.ndarray


class SummaryBatch:
    """The Summary of each added array, without bins; its numbers equal the numbers of `summarize` to the last bit.

    Values are copied, or read at once: arrays may change after they were added.
    """

    def __init__(self) -> None:
        self._done: list[Summary | None] = []
        self._waiting: dict[int, list[_Waiting]] = {}

    def add(self, array: NDArray | np.ndarray) -> None:
        """Take the next array."""
        number, values = len(self._done), values_of(array, flat_sample).reshape(-1)
        self._done.append(None)
        view = array.host_view if isinstance(array, NDArray) else array
        if not 0 < view.size <= SMALL:
            self._done[number] = summary_of(values, view.shape, view.dtype, view.size, bins=False)
            return
        waiting = self._waiting.setdefault(view.size, [])
        waiting.append(_Waiting(number, view.shape, view.dtype, values.astype(np.float64)))
        if len(waiting) * view.size >= CHUNK:
            self._read(view.size)

    def summaries(self) -> list[Summary]:
        """The Summaries of all arrays so far, in the order in which they were added."""
        for size in tuple(self._waiting):
            self._read(size)
        return [each for each in self._done if each is not None]

    def _read(self, size: int) -> None:
        """Make the Summaries of the waiting arrays of this size, by the arithmetic of `summary_of` on many rows."""
        waiting = self._waiting.pop(size)
        rows = np.concatenate([each.values for each in waiting]).reshape(len(waiting), size)
        low, high = rows.min(axis=1), rows.max(axis=1)
        finite = np.isfinite(low) & np.isfinite(high)
        if not finite.all():
            for each in (each for each, is_finite in zip(waiting, finite, strict=True) if not is_finite):
                self._done[each.number] = summary_of(each.values, each.shape, each.dtype, size, bins=False)
            waiting = [each for each, is_finite in zip(waiting, finite, strict=True) if is_finite]
            rows, low, high = rows[finite], low[finite], high[finite]
        zeros = size - np.count_nonzero(rows, axis=1)
        middle, half = low / 2 + high / 2, high / 2 - low / 2
        apart = rows - middle[:, None]
        apart /= np.where(half == 0, 1, half)[:, None]
        apart[half == 0] = 0  # also of two neighbours among the smallest numbers
        mean = apart.sum(axis=1) / size
        std = half * np.sqrt(np.maximum((apart * apart).sum(axis=1) / size - mean * mean, 0))
        columns = (each.tolist() for each in (zeros, low, high, middle + half * mean, std))
        for each, zero, *numbers in zip(waiting, *columns, strict=True):
            self._done[each.number] = Summary(
                each.shape, type_name(each.dtype), size, size, zero, 0, 0, *numbers
            )  # fmt: skip
