"""Samplers: in which order samples are taken, and how they are grouped into batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.diagnostics.formatting import check_choice
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.distributed import group
from hybrid_lab.ndarray.random_state import state
from hybrid_lab.ops.kernels.philox import generator

from .dataset import Samples
from .position import sampler_state, set_sampler_state


class Sampler:
    """Base of the samplers: iterating gives the numbers of samples (or lists of them), `len()` how many.

    A sampler that draws random numbers draws them when its iteration begins, so that a checkpoint can repeat the order
    (`np.random`, `random` and `mx.random` will do). A sampler that keeps a state from epoch to epoch, such as a
    generator of its own, also has `get_state()`, which returns numbers, texts, arrays, lists and dicts, and
    `set_state(state)`.
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__()")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} does not define __len__()")


class SequentialSampler(Sampler):
    """start, start + 1 ..., `length` numbers."""

    def __init__(self, length: int, start: int = 0) -> None:
        self._length = length
        self._start = start

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._start, self._start + self._length))

    def __len__(self) -> int:
        return self._length


class RandomSampler(Sampler):
    """0 to length - 1 in a new random order each time; the order follows from `mx.random.seed`."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __iter__(self) -> Iterator[int]:
        return iter(generator(*state.next_draws(1)).permutation(self._length).tolist())

    def __len__(self) -> int:
        return self._length


class FilterSampler(Sampler):
    """The numbers of the samples for which `fn(sample)` is true."""

    def __init__(self, fn: Callable[[Any], bool], dataset: Samples) -> None:
        self._indices = [index for index in range(len(dataset)) if fn(dataset[index])]

    def __iter__(self) -> Iterator[int]:
        return iter(self._indices)

    def __len__(self) -> int:
        return len(self._indices)


class IntervalSampler(Sampler):
    """Every `interval`-th number: 0, interval ..., then with rollover 1, interval + 1 ... until all were given."""

    def __init__(self, length: int, interval: int, rollover: bool = True) -> None:
        check_switches("IntervalSampler", rollover=rollover)
        if not 0 < interval <= length:
            raise ValueError(f"the interval must be between 1 and the length {length}, not {interval}")
        self._length = length
        self._interval = interval
        self._rollover = rollover

    def __iter__(self) -> Iterator[int]:
        for start in range(self._interval if self._rollover else 1):
            yield from range(start, self._length, self._interval)

    def __len__(self) -> int:
        return self._length if self._rollover else -(-self._length // self._interval)


class DistributedSampler(Sampler):
    """This worker's share of the numbers 0 to length - 1: all workers together take each number once in an epoch.

        sampler = gluon.data.DistributedSampler(len(dataset))
        loader = gluon.data.DataLoader(dataset, batch_size=64, sampler=sampler)
        for epoch in range(10):
            sampler.set_epoch(epoch)

    length : how many samples the data set has
    shuffle : in an order that follows from `seed` and the epoch, the same in all workers; else in their own order
    drop_last : leave out the rest that does not divide evenly; else the first numbers come twice, so that all workers
    have equally many
    num_parts, part_index : number of workers, and index of this worker; by default of the joined workers
    """

    def __init__(
        self,
        length: int,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        num_parts: int | None = None,
        part_index: int | None = None,
    ) -> None:
        check_switches("DistributedSampler", shuffle=shuffle, drop_last=drop_last)
        _check_whole("length", length)
        joined = group()
        self._parts = num_parts if num_parts is not None else 1 if joined is None else joined.size
        self._part = part_index if part_index is not None else 0 if joined is None else joined.rank
        if not 0 <= self._part < self._parts:
            raise SettingError(f"part_index {self._part} is not one of 0 to {self._parts - 1}")
        self._length, self._shuffle, self._seed, self._drop = length, shuffle, seed, drop_last
        self._epoch, self._taken = 0, 0

    def set_epoch(self, epoch: int) -> None:
        """The next iteration has the order of this epoch: without the call, every epoch has the order of the first."""
        _check_whole("epoch", epoch)
        self._epoch, self._taken = epoch, 0

    def resume(self, taken: int) -> None:
        """Leave out, in the next iteration, the first numbers of the epoch, which all workers have had together.

        Another number of workers may continue the epoch: `sampler.resume(batches * batch_size * workers)`.
        """
        _check_whole("taken", taken)
        self._taken = min(taken, self._length)

    def __iter__(self) -> Iterator[int]:
        order = np.arange(self._length)
        if self._shuffle:
            order = generator(self._seed, self._epoch).permutation(self._length)
        order, self._taken = order[self._taken :], 0
        extra = -len(order) % self._parts
        if self._drop:
            order = order[: len(order) // self._parts * self._parts]
        elif extra and len(order):
            order = np.concatenate([order, np.resize(order, extra)])
        return iter(order[self._part :: self._parts].tolist())

    def __len__(self) -> int:
        rest = self._length - self._taken
        return rest // self._parts if self._drop else -(-rest // self._parts)

    def get_state(self) -> dict[str, Any]:
        """The epoch, and how many of its numbers are left out."""
        return {"epoch": self._epoch, "taken": self._taken}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue as the sampler whose `get_state()` gave this."""
        self._epoch, self._taken = int(state["epoch"]), int(state["taken"])


def _check_whole(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        raise SettingError(f"DistributedSampler: {name} is a whole number of at least 0, not {value!r}")


class BatchSampler(Sampler):
    """Lists of `batch_size` numbers of another sampler.

    last_batch : what becomes of an incomplete last one: 'keep' gives it unchanged, 'discard' drops it, 'rollover' puts
        it at the beginning of the next iteration
    """

    def __init__(self, sampler: Sampler, batch_size: int, last_batch: str = "keep") -> None:
        check_choice("last_batch", last_batch, ("keep", "discard", "rollover"))
        self.sampler = sampler
        self._batch_size = batch_size
        self._last_batch = last_batch
        self._left: list[object] = []

    def __iter__(self) -> Iterator[list[Any]]:
        batch, self._left = self._left, []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self._batch_size:
                yield batch
                batch = []
        if not batch:
            return
        if self._last_batch == "keep":
            yield batch
        elif self._last_batch == "rollover":
            self._left = batch

    def get_state(self) -> dict[str, Any]:
        """The samples that 'rollover' has left, and the inner sampler's state if it has one."""
        return {"left": list(self._left), "sampler": sampler_state(self.sampler)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue as the BatchSampler whose `get_state()` gave this."""
        self._left = list(state["left"])
        set_sampler_state(self.sampler, state["sampler"])

    def __len__(self) -> int:
        if self._last_batch == "keep":
            return -(-len(self.sampler) // self._batch_size)
        if self._last_batch == "discard":
            return len(self.sampler) // self._batch_size
        return (len(self._left) + len(self.sampler)) // self._batch_size


_suggest_names(__name__)
