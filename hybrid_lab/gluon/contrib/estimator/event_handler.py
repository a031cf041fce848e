"""The handlers that an Estimator adds by itself, and handlers that stop it early."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from hybrid_lab.gluon.access import num_workers
from hybrid_lab.gluon.data import DataLoader
from hybrid_lab.metric import CompositeEvalMetric, EvalMetric
from hybrid_lab.metric import Loss as LossMetric

from . import metrics as of_metrics
from .checkpoint_handler import CheckpointHandler
from .events import BatchBegin, BatchEnd, EpochBegin, EpochEnd, EventHandler, TrainBegin, TrainEnd

if TYPE_CHECKING:
    from hybrid_lab.gluon.trainer import Trainer

    from .estimator import Estimator

__all__ = [
    "BatchBegin",
    "BatchEnd",
    "CheckpointHandler",
    "EarlyStoppingHandler",
    "EpochBegin",
    "EpochEnd",
    "EventHandler",
    "GradientUpdateHandler",
    "LoggingHandler",
    "MetricHandler",
    "StoppingHandler",
    "TrainBegin",
    "TrainEnd",
    "ValidationHandler",
]


class StoppingHandler(TrainBegin, BatchEnd, EpochEnd):
    """Stops after a number of epochs or batches; `fit` sets both when the training begins."""

    def __init__(self, max_epoch: int | None = None, max_batch: int | None = None):
        self.max_epoch, self.max_batch = max_epoch, max_batch
        self.current_batch = self.current_epoch = 0
        self.stop_training = False

    def train_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        self.max_epoch, self.max_batch = estimator.max_epoch, estimator.max_batch
        self.current_batch = self.current_epoch = 0

    def batch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> bool:
        self.current_batch += 1
        self.stop_training |= self.current_batch == self.max_batch
        return self.stop_training

    def epoch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> bool:
        self.current_epoch += 1
        self.stop_training |= self.current_epoch == self.max_epoch
        return self.stop_training


class MetricHandler(EpochBegin, BatchEnd):
    """Resets metrics at the beginning of an epoch and updates them after each batch."""

    def __init__(self, metrics: EvalMetric | Iterable[EvalMetric] | None, priority: float = -1000):
        self.metrics = of_metrics.checked(metrics)
        self.priority = priority

    def epoch_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        for metric in self.metrics:
            metric.reset()

    def batch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        for metric in self.metrics:
            if isinstance(metric, LossMetric):
                metric.update(0, kwargs["loss"])
            else:
                metric.update(kwargs["label"], kwargs["pred"])


class ValidationHandler(TrainBegin, BatchEnd, EpochEnd):
    """Evaluates on validation data every `epoch_period` epochs and every `batch_period` batches; None: never.

    eval_fn : called as eval_fn(val_data=..., batch_axis=..., event_handlers=...), such as estimator.evaluate
    """

    def __init__(
        self,
        val_data: DataLoader,
        eval_fn: Callable[..., object],
        epoch_period: int | None = 1,
        batch_period: int | None = None,
        priority: float = -1000,
        event_handlers: EventHandler | Iterable[EventHandler] | None = None,
    ):
        self.val_data, self.eval_fn = val_data, eval_fn
        self.epoch_period, self.batch_period = epoch_period, batch_period
        self.current_batch = self.current_epoch = 0
        self.priority, self.event_handlers = priority, event_handlers

    def train_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        self.current_batch = self.current_epoch = 0

    def batch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        self.current_batch += 1
        self._evaluate(estimator, self.current_batch, self.batch_period)

    def epoch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        self.current_epoch += 1
        self._evaluate(estimator, self.current_epoch, self.epoch_period)

    def _evaluate(self, estimator: Estimator, count: int, period: int | None) -> None:
        if period and count % period == 0:
            handlers = self.event_handlers
            self.eval_fn(val_data=self.val_data, batch_axis=estimator.batch_axis, event_handlers=handlers)


class LoggingHandler(TrainBegin, TrainEnd, EpochBegin, EpochEnd, BatchBegin, BatchEnd):
    """Writes metrics, learning rate and times to `estimator.logger`.

    log_interval : "epoch", or a number of batches
    priority : by default after all other handlers, when metrics are up to date
    """

    def __init__(
        self,
        log_interval: int | str = "epoch",
        metrics: EvalMetric | Iterable[EvalMetric] | None = None,
        priority: float = math.inf,
    ):
        if not isinstance(log_interval, int) and log_interval != "epoch":
            raise ValueError(f"log_interval={log_interval!r}; a number of batches or 'epoch' is needed")
        self.metrics = of_metrics.checked(metrics)
        self.log_interval, self.priority = log_interval, priority
        self._reset()

    def _reset(self) -> None:
        self.batch_index = self.current_epoch = self.processed_samples = 0
        self.log_interval_time = 0.0
        self.train_start = self.epoch_start = self.batch_start = time.time()

    def _values(self, trainer: Trainer | None = None) -> str:
        """trainer : for the values of all its workers; without it, this worker's"""
        values = of_metrics.values_of(self.metrics, trainer)
        return ", ".join(f"{metric.name}: {value:.4f}" for metric, value in zip(self.metrics, values, strict=True))

    def train_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        self._reset()
        trainer = estimator.trainer
        estimator.logger.info(
            f"Training begin: using optimizer {type(trainer.optimizer).__name__} "
            f"with current learning rate {trainer.learning_rate:.4f} "
        )
        epochs, batches = estimator.max_epoch, estimator.max_batch
        estimator.logger.info(f"Train for {epochs} epochs." if epochs else f"Train for {batches} batches.")

    def train_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        seconds = time.time() - self.train_start
        estimator.logger.info(
            f"Train finished using total {seconds:.0f}s with {self.current_epoch} epochs. "
            f"{self._values(estimator.trainer)}"
        )

    def epoch_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        self.epoch_start = time.time()
        if any("training" in metric.name for metric in self.metrics):
            rate = estimator.trainer.learning_rate
            estimator.logger.info(f"[Epoch {self.current_epoch}] Begin, current learning rate: {rate:.4f}")
        else:
            estimator.logger.info("Validation Begin")

    def epoch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        seconds = time.time() - self.epoch_start
        estimator.logger.info(
            f"[Epoch {self.current_epoch}] Finished in {seconds:.3f}s, {self._values(estimator.trainer)}"
        )
        self.current_epoch += 1
        self.batch_index = 0

    def batch_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        self.batch_start = time.time()

    def batch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        if isinstance(self.log_interval, int):
            self.processed_samples += kwargs["batch"][0].shape[0]
            self.log_interval_time += time.time() - self.batch_start
            if self.batch_index % self.log_interval == 0:
                estimator.logger.info(
                    f"[Epoch {self.current_epoch}][Batch {self.batch_index}][Samples {self.processed_samples}] "
                    f"time/interval: {self.log_interval_time:.3f}s {self._values()}"
                )
                self.log_interval_time = 0.0
        self.batch_index += 1


