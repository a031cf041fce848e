"""Operators whose gradient is another one than their derivative: straight-through rounding, gradientmultiplier."""

from __future__ import annotations

import numpy as np

from hybrid_lab.ops.arrays.creation import Copy
from hybrid_lab.ops.elementwise.elementwise import onnx_half_away, round_, sign
from hybrid_lab.ops.framework import sample, unary
from hybrid_lab.ops.framework.protocols import Functions, Tensor


def _through(F: Functions, x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
    return F.identity(dy)


round_ste = unary(
    "_contrib_round_ste",
    round_.ufunc,  # type: ignore[attr-defined]
    _through,
    round_.triton,
    onnx_half_away,
    "The nearest whole number, halves away from zero; the gradient passes as it is (arXiv 1308.3432).",
    aliases=("contrib_round_ste",),
    samples=[sample((3, 4), low=-3.0, high=3.0)],
)
sign_ste = unary(
    "_contrib_sign_ste", np.sign, _through, sign.triton, "Sign",
    "-1, 0 or 1; the gradient passes as it is (arXiv 1308.3432).", aliases=("contrib_sign_ste",),
    samples=[sample((3, 4))], integers=True,
)  # fmt: skip


class GradientMultiplier(Copy, name="_contrib_gradientmultiplier", aliases=("contrib_gradientmultiplier",)):
    """data unchanged; its gradient is multiplied by `scalar`, for example by -1 for a gradient reversal."""

    scalar: float = 1.0
    is_int: bool = True
    samples = [sample((3, 4), scalar=-0.5), sample((3,), scalar=2.0)]

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return dy * self.scalar
