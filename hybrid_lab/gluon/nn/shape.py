"""Layers that only change the shape."""

from __future__ import annotations

from hybrid_lab.ops.framework.protocols import Functions, Tensor

from ..hybrid import HybridBlock
from .registry import layer


@layer
class Flatten(HybridBlock):
    """x : (batch, a, b ...) -> (batch, a * b * ...)."""

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        return F.flatten(x)

    def __repr__(self) -> str:
        return type(self).__name__
