"""NDArrayIter: batches of arrays in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError, HybridLabError, InputError, SettingError, ShapeError
from hybrid_lab.diagnostics.formatting import check_choice
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray import array as nd_array
from hybrid_lab.ndarray.sparse import CSRNDArray, csr_matrix

from .batch import DataBatch, DataDesc, DataIter

Arrays: TypeAlias = "NDArray | np.ndarray | Sequence[NDArray | np.ndarray] | Mapping[str, NDArray | np.ndarray]"


class NDArrayIter(DataIter):
    """Batches of arrays of equal length.

        batches = mx.io.NDArrayIter(nd.arange(10).reshape((5, 2)), nd.arange(5), batch_size=2, last_batch_handle="pad")
        [(batch.data[0].shape, batch.pad) for batch in batches]

    data, label : an array, a list of them, or name -> array; in batches they stand in the order of their names. Of csr
        arrays, also SciPy's, batches are csr arrays
    shuffle : take the samples in a new random order after each reset; the order follows from `np.random.seed`
    epoch : how often `reset` has followed a batch
    last_batch_handle : what becomes of an incomplete last batch: 'pad' fills it with samples from the beginning,
        'discard' drops it, 'roll_over' keeps it for the beginning of the next epoch
    data_name, label_name : names of arrays without one; of several in a list "_0_data", "_1_data" ...
    layout : of each array; its N is the axis of the samples
    """

    def __init__(
        self,
        data: Arrays,
        label: Arrays | None = None,
        batch_size: int = 1,
        shuffle: bool = False,
        last_batch_handle: str = "pad",
        data_name: str = "data",
        label_name: str = "softmax_label",
        layout: str = "NCHW",
    ) -> None:
        check_switches("NDArrayIter", shuffle=shuffle)
        super().__init__(batch_size)
        if batch_size < 1:
            raise InputError(f"batch_size={batch_size} must be 1 or more")
        check_choice("last_batch_handle", last_batch_handle, ("pad", "discard", "roll_over"))
        self.data = named_arrays(data, data_name)
        self.label = named_arrays([] if label is None else label, label_name)
        if not self.data:
            raise InputError("NDArrayIter needs at least one array of data")
        self._axis = layout.find("N")
        self.layout, self.shuffle, self.last_batch_handle = layout, shuffle, last_batch_handle
        self.num_data = self.data[0][1].shape[0]
        for name, array in [*self.data, *self.label]:
            if array.shape[self._axis] != self.num_data:
                raise ShapeError(
                    f"all arrays need the same number of samples: {self.data[0][0]} has {self.num_data}, {name} "
                    f"{array.shape[self._axis]}"
                )
        self.idx = np.arange(self.num_data)
        self.epoch = 0
        self.cursor = -batch_size
        self._left: np.ndarray | None = None
        self._now = self.idx[:0]
        self.reset()

    @property
    def provide_data(self) -> list[DataDesc]:
        """The name and shape of each array of data."""
        return self._describe(self.data)

    @property
    def provide_label(self) -> list[DataDesc]:
        """The name and shape of each array of labels."""
        return self._describe(self.label)

    def _describe(self, arrays: Sequence[tuple[str, NDArray]]) -> list[DataDesc]:
        axis = self._axis
        return [
            DataDesc(
                name,
                (*array.shape[:axis], self.batch_size, *array.shape[axis + 1 :]),
                array.dtype,
                layout=self.layout,
            )
            for name, array in arrays
        ]

    def get_state(self) -> dict[str, Any]:
        """Where it stands, as data: the epoch, the order of the samples, and which come next."""
        order = {"idx": self.idx.copy(), "order": self._order.copy(), "now": self._now.copy()}
        return {"samples": self.num_data, "epoch": self.epoch, "cursor": self.cursor, "offset": self._offset, **order}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to the position of `get_state`: the next batches are the batches that followed it. A `reset` starts a new
        epoch, as everywhere.

        Raises HybridLabError for the state of another iterator; this one is as before then.
        """
        samples = state.get("samples")
        if type(samples) is not int or samples != self.num_data:
            raise HybridLabError(f"the iterator has {self.num_data} samples, that of the saved position {samples}")
        numbers: list[Any] = [state.get(name) for name in ("epoch", "cursor", "offset")]
        orders: list[Any] = [state.get(name) for name in ("idx", "order", "now")]
        if not all(type(each) is int for each in numbers) or not all(self._is_order(each) for each in orders):
            raise HybridLabError("this is not a saved position of an iterator over arrays")
        if sorted(orders[0].tolist()) != list(range(self.num_data)):
            raise HybridLabError("this is not a saved position of an iterator over arrays: samples are missing")
        self.epoch, self.cursor, self._offset = numbers
        self.idx, self._order, self._now = (each.copy() for each in orders)
        self._left = self._order[: self._offset] if self._offset else None

    def _is_order(self, numbers: object) -> bool:
        if not isinstance(numbers, np.ndarray) or numbers.dtype != self.idx.dtype or numbers.ndim != 1:
            return False
        return bool(((numbers >= 0) & (numbers < self.num_data)).all())

    def hard_reset(self) -> None:
        """Start again, without the samples that 'roll_over' has kept."""
        self._left = None
        self._start()

    def reset(self) -> None:
        """Start again; with 'roll_over' at the samples that the last epoch left."""
        if self.last_batch_handle == "roll_over" and self.num_data - self.batch_size < self.cursor < self.num_data:
            self._left = self._order[self.cursor + self._offset :]
        else:
            self._left = None
        self._start()

    def _start(self) -> None:
        self.epoch += len(self._now) > 0
        self._now = self.idx[:0]
        if self.shuffle:
            np.random.shuffle(self.idx)
        left = self.idx[:0] if self._left is None else self._left
        self._order = np.concatenate([left, self.idx])
        self.cursor = -self.batch_size - len(left)
        self._offset = len(left)

    def iter_next(self) -> bool:
        """Go to the next batch. False after the last, which with 'discard' and 'roll_over' is a complete one."""
        self.cursor += self.batch_size
        start = self.cursor + self._offset
        chosen = self._order[start : start + self.batch_size]
        if self.cursor >= self.num_data or (len(chosen) < self.batch_size and self.last_batch_handle != "pad"):
            return False
        self._now = np.concatenate([chosen, np.resize(self._order, self.batch_size - len(chosen))])
        return True

    def next(self) -> DataBatch:
        """The next batch. Raises StopIteration after the last."""
        if not self.iter_next():
            raise StopIteration
        data, label = ([self._chosen(array) for _, array in arrays] for arrays in (self.data, self.label))
        return DataBatch(data, label, self.getpad(), None)

    def getdata(self) -> NDArray | list[NDArray]:
        """The data of the current batch."""
        return [self._chosen(array) for _, array in self.data]

    def getlabel(self) -> NDArray | list[NDArray]:
        """The labels of the current batch."""
        return [self._chosen(array) for _, array in self.label]

    def _chosen(self, array: NDArray) -> NDArray:
        if isinstance(array, CSRNDArray):
            return rows_of(array, self._now)
        values = np.take(array.raw(), self._now, axis=self._axis)
        batch: NDArray = nd_array(values, ctx=array.context, dtype=values.dtype)
        return batch

    def getpad(self) -> int:
        """How many samples at the end only fill the batch up; with 'roll_over' how many are from the last epoch."""
        if self.last_batch_handle == "roll_over":
            return max(0, -self.cursor) if self.cursor > -self.batch_size else 0
        return max(0, self.cursor + self.batch_size - self.num_data)


