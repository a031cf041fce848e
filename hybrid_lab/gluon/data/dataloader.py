"""DataLoader: batches from a data set, made in worker threads ahead of their use if wanted."""

from __future__ import annotations

import operator
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.ndarray.random_state import state as random_state

from ..step import boundary
from .batchify import as_batch, default_batchify_fn
from .dataset import ArrayDataset, Samples
from .position import Position, sampler_state, set_sampler_state
from .sampler import BatchSampler, DistributedSampler, RandomSampler, Sampler, SequentialSampler


class DataLoader:
    """Iterating gives the batches of one epoch.

        data = gluon.data.ArrayDataset(nd.arange(10).reshape((5, 2)), nd.arange(5))
        loader = gluon.data.DataLoader(data, batch_size=2, last_batch="keep")
        [x.shape for x, y in loader]

    dataset : a Dataset, an array or a list
    batch_size, shuffle, sampler, last_batch : as in `BatchSampler`; or batch_sampler instead of all four
    batchify_fn : list of samples -> batch; default: stacked arrays
    num_workers : threads that make batches ahead; 0 makes them when they are asked for. Order and numbers are the same,
        also for `mx.random`, in which each batch has a stream of its own
    prefetch : how many batches are made ahead; default 2 * num_workers
    pin_memory, pin_device_id, thread_pool, timeout, auto_reload : accepted for MXNet's sake

    epoch : how many epochs have ended, or were left by a `break`
    """

    def __init__(
        self,
        dataset: Samples,
        batch_size: int | None = None,
        shuffle: bool = False,
        sampler: Sampler | None = None,
        last_batch: str | None = None,
        batch_sampler: Collection[Sequence[int]] | Sampler | None = None,
        batchify_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        pin_device_id: int = 0,
        prefetch: int | None = None,
        thread_pool: bool = True,
        timeout: float = 120,
        auto_reload: bool = False,
    ) -> None:
        check_switches(
            "DataLoader", shuffle=shuffle, pin_memory=pin_memory, thread_pool=thread_pool, auto_reload=auto_reload
        )
        if batch_sampler is None:
            if batch_size is None:
                raise ValueError("a DataLoader needs batch_size, or a batch_sampler")
            if sampler is not None and shuffle:
                raise ValueError("shuffle applies only to the default sampler; your sampler decides the order")
            if sampler is None:
                sampler = RandomSampler(len(dataset)) if shuffle else SequentialSampler(len(dataset))
            batch_sampler = BatchSampler(sampler, batch_size, last_batch or "keep")
        elif batch_size is not None or shuffle or sampler is not None or last_batch is not None:
            raise ValueError(
                "batch_sampler replaces batch_size, shuffle, sampler and last_batch; give only one of the two"
            )
        self._dataset = dataset
        self._batch_size = batch_size
        self._batch_sampler = batch_sampler
        self._batchify = batchify_fn
        self._workers = 0 if sys.platform == "emscripten" else max(0, num_workers)  # a browser has no threads
        self._ahead = max(0, 2 * self._workers if prefetch is None else prefetch)
        self.epoch = 0
        self._running: Position | None = None
        self._resumed: Position | None = None

    def __len__(self) -> int:
        return len(self._batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        batches = self._one_epoch()
        return boundary.until_epoch_end(batches) if boundary.epoch_listeners else batches

    def __getstate__(self) -> dict[str, Any]:
        """Pickled and copied with its position: a copy delivers the batches that were still to come here."""
        position = None if (self._resumed or self._running) is None else self.get_state()
        return {**vars(self), "_running": None, "_resumed": None, "position": position}

    def __setstate__(self, state: dict[str, Any]) -> None:
        position = state.pop("position")
        vars(self).update(state)
        if position is not None:
            self.set_state(position)

    def get_state(self) -> dict[str, Any]:
        """The loader's position: the epoch, and how many of its batches have been delivered and in which order.

        Batches made ahead do not count. The random numbers of now are not part of it: `mx.checkpoint` saves them.
        """
        position = self._resumed or self._running
        where = {"sampler": sampler_state(self._batch_sampler)} if position is None else position.get_state()
        size = {} if self._batch_size is None else {"batch_size": self._batch_size}
        return {"epoch": self.epoch, "samples": len(self._dataset), **size, **where}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration deliver the batches that were still to come where `get_state` was called.

        Raises HybridLabError if the data set or the sampler is another one; the loader is as before then.
        """
        samples = state.get("samples")
        if type(samples) is not int or samples != len(self._dataset):
            raise HybridLabError(
                f"the data set has {len(self._dataset)} samples, that of the saved position {samples!r:.40}"
            )
        for key, number in (("epoch", state.get("epoch")), ("batch size", state.get("batch_size", 1))):
            if type(number) is not int or number < 0:
                raise HybridLabError(f"this is not a saved position of a DataLoader: its {key} is {number!r:.40}")
        if "start" in state:
            resumed = Position.resume(self._batch_sampler, state)
        else:
            set_sampler_state(self._batch_sampler, state.get("sampler"))
            resumed = None
        self.epoch, self._resumed, self._running = state["epoch"], resumed, None

    @property
    def can_share(self) -> bool:
        """Whether `share` can be called: the samples come from a DistributedSampler."""
        return isinstance(self._batch_sampler, BatchSampler) and isinstance(
            self._batch_sampler.sampler, DistributedSampler
        )

    def share(self, state: Mapping[str, Any], workers: int) -> None:
        """Continue an epoch that another number of workers began: all loaders together give the samples that were left.

        state : the result of `get_state` in one worker; workers : their number then
        Raises HybridLabError without a DistributedSampler, and for anything but a state that `get_state` returned.
        """
        sampler = getattr(self._batch_sampler, "sampler", None)
        if not isinstance(sampler, DistributedSampler):
            raise HybridLabError("only a loader with a DistributedSampler can share an epoch with other workers")
        try:
            place = (state.get("start") or state)["sampler"]["sampler"]
            batches, size = state.get("delivered", 0), state["batch_size"]
            taken = place["taken"] + batches * size * workers
            sampler.set_epoch(place["epoch"])
            sampler.resume(taken)
            epoch = operator.index(state["epoch"])
        except (LookupError, TypeError, AttributeError, HybridLabError) as error:
            raise HybridLabError(f"this is not a saved position of a DataLoader: {error!r:.100}") from None
        self.epoch, self._resumed, self._running = epoch, None, None

    def _one_epoch(self) -> Iterator[Any]:
        """The batches of an epoch, or the remaining batches of a resumed epoch."""
        position = self._resumed or Position.begin(self._batch_sampler)
        self._resumed, self._running = None, position
        made = self._prefetched(position) if self._workers else self._in_turn(position)
        try:
            for position.last, batch in made:
                position.delivered += 1
                yield batch
                del batch  # before the next one is made
        finally:
            if self._running is position:
                self._running = None
                self.epoch += 1

    def _in_turn(self, position: Position) -> Iterator[tuple[Sequence[int], Any]]:
        for number, indices in enumerate(position.indices, position.delivered):
            yield indices, self._make(indices, position.stream, number)

    def _make(self, indices: Sequence[int], stream: int, number: int) -> Any:
        with random_state.substream((stream, number)):
            return self._batch(indices)

    def _batch(self, indices: Sequence[int]) -> Any:
        if self._batchify is None and type(self._dataset) is ArrayDataset:
            parts = self._dataset.batch(indices)
            if parts is not None:
                batch = [as_batch(part) for part in parts]
                return batch if len(batch) > 1 else batch[0]
        return (self._batchify or default_batchify_fn)([self._dataset[index] for index in indices])

    def _prefetched(self, position: Position) -> Iterator[tuple[Sequence[int], Any]]:
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix="hybrid_lab-data")
        waiting: deque[tuple[Sequence[int], Future[Any]]] = deque()
        try:
            for number, indices in enumerate(position.indices, position.delivered):
                waiting.append((indices, pool.submit(self._make, indices, position.stream, number)))
                if len(waiting) > self._ahead:
                    yield _finished(*waiting.popleft())
            while waiting:
                yield _finished(*waiting.popleft())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _finished(indices: Sequence[int], batch: Future[Any]) -> tuple[Sequence[int], Any]:
    return indices, batch.result()
