"""Samplers: in which order samples are taken, and how they are grouped into batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.diagnostics.words import check_choice
from hybrid_lab.ndarray.random_state import state
from hybrid_lab.ops.kernels.philox import generator

from .dataset import Samples
from .position import sampler_state, set_sampler_state


class Sampler:
    """Base of the samplers: iterating gives the numbers of samples (or lists of them), `len()` how many.

    A sampler that draws random numbers draws them when its iteration begins, so that a checkpoint can repeat the order
    (`np.random`, `random` and `mx.random` will do). One that keeps a state from epoch to epoch, such as a generator of
    its own, also has `get_state()`, which returns numbers, texts, arrays, lists and dicts, and `set_state(state)`.
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


class BatchSampler(Sampler):
    """Lists of `batch_size` numbers of another sampler.

    last_batch : what becomes of an incomplete last one: 'keep' gives it as it is, 'discard' drops it,
        'rollover' puts it at the beginning of the next iteration
    """

    def __init__(self, sampler: Sampler, batch_size: int, last_batch: str = "keep") -> None:
        check_choice("last_batch", last_batch, ("keep", "discard", "rollover"))
        self._sampler = sampler
        self._batch_size = batch_size
        self._last_batch = last_batch
        self._left: list[object] = []

    def __iter__(self) -> Iterator[list[Any]]:
        batch, self._left = self._left, []
        for index in self._sampler:
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
        """The samples that 'rollover' has left, and the other sampler's state if it has one."""
        return {"left": list(self._left), "sampler": sampler_state(self._sampler)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue as the BatchSampler whose `get_state()` gave this."""
        self._left = list(state["left"])
        set_sampler_state(self._sampler, state["sampler"])

    def __len__(self) -> int:
        if self._last_batch == "keep":
            return -(-len(self._sampler) // self._batch_size)
        if self._last_batch == "discard":
            return len(self._sampler) // self._batch_size
        return (len(self._left) + len(self._sampler)) // self._batch_size
