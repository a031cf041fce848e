"""The Adam family: first and second moments of the gradient, corrected for their start at zero."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hybrid_lab.ops.framework.operator import Operator, get
from hybrid_lab.ops.framework.protocols import Functions, Number, Tensor

from .optimizer import Optimizer, Scratch, register


@register
class Adam(Optimizer):
    """Adam (arXiv 1412.6980), with the decay in the gradient: g = g + wd * w;
    m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2;
    w = w - lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon).

    lazy_update : accepted for MXNet's sake; it concerns sparse gradients
    """

    states = ("mean", "variance")
    default_learning_rate = 0.001
    decay_in_gradient = True

    def __init__(
        self,
        learning_rate: float | None = None,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        lazy_update: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.lazy_update = lazy_update

    def rates(self, lr: float, count: int) -> float:
        return lr * math.sqrt(1.0 - self.beta2**count) / (1.0 - self.beta1**count)

    def operator(self) -> Operator:
        return get("adam_update").bind(
            beta1=self.beta1, beta2=self.beta2, epsilon=self.epsilon, clip_gradient=self._limit()
        )


@register
class AdamW(Adam):
    """Adam with the decay apart from the gradient (arXiv 1711.05101): w = w - lr * wd * w - Adam's step.

    correct_bias : False leaves out the correction for the moments' start at zero
    """

    decay_in_gradient = False

    def __init__(
        self,
        learning_rate: float | None = None,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        correct_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate, beta1, beta2, epsilon, **kwargs)
        self.correct_bias = correct_bias

    def rates(self, lr: float, count: int) -> Any:
        return lr, super().rates(lr, count) if self.correct_bias else lr

    def numbers(self, lr: float, wd: float, count: int) -> dict[str, float]:
        return {"lr": self.rates(lr, count)[1], "wd": lr * wd}

    @classmethod
    def graph_step(
        cls,
        F: Functions,
        op: Any,
        weight: Tensor,
        grad: Tensor,
        states: Sequence[Tensor],
        numbers: Mapping[str, Number],
    ) -> tuple[Tensor, ...]:
        """Adam's step of the decayed weight; the number wd is lr * wd here."""
        if "wd" in numbers:
            weight = weight * (1.0 - numbers["wd"])
        return op.step(F, weight, grad, *states, numbers["lr"], 0.0, numbers.get("rescale_grad", 1.0))

    def element_update(
        self, w: np.ndarray, g: np.ndarray, states: Sequence[np.ndarray], rates: Any, wd: float, scratch: Scratch
    ) -> None:
        lr, corrected = rates
        super().element_update(w, g, states, corrected, lr * wd, scratch)


@register
class Adamax(Optimizer):
    """Adam with the maximum norm: g = g + wd * w;  m = beta1 * m + (1 - beta1) * g;  u = max(beta2 * u, |g|);
    w = w - lr / (1 - beta1^t) * m / u.
    """

    states = ("mean", "norm")
    default_learning_rate = 0.002
    decay_in_gradient = True

    def __init__(
        self, learning_rate: float | None = None, beta1: float = 0.9, beta2: float = 0.999, **kwargs: Any
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2

    def rates(self, lr: float, count: int) -> float:
        return lr / (1.0 - self.beta1**count)

    def element_update(
        self, w: np.ndarray, g: np.ndarray, states: Sequence[np.ndarray], rates: object, wd: float, scratch: Scratch
    ) -> None:
        mean, norm = states
        mean *= self.beta1
        mean += np.multiply(g, 1.0 - self.beta1, out=scratch(0))
        norm *= self.beta2
        np.abs(g, out=g)
        np.maximum(norm, g, out=norm)
        # Where no gradient ever arrived both are zero; the weight stays.
        np.divide(mean, norm, out=g, where=norm > 0)
        g[norm == 0] = 0
        g *= rates
        w -= g
