"""Summaries of many arrays at once, of large arrays from a small sample: cheap enough to be a part of every save."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from hybrid_lab.engines.memory import is_tensor, to_host
from hybrid_lab.insight.summary import BINS, Memory, Summary, summary_of
from hybrid_lab.ndarray.ndarray import NDArray

SAMPLE = 2048
"""Arrays of at most this many values are read completely, larger ones in a sample of this size."""
_RUN = 16
"""A sample consists of runs of this many neighbouring values: of float32, a line of the processor's cache."""
_MATRIX = 1 << 15
"""Values that are summarized at a time: the intermediate results stay in the processor's cache."""
COLUMNS = ("size", "looked", "zeros", "nans", "infinities", "minimum", "maximum", "mean", "std")
"""The columns of a table of Summaries before the columns of the bins."""
WIDTH = len(COLUMNS) + BINS
_LOW, _MEAN = COLUMNS.index("minimum"), COLUMNS.index("mean")


def summary_of_row(row: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> Summary:
    """The Summary of a row of a table, float64[WIDTH], of an array of this shape and type.

    Raises ValueError, worded to follow a name, if the row cannot belong to such an array.
    """
    values = row.tolist()
    counts, numbers, bins = values[:5], values[5 : len(COLUMNS)], values[len(COLUMNS) :]
    if not all(0 <= each < 2**53 and each.is_integer() for each in counts + bins):
        raise ValueError("has counts that are no whole numbers")
    size, looked, zeros, nans, infinities = map(int, counts)
    finite = looked - nans - infinities
    if size != math.prod(shape) or looked > size or finite < 0 or zeros > finite or sum(bins) != finite:
        raise ValueError("counts other values than the parameter has")
    if not finite:
        return Summary(shape, dtype.name, size, looked, zeros, nans, infinities)
    low, high, mean, std = numbers
    if not all(map(math.isfinite, numbers)) or low > high or std < 0:
        raise ValueError("has bounds that are not finite or not in order")
    parts = _number_of_bins(low, high, dtype)
    if any(bins[parts:]):
        raise ValueError("has too many bins")
    filled = tuple(map(int, bins[:parts]))
    return Summary(shape, dtype.name, size, looked, zeros, nans, infinities, low, high, mean, std, filled)


def _number_of_bins(low: float, high: float, dtype: np.dtype) -> int:
    """Each whole number in a small range has a bin."""
    if dtype.kind in "iub" and high - low < BINS:
        return int(high - low) + 1
    return BINS if high > low else 1


def summary_table(arrays: Sequence[NDArray | np.ndarray]) -> np.ndarray:
    """The fields of a Summary of each array, in order: float64[len(arrays), WIDTH], columns COLUMNS and the bins.

    Numbers are 0 if no value is finite; a Summary with fewer bins has the first bins. Arrays of equal sizes are
    summarized together. Values on a GPU stay there, except for the sample.
    """
    table = np.zeros((len(arrays), WIDTH))
    by_length: dict[int, tuple[list[int], list[np.ndarray]]] = {}
    for number, array in enumerate(arrays):
        sample = _sample(array)
        table[number, :2] = array.size, sample.size
        if sample.dtype.kind in "iub" or not sample.size:
            _put(table, number, sample)
        else:
            numbers, samples = by_length.setdefault(sample.size, ([], []))
            numbers.append(number)
            samples.append(sample)
    for length, (numbers, samples) in by_length.items():
        step = max(1, _MATRIX // length)
        for start in range(0, len(numbers), step):
            _put_rows(table, numbers[start : start + step], samples[start : start + step])
    table[:, _MEAN : _MEAN + 2] = _rounded(table[:, _MEAN : _MEAN + 2])
    return table


def _put(table: np.ndarray, number: int, values: np.ndarray) -> None:
    """Fill the row of one array, whatever its values are."""
    summary = summary_of(values.reshape(-1), values.shape, values.dtype, values.size)
    fields = [getattr(summary, name) or 0 for name in COLUMNS[2:]] + list(summary.bins)
    table[number, 2 : 2 + len(fields)] = fields


def _put_rows(table: np.ndarray, numbers: list[int], samples: list[np.ndarray]) -> None:
    """Fill the rows of some arrays of which equally many values were read."""
    rows = np.empty((len(samples), samples[0].size))
    for row, sample in zip(rows, samples, strict=True):
        row.reshape(sample.shape)[...] = sample
    low, high = rows.min(axis=1), rows.max(axis=1)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        for number, sample in zip(numbers, samples, strict=True):
            _put(table, number, sample)
        return
    table[numbers, 2] = rows.shape[1] - np.count_nonzero(rows, axis=1)
    # Distances from the middle of the range, in units of half the range: no overflow for any values.
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    apart = (rows - middle[:, None]) / np.where(half > 0, half, 1)[:, None]
    mean = apart.mean(axis=1)
    spread = np.sqrt(np.maximum(np.einsum("ij,ij->i", apart, apart) / apart.shape[1] - mean * mean, 0))
    table[numbers, _LOW : len(COLUMNS)] = np.stack([low, high, middle + half * mean, half * spread], axis=1)
    apart += 1
    apart *= BINS / 2
    places = np.minimum(apart, BINS - 1).astype(np.intp)
    places[half == 0] = 0
    places += np.arange(len(rows))[:, None] * BINS
    table[numbers, len(COLUMNS) :] = np.bincount(places.reshape(-1), minlength=len(rows) * BINS).reshape(-1, BINS)


def _sample(array: NDArray | np.ndarray) -> np.ndarray:
    """All values, or of a large array runs of neighbours in equal distances, from where they are."""
    values: Memory
    if not isinstance(array, NDArray):
        values = array
    else:
        buffer = array.buffer
        values = array.raw(buffer.device.device if buffer.device is not None and not buffer.device_stale else None)
    if array.size > SAMPLE:
        distance = _distance(array.size)
        runs = SAMPLE // _RUN
        values = values.reshape(-1)[: runs * distance].reshape(runs, distance)[:, :_RUN]
    return to_host(values) if is_tensor(values) else np.asarray(values)


@functools.lru_cache(maxsize=4096)
def _distance(size: int) -> int:
    """Values from one run to the next, chosen so that the runs do not meet the same columns of every row."""
    distance = size * _RUN // SAMPLE
    while math.gcd(distance, 210) > 1 and distance > _RUN:
        distance -= 1
    return distance


def _rounded(numbers: np.ndarray) -> np.ndarray:
    """24 bits, as float32 has: sums differ by less between processors."""
    part, power = np.frexp(numbers)
    return np.ldexp(np.round(part * 2.0**24) / 2.0**24, power)
