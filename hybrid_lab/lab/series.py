"""Series: all values of one quantity over the steps of a training, in bounded memory."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, TypeAlias

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

    count : number of values, not_finite : of those that are not finite; unplaced : of those without a place
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

    def add(self, step: int, value: float) -> None:
        """Add the value of a step."""
        self.count += 1
        self.last, self.last_step = value, step
        # The difference of a value and itself is 0.0, unless the value is not finite.
        if value - value != 0.0:
            self._note(step, value)
            return
        self._in_span = False
        bucket = self._bucket
        # A bucket is one tuple, in one assignment: an interrupt between two lines leaves no half of it.
        if bucket is None:
            count, bucket = 1, (step, step, 1, value, value, value, value, value)
        else:
            start, _, count, mean, low, high, first, _ = bucket
            count += 1
            mean += value / count - mean / count  # in this order, large values do not overflow
            low, high = value if value < low else low, value if value > high else high
            bucket = (start, step, count, mean, low, high, first, value)
        if count < self._size:
            self._bucket = bucket
            return
        self._bucket = None
        self._full.append(bucket)
        if len(self._full) == LIMIT:
            self._full = [_merged(*pair) for pair in zip(self._full[::2], self._full[1::2], strict=True)]
            self._size *= 2

    def _note(self, step: int, value: float) -> None:
        what: NotFinite = "NaN" if value != value else "inf" if value > 0 else "-inf"
        self.not_finite += 1
        if self._in_span and self.spans and self.spans[-1].what == what:
            _, first, _, count = self.spans[-1]
            self.spans[-1] = Span(what, first, step, count + 1)
        elif len(self.spans) < SPANS:
            self.spans.append(Span(what, step, step, 1))
        else:
            self.unplaced += 1
            self._in_span = False
            return
        self._in_span = True


def _merged(one: _Fields, two: _Fields) -> _Fields:
    """Two neighbours of equal counts."""
    mean, low, high = one[3] / 2 + two[3] / 2, min(one[4], two[4]), max(one[5], two[5])
    return one[0], two[1], one[2] + two[2], mean, low, high, one[6], two[7]
