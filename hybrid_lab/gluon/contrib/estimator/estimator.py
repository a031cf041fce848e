"""The Estimator: a training loop that calls event handlers."""

from __future__ import annotations

import copy
import logging
import sys
import warnings
from collections.abc import Iterable
from typing import Any

from hybrid_lab.context import Context, cpu, gpu, num_gpus
from hybrid_lab.gluon.block import Block
from hybrid_lab.gluon.data import DataLoader
from hybrid_lab.gluon.loss import Loss
from hybrid_lab.gluon.parameter import Parameter
from hybrid_lab.gluon.trainer import Trainer
from hybrid_lab.initializer import Initializer, Uniform
from hybrid_lab.metric import EvalMetric
from hybrid_lab.metric import Loss as LossMetric
from hybrid_lab.system.progress import Progress

from . import metrics as of_metrics
from .batch_processor import BatchProcessor
from .event_handler import (
    GradientUpdateHandler,
    LoggingHandler,
    MetricHandler,
    StoppingHandler,
    ValidationHandler,
)
from .events import BatchBegin, BatchEnd, EpochBegin, EpochEnd, EventHandler, TrainBegin, TrainEnd, checked, of_event

Handlers = EventHandler | Iterable[EventHandler] | None
Metrics = EvalMetric | Iterable[EvalMetric] | None


