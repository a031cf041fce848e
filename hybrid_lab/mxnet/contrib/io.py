"""A Gluon DataLoader as a DataIter, for `mx.mod.Module` and other code that takes one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from numpy.typing import DTypeLike

from hybrid_lab import ndarray as nd
from hybrid_lab.data.io import DataDesc, DataIter
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.gluon.data import DataLoader
from hybrid_lab.ndarray import NDArray

__all__ = ["DataLoaderIter"]


class DataLoaderIter(DataIter):
    """Batches of a loader of pairs. The first batch is read at once, for the shapes.

    loader : a DataLoader that gives data and labels; data_name, label_name : names of the two inputs
    dtype : of data and labels

    A last batch that is smaller is filled with zeros, and `getpad()` counts them.
    """

    def __init__(
        self,
        loader: DataLoader,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: DTypeLike | None = "float32",
    ):
        super().__init__()
        dtype = "float32" if dtype is None else dtype
        self._loader, self.dtype = loader, dtype
        data, label = next(iter(loader))
        self.batch_size = data.shape[0]
        self._provided = [DataDesc(data_name, data.shape, dtype)], [DataDesc(label_name, label.shape, dtype)]
        self._batch: tuple[NDArray, NDArray] | None = None
        self._iterator: Iterator[tuple[NDArray, NDArray]] = iter(loader)

    @property
    def provide_data(self) -> list[DataDesc]:
        """Name, shape and dtype of the data of a batch."""
        return self._provided[0]

    @property
    def provide_label(self) -> list[DataDesc]:
        """Name, shape and dtype of the labels of a batch."""
        return self._provided[1]

    def reset(self) -> None:
        """Begin again with the first batch."""
        self._iterator = iter(self._loader)

    @property
    def epoch(self) -> int:
        """How many epochs the loader has ended."""
        return self._loader.epoch

    def get_state(self) -> dict[str, Any]:
        """Where the loader stands, as `DataLoader.get_state`."""
        return self._loader.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to where `get_state` was called. Raises HybridLabError for the state of another loader."""
        self._loader.set_state(state)
        self._iterator = iter(self._loader)

    def iter_next(self) -> bool:
        """Read a batch; False at the end."""
        self._batch = next(self._iterator, None)
        return self._batch is not None

    def _part(self, number: int) -> list[NDArray]:
        assert self._batch is not None, "call iter_next() first"
        array = self._batch[number].astype(self.dtype)
        missing = self.getpad()
        if missing:
            zeros = nd.zeros((missing, *array.shape[1:]), dtype=self.dtype)
            array = nd.concat(array, zeros, dim=0)
        return [array]

    def getdata(self) -> list[NDArray]:
        """The data of the batch."""
        return self._part(0)

    def getlabel(self) -> list[NDArray]:
        """The labels of the batch."""
        return self._part(1)

    def getpad(self) -> int:
        """How many rows at the end of the batch are filled up."""
        assert self._batch is not None, "call iter_next() first"
        return self.batch_size - len(self._batch[0])

    def getindex(self) -> None:
        """A loader does not say which rows of the data set it has read."""
        return


_suggest_names(__name__)
