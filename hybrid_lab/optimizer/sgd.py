"""Stochastic gradient descent and its variants: SGD, NAG, Signum."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hybrid_lab.diagnostics import SettingError
from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.ndarray import NDArray
from hybrid_lab.ops.framework.operator import Operator, get

from .optimizer import Optimizer, register

_LEAST = 2.0**-16
"""Smaller factors might bring numbers out of the range of float32."""


class _Momentum(Optimizer):
    def __init__(self, momentum: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.momentum = momentum

    def state_names(self) -> tuple[str, ...]:
        return ("momentum",) if self.momentum else ()

    def absorbed(self, lr: float, wd: float, count: int, dtype: np.dtype) -> dict[str, float]:
        """lr * (r * g + wd * w) is (lr * r) * (g + wd / r * w), bit for bit if the factor r is a power of two, as 1 /
        batch size often is: one pass less over the gradient.
        """
        numbers = self.numbers(lr, wd, count)
        factor = self.rescale_grad
        exact = _LEAST <= factor <= 1.0 and math.frexp(factor)[0] == 0.5 and dtype.itemsize > 2
        if self.clip_gradient or not exact:
            return numbers | {"rescale_grad": factor}
        return {"lr": numbers["lr"] * factor, "wd": numbers["wd"] / factor}


@register
class SGD(_Momentum):
    """m = momentum * m - lr * (g + wd * w);  w = w + m.

    lazy_update : a row_sparse gradient updates only the rows that it stores
    """

    def __init__(self, momentum: float = 0.0, lazy_update: bool = True, **kwargs: Any) -> None:
        check_switches("SGD", lazy_update=lazy_update)
        super().__init__(momentum, **kwargs)
        self.lazy_update = lazy_update

    def updates_rows(self, weight: NDArray) -> bool:
        return self.lazy_update

    def operator(self) -> Operator:
        if self.momentum:
            return get("sgd_mom_update").bind(momentum=self.momentum, clip_gradient=self._limit())
        return get("sgd_update").bind(clip_gradient=self._limit())

    scaled_numbers = _Momentum.absorbed


@register
class NAG(_Momentum):
    """Nesterov's momentum: d = lr * (g + wd * w);  m = momentum * m - d;  w = w + momentum * m - d.

    As in MXNet, the momentum that is kept has the decay of the new weight in it, not of the old one.
    """

    def operator(self) -> Operator:
        if self.momentum:
            return get("nag_mom_update").bind(momentum=self.momentum, clip_gradient=self._limit())
        return get("sgd_update").bind(clip_gradient=self._limit())


@register
class Signum(_Momentum):
    """m = momentum * m - (1 - momentum) * (g + wd * w);  w = (1 - lr * wd_lh) * w + lr * sign(m) (arXiv 1802.04434).

    Without momentum: w = (1 - lr * wd) * w - lr * sign(g); wd_lh is refused.
    """

    def __init__(
        self, learning_rate: float | None = None, momentum: float = 0.9, wd_lh: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(momentum, learning_rate=learning_rate, **kwargs)
        if wd_lh and not momentum:
            raise SettingError("Signum: wd_lh needs a momentum; without momentum, use wd for the decay")
        self.wd_lh = wd_lh

    def operator(self) -> Operator:
        if self.momentum:
            return get("signum_update").bind(momentum=self.momentum, clip_gradient=self._limit(), wd_lh=self.wd_lh)
        return get("signsgd_update").bind(clip_gradient=self._limit())


@register
class ccSGD(SGD):  # noqa: N801 - MXNet's name
    """SGD, under a former name of MXNet's."""
