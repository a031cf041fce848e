"""Series: all values of one quantity over the steps of a training, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Literal, NamedTuple, TypeAlias

LIMIT = 200
"""Most buckets of one series."""
SPANS = 200
"""Most places of values that are not finite."""

NotFinite = Literal["NaN", "inf", "-inf"]


class Bucket(NamedTuple):
    """Consecutive finite values.

    start, step : of the first and of the last value; number : how many values; first, last : the values themselves
    """

    start: int
    step: int
    number: int
    mean: float
    low: float
    high: float
    first: float
    last: float


_Fields: TypeAlias = tuple[int, int, int, float, float, float, float, float]
"""Those of a Bucket; a named tuple takes three times as long to make."""


class Span(NamedTuple):
    """Consecutive values of one kind that are not finite, without a finite value between them.

    first, last : steps of the first and of the last one; number : how many values
    """

    what: NotFinite
    first: int
    last: int
    number: int


class Series:
    """Every value counts. Finite values go into buckets of equal counts; when LIMIT buckets are full, neighbours are
    merged. A value that is not finite is noted with its step in `spans`; beyond SPANS places it is only counted.

    count : number of values; not_finite : number of infinite values and NaNs; unplaced : number of the values without a
    place
    last, last_step : the latest value
    """

    def __init__(self) -> None:
        self.count = self.not_finite = self.unplaced = 0
        self.last, self.last_step = math.nan, 0
        self.spans: list[Span] = []
        self._in_span = False
        self._full: list[_Fields] = []
        self._bucket: _Fields | None = None
        self._size = 1

    def __len__(self) -> int:
        return len(self._full) + (self._bucket is not None)

    @property
    def buckets(self) -> list[Bucket]:
        """All buckets; the last one may not be full."""
        return [Bucket._make(each) for each in (self._full if self._bucket is None else [*self._full, self._bucket])]

    @property
    def columns(self) -> tuple[Sequence[Any], ...]:
        """What `buckets` gives, as one sequence for each field of a Bucket."""
        rows = self._full if self._bucket is None else [*self._full, self._bucket]
        return tuple(zip(*rows, strict=True)) if rows else ((),) * len(Bucket._fields)

    def extend(self, steps: Sequence[int], values: Sequence[float]) -> None:
        """Add a value for each step; no step is before the last step of the series. Many at once take a tenth of the
        time of each.
        """
        if not values:
            return
        total = sum(values)
        # The difference of a number and itself is 0.0, unless it is not finite. A sum may also be too large.
        if total - total == 0.0:
            self._add(steps, values)
        else:
            self._add_pieces(steps, values)
        self.count += len(values)
        self.last, self.last_step = values[-1], steps[-1]

    def _add_pieces(self, steps: Sequence[int], values: Sequence[float]) -> None:
        """Add values of which some are not finite, in pieces of one kind."""
        begin = 0
        for what, piece in groupby(values, _kind):
            end = begin + sum(1 for _ in piece)
            if what is None:
                self._add(steps[begin:end], values[begin:end])
            else:
                self._note(what, steps[begin], steps[end - 1], end - begin)
            begin = end

    def _add(self, steps: Sequence[int], values: Sequence[float]) -> None:
        """Add finite values."""
        self._in_span = False
        begin = 0
        while begin < len(values):
            end = begin + self._size - (0 if self._bucket is None else self._bucket[2])
            bucket = _bucket(steps[begin:end], values[begin:end])
            begin = end
            if self._bucket is not None:
                bucket = _merged(self._bucket, bucket)
            if bucket[2] < self._size:
                self._bucket = bucket
                return
            self._bucket = None
            self._full.append(bucket)
            if len(self._full) == LIMIT:
                self._full = [_merged(*pair) for pair in zip(self._full[::2], self._full[1::2], strict=True)]
                self._size *= 2

    def _note(self, what: NotFinite, first: int, last: int, number: int) -> None:
        """Note consecutive values of one kind that are not finite."""
        self.not_finite += number
        if self._in_span and self.spans and self.spans[-1].what == what:
            _, begin, _, count = self.spans[-1]
            self.spans[-1] = Span(what, begin, last, count + number)
        elif len(self.spans) < SPANS:
            self.spans.append(Span(what, first, last, number))
        else:
            self.unplaced += number
            self._in_span = False
            return
        self._in_span = True


def _kind(value: float) -> NotFinite | None:
    if value - value == 0.0:
        return None
    return "NaN" if value != value else "inf" if value > 0 else "-inf"


def _bucket(steps: Sequence[int], values: Sequence[float]) -> _Fields:
    """A bucket of these finite values."""
    number, first = len(values), values[0]
    if number == 1:
        return steps[0], steps[0], 1, first, first, first, first, first
    low, high, mean = min(values), max(values), sum(values) / number
    if mean - mean != 0.0:
        mean = sum(value / number for value in values)  # which does not overflow
    return steps[0], steps[-1], number, min(max(mean, low), high), low, high, first, values[-1]


def _merged(one: _Fields, two: _Fields) -> _Fields:
    """Two neighbours as one bucket."""
    number, low, high = one[2] + two[2], min(one[4], two[4]), max(one[5], two[5])
    mean = one[3] * (one[2] / number) + two[3] * (two[2] / number)
    return one[0], two[1], number, min(max(mean, low), high), low, high, one[6], two[7]
