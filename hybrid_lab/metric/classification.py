"""Metrics of classes and of the probabilities given to them."""

from __future__ import annotations

import math

import numpy

from hybrid_lab.diagnostics import ShapeError
from hybrid_lab.diagnostics.formatting import check_choice
from hybrid_lab.metric.base import Array, EvalMetric, Names, PlainMetric, alias, pairs, register


@register
@alias("acc")
class Accuracy(EvalMetric):
    """Share of right classes. preds : class numbers as label, or scores with the classes along `axis`.

    ```python
    metric = mx.metric.Accuracy()
    metric.update(nd.array([0, 1]), nd.array([[0.9, 0.1], [0.8, 0.2]]))
    metric.get()
    ```
    """

    def __init__(
        self, axis: int = 1, name: str = "accuracy", output_names: Names = None, label_names: Names = None
    ) -> None:
        super().__init__(name, axis=axis, output_names=output_names, label_names=label_names)
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
    """Share of labels among the `top_k` highest scores. preds : (batch, classes); labels : (batch,).

        metric = mx.metric.TopKAccuracy(top_k=2)
        metric.update(nd.array([0, 2]), nd.array([[0.1, 0.2, 0.7], [0.2, 0.5, 0.3]]))
        metric.get()

    Among equal scores the first classes count as the highest. NaN is never among the highest.
    """

    def __init__(
        self, top_k: int = 1, name: str = "top_k_accuracy", output_names: Names = None, label_names: Names = None
    ) -> None:
        if top_k < 2:
            raise ValueError(f"top_k must be at least 2 (Accuracy is the metric for 1), not {top_k}")
        super().__init__(f"{name}_{top_k}", top_k=top_k, output_names=output_names, label_names=label_names)
        self.top_k = top_k

    def measure(self, label: Array, pred: Array) -> tuple[float, float]:
        if pred.ndim != 2:
            raise ShapeError(f"predictions must be scores of shape (batch, classes), not {pred.shape}")
        scores, classes = pred.astype("float32"), label.astype("int32").reshape(-1, 1)
        real = (classes >= 0) & (classes < pred.shape[1])
        score = numpy.take_along_axis(scores, numpy.where(real, classes, 0), axis=1)
        earlier = numpy.arange(pred.shape[1]) < classes
        better = ((scores > score) | ((scores == score) & earlier)).sum(axis=1, keepdims=True)
        return float((real & ~numpy.isnan(score) & (better < self.top_k)).sum()), len(pred)


class _TwoClasses(EvalMetric):
    """Base of the scores of class 1 of two. preds : (batch, 2); labels : as many, 0 or 1.

    average : 'macro' averages the score over the calls of `update`; 'micro' is the score of all samples together
    """

    def __init__(
        self,
        name: str | None = None,
        output_names: Names = None,
        label_names: Names = None,
        average: str = "macro",
    ) -> None:
        check_choice("average", average, ("macro", "micro"))
        self.average = average
        self._counts = numpy.zeros(4)  # true positives, false positives, false negatives, true negatives
        self._global_counts = numpy.zeros(4)
        super().__init__(name, output_names=output_names, label_names=label_names)

    def score(self, counts: Array) -> float:
        """The score from the numbers of true positives, false positives, false negatives and true negatives."""
        raise NotImplementedError

    def update(self, labels: object, preds: object) -> None:
        counts = numpy.zeros(4)
        for label, pred in pairs(labels, preds):
            truth, chosen = label.astype("int32").ravel(), pred.argmax(axis=1).ravel()
            if truth.size != chosen.size:
                raise ShapeError(f"{truth.size} labels for {chosen.size} predictions")
            if len(numpy.unique(truth)) > 2:
                raise ValueError(f"{type(self).__name__} is for two classes")
            cases = (1, 1), (1, 0), (0, 1), (0, 0)
            counts += [(((chosen == 1) == guess) & ((truth == 1) == right)).sum() for guess, right in cases]
        if self.average == "macro":
            self._add(self.score(counts), 1)
            return
        self._counts += counts
        self._global_counts += counts
        self.num_inst, self.global_num_inst = float(self._counts.sum()), float(self._global_counts.sum())
        self.sum_metric = self.score(self._counts) * self.num_inst
        self.global_sum_metric = self.score(self._global_counts) * self.global_num_inst

    def totals(self) -> Array:
        return super().totals() if self.average == "macro" else self._global_counts.copy()

    def of_totals(self, totals: Array) -> float:
        if self.average == "macro":
            return super().of_totals(totals)
        return self.score(totals) if totals.any() else math.nan

    def reset(self) -> None:
        self._global_counts[:] = 0
        super().reset()

    def reset_local(self) -> None:
        self._counts[:] = 0
        super().reset_local()


