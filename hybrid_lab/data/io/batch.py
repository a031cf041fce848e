"""A batch, the description of its arrays, and the base class of the iterators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.ndarray import NDArray


class _NameAndShape(NamedTuple):
    name: str
    shape: tuple[int, ...]


class DataDesc(_NameAndShape):
    """The name and shape of one array of a batch: a pair (name, shape), which also has `dtype` and `layout`.

    layout : a letter for each axis, "NCHW"; N is the batch
    """

    dtype: DTypeLike
    layout: str | None

    def __new__(
        cls, name: str, shape: tuple[int, ...], dtype: DTypeLike = np.float32, layout: str | None = "NCHW"
    ) -> DataDesc:
        """See the class."""
        desc = super().__new__(cls, name, shape)
        desc.dtype, desc.layout = dtype, layout
        return desc

    def __repr__(self) -> str:
        return f"DataDesc[{self.name},{self.shape},{self.dtype},{self.layout}]"

    @staticmethod
    def get_batch_axis(layout: str | None) -> int:
        """The axis of the batch in a layout; 0 without a layout, -1 if it has none."""
        return 0 if layout is None else layout.find("N")

    @staticmethod
    def get_list(
        shapes: Iterable[tuple[str, tuple[int, ...]]], types: Iterable[tuple[str, DTypeLike]] | None
    ) -> list[DataDesc]:
        """Descriptions from pairs of names and shapes, and pairs of names and dtypes."""
        dtypes = dict(types or ())
        return [DataDesc(name, shape, dtypes[name]) if dtypes else DataDesc(name, shape) for name, shape in shapes]


class DataBatch:
    """Arrays of one batch.

    data, label : lists of arrays
    pad : how many samples at the end only fill the batch up
    index : numbers of the samples
    bucket_key : key of the BucketingModule's graph that takes the batch
    provide_data, provide_label : descriptions of the arrays
    """

    def __init__(
        self,
        data: Sequence[NDArray] | None,
        label: Sequence[NDArray] | None = None,
        pad: int | None = None,
        index: np.ndarray | None = None,
        bucket_key: object = None,
        provide_data: Sequence[DataDesc] | None = None,
        provide_label: Sequence[DataDesc] | None = None,
    ) -> None:
        for what, arrays in (("data", data), ("label", label)):
            if arrays is not None and not isinstance(arrays, (list, tuple)):
                raise SettingError(f"{what} of a DataBatch is a list of arrays, not {type(arrays).__name__}")
        self.data, self.label, self.pad, self.index = data, label, pad, index
        self.bucket_key, self.provide_data, self.provide_label = bucket_key, provide_data, provide_label

    def __str__(self) -> str:
        data = [array.shape for array in self.data or ()]
        label = [array.shape for array in self.label] if self.label else None
        return f"{type(self).__name__}: data shapes: {data} label shapes: {label}"


class DataIter:
    """Base of the iterators: `next()` gives a DataBatch or raises StopIteration, `reset()` starts again.

    A subclass defines `next`, or `iter_next` with `getdata`, `getlabel` and `getpad`; and `provide_data` and
    `provide_label`, the descriptions of its arrays.
    """

    def __init__(self, batch_size: int = 0) -> None:
        self.batch_size = batch_size

    def __iter__(self) -> DataIter:
        return self

    def __next__(self) -> DataBatch:
        return self.next()

    def reset(self) -> None:
        """Start again at the first batch."""

    def next(self) -> DataBatch:
        """The next batch. Raises StopIteration after the last."""
        if not self.iter_next():
            raise StopIteration
        data, label = self.getdata(), self.getlabel()
        data, label = ([each] if isinstance(each, NDArray) else each for each in (data, label))
        return DataBatch(data, label, self.getpad(), self.getindex())

    def iter_next(self) -> bool:
        """Go to the next batch; False after the last."""
        raise NotImplementedError(f"{type(self).__name__} does not define iter_next()")

    def getdata(self) -> NDArray | Sequence[NDArray] | None:
        """The data of the current batch; of iterators over files the array itself, as in MXNet."""
        raise NotImplementedError(f"{type(self).__name__} does not define getdata()")

    def getlabel(self) -> NDArray | Sequence[NDArray] | None:
        """The labels of the current batch; of iterators over files the array itself, as in MXNet."""
        raise NotImplementedError(f"{type(self).__name__} does not define getlabel()")

    def getindex(self) -> np.ndarray | None:
        """The numbers of the current batch's samples, or None."""
        return None

    def getpad(self) -> int | None:
        """How many samples at the end only fill the current batch up."""
        raise NotImplementedError(f"{type(self).__name__} does not define getpad()")


class MXDataIter(DataIter):
    """Base of the iterators that MXNet has in C++: CSVIter, MNISTIter, LibSVMIter, and those over image records. For
    `isinstance`; it has no instances of its own, because there is no library in C++ that they could call.
    """

    def __init__(self, batch_size: int = 0) -> None:
        if type(self) is MXDataIter:
            raise SettingError(
                "MXDataIter is the base of CSVIter, ImageRecordIter and other iterators; use one of these iterators"
            )
        super().__init__(batch_size)
