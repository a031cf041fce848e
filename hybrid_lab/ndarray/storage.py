"""nd.save and nd.load: arrays in MXNet's `.params` files, or in safetensors files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.system.progress import shows_work

if TYPE_CHECKING:
    from hybrid_lab.formats.mxnet.params import Stored
    from hybrid_lab.formats.mxnet.sparse_parts import SparseParts

STORAGE_TYPES = {"undefined": -1, "default": 0, "row_sparse": 1, "csr": 2}
"""The numbers of MXNet's storage types in files."""

Loaded = dict[str, NDArray | None] | list[NDArray | None]


@shows_work("saving")
def save(fname: str | PathLike[str], data: NDArray | Sequence[NDArray] | Mapping[str, NDArray]) -> None:
    """Write one array, a list of arrays, or a dict of names and arrays, in MXNet's `.params` form.

    A name that ends with `.safetensors` gives a safetensors file, for a dict only. Raises DTypeError for other data,
    ArchiveError for data that the format cannot hold.
    """
    from hybrid_lab.formats.arrays import write_arrays

    if isinstance(data, NDArray):
        data = [data]
    arrays = (
        list(data.values()) if isinstance(data, Mapping) else list(data) if isinstance(data, (list, tuple)) else None
    )
    if arrays is None or not all(isinstance(item, NDArray) for item in arrays):
        raise DTypeError("save takes an NDArray, a list of NDArrays, or a dict of names and NDArrays")
    # The form in which MXNet's NumPy mode reads shapes such as () and (0, 3).
    np_shape = any(item.is_np and 0 in (item.ndim, item.size) for item in arrays) or None
    if isinstance(data, Mapping):
        write_arrays(fname, {name: _entry(item) for name, item in data.items()}, np_shape)
    else:
        write_arrays(fname, [_entry(item) for item in arrays], np_shape)


def _entry(array: NDArray) -> np.ndarray | SparseParts:
    """The values of an array as for a file: a NumPy array, or the parts of a sparse array."""
    if not array.buffer.stored:
        return array._data
    from hybrid_lab.ndarray.sparse.arrays import parts_of

    return parts_of(array)


@shows_work("loading")
def load(fname: str | PathLike[str]) -> Loaded:
    """The arrays that `save` (or MXNet) wrote: a list, or a dict if they have names. A safetensors file, under any file
    name, gives a dict. Sparse arrays of a `.params` file are sparse again. Raises ArchiveError.
    """
    from hybrid_lab.formats.arrays import read_stored_arrays

    return _wrapped(read_stored_arrays(fname))


def load_frombuffer(buf: bytes) -> Loaded:
    """As `load`, from the bytes of a file."""
    from hybrid_lab.formats.arrays import read_stored_arrays

    return _wrapped(read_stored_arrays(bytes(buf)))


def _wrapped(arrays: Stored) -> Loaded:
    def wrap(values: np.ndarray | SparseParts | None) -> NDArray | None:
        if values is None:
            return None
        if isinstance(values, np.ndarray):
            return NDArray.wrap(np.ascontiguousarray(values).reshape(values.shape))
        from hybrid_lab.ndarray.sparse.arrays import array_of

        return array_of(values)

    if isinstance(arrays, Mapping):
        return {name: wrap(values) for name, values in arrays.items()}
    return [wrap(values) for values in arrays]
