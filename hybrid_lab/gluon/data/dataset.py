"""Data sets: samples by number, and views of them (transformed, filtered, sharded)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import Any, Protocol

import numpy as np

from hybrid_lab.data.recordio import MXIndexedRecordIO
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.ndarray import NDArray


class Samples(Protocol):
    """The type of a loader's data: a Dataset, an array or a list."""

    def __getitem__(self, index: int, /) -> Any: ...

    def __len__(self) -> int: ...


class Dataset:
    """Base of the data sets: `dataset[index]` is a sample, `len(dataset)` their number."""

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define __getitem__()")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} does not define __len__()")

    def filter(self, fn: Callable[[object], bool]) -> Dataset:
        """The samples for which `fn(sample)` is true; every sample is read once, now."""
        return _Chosen(self, [index for index in range(len(self)) if fn(self[index])])

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Part number `index` of `num_shards` contiguous parts; the first are larger by one if need be."""
        if not 0 <= index < num_shards:
            raise ValueError(f"the shard {index} is not one of 0 to {num_shards - 1}")
        size, rest = divmod(len(self), num_shards)
        start = size * index + min(index, rest)
        return _Chosen(self, range(start, start + size + (index < rest)))

    def take(self, count: int | None) -> Dataset:
        """The first `count` samples; all for None or a larger number. Raises ValueError for a negative one."""
        if count is not None and count < 0:
            raise ValueError(f"take: {count} is not a number of samples")
        size = len(self)
        return _Chosen(self, range(size if count is None or count > size else count))

    def sample(self, sampler: Iterable[int]) -> Dataset:
        """The samples whose numbers `sampler` gives, in its order."""
        return _Chosen(self, list(sampler))

    def transform(self, fn: Callable[..., object], lazy: bool = True) -> Dataset:
        """`fn` on every sample (`fn(*sample)` if samples are tuples): on access, or with lazy=False all at once."""
        check_switches("Dataset.transform", lazy=lazy)
        view = _Transformed(self, fn)
        return view if lazy else SimpleDataset([view[index] for index in range(len(view))])

    def transform_first(self, fn: Callable[[object], object], lazy: bool = True) -> Dataset:
        """`fn` on the first part of every sample, usually the data; labels are not changed."""
        check_switches("Dataset.transform_first", lazy=lazy)
        return self.transform(_First(fn), lazy)


class SimpleDataset(Dataset):
    """A list or array as a data set."""

    def __init__(self, data: Sequence[Any]) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> Any:
        return self._data[index]


class ArrayDataset(Dataset):
    """Arrays, lists or data sets of one length, side by side: sample i is (a[i], b[i] ...), or a[i] for a single one.

        data = gluon.data.ArrayDataset(nd.arange(6).reshape((3, 2)), [10, 20, 30])
        len(data)
        data[1]

    Raises ValueError if the lengths differ.
    """

    def __init__(self, *args: Any) -> None:
        if not args:
            raise ValueError("an ArrayDataset needs at least one array")
        self._length = len(args[0])
        for number, data in enumerate(args):
            if len(data) != self._length:
                raise ValueError(
                    "all arrays need the same length: "
                    f"the first has {self._length} samples, number {number} has {len(data)}"
                )
        # A vector's elements are read from the host without making an NDArray of each.
        self._data = [data.asnumpy() if isinstance(data, NDArray) and data.ndim == 1 else data for data in args]

    def __getitem__(self, index: int) -> Any:
        if len(self._data) == 1:
            return self._data[0][index]
        return tuple(data[index] for data in self._data)

    def __len__(self) -> int:
        return self._length

    def batch(self, indices: Sequence[int]) -> list[Any] | None:
        """The samples `indices` of every array at once, or None if the data are not all arrays."""
        if not all(isinstance(data, (NDArray, np.ndarray)) for data in self._data):
            return None
        chosen = np.asarray(indices)
        return [(data._data if isinstance(data, NDArray) else data)[chosen] for data in self._data]


class RecordFileDataset(Dataset):
    """The records of a file with an index beside it, which has the ending .idx; a sample is bytes."""

    def __init__(self, filename: str | PathLike[str]) -> None:
        self.filename = os.fspath(filename)
        self.idx_file = os.path.splitext(self.filename)[0] + ".idx"
        self._record = MXIndexedRecordIO(self.idx_file, self.filename, "r")

    def __getitem__(self, index: int) -> Any:
        """The bytes of a record."""
        return self._record.read_idx(self._record.keys[index])

    def __len__(self) -> int:
        return len(self._record.keys)


class _Chosen(Dataset):
    def __init__(self, dataset: Dataset, indices: Sequence[int]) -> None:
        self._dataset = dataset
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, index: int) -> Any:
        return self._dataset[self._indices[index]]


class _Transformed(Dataset):
    def __init__(self, dataset: Dataset, fn: Callable[..., Any]) -> None:
        self._dataset = dataset
        self._fn = fn

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        sample = self._dataset[index]
        return self._fn(*sample) if isinstance(sample, tuple) else self._fn(sample)


class _First:
    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self._fn = fn

    def __call__(self, first: Any, *rest: Any) -> Any:
        return (self._fn(first), *rest) if rest else self._fn(first)