def rows_of(array: CSRNDArray, rows: np.ndarray) -> CSRNDArray:
    """A csr array of these rows, in this order."""
    data, indices, indptr = (part.asnumpy() for part in (array.data, array.indices, array.indptr))
    counts = np.diff(indptr)[rows]
    starts = np.concatenate([[0], np.cumsum(counts)])
    places = np.repeat(indptr[rows] - starts[:-1], counts) + np.arange(starts[-1])
    shape = (len(rows), array.shape[1])
    return csr_matrix((data[places], indices[places], starts), shape=shape, dtype=array.dtype, ctx=array.context)


def named_arrays(arrays: Arrays, default_name: str) -> list[tuple[str, NDArray]]:
    """Names and arrays in the order of the names. Raises TypeError for anything but an array."""
    if isinstance(arrays, (np.ndarray, NDArray)) or hasattr(arrays, "tocsr"):
        arrays = [arrays]  # type: ignore[list-item]  # a matrix of SciPy, which is not imported here
    if isinstance(arrays, (list, tuple)):
        several = len(arrays) > 1
        arrays = {f"_{number}_{default_name}" if several else default_name: each for number, each in enumerate(arrays)}
    if not isinstance(arrays, Mapping):
        raise SettingError(f"{default_name} must be an array, a list of arrays or a dict of them, not {arrays!r:.60}")
    named = []
    for name, array in sorted(arrays.items()):
        try:
            if not isinstance(array, NDArray):
                array = csr_matrix(array) if hasattr(array, "tocsr") else nd_array(array)
            named.append((name, array))
        except (TypeError, ValueError) as error:
            raise DTypeError(f"{name} cannot be an array: {error}") from None
    return named
