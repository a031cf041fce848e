"""Normalization layers: BatchNorm, BatchNormReLU, LayerNorm, GroupNorm, InstanceNorm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from hybrid_lab.ops.framework.dtypes import dtype_of, is_narrow

from ..hybrid import HybridBlock
from ..parameter import Parameter
from .registry import layer

if TYPE_CHECKING:
    from typing import Unpack

    from numpy.typing import DTypeLike

    from hybrid_lab.gluon.block import BlockOptions
    from hybrid_lab.gluon.parameter_dict import ParameterDict
    from hybrid_lab.initializer import InitializerLike
    from hybrid_lab.ops.framework.protocols import Functions, Tensor


@layer
class BatchNorm(HybridBlock):
    """y = (x - mean) / sqrt(variance + epsilon) * gamma + beta, per channel (arXiv 1502.03167).

    In train mode mean and variance are the batch's, and the running ones move towards them:
    running = momentum * running + (1 - momentum) * batch. In predict mode the running ones are used.

    axis : the channels' axis
    center, scale : whether beta and gamma are learned; fixed at 0 and 1 otherwise
    use_global_stats : the running statistics also in train mode
    in_channels : number of channels; 0 takes it from the first batch
    gamma, beta, running_mean, running_var : (in_channels,)

    x : any shape with that axis -> the same
    """

    gamma: Parameter

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
            parameter = self.params.get(
                name,
                grad_req="write" if learned else "null",
                shape=(in_channels,),
                init=init,
                allow_deferred_init=True,
                differentiable=learned,
            )
            setattr(self, name, parameter)

    def cast(self, dtype: DTypeLike | None) -> None:
        """Statistics stay float32 where the model becomes float16 or bfloat16."""
        super().cast("float32" if is_narrow(dtype_of(dtype)) else dtype)

    def hybrid_forward(
        self, F: Functions, x: Tensor, gamma: Tensor, beta: Tensor, running_mean: Tensor, running_var: Tensor
    ) -> Tensor:
        return F.BatchNorm(x, gamma, beta, running_mean, running_var, name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        shown = ", ".join(f"{key}={value!r}" for key, value in self._kwargs.items())
        return f"{type(self).__name__}({shown}, in_channels={_size(self.gamma) or None})"


@layer
class BatchNormReLU(BatchNorm):
    """BatchNorm with max(y, 0) behind it, in one operator; arguments and parameters are BatchNorm's."""

    def hybrid_forward(
        self, F: Functions, x: Tensor, gamma: Tensor, beta: Tensor, running_mean: Tensor, running_var: Tensor
    ) -> Tensor:
        return cast(Any, F).contrib.BatchNormWithReLU(
            x, gamma, beta, running_mean, running_var, name="fwd", **self._kwargs
        )


class _Affine(HybridBlock):
    """What the norms without running statistics share: gamma and beta."""

    gamma: Parameter

    def _set_up(
        self,
        size: int,
        center: bool,
        scale: bool,
        beta_initializer: InitializerLike,
        gamma_initializer: InitializerLike,
    ) -> None:
        for name, init, learned in (("gamma", gamma_initializer, scale), ("beta", beta_initializer, center)):
            parameter = self.params.get(
                name,
                grad_req="write" if learned else "null",
                shape=(size,),
                init=init,
                allow_deferred_init=True,
            )
            setattr(self, name, parameter)


@layer
class LayerNorm(_Affine):
    """y = (x - mean) / sqrt(variance + epsilon) * gamma + beta along one axis (arXiv 1607.06450).

    center, scale : whether beta and gamma are learned
    in_channels : size of the axis; 0 takes it from the first batch
    gamma, beta : (in_channels,)

    x : any shape -> the same
    """

    gamma: Parameter

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
        self._kwargs = {"eps": epsilon, "axis": axis, "center": center, "scale": scale}
        self._axis = axis
        self._epsilon = epsilon
        self._set_up(in_channels, center, scale, beta_initializer, gamma_initializer)

    def hybrid_forward(self, F: Functions, data: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        return F.LayerNorm(data, gamma=gamma, beta=beta, axis=self._axis, eps=self._epsilon)

    def __repr__(self) -> str:
        shown = ", ".join(f"{key}={value!r}" for key, value in self._kwargs.items())
        return f"{type(self).__name__}({shown}, in_channels={_size(self.gamma)})"


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
        self._kwargs = {"eps": epsilon, "num_groups": num_groups, "center": center, "scale": scale}
        self._num_groups = num_groups
        self._epsilon = epsilon
        self._set_up(num_groups, center, scale, beta_initializer, gamma_initializer)

    def hybrid_forward(self, F: Functions, data: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        return F.GroupNorm(data, gamma=gamma, beta=beta, num_groups=self._num_groups, eps=self._epsilon)

    def __repr__(self) -> str:
        shown = ", ".join(f"{key}={value!r}" for key, value in self._kwargs.items())
        return f"{type(self).__name__}({shown})"


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
        self._kwargs = {"eps": epsilon, "axis": axis, "center": center, "scale": scale}
        self._axis = axis
        self._epsilon = epsilon
        self._set_up(in_channels, center, scale, beta_initializer, gamma_initializer)

    def hybrid_forward(self, F: Functions, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        if self._axis == 1:
            return F.InstanceNorm(x, gamma, beta, name="fwd", eps=self._epsilon)
        turned = F.SwapAxis(x, dim1=1, dim2=self._axis)
        return F.SwapAxis(F.InstanceNorm(turned, gamma, beta, name="fwd", eps=self._epsilon), dim1=1, dim2=self._axis)

    def __repr__(self) -> str:
        shown = ", ".join(f"{key}={value!r}" for key, value in self._kwargs.items())
        return f"{type(self).__name__}({shown}, in_channels={_size(self.gamma)})"


def _size(parameter: Parameter) -> int:
    return parameter.shape[0] if parameter.shape else 0
