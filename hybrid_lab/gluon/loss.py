"""Losses: HybridBlocks from predictions and labels to one number per sample."""

from __future__ import annotations

import math
from numbers import Real
from typing import TYPE_CHECKING, Any, Unpack, cast

from hybrid_lab.diagnostics.formatting import check_choice
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

from .hybrid import HybridBlock
from .nn.registry import layer

if TYPE_CHECKING:  # else they would be names of this public module
    from hybrid_lab.gluon.block import BlockOptions
    from hybrid_lab.ops.framework.protocols import Functions, Tensor

__all__ = [
    "CTCLoss",
    "CosineEmbeddingLoss",
    "HingeLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "L2Loss",
    "LogisticLoss",
    "Loss",
    "PoissonNLLLoss",
    "SDMLLoss",
    "SigmoidBCELoss",
    "SigmoidBinaryCrossEntropyLoss",
    "SoftmaxCELoss",
    "SoftmaxCrossEntropyLoss",
    "SquaredHingeLoss",
    "TripletLoss",
]


def _apply_weighting(
    F: Functions, loss: Tensor, weight: float | None = None, sample_weight: Tensor | None = None
) -> Tensor:
    """Multiply by `sample_weight` (broadcast) and by the number `weight`."""
    if sample_weight is not None:
        loss = F.broadcast_mul(loss, sample_weight)
    if weight is not None:
        if not isinstance(weight, Real):
            raise TypeError(f"the weight of a loss must be a number, not {weight!r}; sample_weight takes arrays")
        loss = loss * (weight if isinstance(weight, (int, float)) else float(weight))
    return loss


def _reshape_like(F: Functions, x: Tensor, y: Tensor) -> Tensor:
    """`x` in the shape of `y`."""
    return F.reshape_like(x, y)


class Loss(HybridBlock):
    """Base of the losses.

        class Absolute(gluon.loss.Loss):
            def __init__(self, **kwargs):
                super().__init__(weight=None, batch_axis=0, **kwargs)

            def hybrid_forward(self, F, pred, label):
                return F.abs(pred - label).mean(axis=0, exclude=True)

        Absolute()(nd.array([[1.0, 2.0]]), nd.array([[0.0, 4.0]]))

    weight : a number the loss is multiplied by, or None
    batch_axis : the axis of the samples; the loss is averaged over the remaining axes

    Subclasses define `hybrid_forward(F, pred, label, sample_weight=None)`; `sample_weight` must broadcast against
    the loss, (batch, 1) for example.
    """

    def __init__(self, weight: float | None = None, batch_axis: int = 0, **kwargs: Unpack[BlockOptions]) -> None:
        super().__init__(**kwargs)
        self._weight = weight
        self._batch_axis = batch_axis

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_axis={self._batch_axis}, w={self._weight})"

    def _mean(self, F: Functions, loss: Tensor, sample_weight: Tensor | None) -> Tensor:
        """The weighted loss, averaged over all axes but the samples'."""
        loss = _apply_weighting(F, loss, self._weight, sample_weight)
        return F.mean(loss, axis=self._batch_axis, exclude=True)