class Estimator:
    """Trains and evaluates a network.

    net, loss : the Block and the Loss; trainer : SGD with learning rate 0.001 if it is None
    train_metrics : default: the loss, and the accuracy with SoftmaxCrossEntropyLoss; val_metrics : default: copies
    initializer : for a network that is not initialized
    context : one or several; default gpu(0) if there is one, else cpu()
    val_net, val_loss : for evaluate; default: net and loss
    batch_processor : has fit_batch and evaluate_batch; default: BatchProcessor()

    `logger` writes to standard output, a progress bar to a terminal's standard error or a cell.
    """

    def __init__(
        self,
        net: Block,
        loss: Loss,
        train_metrics: Metrics = None,
        val_metrics: Metrics = None,
        initializer: Initializer | str | None = None,
        trainer: Trainer | None = None,
        context: Context | list[Context] | None = None,
        val_net: Block | None = None,
        val_loss: Loss | None = None,
        batch_processor: BatchProcessor | None = None,
    ):
        self.net, self.loss = net, _checked_loss(loss)
        self.val_net = net if val_net is None else val_net
        self.val_loss = self.loss if val_loss is None else _checked_loss(val_loss)
        self._train_metrics = of_metrics.checked(train_metrics)
        self._val_metrics = of_metrics.checked(val_metrics)
        self._name_metrics()
        self.logger = _own_logger()
        self.context = _checked_contexts(context)
        self._initialize(initializer)
        self.trainer = self._checked_trainer(trainer)
        self.batch_processor = _checked_processor(batch_processor)
        self.max_epoch: int | None = None
        self.max_batch: int | None = None
        self.batch_axis = 0

    def __getstate__(self) -> dict[str, Any]:
        """Pickled and copied without the logger, whose stream belongs to the process."""
        return {**vars(self), "logger": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, logger=_own_logger())

    def _name_metrics(self) -> None:
        """Complete the metrics, and prefix their names with "training" or "validation"."""
        if not self._train_metrics:
            name = self.loss.name.rstrip("0123456789")
            self._train_metrics = [*of_metrics.of_loss(self.loss), LossMetric(name)]
        for metric in self._train_metrics:
            metric.name = f"training {metric.name}"
        if not self._val_metrics:
            self._val_metrics = copy.deepcopy(self._train_metrics)
        for metric in self._val_metrics:
            name = metric.name
            metric.name = name.replace("training", "validation") if "training" in name else f"validation {name}"

    def _initialize(self, initializer: Initializer | str | None) -> None:
        parameters = self.net.collect_params().values()
        if not all(_has_contexts(parameter) for parameter in parameters):
            self.net.initialize(init=initializer or Uniform(), ctx=self.context)
        elif initializer:
            warnings.warn(
                "Network already fully initialized, skipping initialization. Leave out initializer=, or call "
                "net.initialize(init=..., force_reinit=True)",
                stacklevel=3,
            )

    def _checked_trainer(self, trainer: Trainer | None) -> Trainer:
        if trainer is None:
            warnings.warn("No trainer specified, SGD with learning rate 0.001 is used", stacklevel=3)
            return Trainer(self.net.collect_params(), "sgd", {"learning_rate": 0.001})
        if not isinstance(trainer, Trainer):
            raise ValueError(f"trainer must be a gluon.Trainer, not {trainer!r}")
        return trainer

    @property
    def train_metrics(self) -> list[EvalMetric]:
        """Metrics of the training data; their names begin with "training"."""
        return self._train_metrics

    @property
    def val_metrics(self) -> list[EvalMetric]:
        """Metrics of the validation data; their names begin with "validation"."""
        return self._val_metrics

    def evaluate(self, val_data: DataLoader, batch_axis: int = 0, event_handlers: Handlers = None) -> None:
        """Compute `val_metrics` on a loader's data; a MetricHandler and a LoggingHandler are added."""
        _check_loader(val_data)
        for metric in self.val_metrics:
            metric.reset()
        handlers = self._prepare_default_validation_handlers(event_handlers)
        for begin in of_event(handlers, EpochBegin):
            begin.epoch_begin(self)
        for batch in val_data:
            for first in of_event(handlers, BatchBegin):
                first.batch_begin(self, batch=batch)
            _, label, pred, loss = self.batch_processor.evaluate_batch(self, batch, batch_axis)
            for last in of_event(handlers, BatchEnd):
                last.batch_end(self, batch=batch, pred=pred, label=label, loss=loss)
        for end in of_event(handlers, EpochEnd):
            end.epoch_end(self)

    def fit(
        self,
        train_data: DataLoader,
        val_data: DataLoader | None = None,
        epochs: int | None = None,
        event_handlers: Handlers = None,
        batches: int | None = None,
        batch_axis: int = 0,
    ) -> None:
        """Train for a number of epochs or of batches.

        fit adds handlers that stop, update the parameters and the metrics, and log, each unless the user gives a
        handler of its kind; with val_data also a handler that evaluates after every epoch. Handlers are called in the
        order of `priority`.
        """
        _check_loader(train_data)
        if bool(epochs) == bool(batches):
            raise ValueError(f"fit needs a number of epochs or of batches: epochs={epochs}, batches={batches}")
        self.max_epoch, self.max_batch, self.batch_axis = epochs, batches, batch_axis
        handlers = self._prepare_default_handlers(val_data, event_handlers)
        for handler in of_event(handlers, TrainBegin):
            handler.train_begin(self)
        bar = Progress("training", self._number_of_batches(train_data), "batches")
        try:
            self._train(train_data, handlers, bar)
        finally:
            bar.close()
        for last in of_event(handlers, TrainEnd):
            last.train_end(self)

    def _train(self, train_data: DataLoader, handlers: list[EventHandler], bar: Progress) -> None:
        """Epochs, until a handler stops them."""
        done, stop = 0, False
        batch_ends = of_event(handlers, BatchEnd)
        while not stop:
            for handler in of_event(handlers, EpochBegin):
                handler.epoch_begin(self)
            for batch in train_data:
                for first in of_event(handlers, BatchBegin):
                    first.batch_begin(self, batch=batch)
                _, label, pred, loss = self.batch_processor.fit_batch(self, batch, self.batch_axis)
                answers = [each.batch_end(self, batch=batch, pred=pred, label=label, loss=loss) for each in batch_ends]
                done += 1
                bar.step(done)
                if any(answers):
                    break
            answers = [end.epoch_end(self) for end in of_event(handlers, EpochEnd)]
            stop = any(answers)

    def _number_of_batches(self, train_data: DataLoader) -> int:
        return self.max_batch or (self.max_epoch or 0) * len(train_data)

    def _prepare_default_handlers(self, val_data: DataLoader | None, event_handlers: Handlers) -> list[EventHandler]:
        given = checked(event_handlers)
        added: list[EventHandler] = [StoppingHandler(self.max_epoch, self.max_batch)]
        if not of_event(given, GradientUpdateHandler):
            added.append(GradientUpdateHandler())
        if not of_event(given, MetricHandler):
            added.append(MetricHandler(metrics=self.train_metrics))
        if val_data is not None and not of_event(given, ValidationHandler):
            added.append(ValidationHandler(val_data=val_data, eval_fn=self.evaluate))
        if not of_event(given, LoggingHandler):
            added.append(LoggingHandler(metrics=self.train_metrics))
        return _in_order(given, added, self.train_metrics + self.val_metrics)

    def _prepare_default_validation_handlers(self, event_handlers: Handlers) -> list[EventHandler]:
        given = checked(event_handlers)
        added: list[EventHandler] = []
        if not of_event(given, MetricHandler):
            added.append(MetricHandler(metrics=self.val_metrics))
        if not of_event(given, LoggingHandler):
            added.append(LoggingHandler(metrics=self.val_metrics))
        return _in_order(given, added, self.val_metrics)

    def _categorize_handlers(self, event_handlers: Iterable[EventHandler]) -> tuple[list[Any], ...]:
        """The handlers of each event: train begin, epoch begin, batch begin, batch end, epoch end, train end."""
        events: tuple[type[EventHandler], ...] = (TrainBegin, EpochBegin, BatchBegin, BatchEnd, EpochEnd, TrainEnd)
        return tuple([of_event(event_handlers, event) for event in events])


