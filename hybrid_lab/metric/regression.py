"""Metrics of numbers: errors, correlation, the mean of a loss."""

from __future__ import annotations

from typing import Any

import numpy

from hybrid_lab.metric.base import Array, EvalMetric, alias, check_label_shapes, host, register


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


@register
class Loss(EvalMetric):
    """The mean of the predictions, which are losses; labels are not used."""

    def __init__(self, name: str = "loss", **names: Any) -> None:
        super().__init__(name, **names)

    def update(self, labels: Any, preds: Any) -> None:
        for pred in preds if isinstance(preds, (list, tuple)) else [preds]:
            values = host(pred)
            self._add(float(values.sum(dtype="float64")), values.size)
