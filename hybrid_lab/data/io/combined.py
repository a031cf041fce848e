"""Iterators over other iterators: of another length, and read ahead in threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from itertools import chain
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import HybridLabError, InputError, ShapeError
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.ndarray import NDArray
from hybrid_lab.system.pools import thread_pool

from .batch import DataBatch, DataDesc, DataIter


class _OverBatches(DataIter):
    """An iterator whose current batch is a DataBatch as a whole."""

    current_batch: DataBatch

    def getdata(self) -> Sequence[NDArray] | None:
        """The data of the current batch."""
        return self.current_batch.data

    def getlabel(self) -> Sequence[NDArray] | None:
        """The labels of the current batch."""
        return self.current_batch.label

    def getindex(self) -> np.ndarray | None:
        """The numbers of the current batch's samples, or None."""
        return self.current_batch.index

    def getpad(self) -> int | None:
        """How many samples at the end only fill the current batch up."""
        return self.current_batch.pad


class ResizeIter(_OverBatches):
    """Another iterator with `size` batches an epoch; after its last batch it starts again.

    reset_internal : whether `reset` resets the other iterator too
    """

    def __init__(self, data_iter: DataIter, size: int, reset_internal: bool = True) -> None:
        check_switches("ResizeIter", reset_internal=reset_internal)
        super().__init__(data_iter.batch_size)
        self.data_iter, self.size, self.reset_internal = data_iter, size, reset_internal
        self.cur = self.epoch = 0
        for name in ("provide_data", "provide_label", "default_bucket_key"):
            if hasattr(data_iter, name):
                setattr(self, name, getattr(data_iter, name))

    def reset(self) -> None:
        """Start a new epoch."""
        self.epoch += self.cur > 0
        self.cur = 0
        if self.reset_internal:
            self.data_iter.reset()

    def iter_next(self) -> bool:
        """Go to the next batch; False after `size` of them."""
        if self.cur == self.size:
            return False
        try:
            self.current_batch = self.data_iter.next()
        except StopIteration:
            self.data_iter.reset()
            self.current_batch = self.data_iter.next()
        self.cur += 1
        return True

    def get_state(self) -> dict[str, Any]:
        """Where it stands, as data. Raises HybridLabError if the inner iterator cannot tell its position."""
        return {"epoch": self.epoch, "cur": self.cur, "inner": _state_of(self.data_iter)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to where `get_state` was called. Raises HybridLabError for a state of another iterator."""
        epoch, cur = state.get("epoch"), state.get("cur")
        if type(epoch) is not int or type(cur) is not int or not 0 <= cur <= self.size:
            raise HybridLabError("this is not a saved position of a ResizeIter of this size")
        _put(self.data_iter, state.get("inner"))
        self.epoch, self.cur = epoch, cur


class PrefetchingIter(_OverBatches):
    """Batches of one or several iterators side by side; the next one is read in threads while one is used.

    rename_data, rename_label : for each iterator, its names -> other names
    """

    def __init__(
        self,
        iters: DataIter | Sequence[DataIter],
        rename_data: Sequence[Mapping[str, str]] | None = None,
        rename_label: Sequence[Mapping[str, str]] | None = None,
    ) -> None:
        self.iters: list[DataIter] = [iters] if isinstance(iters, DataIter) else list(iters)
        if not self.iters:
            raise InputError("PrefetchingIter needs at least one iterator")
        self.n_iter, self.rename_data, self.rename_label = len(self.iters), rename_data, rename_label
        super().__init__(self.provide_data[0].shape[0])
        self._pool = thread_pool(self.n_iter, "hybrid_lab-io")
        self._ahead: list[Future[DataBatch | None]] = []
        self._read()

    def _read(self) -> None:
        self._before = [_state_of(each) if hasattr(each, "get_state") else None for each in self.iters]
        self._ahead = [self._pool.submit(_next, each) for each in self.iters]

    @property
    def epoch(self) -> int:
        """How many epochs the first iterator has ended."""
        return int((self._before[0] or {}).get("epoch", 0))

    def get_state(self) -> dict[str, Any]:
        """Its position, as data, without the batch read ahead. Raises HybridLabError if an iterator cannot tell."""
        for each, state in zip(self.iters, self._before, strict=True):
            if state is None:
                _state_of(each)  # raises
        return {"epoch": self.epoch, "inner": self._before}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to where `get_state` was called. Raises HybridLabError for a state of other iterators."""
        inner = state.get("inner")
        if not isinstance(inner, list) or len(inner) != self.n_iter:
            raise HybridLabError("this is not a saved position of a PrefetchingIter of as many iterators")
        for reading in self._ahead:
            reading.result()
        before = [_state_of(each) for each in self.iters]
        try:
            for each, saved in zip(self.iters, inner, strict=True):
                _put(each, saved)
        except BaseException:
            for each, saved in zip(self.iters, before, strict=True):
                _put(each, saved)
            raise
        self._read()

    def __getstate__(self) -> dict[str, object]:
        """Pickled and copied without threads, with the batches that they have read ahead."""
        return {**vars(self), "_pool": None, "_ahead": [reading.result() for reading in self._ahead]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._pool = thread_pool(self.n_iter, "hybrid_lab-io")
        self._ahead = [self._pool.submit(_given, batch) for batch in state["_ahead"]]

    def __del__(self) -> None:
        if hasattr(self, "_pool"):
            self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def provide_data(self) -> list[DataDesc]:
        """The name and shape of each array of data."""
        return self._described("provide_data", self.rename_data)

    @property
    def provide_label(self) -> list[DataDesc]:
        """The name and shape of each array of labels."""
        return self._described("provide_label", self.rename_label)

    def _described(self, which: str, renamed: Sequence[Mapping[str, str]] | None) -> list[DataDesc]:
        found = []
        for number, each in enumerate(self.iters):
            for given in getattr(each, which):
                desc = given if isinstance(given, DataDesc) else DataDesc(*given)
                name = desc.name if renamed is None else renamed[number][desc.name]
                found.append(DataDesc(name, desc.shape, desc.dtype, desc.layout))
        return found

    def reset(self) -> None:
        """Start all iterators again."""
        for reading in self._ahead:
            reading.result()
        for each in self.iters:
            each.reset()
        self._read()

    def iter_next(self) -> bool:
        """Go to the next batch. Raises ValueError if the iterators differ in length or padding."""
        batches = [each.result() for each in self._ahead]
        ready = [batch for batch in batches if batch is not None]
        if not ready:
            return False
        if len(ready) < len(batches) or len({batch.pad for batch in ready}) > 1:
            raise ShapeError("the iterators of a PrefetchingIter give different numbers of samples")
        self._read()
        self.current_batch = DataBatch(
            list(chain.from_iterable(batch.data or () for batch in ready)),
            list(chain.from_iterable(batch.label or () for batch in ready)),
            ready[0].pad,
            ready[0].index,
            provide_data=self.provide_data,
            provide_label=self.provide_label,
        )
        return True

    def next(self) -> DataBatch:
        """The next batch. Raises StopIteration after the last."""
        if not self.iter_next():
            raise StopIteration
        return self.current_batch


def _next(iterator: DataIter) -> DataBatch | None:
    return next(iterator, None)


def _state_of(iterator: DataIter) -> dict[str, Any]:
    get = getattr(iterator, "get_state", None)
    if get is None:
        raise HybridLabError(f"a {type(iterator).__name__} has no get_state(): its position cannot be saved")
    state: dict[str, Any] = get()
    return state


def _put(iterator: Any, state: object) -> None:  # noqa: ANN401 - an iterator that can be put somewhere
    if not isinstance(state, Mapping) or not hasattr(iterator, "set_state"):
        raise HybridLabError(f"this is not a saved position of a {type(iterator).__name__}")
    iterator.set_state(state)


def _given(batch: DataBatch | None) -> DataBatch | None:
    return batch
