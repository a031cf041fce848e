"""Metrics: how good predictions are, accumulated over batches."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy

from hybrid_lab.diagnostics import ShapeError

__all__ = [
    "F1",
    "MAE",
    "MSE",
    "RMSE",
    "Accuracy",
    "CompositeEvalMetric",
    "CrossEntropy",
    "CustomMetric",
    "EvalMetric",
    "Loss",
    "NegativeLogLikelihood",
    "PearsonCorrelation",
    "Perplexity",
    "TopKAccuracy",
    "alias",
    "check_label_shapes",
    "create",
    "np",
    "register",
]

Array = numpy.ndarray
MetricClass = TypeVar("MetricClass", bound="type[EvalMetric]")

_registry: dict[str, type[EvalMetric]] = {}


def register(klass: MetricClass) -> MetricClass:
    """Class decorator: the metric can be created by its class name, in any case."""
    _registry[klass.__name__.lower()] = klass
    return klass


def alias(*names: str) -> Callable[[MetricClass], MetricClass]:
    """Class decorator: further names of a metric."""

    def add(klass: MetricClass) -> MetricClass:
        _registry.update((name.lower(), klass) for name in names)
        return klass

    return add


def create(metric: Any, *args: Any, **kwargs: Any) -> EvalMetric:
    """A metric from its name, from a function of (label, pred), or from a list of both.

    Raises ValueError for an unknown name.
    """
    if isinstance(metric, EvalMetric):
        return metric
    if isinstance(metric, (list, tuple)):
        return CompositeEvalMetric([create(each, *args, **kwargs) for each in metric])
    if callable(metric):
        return CustomMetric(metric, *args, **kwargs)
    klass = _registry.get(str(metric).lower())
    if klass is None:
        near = difflib.get_close_matches(str(metric).lower(), _registry, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(_registry))}"
        raise ValueError(f"there is no metric named {metric!r}; {hint}")
    return klass(*args, **kwargs)


def check_label_shapes(labels: Any, preds: Any, wrap: bool = False, shape: bool = False) -> tuple[Any, Any]:
    """Check that there are as many labels as predictions, or with `shape` that their shapes agree. Raises ShapeError.

    wrap : single arrays become lists of one
    """
    found = (tuple(labels.shape), tuple(preds.shape)) if shape else (len(labels), len(preds))
    if found[0] != found[1]:
        raise ShapeError(f"labels and predictions do not fit: {found[0]} and {found[1]}")
    if wrap:
        labels = labels if isinstance(labels, (list, tuple)) else [labels]
        preds = preds if isinstance(preds, (list, tuple)) else [preds]
    return labels, preds


def _host(array: Any) -> Array:
    return array.asnumpy() if hasattr(array, "asnumpy") else numpy.asarray(array)


class EvalMetric:
    """Base of the metrics: a sum and a count, whose quotient is the value.

    name : shown with the value; output_names, label_names : which entries `update_dict` uses, default all

    A subclass defines `measure(label, pred)` on NumPy arrays, returning what to add to sum and count; or, as in MXNet,
    overrides `update(labels, preds)`.
    """

    def __init__(
        self,
        name: str,
        output_names: Sequence[str] | None = None,
        label_names: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        self.name = str(name)
        self.output_names = output_names
        self.label_names = label_names
        self._has_global_stats = kwargs.pop("has_global_stats", True)
        self._kwargs = kwargs
        self.reset()

    def __str__(self) -> str:
        return f"EvalMetric: {dict(self.get_name_value())}"

    def get_config(self) -> dict[str, Any]:
        """The metric's name and settings."""
        names = {"output_names": self.output_names, "label_names": self.label_names}
        return {**self._kwargs, "metric": type(self).__name__, "name": self.name, **names}

    def measure(self, label: Array, pred: Array) -> tuple[float, float]:
        """What one pair of arrays adds to the sum and to the count."""
        raise NotImplementedError(f"{type(self).__name__} defines neither measure() nor update()")

    def update(self, labels: Any, preds: Any) -> None:
        """Add a batch. labels, preds : an NDArray each, or lists of as many (one per device or output)."""
        labels, preds = check_label_shapes(labels, preds, wrap=True)
        for label, pred in zip(labels, preds, strict=True):
            self._add(*self.measure(_host(label), _host(pred)))

    def _add(self, total: float, count: float) -> None:
        self.sum_metric += total
        self.num_inst += count
        self.global_sum_metric += total
        self.global_num_inst += count

    def update_dict(self, label: Mapping[str, Any], pred: Mapping[str, Any]) -> None:
        """Add a batch given by names."""
        preds = list(pred.values()) if self.output_names is None else [pred[name] for name in self.output_names]
        labels = list(label.values()) if self.label_names is None else [label[name] for name in self.label_names]
        self.update(labels, preds)

    def reset(self) -> None:
        """Forget everything."""
        self.reset_local()
        self.global_num_inst: float = 0
        self.global_sum_metric: float = 0.0

    def reset_local(self) -> None:
        """Forget what came since the last `reset_local`; `get_global` goes on."""
        self.num_inst: float = 0
        self.sum_metric: float = 0.0

    def value(self, total: float, count: float) -> float:
        """The metric from sum and count."""
        return total / count

    def get(self) -> tuple[Any, Any]:
        """(name, value); nan before the first update."""
        return self.name, self.value(self.sum_metric, self.num_inst) if self.num_inst else math.nan

    def get_global(self) -> tuple[Any, Any]:
        """(name, value) since `reset`."""
        if not self._has_global_stats:
            return self.get()
        return self.name, self.value(self.global_sum_metric, self.global_num_inst) if self.global_num_inst else math.nan

    def get_name_value(self) -> list[tuple[str, float]]:
        """`get()` as a list of pairs."""
        return _pairs(*self.get())

    def get_global_name_value(self) -> list[tuple[str, float]]:
        """`get_global()` as a list of pairs."""
        return _pairs(*self.get_global())