def _in_order(given: list[EventHandler], added: list[EventHandler], known: list[EvalMetric]) -> list[EventHandler]:
    """All handlers by priority. The user's handlers may only use metrics that an added handler updates."""
    if given and added:
        for handler in given:
            of_metrics.refuse_unknown(handler, known)
    return sorted([*given, *added], key=lambda handler: getattr(handler, "priority", 0))


def _checked_loss(loss: Loss) -> Loss:
    if not isinstance(loss, Loss):
        raise ValueError(f"loss must be a gluon.loss.Loss, not {loss!r}")
    return loss


def _check_loader(data: object) -> None:
    if not isinstance(data, DataLoader):
        raise ValueError(f"an Estimator takes a gluon.data.DataLoader, not {type(data).__name__}")


def _checked_contexts(context: object) -> list[Context]:
    if not context:
        return [gpu(0)] if num_gpus() else [cpu()]
    contexts = [context] if isinstance(context, Context) else context
    if not isinstance(contexts, list) or not all(isinstance(each, Context) for each in contexts):
        raise ValueError(f"context must be a Context such as mx.cpu(), or a list of them, not {context!r}")
    for each in contexts:
        if each.device_type == "gpu" and each.device_id >= num_gpus():
            raise AssertionError(f"{each} is not there; this machine has {num_gpus()} GPUs")
    return contexts


def _checked_processor(processor: BatchProcessor | None) -> BatchProcessor:
    if processor is None:
        return BatchProcessor()
    for method in ("fit_batch", "evaluate_batch"):
        if not callable(getattr(processor, method, None)):
            raise ValueError(f"batch_processor has no method {method}; it must have fit_batch and evaluate_batch")
    return processor


def _has_contexts(parameter: Parameter) -> bool:
    try:
        parameter.list_ctx()
    except RuntimeError:
        return False
    return True


def _own_logger() -> logging.Logger:
    logger = logging.Logger(name="Estimator", level=logging.INFO)
    logger.addHandler(logging.StreamHandler(sys.stdout))
    return logger
