"""Iterators over files: tables in CSV, and the MNIST digits."""

from __future__ import annotations

import gzip
import math
import os
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator
from os import PathLike

import numpy as np
from numpy.typing import DTypeLike

from hybrid_lab.data.io.parts import part_of
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.diagnostics.file_errors import reading
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray import array as nd_array

from .array_iter import NDArrayIter
from .batch import MXDataIter

_IDX_DTYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read_idx(path: str | PathLike[str]) -> np.ndarray:
    """The array of an IDX file, the format of MNIST, also compressed with gzip.

    Raises HybridLabError for a file of another format or a truncated file, and FileError.
    """
    with reading(path), open(path, "rb") as stream:
        data = stream.read()
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise HybridLabError(f"{os.fspath(path)} is damaged: it cannot be decompressed ({error})") from None
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


class _FileIter(NDArrayIter, MXDataIter):
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
    """Rows of CSV files, without a head line. Commas behind the last number of a row do not count, as in MXNet.

    data_csv, label_csv : paths; without labels there is a label of 0 for each row
    data_shape, label_shape : the shape of one row's numbers
    round_batch : fill the last batch up with rows from the beginning; else it is left out
    dtype : of data and labels; float32 by default
    Raises TableError, which names the file and the line, for files without rows of such numbers, and FileError.
    """

    def __init__(
        self,
        data_csv: str | PathLike[str],
        data_shape: tuple[int, ...] | int,
        label_csv: str | PathLike[str] | None = None,
        label_shape: tuple[int, ...] | int = (1,),
        batch_size: int = 1,
        round_batch: bool = True,
        dtype: DTypeLike | None = "float32",
        data_name: str = "data",
        label_name: str = "label",
    ) -> None:
        check_switches("CSVIter", round_batch=round_batch)
        data_shape, label_shape = (
            (shape,) if isinstance(shape, int) else tuple(shape) for shape in (data_shape, label_shape)
        )
        dtype = "float32" if dtype is None else dtype
        data = _table(data_csv, data_shape, dtype, "data_csv")
        if label_csv is None:
            label = np.zeros((len(data), *label_shape), dtype)
        else:
            label = _table(label_csv, label_shape, dtype, "label_csv")
            if len(label) != len(data):
                raise TableError(
                    f"there are labels for {len(label)} of the rows in {data_csv}, which has {len(data)}",
                    str(label_csv),
                )
        if label.shape[1:] == (1,):
            label = label[:, 0]
        last = "pad" if round_batch else "discard"
        super().__init__(data, label, batch_size, False, last, data_name, label_name)


class TableError(HybridLabError, ValueError):
    """A file that holds something else than the rows of numbers that were asked for.

    path : the file; line : the number of the first line that is wrong, from 1; None if no single line is
    """

    def __init__(self, problem: str, path: str, line: int | None = None) -> None:
        where = path if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: {problem}")
        self.problem, self.path, self.line = problem, path, line

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.problem, self.path, self.line)


def _table(path: str | PathLike[str], shape: tuple[int, ...], dtype: DTypeLike, argument: str) -> np.ndarray:
    """The rows of a CSV file, each in this shape. argument : name of the argument with the path, for messages"""
    if not isinstance(path, (str, PathLike)):
        raise SettingError(f"{argument} must be the path of a CSV file, not {type(path).__name__}")
    name, size = os.fspath(path), math.prod(shape)
    with reading(name), open(name, "rb"):
        pass  # loadtxt opens it again; its own errors of the system have no number
    try:
        rows = _numbers(name, dtype)
    except ValueError as error:
        wrong = _wrong_line(name, size, dtype)
        if wrong is not None:
            raise wrong from None
        try:
            rows = _numbers(_rows_without_last_commas(name), dtype)
        except ValueError:
            raise TableError(str(error), name) from None
    if not rows.size:
        raise TableError("there are no rows of numbers in this file", name)
    if rows.shape[1] != size:
        raise _wrong_line(name, size, dtype) or TableError(f"a row has {size} numbers; here are {rows.shape[1]}", name)
    return rows.reshape(len(rows), *shape)


def _numbers(source: str | Iterator[str], dtype: DTypeLike) -> np.ndarray:
    """The numbers of a CSV file, or of its rows. Raises ValueError."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "loadtxt: input contained no data")
        return np.loadtxt(source, delimiter=",", dtype=dtype, ndmin=2, encoding="utf-8-sig")


def _rows_without_last_commas(path: str) -> Iterator[str]:
    """The rows of a CSV file without comments, and without the commas behind their last numbers."""
    with np.lib.npyio.DataSource(None).open(path, "rt", encoding="utf-8-sig") as lines:
        for line in lines:
            yield _row(line)


#: The byte order mark of UTF-8, decoded as Latin-1.
_MARK = "\xef\xbb\xbf"


def _row(line: str) -> str:
    """A line without its comment, and without the commas behind its last number; one without numbers keeps them."""
    text = line.partition("#")[0].strip()
    return text.rstrip(", \t") or text


def _wrong_line(path: str, size: int, dtype: DTypeLike) -> TableError | None:
    """The error for the first line that does not hold `size` numbers of the dtype."""
    kind = np.dtype(dtype)
    number_of: Callable[[str], object] = kind.type
    with np.lib.npyio.DataSource(None).open(path, "rt", encoding="latin1") as lines:
        for number, line in enumerate(lines, 1):
            text = _row(line.removeprefix(_MARK) if number == 1 else line)
            if not text:
                continue
            fields = [field.strip() for field in text.split(",")]
            for field in fields:
                try:
                    number_of(field)
                except (ValueError, OverflowError):
                    return TableError(f"{field!r:.60} is no number of the dtype {kind.name}", path, number)
            if len(fields) != size:
                return TableError(f"a row has {size} numbers; here are {len(fields)}", path, number)
    return None


class MNISTIter(_FileIter):
    """The images and labels of MNIST from two local IDX files, also compressed files. Images are in [0, 1].

    flat : images as (batch, 784) instead of (batch, 1, 28, 28)
    seed : of the order if shuffle
    num_parts, part_index : read one of equal parts; by default the part of this worker among the joined workers
    input_shape, data_shape, prefetch_buffer, silent : without an effect, as the shapes are in MXNet: `flat` decides
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
        num_parts: int | None = None,
        part_index: int | None = None,
        input_shape: tuple[int, ...] | None = None,
        data_name: str = "data",
        label_name: str = "softmax_label",
        data_shape: tuple[int, ...] | None = None,
        prefetch_buffer: int = 4,
    ) -> None:
        check_switches("MNISTIter", shuffle=shuffle, flat=flat, silent=silent)
        images, labels = read_idx(image), read_idx(label)
        chosen = part_of(num_parts, part_index)
        if not 0 <= chosen.number < chosen.parts:
            raise SettingError(f"part_index {chosen.number} is not one of 0 to {chosen.parts - 1}")
        size = len(images) // chosen.parts
        part = slice(chosen.number * size, (chosen.number + 1) * size)
        if chosen.of_workers:
            part = chosen.slice(len(images))
        images, labels = images[part].astype("float32") / 256, labels[part].astype("float32")
        if len(images) != len(labels):
            raise HybridLabError(f"{image} has {len(images)} images, {label} has {len(labels)} labels")
        if shuffle:
            order = np.random.default_rng(seed).permutation(len(images))
            images, labels = images[order], labels[order]
        shape = (-1,) if flat else (1, *images.shape[1:])
        images = images.reshape(len(images), *shape)
        super().__init__(images, labels, batch_size, False, "discard", data_name, label_name)
