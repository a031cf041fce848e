"""Monitor: statistics of the arrays inside of bound Symbols, every few batches."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from math import sqrt
from typing import Any

from hybrid_lab import ndarray as nd
from hybrid_lab.diagnostics.errors import SettingError
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.mxnet.executor import Executor
from hybrid_lab.ndarray import NDArray

__all__ = ["Monitor"]

Row = tuple[int, str, str]
"""Number of the batch, name of the array, its statistics as text."""


class Monitor:
    """Statistics of outputs, gradients, arguments and states, every `interval` batches.

        monitor = mx.mon.Monitor(100, pattern=".*weight|.*backward.*")
        module.install_monitor(monitor)     # or monitor.install(executor)
        monitor.tic()
        module.forward_backward(batch)
        monitor.toc_print()

    stat_func : from an array to an array or a list of arrays; the default is |x| / sqrt(size)
    pattern : which names, a regular expression for their beginning
    sort : order the rows by name
    monitor_all : the inputs of operators too
    Executors with a Monitor run operator by operator, which is slower.
    """

    def __init__(
        self,
        interval: int,
        stat_func: Callable[[NDArray], Any] | None = None,
        pattern: str = ".*",
        sort: bool = False,
        monitor_all: bool = False,
    ) -> None:
        self.interval, self.sort, self.monitor_all = interval, sort, monitor_all
        self.stat_func = stat_func or _mean_size
        self.re_prog = re.compile(pattern)
        self.activated, self.step = False, 0
        self.exes: list[Executor] = []
        self.queue: list[tuple[int, str, Any]] = []

    def install(self, exe: Executor) -> None:
        """Look into this Executor, too."""
        exe.set_monitor_callback(self._look, self.monitor_all)
        self.exes.append(exe)

    def _look(self, name: str, array: NDArray) -> None:
        if self.activated and self.re_prog.match(name):
            self.queue.append((self.step, name, self.stat_func(array)))

    def tic(self) -> None:
        """A batch begins."""
        if self.step % self.interval == 0:
            self.queue, self.activated = [], True
        self.step += 1

    def toc(self) -> list[Row]:
        """The batch ends: (number of the batch, name, statistics as text) of every array that was looked at."""
        if not self.activated:
            return []
        for exe in self.exes:
            symbol = exe.symbol
            for names, arrays in (
                (symbol.list_arguments(), exe.arg_arrays),
                (symbol.list_auxiliary_states(), exe.aux_arrays),
            ):
                for name, array in zip(names, arrays, strict=True):
                    self._look(name, array)
        self.activated = False
        rows = [(step, name, _text(values)) for step, name, values in self.queue]
        self.queue = []
        return sorted(rows, key=lambda row: row[1]) if self.sort else rows

    def toc_print(self) -> None:
        """As `toc`; logs the rows."""
        for step, name, text in self.toc():
            logging.info("Batch: %7d %30s %s", step, name, text)


def _mean_size(array: NDArray) -> NDArray:
    return nd.norm(array) / sqrt(array.size)


def _text(values: Any) -> str:
    """Arrays as text, each with a tabulator behind it. Raises SettingError for other values."""
    arrays = values if isinstance(values, list) else [values]
    for array in arrays:
        if not isinstance(array, NDArray):
            raise SettingError(f"stat_func of a Monitor gives an NDArray or a list of them, not {type(array).__name__}")
    return "".join(f"{array.asscalar() if array.size == 1 else array.asnumpy()}\t" for array in arrays)


_suggest_names(__name__)
