"""Layers that only change the shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..hybrid import HybridBlock
from .registry import layer

if TYPE_CHECKING:
    from hybrid_lab.ops.framework.protocols import Functions, Tensor


@layer
class Flatten(HybridBlock):
    """x : (batch, a, b ...) -> (batch, a * b * ...)."""

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        return F.flatten(x)

    def __repr__(self) -> str:
        return type(self).__name__