class EarlyStoppingHandler(TrainBegin, EpochEnd, TrainEnd):
    """Stops when the monitored metric has not improved for `patience` epochs.

    monitor : one of estimator.train_metrics or estimator.val_metrics
    min_delta : how much better counts as an improvement; baseline : a value to improve on from the beginning
    mode : "max", "min", or "auto": "max" for metrics with acc or f1 in their name
    """

    def __init__(
        self,
        monitor: EvalMetric,
        min_delta: float = 0,
        patience: int = 0,
        mode: str = "auto",
        baseline: float | None = None,
    ):
        if not isinstance(monitor, EvalMetric):
            raise ValueError("monitor must be one of estimator.train_metrics or estimator.val_metrics")
        if isinstance(monitor, CompositeEvalMetric):
            raise ValueError("monitor is a CompositeEvalMetric; choose one of the metrics in it")
        self.monitor, self.min_delta, self.patience, self.baseline = monitor, min_delta, patience, baseline
        self._comparison = of_metrics.Comparison(monitor, mode, "EarlyStoppingHandler")
        self._reset()

    def _reset(self) -> None:
        self.wait = self.stopped_epoch = self.current_epoch = 0
        self.stop_training = False
        self.best = self._comparison.worst if self.baseline is None else self.baseline

    def train_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        self._reset()

    def epoch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> bool:
        value = of_metrics.value_of(self.monitor, estimator.trainer)
        if math.isnan(value):
            warnings.warn(
                f"EarlyStoppingHandler: {self.monitor.name} was not updated; monitor one of estimator.train_metrics "
                "or estimator.val_metrics",
                RuntimeWarning,
                stacklevel=2,
            )
        elif self._comparison.improves(value, self.best, self.min_delta):
            self.best, self.wait = value, 0
        else:
            self.wait += 1
            if self.wait >= self.patience:
                self.stopped_epoch, self.stop_training = self.current_epoch, True
        self.current_epoch += 1
        return self.stop_training

    def train_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        if self.stopped_epoch > 0:
            name = self.monitor.name
            estimator.logger.info(f"[Epoch {self.stopped_epoch}] EarlyStoppingHandler: {name} does not improve, stop")


class GradientUpdateHandler(BatchEnd):
    """Updates the parameters after each batch. It comes first, so that all others see the new parameters."""

    def __init__(self, priority: float = -2000):
        self.priority = priority

    def batch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        loss = kwargs["loss"]
        parts = loss if isinstance(loss, list) else [loss]
        samples = sum(part.shape[0] for part in parts)
        estimator.trainer.step(samples * num_workers(estimator.trainer))