def _pairs(name: Any, value: Any) -> list[tuple[str, float]]:
    names = name if isinstance(name, list) else [name]
    return list(zip(names, value if isinstance(value, list) else [value], strict=True))


@register
@alias("composite")
class CompositeEvalMetric(EvalMetric):
    """Several metrics fed with the same batches; names and values come as lists."""

    def __init__(self, metrics: Sequence[Any] | None = None, name: str = "composite", **names: Any) -> None:
        self.metrics = [create(each) for each in metrics or ()]
        super().__init__(name, **names)

    def add(self, metric: Any) -> None:
        """Add a metric, or what `create` makes one of."""
        self.metrics.append(create(metric))

    def get_metric(self, index: int) -> EvalMetric:
        """One of the metrics."""
        return self.metrics[index]

    def update(self, labels: Any, preds: Any) -> None:
        for metric in self.metrics:
            metric.update(labels, preds)

    def update_dict(self, label: Mapping[str, Any], pred: Mapping[str, Any]) -> None:
        if self.label_names is not None:
            label = {name: value for name, value in label.items() if name in self.label_names}
        if self.output_names is not None:
            pred = {name: value for name, value in pred.items() if name in self.output_names}
        for metric in self.metrics:
            metric.update_dict(label, pred)

    def reset(self) -> None:
        for metric in self.metrics:
            metric.reset()

    def reset_local(self) -> None:
        for metric in self.metrics:
            metric.reset_local()

    def get(self) -> tuple[list[str], list[float]]:
        return _joined(metric.get_name_value() for metric in self.metrics)

    def get_global(self) -> tuple[list[str], list[float]]:
        return _joined(metric.get_global_name_value() for metric in self.metrics)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "metrics": [metric.get_config() for metric in self.metrics]}


def _joined(groups: Any) -> tuple[list[str], list[float]]:
    pairs = [pair for group in groups for pair in group]
    return [name for name, _ in pairs], [value for _, value in pairs]


