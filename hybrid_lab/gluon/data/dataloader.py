"""DataLoader: batches from a data set, made in worker threads ahead of their use where wanted."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ..step import boundary
from .batchify import as_batch, default_batchify_fn
from .dataset import ArrayDataset, Samples
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler


class DataLoader:
    """Iterating gives the batches of one epoch.

    dataset : a Dataset, an array or a list
    batch_size, shuffle, sampler, last_batch : as in `BatchSampler`; or batch_sampler instead of all four
    batchify_fn : list of samples -> batch; default: stacked arrays
    num_workers : threads that make batches ahead; 0 makes them when they are asked for. Order and numbers are the same
    prefetch : how many batches are made ahead; default 2 * num_workers
    pin_memory, pin_device_id, thread_pool, timeout : accepted for MXNet's sake
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
    ) -> None:
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
        self._batch_sampler = batch_sampler
        self._batchify = batchify_fn
        self._workers = max(0, num_workers)
        self._ahead = max(0, 2 * self._workers if prefetch is None else prefetch)

    def __len__(self) -> int:
        return len(self._batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        batches = self._prefetched() if self._workers else map(self._make, self._batch_sampler)
        return boundary.until_epoch_end(batches) if boundary.epoch_listeners else batches

    def _make(self, indices: Sequence[int]) -> Any:
        if self._batchify is None and type(self._dataset) is ArrayDataset:
            parts = self._dataset.batch(indices)
            if parts is not None:
                batch = [as_batch(part) for part in parts]
                return batch if len(batch) > 1 else batch[0]
        return (self._batchify or default_batchify_fn)([self._dataset[index] for index in indices])

    def _prefetched(self) -> Iterator[object]:
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix="hybrid_lab-data")
        waiting: deque[Future[object]] = deque()
        try:
            for indices in self._batch_sampler:
                waiting.append(pool.submit(self._make, indices))
                if len(waiting) > self._ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
