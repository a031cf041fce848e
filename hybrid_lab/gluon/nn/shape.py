"""Layers that only change the shape."""

from __future__ import annotations

from typing import Any

from ..hybrid import HybridBlock
from .registry import layer


@layer
class Flatten(HybridBlock):
    """x : (batch, a, b ...) -> (batch, a * b * ...)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.flatten(x)

    def __repr__(self) -> str:
        return type(self).__name__
