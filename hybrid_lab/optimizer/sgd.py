"""Stochastic gradient descent and what is close to it: SGD, NAG, Signum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .optimizer import Optimizer, Scratch, register


class _Momentum(Optimizer):
    def __init__(self, momentum: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.momentum = momentum

    def state_names(self) -> tuple[str, ...]:
        return ("momentum",) if self.momentum else ()


@register
class SGD(_Momentum):
    """m = momentum * m - lr * (g + wd * w);  w = w + m.

    lazy_update : accepted for MXNet's sake; it concerns sparse gradients
    """

    def __init__(self, momentum: float = 0.0, lazy_update: bool = True, **kwargs: Any) -> None:
        super().__init__(momentum, **kwargs)
        self.lazy_update = lazy_update

    def element_update(
        self, w: np.ndarray, g: np.ndarray, states: Sequence[np.ndarray], rates: Any, wd: float, scratch: Scratch
    ) -> None:
        if wd:
            g += np.multiply(w, wd, out=scratch(0))
        g *= rates
        if states:
            m = states[0]
            m *= self.momentum
            m -= g
            w += m
        else:
            w -= g


@register
class NAG(_Momentum):
    """Nesterov's momentum: m = momentum * m - lr * (g + wd * w);  w = w + momentum * m - lr * (g + wd * w)."""

    def element_update(
        self, w: np.ndarray, g: np.ndarray, states: Sequence[np.ndarray], rates: Any, wd: float, scratch: Scratch
    ) -> None:
        if wd:
            g += np.multiply(w, wd, out=scratch(0))
        g *= rates
        if states:
            m = states[0]
            m *= self.momentum
            m -= g
            w += np.multiply(m, self.momentum, out=scratch(0))
        w -= g


@register
class Signum(_Momentum):
    """m = momentum * m - (1 - momentum) * (g + wd * w);  w = (1 - lr * wd_lh) * w + lr * sign(m) (arXiv 1802.04434).

    Without momentum: w = w - lr * sign(g), and wd has no effect, as in MXNet.
    """

    def __init__(self, learning_rate: float | None = None, momentum: float = 0.9, wd_lh: float = 0.0, **kwargs: Any) -> None:
        super().__init__(momentum, learning_rate=learning_rate, **kwargs)
        self.wd_lh = wd_lh

    def element_update(
        self, w: np.ndarray, g: np.ndarray, states: Sequence[np.ndarray], rates: Any, wd: float, scratch: Scratch
    ) -> None:
        if not states:
            np.sign(g, out=g)
            g *= rates
            w -= g
            return
        if wd:
            g += np.multiply(w, wd, out=scratch(0))
        g *= 1 - self.momentum
        m = states[0]
        m *= self.momentum
        m -= g
        if self.wd_lh:
            w *= 1 - rates * self.wd_lh
        np.sign(m, out=g)
        g *= rates
        w += g
