"""Iterators over files: tables in CSV, and the MNIST digits."""

from __future__ import annotations

import gzip
import math
import os
import struct
from os import PathLike

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray import array as nd_array

from .array_iter import NDArrayIter

_IDX_DTYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read_idx(path: str | PathLike[str]) -> np.ndarray:
    """The array of an IDX file, the format of MNIST, also if it is compressed with gzip.

    Raises HybridLabError for another file or one that ends early.
    """
    with open(path, "rb") as stream:
        data = stream.read()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _IDX_DTYPES or len(data) < 4 + 4 * data[3]:
        raise HybridLabError(f"{os.fspath(path)} is not an IDX file, the format of MNIST")
    shape = struct.unpack_from(f">{data[3]}I", data, 4)
    dtype = np.dtype(_IDX_DTYPES[data[2]])
    start, count = 4 + 4 * len(shape), math.prod(shape)
    if len(data) - start != count * dtype.itemsize:
        raise HybridLabError(
            f"{os.fspath(path)} is damaged: {shape} needs {count * dtype.itemsize} bytes, it has {len(data) - start}"
        )
    values = np.frombuffer(data, dtype, count, start).reshape(shape)
    return values.astype(dtype.newbyteorder("="))


class _FileIter(NDArrayIter):
    """Base of the iterators over files, whose batches have one array of data and one of labels, in the given dtypes."""

    def __init__(
        self,
        data: np.ndarray,
        label: np.ndarray,
        batch_size: int,
        shuffle: bool,
        last_batch_handle: str,
        data_name: str,
        label_name: str,
    ) -> None:
        values, labels = nd_array(data, dtype=data.dtype), nd_array(label, dtype=label.dtype)
        super().__init__(values, labels, batch_size, shuffle, last_batch_handle, data_name, label_name)

    def getdata(self) -> NDArray:
        """The data of the current batch."""
        return self._chosen(self.data[0][1])

    def getlabel(self) -> NDArray:
        """The labels of the current batch."""
        return self._chosen(self.label[0][1])


class CSVIter(_FileIter):
    """Rows of CSV files, without a head line.

    data_csv, label_csv : paths; without labels there is a label of 0 for each row
    data_shape, label_shape : the shape of one row's numbers
    round_batch : fill the last batch up with rows from the beginning; else it is left out
    dtype : of data and labels; float32 by default
    """

    def __init__(
        self,
        data_csv: str,
        data_shape: tuple[int, ...],
        label_csv: str | None = None,
        label_shape: tuple[int, ...] = (1,),
        batch_size: int = 1,
        round_batch: bool = True,
        dtype: DTypeLike = "float32",
        data_name: str = "data",
        label_name: str = "label",
    ) -> None:
        data = _table(data_csv, data_shape, dtype)
        if label_csv is None:
            label = np.zeros((len(data), *label_shape), dtype)
        else:
            label = _table(label_csv, label_shape, dtype)
        if label.shape[1:] == (1,):
            label = label[:, 0]
        last = "pad" if round_batch else "discard"
        super().__init__(data, label, batch_size, False, last, data_name, label_name)


def _table(path: str, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
    try:
        rows = np.loadtxt(path, delimiter=",", dtype=dtype, ndmin=2)
        return rows.reshape(len(rows), *shape)
    except ValueError as error:
        raise HybridLabError(f"{path} cannot be read as rows of shape {shape}: {error}") from None


class MNISTIter(_FileIter):
    """The images and labels of MNIST from two local IDX files, also compressed ones. Images are in [0, 1].

    flat : images as (batch, 784) instead of (batch, 1, 28, 28)
    seed : of the order if shuffle; num_parts, part_index : read only one of equal parts
    """

    def __init__(
        self,
        image: str = "./train-images-idx3-ubyte",
        label: str = "./train-labels-idx1-ubyte",
        batch_size: int = 128,
        shuffle: bool = True,
        flat: bool = False,
        seed: int = 0,
        silent: bool = False,
        num_parts: int = 1,
        part_index: int = 0,
        input_shape: tuple[int, ...] | None = None,
        data_name: str = "data",
        label_name: str = "softmax_label",
    ) -> None:
        images, labels = read_idx(image), read_idx(label)
        size = len(images) // num_parts
        part = slice(part_index * size, (part_index + 1) * size)
        images, labels = images[part].astype("float32") / 256, labels[part].astype("float32")
        if shuffle:
            order = np.random.default_rng(seed).permutation(len(images))
            images, labels = images[order], labels[order]
        shape = input_shape or ((-1,) if flat else (1, *images.shape[1:]))
        images = images.reshape(len(images), *shape)
        super().__init__(images, labels, batch_size, False, "discard", data_name, label_name)
