"""An iterator over files in LibSVM's format, which lists the numbers of a row that are not 0."""

from __future__ import annotations

import os
from os import PathLike

import numpy as np

from hybrid_lab.data.io.parts import part_of
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.diagnostics.file_errors import reading
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ndarray import array as nd_array
from hybrid_lab.ndarray.sparse import csr_matrix

from .array_iter import NDArrayIter
from .batch import MXDataIter


class LibSVMIter(NDArrayIter, MXDataIter):
    """Rows of a LibSVM file, such as `1 0:2.5 7:1`: a label, then index:value for the numbers that are not 0.

    Batches have a csr array of data, (batch_size, n), and float32 labels, (batch_size,); with label_libsvm the labels
    are a csr array, too. Indices count from 0. The last batch is filled up with rows from the beginning.

    data_libsvm, label_libsvm : paths; data_shape, label_shape : (n,), of one row
    num_parts, part_index : read only one of parts with almost equally many rows; by default the part of this worker
        among the joined workers
    prefetch_buffer : without effect, since the files are read at once
    Raises HybridLabError for a damaged file, with the line.
    """

    def __init__(
        self,
        data_libsvm: str | PathLike[str],
        data_shape: tuple[int, ...],
        label_libsvm: str | PathLike[str] | None = None,
        label_shape: tuple[int, ...] = (1,),
        batch_size: int = 1,
        round_batch: bool = True,
        num_parts: int | None = None,
        part_index: int | None = None,
        data_name: str = "data",
        label_name: str = "softmax_label",
        prefetch_buffer: int = 4,
    ) -> None:
        check_switches("LibSVMIter", round_batch=round_batch)
        if not round_batch:
            raise SettingError("LibSVMIter always fills the last batch up: leave out round_batch=False")
        chosen = part_of(num_parts, part_index)
        part_index, num_parts = chosen.number, chosen.parts
        if num_parts < 1:
            raise SettingError(f"num_parts={num_parts} must be 1 or more")
        if not 0 <= part_index < num_parts:
            raise SettingError(f"part_index={part_index} must be from 0 to num_parts - 1, which is {num_parts - 1}")
        columns = _columns("data_shape", data_shape)
        width = _columns("label_shape", label_shape)
        if label_libsvm is None and width != 1:
            raise SettingError(f"label_shape=({width},) needs label_libsvm=, the file of these labels")
        labels, data = read_libsvm(data_libsvm, columns)
        label: NDArray = nd_array(labels)
        if label_libsvm is not None:
            _, label = read_libsvm(label_libsvm, width)
            if len(label) != len(data):
                raise HybridLabError(f"{data_libsvm} has {len(data)} rows, {label_libsvm} has {len(label)}")
        part = slice(*(len(data) * end // num_parts for end in (part_index, part_index + 1)))
        if chosen.of_workers:
            part = chosen.slice(len(data))
        if part.start == part.stop:
            parts = f", too few for {num_parts} parts" if len(data) else ""
            raise HybridLabError(f"{os.fspath(data_libsvm)} has {len(data) or 'no'} rows{parts}")
        super().__init__(data[part], label[part], batch_size, False, "pad", data_name, label_name)

    def getdata(self) -> NDArray:
        """The data of the current batch."""
        return self._chosen(self.data[0][1])

    def getlabel(self) -> NDArray:
        """The labels of the current batch."""
        return self._chosen(self.label[0][1])


def read_libsvm(path: str | PathLike[str], columns: int) -> tuple[np.ndarray, NDArray]:
    """(labels, rows) of a LibSVM file: float32 (n,), and csr (n, columns).

    What follows a # is a comment. A weight behind the label, as in `1:0.5`, and `qid:3` are read and not used.
    """
    labels: list[float] = []
    values: list[float] = []
    indices: list[int] = []
    starts = [0]
    name = os.fspath(path)
    with reading(name), open(name, encoding="utf-8-sig", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            label, *pairs = line.partition("#")[0].split() or [""]
            if not label:
                continue
            try:
                labels.append(float(label.partition(":")[0]))
                pairs = [pair for pair in pairs if not pair.startswith("qid:")]
                row: dict[int, float] = {}
                for pair in pairs:
                    index, value = pair.split(":")
                    row[int(index)] = float(value)
            except ValueError:
                raise HybridLabError(
                    f"{name}, line {number}: {line.strip():.60} is not a label with pairs like 3:1.5"
                ) from None
            if len(row) != len(pairs) or not all(0 <= index < columns for index in row):
                raise HybridLabError(
                    f"{name}, line {number}: the indices must differ and be from 0 to {columns - 1}: {line.strip():.60}"
                )
            indices += sorted(row)
            values += [row[index] for index in sorted(row)]
            starts.append(len(indices))
    parts = np.array(values, "float32"), np.array(indices, "int64"), np.array(starts, "int64")
    return np.array(labels, "float32"), csr_matrix(parts, shape=(len(labels), columns))


def _columns(argument: str, shape: tuple[int, ...]) -> int:
    """The only size of a row's shape."""
    sizes = tuple(shape) if isinstance(shape, (list, tuple)) else (shape,)
    if len(sizes) != 1 or not isinstance(sizes[0], (int, np.integer)):
        raise SettingError(f"{argument} must have one size, such as (10,), not {shape!r}")
    return int(sizes[0])
