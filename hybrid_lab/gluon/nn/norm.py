"""Normalization layers: BatchNorm, BatchNormReLU, LayerNorm, GroupNorm, InstanceNorm."""

from __future__ import annotations

from typing import Any, Unpack, cast

from numpy.typing import DTypeLike

from hybrid_lab.gluon.block import BlockOptions
from hybrid_lab.gluon.parameter_dict import ParameterDict
from hybrid_lab.initializer import InitializerLike
from hybrid_lab.ops.framework.dtypes import dtype_of, is_narrow
from hybrid_lab.ops.framework.protocols import Functions, Tensor

from ..hybrid import HybridBlock
from ..parameter import Parameter
from .registry import layer


class _Norm(HybridBlock):
    """The common part of the layers: their settings, and the parameters per channel."""

    gamma: Parameter
    _kwargs: dict[str, Any]

    def _add_parameter(self, name: str, size: int, init: InitializerLike, learned: bool, **options: Any) -> None:
        options["grad_req"] = "write" if learned else "null"
        setattr(self, name, self.params.get(name, shape=(size,), init=init, allow_deferred_init=True, **options))

    def _shown(self) -> list[str]:
        return [f"{key}={value!r}" for key, value in self._kwargs.items()]

    @property
    def _size(self) -> int:
        """The number of channels, 0 before it is known."""
        return self.gamma.shape[0] if self.gamma.shape else 0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._shown())})"


