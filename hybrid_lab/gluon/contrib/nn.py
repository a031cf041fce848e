"""Containers that run their children side by side, and small layers around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from hybrid_lab import ndarray as nd
from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.gluon.contrib import sync_norm
from hybrid_lab.gluon.hybrid import HybridBlock
from hybrid_lab.gluon.nn import BatchNorm, Embedding, HybridSequential, Sequential
from hybrid_lab.gluon.nn.conv import window
from hybrid_lab.gluon.nn.registry import layer
from hybrid_lab.ndarray import NDArray

if TYPE_CHECKING:  # else they would be names of this public module
    from numpy.typing import DTypeLike

    from hybrid_lab.gluon.block import BlockOptions
    from hybrid_lab.gluon.parameter_dict import ParameterDict
    from hybrid_lab.initializer import InitializerLike
    from hybrid_lab.ops.framework.protocols import Functions, Tensor

__all__ = [
    "Concurrent",
    "HybridConcurrent",
    "Identity",
    "PixelShuffle1D",
    "PixelShuffle2D",
    "PixelShuffle3D",
    "SparseEmbedding",
    "SyncBatchNorm",
]


@layer
class Concurrent(Sequential):
    """Every child gets the same input; their outputs are joined along `axis`.

    axis : the axis along which the outputs are concatenated; all other dimensions must agree (ShapeError otherwise)
    """

    def __init__(self, axis: int = -1, prefix: str | None = None, params: ParameterDict | None = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self.axis = axis

    def forward(self, x: Any) -> Any:
        return nd.concat(*(child(x) for child in self._children.values()), dim=self.axis)


@layer
class HybridConcurrent(HybridSequential):
    """Concurrent as a HybridBlock."""

    def __init__(self, axis: int = -1, prefix: str | None = None, params: ParameterDict | None = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self.axis = axis

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        return F.concat(*(child(x) for child in self._children.values()), dim=self.axis)


@layer
class Identity(HybridBlock):
    """The input, unchanged: the short way of a residual connection in a HybridConcurrent."""

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        return x


@layer
class SparseEmbedding(Embedding):
    """Embedding under MXNet's name. Weights and gradients are dense here."""

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        dtype: DTypeLike | None = "float32",
        weight_initializer: InitializerLike | None = None,
        **keywords: Unpack[BlockOptions],
    ) -> None:
        super().__init__(input_dim, output_dim, dtype, weight_initializer, **keywords)


@layer
class SyncBatchNorm(BatchNorm):
    """BatchNorm whose statistics in training are taken over the batches of all workers, forward and backward.

    With one process, and in prediction, it is BatchNorm. The workers must have joined before the first call of the
    hybridized network in training: make the Trainer, or the store, first.

    num_devices : as in MXNet how many devices take part; all workers do, whatever is given
    x : (n, channels, ...) -> the same; n may differ from worker to worker
    Raises WorkersError if a graph for one process was traced before the workers joined.
    """

    def __init__(self, in_channels: int = 0, num_devices: int | None = None, **keywords: Unpack[BlockOptions]) -> None:
        super().__init__(axis=1, in_channels=in_channels, **keywords)
        self.num_devices = num_devices

    def hybrid_forward(
        self, F: Functions, x: Tensor, gamma: Tensor, beta: Tensor, running_mean: Tensor, running_var: Tensor
    ) -> Tensor:
        if not sync_norm.workers_train(self, self._kwargs["use_global_stats"], not isinstance(x, NDArray)):
            return super().hybrid_forward(F, x, gamma, beta, running_mean, running_var)
        settings = {key: self._kwargs[key] for key in ("momentum", "eps", "fix_gamma")}
        operator: Any = F
        return operator.Custom(x, gamma, beta, running_mean, running_var, op_type=sync_norm.NAME, **settings)


class _PixelShuffle(HybridBlock):
    """Channels become pixels: (n, c * f1 * ... , d1, ...) -> (n, c, d1 * f1, ...). Shi et al., arXiv 1609.05158."""

    _rank = 0

    def __init__(
        self, factor: int | Sequence[int], prefix: str | None = None, params: ParameterDict | None = None
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._factors = window(factor, self._rank, f"the factor of {type(self).__name__}")

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        rank, factors = self._rank, self._factors
        # (n, c f1..fk, d1..dk) -> (n, c, f1..fk, d1..dk), one factor at a time: -4 splits, -2 keeps what follows.
        for factor in reversed(factors):
            x = F.reshape(x, shape=(0, -4, -1, factor, -2))
        order = [0, 1]
        for axis in range(rank):
            order += [2 + rank + axis, 2 + axis]
        x = F.transpose(x, axes=tuple(order))
        return F.reshape(x, shape=(0, 0, *(-3,) * rank))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._factors})"


@layer
class PixelShuffle1D(_PixelShuffle):
    """(n, c * f, w) -> (n, c, w * f)."""

    _rank = 1


@layer
class PixelShuffle2D(_PixelShuffle):
    """(n, c * f1 * f2, h, w) -> (n, c, h * f1, w * f2)."""

    _rank = 2


@layer
class PixelShuffle3D(_PixelShuffle):
    """(n, c * f1 * f2 * f3, d, h, w) -> (n, c, d * f1, h * f2, w * f3)."""

    _rank = 3


_suggest_names(__name__)