@layer
class L2Loss(Loss):
    """weight / 2 * (label - pred)^2, averaged per sample. pred : (batch, ...); label : as many elements -> (batch,).

    ```python
    gluon.loss.L2Loss()(nd.array([[1.0, 2.0]]), nd.array([[0.0, 4.0]]))
    ```
    """

    def __init__(self, weight: float = 1.0, batch_axis: int = 0, **kwargs: Unpack[BlockOptions]) -> None:
        super().__init__(weight, batch_axis, **kwargs)

    def hybrid_forward(self, F: Functions, pred: Tensor, label: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        label = _reshape_like(F, label, pred)
        weight = (1.0 if self._weight is None else self._weight) / 2
        loss = _apply_weighting(F, F.square(label - pred), weight, sample_weight)
        return F.mean(loss, axis=self._batch_axis, exclude=True)


@layer
class L1Loss(Loss):
    """|label - pred|, averaged per sample. pred : (batch, ...); label : as many elements -> (batch,)."""

    def hybrid_forward(self, F: Functions, pred: Tensor, label: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        label = _reshape_like(F, label, pred)
        return self._mean(F, F.abs(label - pred), sample_weight)


@layer
class SigmoidBinaryCrossEntropyLoss(Loss):
    """-(label * log(p) + (1 - label) * log(1 - p)) with p = sigmoid(pred), averaged per sample.

    from_sigmoid : pred is p already
    pos_weight : an optional input, factors of the positive part

    pred : (batch, ...); label in [0, 1] : as many elements -> (batch,)
    """

    def __init__(
        self,
        from_sigmoid: bool = False,
        weight: float | None = None,
        batch_axis: int = 0,
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._from_sigmoid = from_sigmoid

    def hybrid_forward(
        self,
        F: Functions,
        pred: Tensor,
        label: Tensor,
        sample_weight: Tensor | None = None,
        pos_weight: Tensor | None = None,
    ) -> Tensor:
        label = _reshape_like(F, label, pred)
        if self._from_sigmoid:
            loss = self._from_probabilities(F, pred, label, pos_weight)
        elif pos_weight is None:
            # log(1 + exp(-|x|)) does not overflow.
            loss = F.relu(pred) - pred * label + F.Activation(-F.abs(pred), act_type="softrelu")
        else:
            log_weight = 1 + F.broadcast_mul(pos_weight - 1, label)
            softplus = F.Activation(-F.abs(pred), act_type="softrelu") + F.relu(-pred)
            loss = pred - pred * label + log_weight * softplus
        return self._mean(F, loss, sample_weight)

    @staticmethod
    def _from_probabilities(F: Functions, pred: Tensor, label: Tensor, pos_weight: Tensor | None) -> Tensor:
        positive = F.log(pred + 1e-12) * label
        if pos_weight is not None:
            positive = F.broadcast_mul(positive, pos_weight)
        return -(positive + F.log(1.0 - pred + 1e-12) * (1.0 - label))


SigmoidBCELoss = SigmoidBinaryCrossEntropyLoss


@layer
class SoftmaxCrossEntropyLoss(Loss):
    """-log of the softmax's probability of the label.

        loss = gluon.loss.SoftmaxCrossEntropyLoss()
        loss(nd.array([[2.0, 1.0], [0.0, 3.0]]), nd.array([0, 0]))

    axis : the classes' axis
    sparse_label : label holds class numbers, shaped as pred without that axis; else probabilities shaped as pred
    from_logits : pred holds log probabilities already

    pred : (batch, classes) -> (batch,)
    """

    def __init__(
        self,
        axis: int = -1,
        sparse_label: bool = True,
        from_logits: bool = False,
        weight: float | None = None,
        batch_axis: int = 0,
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._axis = axis
        self._sparse_label = sparse_label
        self._from_logits = from_logits

    def hybrid_forward(self, F: Functions, pred: Tensor, label: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        if not self._from_logits:
            pred = F.log_softmax(pred, axis=self._axis)
        if self._sparse_label:
            loss = -F.pick(pred, label, axis=self._axis, keepdims=True)
        else:
            label = _reshape_like(F, label, pred)
            loss = -F.sum(pred * label, axis=self._axis, keepdims=True)
        return self._mean(F, loss, sample_weight)


SoftmaxCELoss = SoftmaxCrossEntropyLoss


@layer
class KLDivLoss(Loss):
    """label * (log(label) - pred), summed per sample. label : probabilities, shaped as pred.

    from_logits : pred holds log probabilities; False applies log_softmax along `axis`
    """

    def __init__(
        self,
        from_logits: bool = True,
        axis: int = -1,
        weight: float | None = None,
        batch_axis: int = 0,
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._from_logits = from_logits
        self._axis = axis

    def hybrid_forward(self, F: Functions, pred: Tensor, label: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        if not self._from_logits:
            pred = F.log_softmax(pred, axis=self._axis)
        loss = label * (F.log(label + 1e-12) - pred)
        loss = _apply_weighting(F, loss, self._weight, sample_weight)
        return F.sum(loss, axis=self._batch_axis, exclude=True)


@layer
class CTCLoss(Loss):
    """-log of the probability that the steps of pred spell label (connectionist temporal classification).

    layout : of pred, 'NTC' or 'TNC'; label_layout : 'NT' or 'TN'
    pred : (batch, steps, classes), before softmax, the last class being the blank
    label : (batch, length), classes from 0, and -1 behind its end
    pred_lengths, label_lengths : (batch,), if sequences are shorter -> (batch,)
    """

    def __init__(
        self, layout: str = "NTC", label_layout: str = "NT", weight: float | None = None, **kwargs: Unpack[BlockOptions]
    ) -> None:
        check_choice("CTCLoss: layout", layout, ("NTC", "TNC"))
        check_choice("CTCLoss: label_layout", label_layout, ("NT", "TN"))
        super().__init__(weight, label_layout.index("N"), **kwargs)
        self._layout, self._label_layout = layout, label_layout

    def hybrid_forward(
        self,
        F: Functions,
        pred: Tensor,
        label: Tensor,
        pred_lengths: Tensor | None = None,
        label_lengths: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        pred = F.swapaxes(pred, 0, 1) if self._layout == "NTC" else pred
        label = F.swapaxes(label, 0, 1) if self._label_layout == "TN" else label
        lengths = {"data_lengths": pred_lengths, "label_lengths": label_lengths}
        loss = F.CTCLoss(
            pred,
            label,
            **{name: length for name, length in lengths.items() if length is not None},
            use_data_lengths=pred_lengths is not None,
            use_label_lengths=label_lengths is not None,
            blank_label="last",
        )
        return _apply_weighting(F, loss, self._weight, sample_weight)


@layer
class HuberLoss(Loss):
    """0.5 / rho * d^2 for d = |label - pred| <= rho, d - rho / 2 beyond, averaged per sample."""

    def __init__(
        self, rho: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Unpack[BlockOptions]
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._rho = rho

    def hybrid_forward(self, F: Functions, pred: Tensor, label: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        label = _reshape_like(F, label, pred)
        loss = F.abs(label - pred)
        loss = F.where(cast(Any, loss) > self._rho, loss - 0.5 * self._rho, (0.5 / self._rho) * F.square(loss))
        return self._mean(F, loss, sample_weight)


class _MarginLoss(Loss):
    """Base of the losses with a margin."""

    def __init__(
        self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Unpack[BlockOptions]
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin


@layer
class HingeLoss(_MarginLoss):
    """max(0, margin - pred * label), label in {-1, 1}, averaged per sample."""

    def hybrid_forward(self, F: Functions, pred: Tensor, label: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        label = _reshape_like(F, label, pred)
        return self._mean(F, F.relu(self._margin - pred * label), sample_weight)


@layer
class SquaredHingeLoss(_MarginLoss):
    """max(0, margin - pred * label)^2, label in {-1, 1}, averaged per sample."""

    def hybrid_forward(self, F: Functions, pred: Tensor, label: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        label = _reshape_like(F, label, pred)
        return self._mean(F, F.square(F.relu(self._margin - pred * label)), sample_weight)


@layer
class LogisticLoss(Loss):
    """log(1 + exp(-pred * label)), averaged per sample. label_format : 'signed' (-1, 1) or 'binary' (0, 1)."""

    def __init__(
        self,
        weight: float | None = None,
        batch_axis: int = 0,
        label_format: str = "signed",
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        check_choice("label_format", label_format, ("signed", "binary"))
        super().__init__(weight, batch_axis, **kwargs)
        self._label_format = label_format

    def hybrid_forward(self, F: Functions, pred: Tensor, label: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        label = _reshape_like(F, label, pred)
        if self._label_format == "signed":
            label = (label + 1.0) / 2.0
        loss = F.relu(pred) - pred * label + F.Activation(-F.abs(pred), act_type="softrelu")
        return self._mean(F, loss, sample_weight)


@layer
class TripletLoss(_MarginLoss):
    """max(0, |pred - positive|^2 - |pred - negative|^2 + margin), squares summed per sample.

    pred, positive, negative : (batch, ...) of one shape -> (batch,)
    """

    def hybrid_forward(self, F: Functions, pred: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        positive = _reshape_like(F, positive, pred)
        negative = _reshape_like(F, negative, pred)
        squares = F.square(positive - pred) - F.square(negative - pred)
        loss = F.relu(F.sum(squares, axis=self._batch_axis, exclude=True) + self._margin)
        return _apply_weighting(F, loss, self._weight, None)


@layer
class PoissonNLLLoss(Loss):
    """exp(pred) - target * pred, or pred - target * log(pred) if not from_logits; the mean over everything.

    compute_full : add Stirling's formula for log(target!) if target > 1
    """

    def __init__(
        self,
        weight: float | None = None,
        from_logits: bool = True,
        batch_axis: int = 0,
        compute_full: bool = False,
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._from_logits = from_logits
        self._compute_full = compute_full

    def hybrid_forward(
        self, F: Functions, pred: Tensor, target: Tensor, sample_weight: Tensor | None = None, epsilon: float = 1e-8
    ) -> Tensor:
        target = _reshape_like(F, target, pred)
        loss = F.exp(pred) - target * pred if self._from_logits else pred - target * F.log(pred + epsilon)
        if self._compute_full:
            stirling = target * F.log(target) - target + 0.5 * F.log(2 * math.pi * target)
            loss = loss + F.where(cast(Any, target) > 1, stirling, F.zeros_like(stirling))
        return F.mean(_apply_weighting(F, loss, self._weight, sample_weight))


@layer
class CosineEmbeddingLoss(Loss):
    """1 - cos(input1, input2) for label 1, max(0, cos - margin) for label -1.

    input1, input2 : (batch, n), or (..., n) with as many rows; label : one for each row -> (rows, 1)
    """

    def __init__(
        self, weight: float | None = None, batch_axis: int = 0, margin: float = 0, **kwargs: Unpack[BlockOptions]
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(
        self, F: Functions, input1: Tensor, input2: Tensor, label: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        input1 = _reshape_like(F, input1, input2)
        label = F.reshape(label, shape=(-1, 1))
        norms = F.sqrt(_row_sum(F, input1 * input1)) * F.sqrt(_row_sum(F, input2 * input2))
        cosine = F.reshape(_row_sum(F, input1 * input2) / F.clip(norms, a_min=1e-12, a_max=3.4e38), shape=(-1, 1))
        sign: object = label
        loss = (1 - cosine) * (sign == 1) + F.relu((sign == -1) * (cosine - self._margin))
        return _apply_weighting(F, loss, self._weight, sample_weight)


def _row_sum(F: Functions, x: Tensor) -> Tensor:
    return F.sum(x, axis=-1, keepdims=True)


@layer
class SDMLLoss(Loss):
    """Smoothed deep metric learning (Bonadiman, Kumar and Mittal 2019, arXiv:1905.12786).

    Row i of x1 and row i of x2 are a pair, all other rows are not. Per row of x1 the Kullback-Leibler divergence
    between softmax(-|x1[i] - x2[j]|^2) over j and the labels: 1 - smoothing_parameter for the pair, the rest spread
    evenly.

    x1, x2 : (batch, n) of one shape -> (batch,)
    smoothing_parameter : probability of all other rows together, below 1
    """

    def __init__(
        self,
        smoothing_parameter: float = 0.3,
        weight: float | None = 1.0,
        batch_axis: int = 0,
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        super().__init__(weight, batch_axis, **kwargs)
        self.kl_loss = KLDivLoss(weight=weight)
        self.smoothing_parameter = smoothing_parameter

    def hybrid_forward(self, F: Functions, x1: Tensor, x2: Tensor) -> Tensor:
        x2 = _reshape_like(F, x2, x1)
        differences = F.broadcast_sub(F.expand_dims(x1, axis=1), F.expand_dims(x2, axis=0))
        distances = F.sum(F.square(differences), axis=2)
        pairs = F.diag(F.ones_like(F.sum(x1, axis=1)))
        others = 1 - pairs
        spread = F.broadcast_div(others * self.smoothing_parameter, F.sum(others, axis=1, keepdims=True))
        labels = pairs * (1 - self.smoothing_parameter) + spread
        return self.kl_loss(F.log_softmax(-distances, axis=1), labels)


_suggest_names(__name__)
