"""Callbacks of `Module.fit`: after a batch they are given a BatchEndParam, after an epoch (epoch, symbol, arguments,
states).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.distributed.worker_group import joined_workers
from hybrid_lab.mxnet.model import BatchEndParam, save_checkpoint

if TYPE_CHECKING:
    from hybrid_lab.ndarray import NDArray
    from hybrid_lab.symbol import Symbol

__all__ = [
    "LogValidationMetricsCallback",
    "ProgressBar",
    "Speedometer",
    "do_checkpoint",
    "log_train_metric",
    "module_checkpoint",
]


def module_checkpoint(
    mod: Any, prefix: str, period: int = 1, save_optimizer_states: bool = False
) -> Callable[..., None]:
    """After each `period` epochs, `mod.save_checkpoint(prefix, epoch, save_optimizer_states)`; of workers that train
    together, on rank 0 alone. It waits for no other worker, so that rank 0 alone may have the callback.
    """
    period = max(1, int(period))

    def save(epoch: int, sym: object = None, arg: object = None, aux: object = None) -> None:
        if (epoch + 1) % period == 0 and joined_workers()[0] == 0:
            mod.save_checkpoint(prefix, epoch + 1, save_optimizer_states)

    return save


def do_checkpoint(prefix: str, period: int = 1) -> Callable[..., None]:
    """After each `period` epochs, write the checkpoint `prefix-EPOCH.params` with `prefix-symbol.json`; of workers that
    train together, on rank 0 alone, as `module_checkpoint`.
    """
    period = max(1, int(period))

    def save(epoch: int, sym: Symbol, arg: Mapping[str, NDArray], aux: Mapping[str, NDArray]) -> None:
        if (epoch + 1) % period == 0 and joined_workers()[0] == 0:
            save_checkpoint(prefix, epoch + 1, sym, arg, aux)

    return save


def log_train_metric(period: int, auto_reset: bool = False) -> Callable[[BatchEndParam], None]:
    """After each `period` batches, log the metric.

    auto_reset : start the metric again each time; its value for the whole epoch stays
    """

    def log(param: BatchEndParam) -> None:
        if param.nbatch % period or param.eval_metric is None:
            return
        for name, value in param.eval_metric.get_name_value():
            logging.info("Iter[%d] Batch[%d] Train-%s=%f", param.epoch, param.nbatch, name, value)
        if auto_reset:
            param.eval_metric.reset_local()

    return log


class Speedometer:
    """Logs samples per second, and the metric, after each `frequent` batches.

    auto_reset : start the metric again each time
    """

    def __init__(self, batch_size: int, frequent: int = 50, auto_reset: bool = True) -> None:
        self.batch_size, self.frequent, self.auto_reset = batch_size, frequent, auto_reset
        self._since: float | None = None
        self._last = 0

    def __call__(self, param: BatchEndParam) -> None:
        """Take note of a batch."""
        count = param.nbatch
        if count < self._last:  # a new epoch
            self._since = None
        self._last = count
        if self._since is None:
            self._since = time.perf_counter()
            return
        if count % self.frequent:
            return
        elapsed = time.perf_counter() - self._since
        speed = self.frequent * self.batch_size / elapsed if elapsed else math.inf
        if param.eval_metric is None:
            logging.info("Iter[%d] Batch [%d]\tSpeed: %.2f samples/sec", param.epoch, count, speed)
        else:
            values = param.eval_metric.get_name_value()
            start = 0
            if self.auto_reset:
                start = count - self.frequent
                param.eval_metric.reset_local()
            metrics = "".join(f"\t{name}={value:f}" for name, value in values)
            logging.info(
                "Epoch[%d] Batch [%d-%d]\tSpeed: %.2f samples/sec%s", param.epoch, start, count, speed, metrics
            )
        self._since = time.perf_counter()


class ProgressBar:
    """Logs a bar of `length` characters, which is full after `total` batches."""

    def __init__(self, total: int, length: int = 80) -> None:
        self.total, self.bar_len = total, length

    def __call__(self, param: BatchEndParam) -> None:
        """Take note of a batch."""
        done = param.nbatch / self.total
        filled = round(self.bar_len * done)
        bar = "=" * filled + "-" * (self.bar_len - filled)
        logging.info("[%s] %s%%\r", bar, math.ceil(100 * done))


class LogValidationMetricsCallback:
    """Logs the metric of a validation; for `eval_end_callback` of `Module.fit`."""

    def __call__(self, param: BatchEndParam) -> None:
        """Take note of the end of a validation."""
        if param.eval_metric:
            for name, value in param.eval_metric.get_name_value():
                logging.info("Epoch[%d] Validation-%s=%f", param.epoch, name, value)


_suggest_names(__name__)