# -- classification ------------------------------------------------------------------------------------------------


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
            truth, chosen = _host(label).astype("int32").ravel(), _host(pred).argmax(axis=1)
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


# -- regression ----------------------------------------------------------------------------------------------------


class _Error(EvalMetric):
    """A mean error per batch, averaged over the batches."""

    def measure(self, label: Array, pred: Array) -> tuple[float, float]:
        label, pred = (array.reshape(-1, 1) if array.ndim == 1 else array for array in (label, pred))
        return float(self.error(label - pred)), 1

    def error(self, difference: Array) -> Any:
        """The error of a batch from its differences."""
        raise NotImplementedError


@register
class MAE(_Error):
    """Mean absolute error, averaged over the batches."""

    def __init__(self, name: str = "mae", **names: Any) -> None:
        super().__init__(name, **names)

    def error(self, difference: Array) -> Any:
        return numpy.abs(difference).mean()


@register
class MSE(_Error):
    """Mean squared error, averaged over the batches."""

    def __init__(self, name: str = "mse", **names: Any) -> None:
        super().__init__(name, **names)

    def error(self, difference: Array) -> Any:
        return numpy.square(difference).mean()


@register
class RMSE(_Error):
    """Root of the mean squared error, averaged over the batches."""

    def __init__(self, name: str = "rmse", **names: Any) -> None:
        super().__init__(name, **names)

    def error(self, difference: Array) -> Any:
        return numpy.sqrt(numpy.square(difference).mean())


@register
@alias("pearsonr")
class PearsonCorrelation(EvalMetric):
    """Correlation of predictions and labels, averaged over the batches."""

    def __init__(self, name: str = "pearsonr", **names: Any) -> None:
        super().__init__(name, **names)

    def measure(self, label: Array, pred: Array) -> tuple[float, float]:
        check_label_shapes(label, pred, shape=True)
        return float(numpy.corrcoef(pred.ravel().astype("float64"), label.ravel().astype("float64"))[0, 1]), 1


# -- values and functions ------------------------------------------------------------------------------------------


@register
class Loss(EvalMetric):
    """The mean of the predictions, which are losses; labels are not used."""

    def __init__(self, name: str = "loss", **names: Any) -> None:
        super().__init__(name, **names)

    def update(self, labels: Any, preds: Any) -> None:
        for pred in preds if isinstance(preds, (list, tuple)) else [preds]:
            values = _host(pred)
            self._add(float(values.sum(dtype="float64")), values.size)


@register
class CustomMetric(EvalMetric):
    """A function of NumPy arrays `feval(label, pred)` that returns a value, or (sum, count).

    allow_extra_outputs : there may be more predictions than labels
    """

    def __init__(
        self,
        feval: Callable[[Array, Array], Any],
        name: str | None = None,
        allow_extra_outputs: bool = False,
        **names: Any,
    ) -> None:
        if name is None:
            name = getattr(feval, "__name__", "feval")
            name = f"custom({name})" if "<" in name else name
        super().__init__(name, **names)
        self._feval = feval
        self._allow_extra_outputs = allow_extra_outputs

    def update(self, labels: Any, preds: Any) -> None:
        if not self._allow_extra_outputs:
            labels, preds = check_label_shapes(labels, preds, wrap=True)
        for label, pred in zip(labels, preds, strict=False):
            self._add(*self.measure(_host(label), _host(pred)))

    def measure(self, label: Array, pred: Array) -> tuple[float, float]:
        result = self._feval(label, pred)
        return result if isinstance(result, tuple) else (result, 1)


def np(
    numpy_feval: Callable[[Array, Array], Any], name: str | None = None, allow_extra_outputs: bool = False
) -> CustomMetric:
    """A metric from a function of NumPy arrays."""
    return CustomMetric(numpy_feval, name or numpy_feval.__name__, allow_extra_outputs)
