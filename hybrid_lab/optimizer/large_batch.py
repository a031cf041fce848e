"""Optimizers for large batches: the rate of a weight follows from its norm and its gradient's: LAMB, LARS, LBSGD."""

from __future__ import annotations

import math
from typing import Any

from hybrid_lab import ndarray as nd
from hybrid_lab.diagnostics import SettingError
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.ndarray import NDArray

from .optimizer import Optimizer, register


@register
class LAMB(Optimizer):
    """Adam's direction, of the weight's length (arXiv 1904.00962): d = m / (sqrt(v) + epsilon) + wd * w;
    w = w - lr * |w| / |d| * d, with |w| within [lower_bound, upper_bound]; the ratio is 1 where |w| or |d| is 0.

    bias_correction : divide m by 1 - beta1^t and v by 1 - beta2^t
    """

    states = ("mean", "variance")
    default_learning_rate = 0.001

    def __init__(
        self,
        learning_rate: float | None = None,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        lower_bound: float | None = None,
        upper_bound: float | None = None,
        bias_correction: bool = True,
        **kwargs: Any,
    ) -> None:
        check_switches("LAMB", bias_correction=bias_correction)
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound
        self.bias_correction = bias_correction

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        self._update_count(index)
        lr, wd, count = self.settings_of(index)
        mean, variance = state
        direction = nd.lamb_update_phase1(
            weight,
            grad,
            mean,
            variance,
            t=count,
            wd=wd,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon,
            bias_correction=self.bias_correction,
            rescale_grad=self.rescale_grad,
            clip_gradient=self._limit(),
        )
        nd.lamb_update_phase2(
            weight,
            direction,
            weight.norm(),
            direction.norm(),
            lr=lr,
            lower_bound=self.lower_bound or -1.0,
            upper_bound=self.upper_bound or -1.0,
            out=weight,
        )


class _Descent(Optimizer):
    """Base: SGD with momentum, whose rate a subclass scales for each weight."""

    def __init__(self, momentum: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.momentum = momentum

    def state_names(self) -> tuple[str, ...]:
        return ("momentum",) if self.momentum else ()

    def _descend(
        self, weight: NDArray, grad: NDArray, state: NDArray | None, lr: float, wd: float, momentum: float
    ) -> None:
        settings = {"lr": lr, "wd": wd, "rescale_grad": self.rescale_grad, "clip_gradient": self._limit()}
        if state is None:
            nd.sgd_update(weight, grad, out=weight, **settings)
        else:
            nd.sgd_mom_update(weight, grad, state, momentum=momentum, out=weight, **settings)


@register
class LARS(_Descent):
    """SGD with the rate lr * eta * |w| / (|g| + wd * |w| + eps) (arXiv 1708.03888);
    weights named `..._bias`, `..._gamma` and `..._beta` have the rate lr.

    momentum_correction : multiply the momentum by lr / (lr of the step before)
    lazy_update : accepted for MXNet's sake; all rows are updated
    """

    def __init__(
        self,
        momentum: float = 0.0,
        lazy_update: bool = True,
        eta: float = 0.001,
        eps: float = 0.0,
        momentum_correction: bool = True,
        **kwargs: Any,
    ) -> None:
        check_switches("LARS", lazy_update=lazy_update, momentum_correction=momentum_correction)
        super().__init__(momentum=momentum, **kwargs)
        self.lazy_update = lazy_update
        self.eta = eta
        self.eps = eps
        self.momentum_correction = momentum_correction
        self.last_lr: float | None = None
        self.cur_lr: float | None = None
        self._step_of_rates = -1

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        self._update_count(index)
        lr, wd, _ = self.settings_of(index)
        momentum = self.momentum * self._correction()
        self._descend(weight, grad, state, lr * self._ratio(index, weight, grad, wd), wd, momentum)

    def _correction(self) -> float:
        """The factor of the momentum at a change of the learning rate."""
        if self._step_of_rates != self.num_update:
            self._step_of_rates = self.num_update
            self.last_lr = self.learning_rate if self.cur_lr is None else self.cur_lr
            self.cur_lr = self.learning_rate
        if not self.momentum_correction or not self.last_lr or self.cur_lr is None:
            return 1.0
        return self.cur_lr / self.last_lr

    def _ratio(self, index: int, weight: NDArray, grad: NDArray, wd: float) -> float:
        if self.idx2name.get(index, "").endswith(("gamma", "beta", "bias")):
            return 1.0
        length, slope = (float(each.norm().asscalar()) for each in (weight, grad))
        slope *= self.rescale_grad
        return self.eta * length / (slope + wd * length + self.eps) if length > 0 and slope > 0 else 1.0


@register
class LBSGD(_Descent):
    """SGD that adds up `batch_scale` gradients before it updates the weight by their mean.

    warmup_strategy : how the rate grows from lr to batch_scale * lr in the first warmup_epochs epochs: 'linear',
    'power2', 'sqrt'; or 'lars', which multiplies it by |w| / sqrt(|g|^2 + wd * |w|^2) within [0.01, 100]
    updates_per_epoch, begin_epoch : where the warm-up stands; num_epochs : accepted for MXNet's sake
    """

    def __init__(
        self,
        momentum: float = 0.0,
        multi_precision: bool = False,
        warmup_strategy: str = "linear",
        warmup_epochs: int = 5,
        batch_scale: int = 1,
        updates_per_epoch: int = 32,
        begin_epoch: int = 0,
        num_epochs: int = 60,
        **kwargs: Any,
    ) -> None:
        check_switches("LBSGD", multi_precision=multi_precision)
        super().__init__(momentum=momentum, multi_precision=multi_precision, **kwargs)
        if batch_scale < 1:
            raise SettingError(f"LBSGD: batch_scale must be 1 or more, not {batch_scale}")
        self.warmup_strategy = warmup_strategy
        self.warmup_epochs = warmup_epochs
        self.batch_scale = batch_scale
        self.updates_per_epoch = updates_per_epoch
        self.init_updates = begin_epoch * updates_per_epoch
        self.num_epochs = num_epochs
        self._sums: dict[int, tuple[NDArray, int]] = {}

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        lr, wd, _ = self.settings_of(index)
        self._update_count(index)
        total, count = self._sums.get(index, (None, self.init_updates))
        total, count = grad.copy() if total is None else total + grad, count + 1
        self._sums[index] = total, count
        if count % self.batch_scale:
            return
        mean = total / self.batch_scale
        factor = self._ratio(weight, mean, wd) if self.warmup_strategy == "lars" else self._warmed(count)
        self._descend(weight, mean, state, lr * factor, wd, self.momentum)
        self._sums[index] = nd.zeros_like(total), count

    def _warmed(self, count: int) -> float:
        """The factor of the learning rate after `count` gradients."""
        whole = self.warmup_epochs * self.updates_per_epoch
        growth = {"linear": 1.0, "power2": 2.0, "sqrt": 0.5}.get(self.warmup_strategy)
        if count >= whole:
            return float(self.batch_scale)
        if whole <= 1 or growth is None:
            return 1.0
        return 1.0 + (self.batch_scale - 1) * float((count / whole) ** growth)

    def _ratio(self, weight: NDArray, grad: NDArray, wd: float) -> float:
        length, slope = (float((each * each).sum().asscalar()) for each in (weight, grad))
        return min(max(math.sqrt(length / (slope + wd * length + 1e-18)), 0.01), 100.0)
