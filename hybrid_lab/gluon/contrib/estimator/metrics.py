"""Metrics of an Estimator: checks, the metric that belongs to a loss, and which way a metric improves."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

import numpy as np

from hybrid_lab.gluon.access import num_workers
from hybrid_lab.gluon.loss import Loss, SoftmaxCrossEntropyLoss
from hybrid_lab.gluon.trainer import Trainer
from hybrid_lab.metric import Accuracy, CompositeEvalMetric, EvalMetric
from hybrid_lab.metric.base import over_workers

from .events import EventHandler


def checked(metrics: EvalMetric | Iterable[object] | None) -> list[EvalMetric]:
    """A list of plain metrics; composites give their parts. Raises ValueError if something else is among them."""
    if isinstance(metrics, CompositeEvalMetric):
        return [plain for metric in metrics.metrics for plain in checked(metric)]
    given = [metrics] if isinstance(metrics, EvalMetric) else list(metrics or ())
    known = [metric for metric in given if isinstance(metric, EvalMetric)]
    if len(known) != len(given):
        raise ValueError(f"metrics must be an EvalMetric or a list of them, not {metrics!r}")
    return known


def of_loss(loss: Loss) -> list[EvalMetric]:
    """The metrics computed for a loss if the user names none, without the loss itself."""
    return [Accuracy()] if isinstance(loss, SoftmaxCrossEntropyLoss) else []


def refuse_unknown(handler: EventHandler, known: Iterable[EvalMetric]) -> None:
    """Raise ValueError if an attribute of the handler with "metric" in its name holds metrics other than `known`, which
    would never be updated.
    """
    metrics = list(known)
    for name, value in vars(handler).items():
        if "metric" not in name or not value:
            continue
        for metric in value if isinstance(value, list) else [value]:
            if not any(metric is each for each in metrics):
                raise ValueError(
                    f"{type(handler).__name__}.{name} has {metric!r}, which the Estimator does not update. "
                    "Use the objects in estimator.train_metrics and estimator.val_metrics"
                )


def value_of(metric: EvalMetric, trainer: Trainer | None = None) -> float:
    """The value of a plain metric now; NaN before its first update. trainer : as for `values_of`"""
    return values_of([metric], trainer)[0]


def values_of(metrics: Sequence[EvalMetric], trainer: Trainer | None = None) -> list[float]:
    """The values of plain metrics now.

    trainer : if it trains with other workers, the values are totals over all workers, which must all make this call
    """
    if metrics and trainer is not None and num_workers(trainer) > 1:
        return [float(value) for _, value in over_workers(metrics)]
    return [float(metric.get()[1]) for metric in metrics]


class Comparison:
    """Whether a monitored metric has improved.

    mode : "max" or "min"; "auto" takes "max" for metrics with acc or f1 in their name, else "min"
    """

    def __init__(self, metric: EvalMetric, mode: str, handler: str):
        if mode not in ("auto", "min", "max"):
            warnings.warn(f"{handler}: the mode {mode!r} is unknown; 'auto' is used", RuntimeWarning, stacklevel=3)
            mode = "auto"
        name = metric.name.lower()
        self.larger = mode == "max" or (mode == "auto" and ("acc" in name or "f1" in name))

    @property
    def worst(self) -> float:
        """A value that every other one improves on."""
        return -np.inf if self.larger else np.inf

    def improves(self, value: float, best: float, least: float = 0.0) -> bool:
        """Whether `value` is better than `best` by more than `least`."""
        return value - least > best if self.larger else value + least < best
