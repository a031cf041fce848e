"""A DataLoader's position in its epoch, as data, and how another DataLoader continues from there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.ndarray.random_state import all_states, set_all_states, state


@dataclass
class Position:
    """An epoch under way.

    indices : iterator of the batch sampler; stream : seed of the random numbers of its batches
    start : the random states and the sampler's state before the first batch
    delivered : how many batches the training has received; last : the indices of the last of them
    """

    indices: Iterator[Any]
    stream: int
    start: dict[str, Any]
    delivered: int = 0
    last: object = None

    @classmethod
    def begin(cls, sampler: Iterable[Any]) -> Position:
        """The position before the first batch of a new epoch."""
        start = {"random": all_states(), "sampler": sampler_state(sampler)}
        return cls(iter(sampler), state.next_epoch(), start)

    @classmethod
    def resume(cls, sampler: Iterable[Any], saved: Mapping[str, Any]) -> Position:
        """The position that `get_state` described: the sampler is run again from the epoch's start, no batch is made.

        The random states are as before afterwards. Raises HybridLabError, with the sampler as before, if the sampler
        does not give the same indices as then.
        """
        random, before = all_states(), sampler_state(sampler)
        try:
            start, delivered = saved["start"], saved["delivered"]
            set_all_states(start["random"])
            set_sampler_state(sampler, start["sampler"])
            position = cls.begin(sampler)
            for indices in islice(position.indices, delivered):
                position.delivered, position.last = position.delivered + 1, indices
            if position.delivered < delivered or position.digest != saved["last"]:
                raise HybridLabError(
                    "the sampler does not give the batches of the saved epoch again: the data set or the sampler is "
                    "another one, or the sampler draws random numbers between batches or from a generator of its own. "
                    "A sampler with get_state() and set_state(state) is put where its epoch began"
                )
        except BaseException as error:
            set_sampler_state(sampler, before)
            if isinstance(error, (LookupError, TypeError, ValueError, AttributeError, OverflowError)):
                raise HybridLabError(f"this is not a saved position of a DataLoader: {error!r:.100}") from None
            raise
        finally:
            set_all_states(random)
        return position

    @property
    def digest(self) -> str:
        """A digest that tells the indices of the last batch from other indices."""
        return hashlib.sha256(repr(self.last).encode("utf-8", "backslashreplace")).hexdigest()

    def get_state(self) -> dict[str, Any]:
        """The position as numbers, texts and arrays."""
        return {"delivered": self.delivered, "last": self.digest, "start": self.start}


def sampler_state(sampler: object) -> object:
    """What `get_state()` of a sampler gives; None for a sampler without it."""
    get: Callable[[], object] = getattr(sampler, "get_state", lambda: None)
    return get()


def set_sampler_state(sampler: object, saved: object) -> None:
    """Put a sampler back to what `sampler_state` gave; nothing for a sampler without states."""
    put = getattr(sampler, "set_state", None)
    if put is not None:
        put(saved)
