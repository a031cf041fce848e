"""The random state: a seed and three counters, from which every random number of the process follows.

Operators draw from Philox at (seed, draw, element), draws numbered in program order, so that eager calls, compiled
graphs and GPUs give the same numbers. Initializers have a stream of their own: when a parameter is initialized never
shifts the numbers of a Dropout. Each batch of a DataLoader has its own stream, too: the number of threads, and how far
ahead they make batches, change no number.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, HybridLabError
from hybrid_lab.ops.kernels.philox import substream
from hybrid_lab.system import forks

_MASK = (1 << 64) - 1
_MOST_DRAWS = 1 << 62  # no process gets there, and its later draws still fit into 64 bits
_INITIALIZER_STREAM = 0x9E3779B97F4A7C15  # the golden ratio's bits: far from every seed a person types
_EPOCH_STREAM = 0xC2B2AE3D27D4EB4F
_WORKER_STREAM = 0x165667B19E3779F9


class _Inner(threading.local):
    """Per thread: (seed, next draw) of the streams inside control flow, the innermost last."""

    def __init__(self) -> None:
        self.streams: list[tuple[int, int]] = []


class RandomState:
    """Seed and counters; safe to use from several threads."""

    def __init__(self, seed: int = 0):
        self._lock = forks.lock()
        self._inner = _Inner()
        self._seed, self._draws, self._initializer_draws, self._epochs = seed, 0, 0, 0

    def seed(self, seed: int, ctx: object = "all") -> None:
        """Start both streams anew. `seed` is any int; its lowest 64 bits count. `ctx` is accepted for MXNet's sake.

        ```python
        mx.random.seed(7)
        first = nd.random.uniform(shape=(2,))
        mx.random.seed(7)
        nd.random.uniform(shape=(2,)) == first
        ```
        """
        if isinstance(seed, bool) or not hasattr(seed, "__index__"):
            raise AttributeSpecError(f"the seed must be an int, not {seed!r}")
        with self._lock:
            self._seed = seed.__index__() & _MASK
            self._draws = self._initializer_draws = self._epochs = 0

    def part(self, number: int) -> None:
        """Continue in a stream of its own that follows from the seed and a number: of a worker among several."""
        with self._lock:
            self._seed = substream(self._seed ^ _WORKER_STREAM, number)

    def next_draws(self, count: int = 1) -> tuple[int, int]:
        """Use up `count` draws; returns (seed, number of the first)."""
        inner = self._inner.streams
        if inner:
            seed, base = inner[-1]
            inner[-1] = seed, base + count
            return seed, base
        with self._lock:
            base = self._draws
            self._draws = base + count
            return self._seed, base

    def next_initializer_draw(self) -> tuple[int, int]:
        """Use up one draw of the initializers' stream; returns (seed of that stream, number)."""
        with self._lock:
            number = self._initializer_draws
            self._initializer_draws = number + 1
            return self._seed ^ _INITIALIZER_STREAM, number

    def next_epoch(self) -> int:
        """The seed of a stream for the batches of one epoch of a DataLoader: batch n draws inside (seed, n)."""
        with self._lock:
            number = self._epochs
            self._epochs = number + 1
            return substream(self._seed ^ _EPOCH_STREAM, number)

    @contextmanager
    def substream(self, draw: tuple[int, int] | None = None) -> Iterator[None]:
        """Inside, this thread's draws are numbered anew, in a stream that takes one draw of the stream around it.

        draw : (seed, number) of that draw if a graph has numbered it already
        """
        streams = self._inner.streams
        depth = len(streams)
        streams.append((substream(*(draw if draw is not None else self.next_draws(1))), 0))
        try:
            yield
        finally:
            del streams[depth:]

    @contextmanager
    def preserved(self) -> Iterator[None]:
        """Restore the operators' draw counter at the end, so that draws inside do not change later numbers."""
        streams = list(self._inner.streams)
        with self._lock:
            before = self._seed, self._draws
        try:
            yield
        finally:
            self._inner.streams[:] = streams
            with self._lock:
                if self._seed == before[0]:
                    self._draws = before[1]

    def get_state(self) -> dict[str, Any]:
        """The state as a dict of JSON values."""
        with self._lock:
            return {
                "generator": "philox4x32-10",
                "seed": str(self._seed),  # as text: JSON readers outside Python keep only 53 bits
                "draws": self._draws,
                "initializer_draws": self._initializer_draws,
                "epochs": self._epochs,
            }

    def set_state(self, saved: dict[str, Any]) -> None:
        """Continue where `get_state()` was called. Raises HybridLabError if `saved` is no state of `get_state`."""
        try:
            if saved["generator"] != "philox4x32-10":
                raise ValueError(f"unknown generator {saved['generator']!r}")
            seed, draws, initializer_draws = int(saved["seed"]), int(saved["draws"]), int(saved["initializer_draws"])
            epochs = int(saved.get("epochs", 0))  # archives of earlier versions have none
            counters = (draws, initializer_draws, epochs)
            if not 0 <= seed <= _MASK or not all(0 <= counter < _MOST_DRAWS for counter in counters):
                raise ValueError("a number is out of range")
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise HybridLabError(f"this is not a saved random state: {error}") from None
        with self._lock:
            self._seed, self._draws, self._initializer_draws, self._epochs = seed, draws, initializer_draws, epochs


state = RandomState()
"""The state that all operators and initializers of this process use."""


def check_place(state: Mapping[str, Any]) -> None:
    """Raise ValueError if a saved state of NumPy points behind its numbers: NumPy would read memory there."""
    inner = state["state"]
    place, filled = inner.get("pos", 0), state.get("buffer_pos", 0)
    if type(place) is not int or not 0 <= place <= 624 or type(filled) is not int or not 0 <= filled <= 4:
        raise ValueError("a place outside of the state's numbers")


def all_states() -> dict[str, Any]:
    """The states of this package's random numbers, of NumPy's (`np.random`) and of Python's (`random`)."""
    return {"mx": state.get_state(), "numpy": np.random.get_state(legacy=False), "python": random.getstate()}


def set_all_states(saved: Mapping[str, Any]) -> None:
    """Continue where `all_states()` was called. Raises HybridLabError for anything else; nothing changes then."""
    before = all_states()
    try:
        check_place(saved["numpy"])
        _check_kind(saved["numpy"])
        np.random.set_state(saved["numpy"])
        random.setstate(saved["python"])
        state.set_state(saved["mx"])
    except (HybridLabError, KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        np.random.set_state(before["numpy"])
        random.setstate(before["python"])
        raise HybridLabError(f"these are not saved random states: {type(error).__name__}: {error}") from None


def _check_kind(saved: Mapping[str, Any]) -> None:
    """Raise ValueError for anything but a state of `np.random`: NumPy converts numbers of other kinds."""
    key = np.asarray(saved["state"]["key"])
    if saved["bit_generator"] != "MT19937" or key.shape != (624,) or key.dtype.kind not in "ui":
        raise ValueError("it is not of NumPy's MT19937")
    if isinstance(saved["has_gauss"], bool) or saved["has_gauss"] not in (0, 1):
        raise ValueError(f"has_gauss is {saved['has_gauss']!r:.40}")
