"""Series: the values of one quantity over the steps of a training, in bounded memory."""

from __future__ import annotations

import math

LIMIT = 200
"""Most buckets of one series."""


class Series:
    """Consecutive values in buckets. When all LIMIT buckets are full, neighbours are merged: a series of any length
    keeps its course, and its smallest and largest values.

    steps, means, lows, highs : of each bucket the last step, and the mean, the smallest and the largest value
    last, last_step : the latest value; bad : the first step whose value was NaN or infinite, or None
    """

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.means: list[float] = []
        self.lows: list[float] = []
        self.highs: list[float] = []
        self.last, self.last_step = math.nan, 0
        self.bad: int | None = None
        self._counts: list[int] = []
        self._width = 1

    def __len__(self) -> int:
        return len(self.steps)

    def add(self, step: int, value: float) -> None:
        """Add the value of a step. A value that is not finite is noted in `bad` and not drawn."""
        self.last, self.last_step = value, step
        if not math.isfinite(value):
            self.bad = step if self.bad is None else self.bad
            return
        if self._counts and self._counts[-1] < self._width:
            count = self._counts[-1] = self._counts[-1] + 1
            self.steps[-1] = step
            self.means[-1] += (value - self.means[-1]) / count
            self.lows[-1] = min(self.lows[-1], value)
            self.highs[-1] = max(self.highs[-1], value)
            return
        if len(self.steps) == LIMIT:
            self._merge()
        self.steps.append(step)
        self.means.append(value)
        self.lows.append(value)
        self.highs.append(value)
        self._counts.append(1)

    def _merge(self) -> None:
        """Merge each two neighbouring buckets; all are full here, so that their means weigh the same."""
        self._width *= 2
        self.steps = self.steps[1::2]
        self.means = [(one + two) / 2 for one, two in zip(self.means[::2], self.means[1::2], strict=True)]
        self.lows = [min(pair) for pair in zip(self.lows[::2], self.lows[1::2], strict=True)]
        self.highs = [max(pair) for pair in zip(self.highs[::2], self.highs[1::2], strict=True)]
        self._counts = [self._width] * len(self.steps)
