"""Optimizers with a rate per element from the history of its gradient: AdaGrad, AdaDelta, RMSProp, Ftrl, FTML."""

from __future__ import annotations

from typing import Any

from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ops.framework.operator import Operator, get
from hybrid_lab.system.logger import logger

from .optimizer import Optimizer, register


@register
class AdaGrad(Optimizer):
    """h = h + g^2;  w = w - lr * (g / sqrt(h + eps) + wd * w) (Duchi et al., 2011)."""

    states = ("history",)

    def __init__(self, eps: float = 1e-7, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.float_stable_eps = eps

    def updates_rows(self, weight: NDArray) -> bool:
        return True

    def operator(self) -> Operator:
        return get("_adagrad_update").bind(epsilon=self.float_stable_eps, clip_gradient=self._limit())


@register
class AdaDelta(Optimizer):
    """s = rho * s + (1 - rho) * g^2;  d = sqrt(a + eps) / sqrt(s + eps) * g;  a = rho * a + (1 - rho) * d^2;
    w = w - d - wd * w (arXiv 1212.5701). The learning rate has no part in it; a warning says so once if one is set.
    """

    states = ("squares", "deltas")

    def __init__(self, rho: float = 0.9, epsilon: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rho = rho
        self.epsilon = epsilon
        self._warned = False
        for name in ("learning_rate", "lr_scheduler"):
            if kwargs.get(name) is not None:
                self._warn_of(name)

    def set_learning_rate(self, lr: float) -> None:
        """Set the rate, which is not used."""
        super().set_learning_rate(lr)
        self._warn_of("learning_rate")

    def _warn_of(self, name: str) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(f"AdaDelta does not use {name}: its steps follow from rho and epsilon")

    def numbers(self, lr: float, wd: float, count: int) -> dict[str, float]:
        return {"wd": wd}

    def operator(self) -> Operator:
        return get("_adadelta_update").bind(rho=self.rho, epsilon=self.epsilon, clip_gradient=self._limit())


@register
class RMSProp(Optimizer):
    """g = g + wd * w;  n = (1 - gamma1) * g^2 + gamma1 * n;  w = w - lr * g / sqrt(n + epsilon)  (Hinton, 2012).

    centered : Graves' form (arXiv 1308.0850) with the mean subtracted from n and momentum gamma2
    clip_weights : limit the new weights to [-clip_weights, clip_weights]
    """

    default_learning_rate = 0.001

    def __init__(
        self,
        learning_rate: float | None = None,
        gamma1: float = 0.9,
        gamma2: float = 0.9,
        epsilon: float = 1e-8,
        centered: bool = False,
        clip_weights: float | None = None,
        **kwargs: Any,
    ) -> None:
        check_switches("RMSProp", centered=centered)
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.gamma1 = gamma1
        self.gamma2 = gamma2
        self.epsilon = epsilon
        self.centered = centered
        self.clip_weights = clip_weights

    def state_names(self) -> tuple[str, ...]:
        return ("squares", "mean", "delta") if self.centered else ("squares",)

    def operator(self) -> Operator:
        settings = {
            "gamma1": self.gamma1,
            "epsilon": self.epsilon,
            "clip_gradient": self._limit(),
            "clip_weights": self.clip_weights or -1.0,
        }
        if self.centered:
            return get("rmspropalex_update").bind(gamma2=self.gamma2, **settings)
        return get("rmsprop_update").bind(**settings)


@register
class Ftrl(Optimizer):
    """Follow the regularized leader (McMahan et al., 2013), which makes weights exactly zero:
    z = z + g - (sqrt(n + g^2) - sqrt(n)) * w / lr;  n = n + g^2;
    w = (sign(z) * lamda1 - z) / ((beta + sqrt(n)) / lr + wd) where |z| > lamda1, else 0.
    """

    states = ("z", "squares")
    default_learning_rate = 0.1

    def __init__(
        self, lamda1: float = 0.01, learning_rate: float | None = None, beta: float = 1.0, **kwargs: Any
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.lamda1 = lamda1
        self.beta = beta

    def updates_rows(self, weight: NDArray) -> bool:
        return weight.stype == "row_sparse"

    def operator(self) -> Operator:
        return get("ftrl_update").bind(lamda1=self.lamda1, beta=self.beta, clip_gradient=self._limit())


@register
class FTML(Optimizer):
    """Follow the moving leader (Zheng and Kwok, 2017): g = g + wd * w;  v = beta2 * v + (1 - beta2) * g^2;
    d' = (1 - beta1^t) / lr * (sqrt(v / (1 - beta2^t)) + epsilon);
    z = beta1 * z + (1 - beta1) * g - (d' - beta1 * d) * w;  d = d';  w = -z / d.
    """

    states = ("d", "v", "z")

    def __init__(self, beta1: float = 0.6, beta2: float = 0.999, epsilon: float = 1e-8, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon

    def numbers(self, lr: float, wd: float, count: int) -> dict[str, float]:
        return {"lr": lr, "wd": wd, "t": count}

    def operator(self) -> Operator:
        return get("ftml_update").bind(
            beta1=self.beta1, beta2=self.beta2, epsilon=self.epsilon, clip_grad=self._limit()
        )
