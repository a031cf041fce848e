"""Layers that only change the shape: Flatten, ReflectionPad2D."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Unpack

from hybrid_lab.diagnostics import ShapeError
from hybrid_lab.gluon.block import BlockOptions
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


@layer
class ReflectionPad2D(HybridBlock):
    """Images with a border that mirrors them, without the outermost pixels.

    padding : the border's width, or MXNet's eight numbers, before and after of each axis

    x : (batch, channels, height, width) -> (batch, channels, height + 2 padding, width + 2 padding)
    """

    def __init__(self, padding: int | Sequence[int] = 0, **kwargs: Unpack[BlockOptions]) -> None:
        super().__init__(**kwargs)
        if isinstance(padding, (int, Integral)):
            padding = (0, 0, 0, 0, *(padding,) * 4)
        widths = tuple(padding)
        if len(widths) != 8:
            raise ShapeError(f"padding must be a number or eight numbers, not {padding}")
        self._padding = widths

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        return F.pad(x, mode="reflect", pad_width=self._padding)
