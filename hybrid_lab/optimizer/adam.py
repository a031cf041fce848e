"""The Adam family: first and second moments of the gradient, corrected for their start at zero."""

from __future__ import annotations

import math
from typing import Any

from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ops.framework.operator import Operator, get

from .optimizer import Optimizer, register


@register
class Adam(Optimizer):
    """Adam (arXiv 1412.6980), with the decay in the gradient: g = g + wd * w;
    m = beta1 * m + (1 - beta1) * g;  v = beta2 * v + (1 - beta2) * g^2;
    w = w - lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + epsilon).

        net = nn.Dense(2, in_units=3)
        net.initialize()
        trainer = gluon.Trainer(net.collect_params(), mx.optimizer.Adam(learning_rate=0.01))

    lazy_update : a row_sparse gradient updates only the rows that it stores
    """

    states = ("mean", "variance")
    default_learning_rate = 0.001
    rule = "adam_update"

    def __init__(
        self,
        learning_rate: float | None = None,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        lazy_update: bool = True,
        **kwargs: Any,
    ) -> None:
        check_switches("Adam", lazy_update=lazy_update)
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.lazy_update = lazy_update

    def updates_rows(self, weight: NDArray) -> bool:
        return self.lazy_update

    def numbers(self, lr: float, wd: float, count: int) -> dict[str, float]:
        return {"lr": lr * math.sqrt(1.0 - self.beta2**count) / (1.0 - self.beta1**count), "wd": wd}

    def operator(self) -> Operator:
        return get(self.rule).bind(
            beta1=self.beta1, beta2=self.beta2, epsilon=self.epsilon, clip_gradient=self._limit()
        )


@register
class AdamW(Adam):
    """Adam with the decay apart from the gradient (arXiv 1711.05101): w = w - lr * wd * w - Adam's step.

    correct_bias : False leaves out the correction for the moments' start at zero
    """

    rule = "_decayed_adam_update"

    def __init__(
        self,
        learning_rate: float | None = None,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        correct_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        check_switches("AdamW", correct_bias=correct_bias)
        super().__init__(learning_rate, beta1, beta2, epsilon, **kwargs)
        self.correct_bias = correct_bias

    def numbers(self, lr: float, wd: float, count: int) -> dict[str, float]:
        rate = super().numbers(lr, wd, count)["lr"] if self.correct_bias else lr
        return {"lr": rate, "wd": lr * wd}


@register
class Adamax(Optimizer):
    """Adam with the maximum norm: g = g + wd * w;  m = beta1 * m + (1 - beta1) * g;  u = max(beta2 * u, |g|);
    w = w - lr / (1 - beta1^t) * m / u.
    """

    states = ("mean", "norm")
    default_learning_rate = 0.002

    def __init__(
        self, learning_rate: float | None = None, beta1: float = 0.9, beta2: float = 0.999, **kwargs: Any
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2

    def numbers(self, lr: float, wd: float, count: int) -> dict[str, float]:
        return {"lr": lr / (1.0 - self.beta1**count), "wd": wd}

    def operator(self) -> Operator:
        return get("_adamax_update").bind(beta1=self.beta1, beta2=self.beta2, clip_gradient=self._limit())