@layer
class BatchNorm(_Norm):
    """y = (x - mean) / sqrt(variance + epsilon) * gamma + beta, per channel (arXiv 1502.03167).

        layer = nn.BatchNorm()
        layer.initialize()
        layer(nd.ones((2, 3, 8, 8))).shape

    In train mode mean and variance are the batch's, and the running ones move towards them:
    running = momentum * running + (1 - momentum) * batch. In predict mode the running statistics are used.

    axis : the channels' axis
    center, scale : whether beta and gamma are learned; fixed at 0 and 1 otherwise
    use_global_stats : the running statistics also in train mode
    in_channels : number of channels; 0 takes it from the first batch
    gamma, beta, running_mean, running_var : (in_channels,)

    x : any shape with that axis -> the same
    """

    def __init__(
        self,
        axis: int = 1,
        momentum: float = 0.9,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        use_global_stats: bool = False,
        beta_initializer: InitializerLike = "zeros",
        gamma_initializer: InitializerLike = "ones",
        running_mean_initializer: InitializerLike = "zeros",
        running_variance_initializer: InitializerLike = "ones",
        in_channels: int = 0,
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        super().__init__(**kwargs)
        self._kwargs = {
            "axis": axis,
            "eps": epsilon,
            "momentum": momentum,
            "fix_gamma": not scale,
            "use_global_stats": use_global_stats,
        }
        if in_channels:
            self.in_channels = in_channels
        for name, init, learned in (
            ("gamma", gamma_initializer, scale),
            ("beta", beta_initializer, center),
            ("running_mean", running_mean_initializer, False),
            ("running_var", running_variance_initializer, False),
        ):
            self._add_parameter(name, in_channels, init, learned, differentiable=learned)

    def cast(self, dtype: DTypeLike | None) -> None:
        """Statistics stay float32 if the model becomes float16 or bfloat16."""
        super().cast("float32" if dtype is None or is_narrow(dtype_of(dtype)) else dtype)

    def hybrid_forward(
        self, F: Functions, x: Tensor, gamma: Tensor, beta: Tensor, running_mean: Tensor, running_var: Tensor
    ) -> Tensor:
        return F.BatchNorm(x, gamma, beta, running_mean, running_var, name="fwd", **self._kwargs)

    def _shown(self) -> list[str]:
        return [*super()._shown(), f"in_channels={self._size or None}"]


@layer
class BatchNormReLU(BatchNorm):
    """BatchNorm with max(y, 0) behind it, in one operator; arguments and parameters are BatchNorm's."""

    def hybrid_forward(
        self, F: Functions, x: Tensor, gamma: Tensor, beta: Tensor, running_mean: Tensor, running_var: Tensor
    ) -> Tensor:
        return cast(Any, F).contrib.BatchNormWithReLU(
            x, gamma, beta, running_mean, running_var, name="fwd", **self._kwargs
        )


class _Affine(_Norm):
    """The common part of the layers without running statistics: gamma and beta."""

    def _set_up(
        self,
        settings: dict[str, Any],
        size: int,
        center: bool,
        scale: bool,
        beta_initializer: InitializerLike,
        gamma_initializer: InitializerLike,
    ) -> None:
        self._settings = settings  # the operator's attributes
        self._kwargs = {**settings, "center": center, "scale": scale}
        self._add_parameter("gamma", size, gamma_initializer, scale)
        self._add_parameter("beta", size, beta_initializer, center)


@layer
class LayerNorm(_Affine):
    """y = (x - mean) / sqrt(variance + epsilon) * gamma + beta along one axis (arXiv 1607.06450).

        layer = nn.LayerNorm()
        layer.initialize()
        layer(nd.array([[1.0, 3.0]]))

    center, scale : whether beta and gamma are learned
    in_channels : size of the axis; 0 takes it from the first batch
    gamma, beta : (in_channels,)

    x : any shape -> the same
    """

    def __init__(
        self,
        axis: int = -1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        beta_initializer: InitializerLike = "zeros",
        gamma_initializer: InitializerLike = "ones",
        in_channels: int = 0,
        prefix: str | None = None,
        params: ParameterDict | None = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._set_up({"eps": epsilon, "axis": axis}, in_channels, center, scale, beta_initializer, gamma_initializer)

    def hybrid_forward(self, F: Functions, data: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        return F.LayerNorm(data, gamma=gamma, beta=beta, **self._settings)

    def _shown(self) -> list[str]:
        return [*super()._shown(), f"in_channels={self._size}"]


@layer
class GroupNorm(_Affine):
    """y = (x - mean) / sqrt(variance + epsilon) * gamma + beta over groups of channels of a sample (arXiv 1803.08494).

    num_groups : into how many groups axis 1 is cut
    center, scale : whether beta and gamma are learned
    gamma, beta : (num_groups,), one number per group as in MXNet

    x : (batch, channels, ...) -> the same
    """

    def __init__(
        self,
        num_groups: int = 1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = True,
        beta_initializer: InitializerLike = "zeros",
        gamma_initializer: InitializerLike = "ones",
        prefix: str | None = None,
        params: ParameterDict | None = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        settings = {"eps": epsilon, "num_groups": num_groups}
        self._set_up(settings, num_groups, center, scale, beta_initializer, gamma_initializer)

    def hybrid_forward(self, F: Functions, data: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        return F.GroupNorm(data, gamma=gamma, beta=beta, **self._settings)


@layer
class InstanceNorm(_Affine):
    """y = (x - mean) / sqrt(variance + epsilon) * gamma + beta, per channel of a sample (arXiv 1607.08022).

    axis : the channels' axis
    center, scale : whether beta and gamma are learned
    in_channels : number of channels; 0 takes it from the first batch
    gamma, beta : (in_channels,)

    x : (batch, channels, ...), three or more dimensions -> the same
    """

    def __init__(
        self,
        axis: int = 1,
        epsilon: float = 1e-5,
        center: bool = True,
        scale: bool = False,
        beta_initializer: InitializerLike = "zeros",
        gamma_initializer: InitializerLike = "ones",
        in_channels: int = 0,
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        super().__init__(**kwargs)
        self._set_up({"eps": epsilon, "axis": axis}, in_channels, center, scale, beta_initializer, gamma_initializer)

    def hybrid_forward(self, F: Functions, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        eps, axis = self._settings["eps"], self._settings["axis"]
        if axis == 1:
            return F.InstanceNorm(x, gamma, beta, name="fwd", eps=eps)
        turned = F.SwapAxis(x, dim1=1, dim2=axis)
        return F.SwapAxis(F.InstanceNorm(turned, gamma, beta, name="fwd", eps=eps), dim1=1, dim2=axis)

    def _shown(self) -> list[str]:
        return [*super()._shown(), f"in_channels={self._size}"]
