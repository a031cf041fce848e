"""Pooling layers: maximum and average over windows or over everything, in one, two and three dimensions."""

from __future__ import annotations

from typing import Any, Unpack

from hybrid_lab.diagnostics.switches import check_switches
from hybrid_lab.gluon.block import BlockOptions
from hybrid_lab.ops.framework.protocols import Functions, Tensor

from ..hybrid import HybridBlock
from .conv import LAYOUTS, Size, checked_layout, window
from .registry import layer


class _Pool(HybridBlock):
    """The common part of the pooling layers; `dims` is the number of spatial dimensions, `pool_type` the reduction."""

    dims: int
    pool_type: str

    def __init__(
        self,
        pool_size: Size = 2,
        strides: Size | None = None,
        padding: Size = 0,
        layout: str | None = None,
        ceil_mode: bool = False,
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        check_switches("_Pool", ceil_mode=ceil_mode)
        super().__init__(**kwargs)
        kernel = window(pool_size, self.dims, "pool_size")
        self._kwargs: dict[str, Any] = {
            "kernel": kernel,
            "stride": kernel if strides is None else window(strides, self.dims, "strides"),
            "pad": window(padding, self.dims, "padding"),
            "global_pool": False,
            "pool_type": self.pool_type,
            "layout": checked_layout(self, layout, LAYOUTS[self.dims]),
            "pooling_convention": "full" if ceil_mode else "valid",
        }

    def _alias(self) -> str:
        return "pool"

    def hybrid_forward(self, F: Functions, x: Tensor) -> Tensor:
        return F.Pooling(x, name="fwd", **self._kwargs)

    def __repr__(self) -> str:
        text = (
            "{name}(size={kernel}, stride={stride}, padding={pad}, ceil_mode={ceil_mode}, "
            "global_pool={global_pool}, pool_type={pool_type}, layout={layout})"
        )
        ceil_mode = self._kwargs["pooling_convention"] == "full"
        return text.format(name=type(self).__name__, ceil_mode=ceil_mode, **self._kwargs)


class _MaxPool(_Pool):
    pool_type = "max"


class _AvgPool(_Pool):
    pool_type = "avg"


class _Global(_Pool):
    def __init__(self, layout: str | None = None, **kwargs: Unpack[BlockOptions]) -> None:
        super().__init__(1, layout=layout, ceil_mode=True, **kwargs)
        self._kwargs["global_pool"] = True


@layer
class MaxPool1D(_MaxPool):
    """The maximum of windows. x : (batch, channels, width) -> (batch, channels, out).

    pool_size, strides (default: pool_size), padding : a number or one per dimension
    layout : the first of 'NCW' and 'NWC', of 'NCHW' and 'NHWC', or of 'NCDHW' and 'NDHWC', if it is None
    ceil_mode : an incomplete last window counts: out is rounded up
    """

    dims = 1


@layer
class MaxPool2D(_MaxPool):
    """The maximum of windows, as `MaxPool1D`. x : (batch, channels, height, width) -> (batch, channels, out, out).

    ```python
    nn.MaxPool2D(2)(nd.ones((1, 3, 8, 8))).shape
    ```
    """

    dims = 2


@layer
class MaxPool3D(_MaxPool):
    """The maximum of windows, as `MaxPool1D`. x : (batch, channels, depth, height, width)."""

    dims = 3


@layer
class AvgPool1D(_AvgPool):
    """The mean of windows; arguments as `MaxPool1D`. x : (batch, channels, width) -> (batch, channels, out).

    count_include_pad : whether padded zeros count in the mean
    """

    dims = 1

    def __init__(
        self,
        pool_size: Size = 2,
        strides: Size | None = None,
        padding: Size = 0,
        layout: str | None = None,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        super().__init__(pool_size, strides, padding, layout, ceil_mode, **kwargs)
        self._kwargs["count_include_pad"] = count_include_pad


@layer
class AvgPool2D(_AvgPool):
    """The mean of windows, as `AvgPool1D`. x : (batch, channels, height, width) -> (batch, channels, out, out)."""

    dims = 2

    def __init__(
        self,
        pool_size: Size = 2,
        strides: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        layout: str | None = None,
        count_include_pad: bool = True,
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        super().__init__(pool_size, strides, padding, layout, ceil_mode, **kwargs)
        self._kwargs["count_include_pad"] = count_include_pad


@layer
class AvgPool3D(AvgPool2D):
    """The mean of windows, as `AvgPool1D`. x : (batch, channels, depth, height, width)."""

    dims = 3


@layer
class GlobalMaxPool1D(_Global, _MaxPool):
    """The maximum over all positions. x : (batch, channels, width) -> (batch, channels, 1)."""

    dims = 1


@layer
class GlobalMaxPool2D(_Global, _MaxPool):
    """The maximum over all positions. x : (batch, channels, height, width) -> (batch, channels, 1, 1)."""

    dims = 2


@layer
class GlobalMaxPool3D(_Global, _MaxPool):
    """The maximum over all positions. x : (batch, channels, depth, height, width) -> (batch, channels, 1, 1, 1)."""

    dims = 3


@layer
class GlobalAvgPool1D(_Global, _AvgPool):
    """The mean over all positions. x : (batch, channels, width) -> (batch, channels, 1)."""

    dims = 1


@layer
class GlobalAvgPool2D(_Global, _AvgPool):
    """The mean over all positions. x : (batch, channels, height, width) -> (batch, channels, 1, 1)."""

    dims = 2


@layer
class GlobalAvgPool3D(_Global, _AvgPool):
    """The mean over all positions. x : (batch, channels, depth, height, width) -> (batch, channels, 1, 1, 1)."""

    dims = 3
