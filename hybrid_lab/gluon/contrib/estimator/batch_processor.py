"""BatchProcessor: the forward, loss and backward that an Estimator runs on one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hybrid_lab import autograd
from hybrid_lab.context import Context
from hybrid_lab.gluon.utils import split_and_load
from hybrid_lab.ndarray import NDArray

if TYPE_CHECKING:
    from .estimator import Estimator

Parts = list[NDArray]
"""One array for each context."""
Batch = Sequence[NDArray]
"""Data and labels, as a DataLoader gives them."""


class BatchProcessor:
    """Computes predictions, losses and gradients of a batch. Override the two methods for batches of another form."""

    def _get_data_and_label(self, batch: Batch, ctx: Sequence[Context], batch_axis: int = 0) -> tuple[Parts, Parts]:
        return split_and_load(batch[0], ctx, batch_axis), split_and_load(batch[1], ctx, batch_axis)

    def evaluate_batch(self, estimator: Estimator, val_batch: Batch, batch_axis: int = 0) -> tuple[Parts, ...]:
        """Data, labels, predictions and losses of a batch of the validation data, each one array for each context."""
        data, label = self._get_data_and_label(val_batch, estimator.context, batch_axis)
        pred = [estimator.val_net(part) for part in data]
        loss = [estimator.val_loss(*pair) for pair in zip(pred, label, strict=True)]
        return data, label, pred, loss

    def fit_batch(self, estimator: Estimator, train_batch: Batch, batch_axis: int = 0) -> tuple[Parts, ...]:
        """As evaluate_batch, recorded and differentiated; a GradientUpdateHandler updates the parameters later."""
        data, label = self._get_data_and_label(train_batch, estimator.context, batch_axis)
        with autograd.record():
            pred = [estimator.net(part) for part in data]
            loss = [estimator.loss(*pair) for pair in zip(pred, label, strict=True)]
        autograd.backward(loss)
        return data, label, pred, loss
