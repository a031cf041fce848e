"""The iterator over batches of a pool of workers from which libraries derive their own loaders, as MXNet has it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.pool import AsyncResult, Pool
from multiprocessing.reduction import ForkingPickler  # noqa: F401 - libraries take it from here
from typing import Any, TypeAlias

from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray.context import Context

from .dataset import Samples

#: Makes a batch in a worker, of the numbers of its samples, the function for batches and the data set.
WorkerFunction: TypeAlias = Callable[..., Any]


def _as_in_context(data: object, ctx: Context) -> object:
    """The arrays in nested lists in a context, anything else unchanged."""
    if isinstance(data, NDArray):
        return data.as_in_context(ctx)
    return [_as_in_context(item, ctx) for item in data] if isinstance(data, (list, tuple)) else data


class _MultiWorkerIter:
    """Batches in the order of `batch_sampler`, each made by `worker_fn` in a pool.

    worker_fn : called with the samples' numbers, `batchify_fn` and `dataset`; without a data set it returns a pickle
    prefetch : how many batches are asked for beforehand; timeout : seconds that a batch may take
    A subclass may define `_push_next`, which asks for a batch. pin_memory, pin_device_id and data_loader are ignored.
    """

    def __init__(
        self,
        worker_pool: Pool,
        batchify_fn: Callable[[Any], Any],
        batch_sampler: Iterable[Any],
        pin_memory: bool = False,
        pin_device_id: int = 0,
        worker_fn: WorkerFunction | None = None,
        prefetch: int = 0,
        dataset: Samples | None = None,
        data_loader: object = None,
        timeout: float = 120,
    ) -> None:
        self._worker_pool, self._batchify_fn, self._batch_sampler = worker_pool, batchify_fn, batch_sampler
        self._worker_fn, self._dataset, self._timeout = worker_fn or _make_batch, dataset, timeout
        self._data_buffer: dict[int, AsyncResult[Any]] = {}
        self._rcvd_idx = self._sent_idx = 0
        self._iter: Iterator[Any] = iter(batch_sampler)
        for _ in range(prefetch):
            self._push_next()

    def __len__(self) -> int:
        return len(self._batch_sampler)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        return self

    def _push_next(self) -> None:
        """Ask for the next batch, if there is one."""
        numbers = next(self._iter, None)
        if numbers is not None:
            arguments = numbers, self._batchify_fn, self._dataset
            self._data_buffer[self._sent_idx] = self._worker_pool.apply_async(self._worker_fn, arguments)
            self._sent_idx += 1

    def __next__(self) -> object:
        """The next batch. Raises the worker's error, and multiprocessing.TimeoutError."""
        self._push_next()
        if self._rcvd_idx == self._sent_idx:
            raise StopIteration
        batch = self._data_buffer.pop(self._rcvd_idx).get(self._timeout)
        self._rcvd_idx += 1
        return pickle.loads(batch) if self._dataset is None else batch

    next = __next__


def _make_batch(numbers: Iterable[int], batchify_fn: Callable[[Any], object], dataset: Samples) -> object:
    return batchify_fn([dataset[number] for number in numbers])
