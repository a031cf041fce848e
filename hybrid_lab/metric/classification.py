"""Metrics of classes and of the probabilities given to them."""

from __future__ import annotations

import math
from typing import Any

import numpy

from hybrid_lab.diagnostics import ShapeError
from hybrid_lab.metric.base import Array, EvalMetric, alias, check_label_shapes, host, register


@register
@alias("acc")
class Accuracy(EvalMetric):
    """Share of right classes. preds : class numbers as label, or scores with the classes along `axis`."""

    def __init__(self, axis: int = 1, name: str = "accuracy", **names: Any) -> None:
        super().__init__(name, axis=axis, **names)
        self.axis = axis

    def measure(self, label: Array, pred: Array) -> tuple[float, float]:
        if pred.shape != label.shape:
            pred = pred.argmax(axis=self.axis)
        if pred.size != label.size:
            raise ShapeError(f"{label.size} labels for {pred.size} predictions")
        right = pred.astype("int32").ravel() == label.astype("int32").ravel()
        return float(right.sum()), right.size


@register
@alias("top_k_accuracy", "top_k_acc")
class TopKAccuracy(EvalMetric):
    """Share of labels among the `top_k` highest scores. preds : (batch, classes); labels : (batch,)."""

    def __init__(self, top_k: int = 1, name: str = "top_k_accuracy", **names: Any) -> None:
        if top_k < 2:
            raise ValueError(f"top_k is at least 2 (Accuracy is the metric for 1), not {top_k}")
        super().__init__(f"{name}_{top_k}", top_k=top_k, **names)
        self.top_k = top_k

    def measure(self, label: Array, pred: Array) -> tuple[float, float]:
        if pred.ndim != 2:
            raise ShapeError(f"predictions are scores of shape (batch, classes), not {pred.shape}")
        top = numpy.argpartition(pred.astype("float32"), -min(self.top_k, pred.shape[1]), axis=1)[:, -self.top_k :]
        return float((top == label.astype("int32").reshape(-1, 1)).sum()), len(pred)


@register
class F1(EvalMetric):
    """2 * precision * recall / (precision + recall) of class 1 of two. preds : (batch, 2); labels : 0 or 1.

    average : 'macro' averages the score over the calls of `update`; 'micro' is the score of all samples together
    """

    def __init__(self, name: str = "f1", average: str = "macro", **names: Any) -> None:
        if average not in ("macro", "micro"):
            raise ValueError(f"average is 'macro' or 'micro', not {average!r}")
        self.average = average
        self._counts = numpy.zeros(3)  # true positives, false positives, false negatives
        self._global_counts = numpy.zeros(3)
        super().__init__(name, **names)

    def update(self, labels: Any, preds: Any) -> None:
        labels, preds = check_label_shapes(labels, preds, wrap=True)
        counts = numpy.zeros(3)
        size = 0
        for label, pred in zip(labels, preds, strict=True):
            truth, chosen = host(label).astype("int32").ravel(), host(pred).argmax(axis=1)
            if len(numpy.unique(truth)) > 2:
                raise ValueError("F1 is for two classes")
            counts += [
                ((chosen == 1) & (truth == 1)).sum(),
                ((chosen == 1) & (truth != 1)).sum(),
                ((chosen != 1) & (truth == 1)).sum(),
            ]
            size += truth.size
        if self.average == "macro":
            self._add(_f1(counts), 1)
            return
        self._counts += counts
        self._global_counts += counts
        self.num_inst += size
        self.global_num_inst += size
        self.sum_metric = _f1(self._counts) * self.num_inst
        self.global_sum_metric = _f1(self._global_counts) * self.global_num_inst

    def reset(self) -> None:
        self._global_counts[:] = 0
        super().reset()

    def reset_local(self) -> None:
        self._counts[:] = 0
        super().reset_local()


def _f1(counts: Array) -> float:
    hits, false_alarms, misses = counts
    return float(2 * hits / (2 * hits + false_alarms + misses)) if hits else 0.0


class _LogProbability(EvalMetric):
    """-log of the probability given to the label. preds : (batch, classes) probabilities; labels : class numbers."""

    def __init__(self, eps: float = 1e-12, name: str = "", **names: Any) -> None:
        super().__init__(name, eps=eps, **names)
        self.eps = eps

    def measure(self, label: Array, pred: Array) -> tuple[float, float]:
        label = label.ravel()
        if label.shape[0] != pred.shape[0]:
            raise ShapeError(f"{label.shape[0]} labels for {pred.shape[0]} predictions")
        chosen = pred[numpy.arange(len(label)), label.astype("int64")]
        return float(-numpy.log(chosen + self.eps).sum()), len(label)


@register
@alias("ce")
class CrossEntropy(_LogProbability):
    """Mean of -log(probability of the label + eps). preds : (batch, classes) probabilities."""

    def __init__(self, eps: float = 1e-12, name: str = "cross-entropy", **names: Any) -> None:
        super().__init__(eps, name, **names)


@register
@alias("nll_loss")
class NegativeLogLikelihood(_LogProbability):
    """As CrossEntropy, under its other name."""

    def __init__(self, eps: float = 1e-12, name: str = "nll-loss", **names: Any) -> None:
        super().__init__(eps, name, **names)


@register
class Perplexity(EvalMetric):
    """exp of the mean -log probability of the labels.

    ignore_label : a label that does not count, or None; axis : the classes' axis of preds
    """

    def __init__(self, ignore_label: int | None, axis: int = -1, name: str = "perplexity", **names: Any) -> None:
        super().__init__(name, ignore_label=ignore_label, axis=axis, **names)
        self.ignore_label = ignore_label
        self.axis = axis

    def measure(self, label: Array, pred: Array) -> tuple[float, float]:
        scores = numpy.moveaxis(pred, self.axis, -1).reshape(-1, pred.shape[self.axis])
        index = label.astype("int64").ravel()
        if len(index) != len(scores):
            raise ShapeError(f"labels {label.shape} do not fit predictions {pred.shape}")
        chosen = scores[numpy.arange(len(index)), numpy.clip(index, 0, scores.shape[1] - 1)]
        if self.ignore_label is not None:
            chosen = chosen[index != self.ignore_label]
        return float(-numpy.log(numpy.maximum(1e-10, chosen)).sum()), len(chosen)

    def value(self, total: float, count: float) -> float:
        return math.exp(total / count)
