"""Optimizers whose steps need more than a running mean: Nadam, DCASGD, SGLD, GroupAdaGrad; and Test."""

from __future__ import annotations

import math
from typing import Any

from hybrid_lab import ndarray as nd
from hybrid_lab.diagnostics import SettingError, ShapeError
from hybrid_lab.ndarray import NDArray

from .optimizer import Optimizer, register


class _Stepwise(Optimizer):
    """Base: a rule in terms of arrays, weight by weight."""

    def _rescaled(self, grad: NDArray) -> NDArray:
        """The gradient times rescale_grad, without a limit."""
        return grad * self.rescale_grad

    def _limited(self, grad: NDArray) -> NDArray:
        """The gradient within [-clip_gradient, clip_gradient]."""
        return nd.clip(grad, -self.clip_gradient, self.clip_gradient) if self.clip_gradient is not None else grad


@register
class Nadam(_Stepwise):
    """Adam with Nesterov's momentum (Dozat, 2016): u_t = beta1 * (1 - 0.5 * 0.96^(t * schedule_decay)), U_t is the
    product of all u; g = g + wd * w; m, v as in Adam; d = (1 - u_t) * g / (1 - U_t) + u_{t+1} * m / (1 - U_{t+1});
    w = w - lr * d / (sqrt(v / (1 - beta2^t)) + epsilon).

    As in MXNet, U is one number for all weights: each update of a weight multiplies it.
    """

    states = ("mean", "variance")
    default_learning_rate = 0.001

    def __init__(
        self,
        learning_rate: float | None = None,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        schedule_decay: float = 0.004,
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.schedule_decay = schedule_decay
        self.m_schedule = 1.0

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        self._update_count(index)
        lr, wd, count = self.settings_of(index)
        grad = self._limited(self._rescaled(grad) + wd * weight)
        now, following = (
            self.beta1 * (1.0 - 0.5 * 0.96 ** (step * self.schedule_decay)) for step in (count, count + 1)
        )
        self.m_schedule *= now
        mean, variance = state
        mean[:] = self.beta1 * mean + (1.0 - self.beta1) * grad
        variance[:] = self.beta2 * variance + (1.0 - self.beta2) * grad * grad
        direction = (1.0 - now) * grad / (1.0 - self.m_schedule)
        direction = direction + following * mean / (1.0 - self.m_schedule * following)
        weight[:] -= lr * direction / (nd.sqrt(variance / (1.0 - self.beta2**count)) + self.epsilon)


@register
class DCASGD(_Stepwise):
    """SGD for delayed gradients (arXiv 1609.08326), p the weight of the step before:
    m = momentum * m - lr * (g + wd * w + lamda * g^2 * (w - p));  p = w;  w = w + m.
    """

    def __init__(self, momentum: float = 0.0, lamda: float = 0.04, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.momentum = momentum
        self.lamda = lamda

    def create_state(self, index: int, weight: NDArray) -> Any:
        return (nd.zeros_like(weight) if self.momentum else None), weight.copy()

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        self._update_count(index)
        lr, wd, _ = self.settings_of(index)
        grad = self._limited(self._rescaled(grad))
        momentum, previous = state
        step = -lr * (grad + wd * weight + self.lamda * grad * grad * (weight - previous))
        if momentum is not None:
            step = self.momentum * momentum + step
            momentum[:] = step
        previous[:] = weight
        weight[:] += step


@register
class SGLD(_Stepwise):
    """Stochastic gradient Langevin dynamics (Welling and Teh, 2011), which draws from the weights' distribution:
    w = w - lr / 2 * (g + wd * w) + a draw of the normal distribution with the variance lr.
    """

    def update(self, index: int, weight: NDArray, grad: NDArray, state: object) -> None:
        self._update_count(index)
        lr, wd, _ = self.settings_of(index)
        grad = self._limited(self._rescaled(grad))
        noise = nd.random.normal(0, math.sqrt(lr), shape=weight.shape, dtype=weight.dtype, ctx=weight.ctx)
        weight[:] += noise - lr / 2 * (grad + wd * weight)


@register
class GroupAdaGrad(_Stepwise):
    """AdaGrad with one history per row of a matrix: h = h + mean(g^2);  w = w - lr * g / sqrt(h + eps). No decay."""

    def __init__(self, eps: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.float_stable_eps = eps

    def create_state(self, index: int, weight: NDArray) -> NDArray:
        if len(weight.shape) != 2:
            raise ShapeError(f"GroupAdaGrad updates matrices; weight {index} has shape {weight.shape}")
        return nd.zeros((weight.shape[0], 1), ctx=weight.ctx, dtype=weight.dtype)

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        self._update_count(index)
        lr, wd, _ = self.settings_of(index)
        if wd != 0:
            raise SettingError(f"GroupAdaGrad has no weight decay; wd is {wd}")
        grad = self._limited(self._rescaled(grad))
        state[:] += nd.mean(grad * grad, axis=1, keepdims=True)
        weight[:] -= lr * grad / nd.sqrt(state + self.float_stable_eps)


@register
class Test(Optimizer):
    """w = w + rescale_grad * g, with a state equal to the weight: for tests of what calls optimizers."""

    states = ("weight",)

    def update(self, index: int, weight: NDArray, grad: NDArray, state: Any) -> None:
        weight[:] += grad * self.rescale_grad
        state[:] = weight
