"""Activation layers: nonlinearities as Blocks."""

from __future__ import annotations

from typing import Unpack

from hybrid_lab import initializer
from hybrid_lab.gluon.block import BlockOptions
from hybrid_lab.initializer import InitializerLike
from hybrid_lab.ops.framework.protocols import Functions, Tensor

from ..hybrid import HybridBlock
from .registry import layer


@layer
class Activation(HybridBlock):
    """activation : 'relu', 'sigmoid', 'tanh', 'softrelu' or 'softsign'. x : any shape -> the same."""

    def __init__(self, activation: str, **kwargs: Unpack[BlockOptions]) -> None:
        self._act_type = activation
        super().__init__(**kwargs)

    def _alias(self) -> str:
        return self._act_type

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        return F.Activation(x, act_type=self._act_type, name="fwd")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._act_type})"


@layer
class LeakyReLU(HybridBlock):
    """x if x > 0, else alpha * x. x : any shape -> the same."""

    def __init__(self, alpha: float, **kwargs: Unpack[BlockOptions]) -> None:
        if alpha < 0:
            raise ValueError(f"the slope of LeakyReLU must not be negative: {alpha}")
        super().__init__(**kwargs)
        self._alpha = alpha

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        return F.LeakyReLU(x, act_type="leaky", slope=self._alpha, name="fwd")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._alpha})"


@layer
class PReLU(HybridBlock):
    """As LeakyReLU with a learned slope, one for all or one a channel (arXiv 1502.01852).

    in_channels : 1, or the size of axis 1. alpha : (in_channels,), 0.25 at first
    """

    def __init__(
        self, alpha_initializer: InitializerLike | None = None, in_channels: int = 1, **kwargs: Unpack[BlockOptions]
    ) -> None:
        super().__init__(**kwargs)
        if alpha_initializer is None:
            alpha_initializer = initializer.Constant(0.25)
        with self.name_scope():
            self.alpha = self.params.get("alpha", shape=(in_channels,), init=alpha_initializer)

    def hybrid_forward(self, F: Functions, x: Tensor, alpha: Tensor) -> Tensor:
        return F.LeakyReLU(x, gamma=alpha, act_type="prelu", name="fwd")


@layer
class ELU(HybridBlock):
    """x if x > 0, else alpha * (exp(x) - 1) (arXiv 1511.07289)."""

    def __init__(self, alpha: float = 1.0, **kwargs: Unpack[BlockOptions]) -> None:
        super().__init__(**kwargs)
        self._alpha = alpha

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        return F.LeakyReLU(x, act_type="elu", slope=self._alpha)


@layer
class SELU(HybridBlock):
    """ELU scaled so that activations normalize themselves (arXiv 1706.02515)."""

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        return F.LeakyReLU(x, act_type="selu", name="fwd")


@layer
class GELU(HybridBlock):
    """x times the normal distribution's probability below x (arXiv 1606.08415)."""

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        return F.LeakyReLU(x, act_type="gelu", name="fwd")


@layer
class Swish(HybridBlock):
    """x * sigmoid(beta * x) (arXiv 1710.05941)."""

    def __init__(self, beta: float = 1.0, **kwargs: Unpack[BlockOptions]) -> None:
        super().__init__(**kwargs)
        self._beta = beta

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        return x * F.sigmoid(self._beta * x, name="fwd")
