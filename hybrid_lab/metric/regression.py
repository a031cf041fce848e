"""Metrics of numbers: errors, correlation, the mean of a loss."""

from __future__ import annotations

import numpy

from hybrid_lab.diagnostics.formatting import check_choice
from hybrid_lab.metric.base import (
    Array,
    EvalMetric,
    Names,
    PlainMetric,
    alias,
    check_label_shapes,
    host,
    pairs,
    register,
)


class _Error(PlainMetric):
    """A mean error per batch, averaged over the batches."""

    def measure(self, label: Array, pred: Array) -> tuple[float, float]:
        label, pred = (array.reshape(-1, 1) if array.ndim == 1 else array for array in (label, pred))
        return float(self.error(label - pred)), 1

    def error(self, difference: Array) -> numpy.floating:
        """The error of a batch from its differences."""
        raise NotImplementedError


@register
class MAE(_Error):
    """Mean absolute error, averaged over the batches."""

    default_name = "mae"

    def error(self, difference: Array) -> numpy.floating:
        return numpy.abs(difference).mean()


@register
class MSE(_Error):
    """Mean squared error, averaged over the batches."""

    default_name = "mse"

    def error(self, difference: Array) -> numpy.floating:
        return numpy.square(difference).mean()


@register
class RMSE(_Error):
    """Root of the mean squared error, averaged over the batches."""

    default_name = "rmse"

    def error(self, difference: Array) -> numpy.floating:
        return numpy.sqrt(numpy.square(difference).mean())


@register
@alias("pearsonr")
class PearsonCorrelation(EvalMetric):
    """Correlation of predictions and labels.

    average : 'macro' averages the correlations of the batches; 'micro' is the correlation of all batches together
    """

    def __init__(
        self,
        name: str = "pearsonr",
        output_names: Names = None,
        label_names: Names = None,
        average: str = "macro",
    ) -> None:
        check_choice("average", average, ("macro", "micro"))
        self.average = average
        self._local, self._global = Spread(), Spread()
        super().__init__(name, output_names, label_names, average=average)

    def update(self, labels: object, preds: object) -> None:
        for label, pred in pairs(labels, preds):
            check_label_shapes(label, pred, shape=True)
            pair = numpy.stack([item.ravel().astype("float64") for item in (pred, label)])
            if self.average == "macro":
                self._add(float(numpy.corrcoef(pair)[0, 1]), 1)
                continue
            for spread in (self._local, self._global):
                spread.add(pair)
            self.num_inst, self.global_num_inst = self._local.count, self._global.count
            self.sum_metric = self._local.correlation * self.num_inst
            self.global_sum_metric = self._global.correlation * self.global_num_inst

    def totals(self) -> Array:
        return super().totals() if self.average == "macro" else self._global.sums()

    def of_totals(self, totals: Array) -> float:
        return super().of_totals(totals) if self.average == "macro" else Spread.of(totals).correlation

    def reset(self) -> None:
        self._global = Spread()
        super().reset()

    def reset_local(self) -> None:
        self._local = Spread()
        super().reset_local()


class Spread:
    """Count, means and products of deviations of two variables, batch after batch (Chan, Golub, LeVeque 1979)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean, self.products = numpy.zeros((2, 1)), numpy.zeros((2, 2))

    def add(self, pair: Array) -> None:
        """A batch of shape (2, n)."""
        n = pair.shape[1]
        if not n:
            return
        mean = pair.mean(axis=1, keepdims=True)
        apart, total = mean - self.mean, self.count + n
        self.products += (pair - mean) @ (pair - mean).T + apart @ apart.T * (self.count * n / total)
        self.mean += apart * (n / total)
        self.count = total

    def sums(self) -> Array:
        """The count, the sums, and the sums of products."""
        products = self.products + self.count * self.mean @ self.mean.T
        return numpy.concatenate([[self.count], self.count * self.mean[:, 0], products.reshape(-1)])

    @staticmethod
    def of(sums: Array) -> Spread:
        """The Spread with these `sums`."""
        spread = Spread()
        spread.count = int(sums[0])
        if spread.count:
            spread.mean = sums[1:3].reshape(2, 1) / spread.count
            spread.products = sums[3:].reshape(2, 2) - spread.count * spread.mean @ spread.mean.T
        return spread

    @property
    def correlation(self) -> float:
        """The correlation of the two variables; NaN if a variable is constant."""
        with numpy.errstate(invalid="ignore", divide="ignore"):
            return float(self.products[0, 1] / numpy.sqrt(self.products[0, 0] * self.products[1, 1]))


@register
class Loss(PlainMetric):
    """The mean of the predictions, which are losses; labels are not used."""

    default_name = "loss"

    def update(self, labels: object, preds: object) -> None:
        for pred in preds if isinstance(preds, (list, tuple)) else [preds]:
            values = host(pred)
            self._add(float(values.sum(dtype="float64")), values.size)
