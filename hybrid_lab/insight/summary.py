"""Summary: the values of an array in a few numbers: range, mean, zeros, NaN, infinities, and a histogram."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hybrid_lab.engines.memory import is_tensor, to_host
from hybrid_lab.ndarray.ndarray import NDArray

if TYPE_CHECKING:
    import torch

Memory: TypeAlias = "np.ndarray | torch.Tensor"
"""The memory of an array, on the host or on a GPU."""

EXACT = 1 << 21
"""Arrays of at most this many values are read completely, larger ones in a sample."""
SAMPLE = 1 << 18
BINS = 32

_RUN = 64
"""A sample consists of runs of this many neighbouring values."""
CHUNK = 1 << 15
"""Values that are converted to float64 at a time."""


@dataclass(frozen=True)
class Summary:
    """The distribution of an array's values.

    size : values in the array; looked : values that were read, fewer than `size` for a sample
    zeros, nans, infinities : how many of the values read are zero, NaN, infinite
    minimum, maximum, mean, std : of the finite values read; None if there is none
    bins : how many finite values lie in each of equal parts of the range from `minimum` to `maximum`
    """

    shape: tuple[int, ...]
    dtype: str
    size: int
    looked: int
    zeros: int = 0
    nans: int = 0
    infinities: int = 0
    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    std: float | None = None
    bins: tuple[int, ...] = ()

    @property
    def finite(self) -> bool:
        """Whether no value read is NaN or infinite."""
        return not self.nans and not self.infinities

    @property
    def sample(self) -> str:
        """`262,144 of 10,000,000 values`, or "" if all were read."""
        return f"{self.looked:,} of {self.size:,} values" if self.looked < self.size else ""

    @property
    def facts(self) -> list[tuple[str, str]]:
        """(name, text) of each number."""
        if not self.looked:
            return [("values", "none")]
        rows = []
        for name, value in (("min", self.minimum), ("max", self.maximum), ("mean", self.mean), ("std", self.std)):
            rows += [(name, number(value))] if value is not None else []
        rows.append(("zeros", f"{self.zeros:,} ({self.zeros / self.looked:.1%})" if self.zeros else "0"))
        rows += [("NaN", f"{self.nans:,}")] * bool(self.nans) + [("infinite", f"{self.infinities:,}")] * bool(
            self.infinities
        )
        return rows + [("sample", self.sample)] * bool(self.sample)

    def __str__(self) -> str:
        shape = ",".join(map(str, self.shape))
        return f"{self.dtype}[{shape}]: " + ", ".join(f"{name} {text}" for name, text in self.facts)


def number(value: float) -> str:
    """A number with four digits; whole numbers in full."""
    if value.is_integer() and abs(value) < 1e9:
        return f"{int(value):,}"
    return f"{value:.4g}"


def summarize(array: NDArray | np.ndarray) -> Summary:
    """The summary of an array: of all values up to two million, of a sample beyond. The array is never copied whole."""
    view = array.host_view if isinstance(array, NDArray) else array
    return summary_of(values_of(array, flat_sample).reshape(-1), view.shape, view.dtype, view.size)


def values_of(array: NDArray | np.ndarray, pick: Callable[[Memory], Memory]) -> np.ndarray:
    """The part of the array's values that `pick` takes; only this part is copied from a GPU if the array is large.

    pick : takes the memory and gives a part of it
    """
    if not isinstance(array, NDArray):
        part: Memory = pick(array)
    else:
        buffer = array.buffer
        on_device = buffer.device is not None and not buffer.device_stale and array.size > EXACT
        part = pick(array.raw(buffer.device.device if on_device else None))
    return to_host(part) if is_tensor(part) else np.asarray(part)


def flat_sample(memory: Memory) -> Memory:
    """All values, or of a large array runs of neighbours in equal distances."""
    size = math.prod(memory.shape)
    flat = memory.reshape(-1)
    if size <= EXACT:
        return flat
    runs = SAMPLE // _RUN
    distance = size // runs
    while math.gcd(distance, 210) > 1:  # so that the runs do not meet the same columns of every row
        distance -= 1
    return flat[: runs * distance].reshape(runs, distance)[:, :_RUN]


@functools.lru_cache(maxsize=64)
def type_name(dtype: np.dtype) -> str:
    """`float32`; NumPy makes the name anew each time."""
    return dtype.name


def summary_of(values: np.ndarray, shape: tuple[int, ...], dtype: np.dtype, size: int, bins: bool = True) -> Summary:
    """The summary of an array of this shape, type and size, of which `values` were read. bins : whether it has some"""
    zeros = nans = infinities = 0
    low, high = math.inf, -math.inf
    for chunk in _chunks(values):
        zeros += chunk.size - int(np.count_nonzero(chunk))
        finite = np.isfinite(chunk)
        if not finite.all():
            nan = int(np.count_nonzero(np.isnan(chunk)))
            nans, infinities = nans + nan, infinities + int(np.count_nonzero(~finite)) - nan
            chunk = chunk[finite]
        if chunk.size:
            low, high = min(low, float(chunk.min())), max(high, float(chunk.max()))
    looked = values.size
    if low > high:
        return Summary(shape, type_name(dtype), size, looked, zeros, nans, infinities)

    # Distances from the middle of the range, in units of half the range: no overflow for any values.
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    whole = dtype.kind in "iub" and high - low < BINS
    filled = np.zeros(int(high - low) + 1 if whole else BINS if half else 1, np.int64)
    total = squares = 0.0
    for chunk in _chunks(values):
        chunk = chunk[np.isfinite(chunk)] if nans or infinities else chunk
        apart = (chunk - middle) / half if half else np.zeros(chunk.size)
        total, squares = total + float(apart.sum()), squares + float((apart * apart).sum())
        if bins:
            places = chunk - low if whole else (apart + 1) * (len(filled) / 2)
            filled += np.bincount(np.clip(places, 0, len(filled) - 1).astype(np.int64), minlength=len(filled))
    count = looked - nans - infinities
    mean = total / count
    std = half * math.sqrt(max(squares / count - mean * mean, 0.0))
    numbers = (low, high, middle + half * mean, std)
    parts = tuple(filled.tolist()) if bins else ()
    return Summary(shape, type_name(dtype), size, looked, zeros, nans, infinities, *numbers, parts)


def _chunks(values: np.ndarray) -> Iterator[np.ndarray]:
    """The values in float64, some at a time."""
    for start in range(0, values.size, CHUNK):
        yield values[start : start + CHUNK].astype(np.float64)
