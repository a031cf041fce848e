"""Dropout: zeroes random elements while training."""

from __future__ import annotations

from typing import Unpack

from hybrid_lab.gluon.block import BlockOptions
from hybrid_lab.ops.framework.protocols import Functions, Tensor

from ..hybrid import HybridBlock
from .registry import layer


@layer
class Dropout(HybridBlock):
    """In train mode each element is 0 with probability `rate`, the remaining elements are divided by 1 - rate.

        drop = nn.Dropout(0.5)
        drop(nd.ones((4,)))                  # predicting: unchanged
        with autograd.record():
            print((drop(nd.ones((1000,))) > 0).mean().asscalar() < 0.6)

    axes : axes along which one mask is shared
    x : any shape -> the same
    """

    def __init__(self, rate: float, axes: tuple[int, ...] = (), **kwargs: Unpack[BlockOptions]) -> None:
        super().__init__(**kwargs)
        self._rate = rate
        self._axes = tuple(axes)

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        if self._rate > 0:
            return F.Dropout(x, p=self._rate, axes=self._axes, name="fwd")
        return F.identity(x)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(p = {self._rate}, axes={self._axes})"