@register
class F1(_TwoClasses):
    """2 * precision * recall / (precision + recall) of class 1 of two. preds : (batch, 2); labels : 0 or 1.

    average : 'macro' averages the score over the calls of `update`; 'micro' is the score of all samples together
    """

    default_name = "f1"

    def score(self, counts: Array) -> float:
        hits, false_alarms, misses, _ = counts
        return float(2 * hits / (2 * hits + false_alarms + misses)) if hits else 0.0


@register
class MCC(_TwoClasses):
    """Matthews' correlation of predicted and true classes, of two (Biochimica et Biophysica Acta 405, 1975):
    (TP TN - FP FN) / sqrt((TP + FP) (TP + FN) (TN + FP) (TN + FN)), where factors of 0 are left out.

    preds : (batch, 2); labels : 0 or 1
    average : 'macro' averages the score over the calls of `update`; 'micro' is the score of all samples together
    """

    default_name = "mcc"

    def score(self, counts: Array) -> float:
        hits, false_alarms, misses, rejected = counts
        sums = hits + false_alarms, hits + misses, rejected + false_alarms, rejected + misses
        root = math.sqrt(math.prod(float(each) for each in sums if each))
        return float((hits * rejected - false_alarms * misses) / root)


@register
class PCC(PlainMetric):
    """The correlation of predicted and true classes, any number of them, over all samples (Gorodkin 2004); with two
    classes MCC. nan if all predictions or all labels are of one class.

    preds : (batch, classes), or class numbers shaped as the labels
    """

    default_name = "pcc"

    def reset(self) -> None:
        self._global_table = numpy.zeros((0, 0))  # by predicted and by true class
        super().reset()

    def reset_local(self) -> None:
        self._table = numpy.zeros((0, 0))
        super().reset_local()

    def update(self, labels: object, preds: object) -> None:
        for truth, pred in pairs(labels, preds):
            chosen = pred if pred.shape == truth.shape else pred.argmax(axis=1)
            if truth.size != chosen.size:
                raise ShapeError(f"{truth.size} labels for {chosen.size} predictions")
            table = _confusion(chosen.astype("int64").ravel(), truth.astype("int64").ravel())
            self._table, self._global_table = _summed(self._table, table), _summed(self._global_table, table)
        self.num_inst += 1
        self.global_num_inst += 1
        self.sum_metric = _correlation(self._table) * self.num_inst
        self.global_sum_metric = _correlation(self._global_table) * self.global_num_inst

    def totals(self) -> Array:
        return self._global_table

    def of_totals(self, totals: Array) -> float:
        return _correlation(totals) if totals.size else math.nan


def _confusion(chosen: Array, truth: Array) -> Array:
    """How often each class was predicted for each true one."""
    size = int(max(chosen.max(initial=0), truth.max(initial=0))) + 1
    table = numpy.zeros((size, size))
    numpy.add.at(table, (chosen, truth), 1)
    return table


def _summed(one: Array, other: Array) -> Array:
    size = max(len(one), len(other))
    return sum((numpy.pad(each, (0, size - len(each))) for each in (one, other)), numpy.zeros((size, size)))


def _correlation(table: Array) -> float:
    size, predicted, true = table.sum(), table.sum(axis=1), table.sum(axis=0)
    spread = (predicted * (size - predicted)).sum() * (true * (size - true)).sum()
    covariance = (table.diagonal() * size - predicted * true).sum()
    return float(covariance / math.sqrt(spread)) if spread else math.nan


class _LogProbability(EvalMetric):
    """-log of the probability given to the label. preds : (batch, classes) probabilities; labels : class numbers."""

    def __init__(
        self,
        eps: float = 1e-12,
        name: str | None = None,
        output_names: Names = None,
        label_names: Names = None,
    ) -> None:
        super().__init__(name, eps=eps, output_names=output_names, label_names=label_names)
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

    default_name = "cross-entropy"


@register
@alias("nll_loss")
class NegativeLogLikelihood(_LogProbability):
    """As CrossEntropy, under its other name."""

    default_name = "nll-loss"


@register
class Perplexity(EvalMetric):
    """exp of the mean -log probability of the labels.

        metric = mx.metric.Perplexity(ignore_label=None)
        metric.update(nd.array([0, 1]), nd.array([[0.9, 0.1], [0.4, 0.6]]))
        metric.get()

    ignore_label : a label that does not count, or None; axis : the classes' axis of preds
    """

    def __init__(
        self,
        ignore_label: int | None,
        axis: int = -1,
        name: str = "perplexity",
        output_names: Names = None,
        label_names: Names = None,
    ) -> None:
        super().__init__(name, ignore_label=ignore_label, axis=axis, output_names=output_names, label_names=label_names)
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
