"""Pooling layers: maximum and average over windows or over everything, in one, two and three dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..hybrid import HybridBlock
from .conv import Size, window
from .registry import layer

if TYPE_CHECKING:
    from typing import Unpack

    from hybrid_lab.gluon.block import BlockOptions
    from hybrid_lab.ops.framework.protocols import Functions
    from hybrid_lab.ops.framework.types import Tensor


class _Pool(HybridBlock):
    """What the pooling layers share; `dims` is the number of spatial dimensions, `pool_type` the reduction."""

    dims: int
    layouts: tuple[str, ...]
    pool_type: str

    def _set_up(
        self,
        pool_size: Size,
        strides: Size | None,
        padding: Size,
        layout: str,
        ceil_mode: bool,
        count_include_pad: bool | None = None,
        global_pool: bool = False,
    ) -> None:
        if layout not in self.layouts:
            raise ValueError(f"the layout of {type(self).__name__} must be {' or '.join(self.layouts)}, not {layout!r}")
        kernel = window(pool_size, self.dims, "pool_size")
        self._kwargs: dict[str, Any] = {
            "kernel": kernel,
            "stride": kernel if strides is None else window(strides, self.dims, "strides"),
            "pad": window(padding, self.dims, "padding"),
            "global_pool": global_pool,
            "pool_type": self.pool_type,
            "layout": layout,
            "pooling_convention": "full" if ceil_mode else "valid",
        }
        if count_include_pad is not None:
            self._kwargs["count_include_pad"] = count_include_pad

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


@layer
class MaxPool1D(_MaxPool):
    """The maximum of windows. x : (batch, channels, width) -> (batch, channels, out).

    pool_size, strides (default: pool_size), padding : a number or one per dimension
    ceil_mode : an incomplete last window counts: out is rounded up
    """

    dims = 1
    layouts = ("NCW", "NWC")

    def __init__(
        self,
        pool_size: Size = 2,
        strides: Size | None = None,
        padding: Size = 0,
        layout: str = "NCW",
        ceil_mode: bool = False,
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        super().__init__(**kwargs)
        self._set_up(pool_size, strides, padding, layout, ceil_mode)


@layer
class MaxPool2D(_MaxPool):
    """The maximum of windows, as `MaxPool1D`. x : (batch, channels, height, width) -> (batch, channels, out, out)."""

    dims = 2
    layouts = ("NCHW", "NHWC")

    def __init__(
        self,
        pool_size: Size = (2, 2),
        strides: Size | None = None,
        padding: Size = 0,
        layout: str = "NCHW",
        ceil_mode: bool = False,
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        super().__init__(**kwargs)
        self._set_up(pool_size, strides, padding, layout, ceil_mode)


@layer
class MaxPool3D(_MaxPool):
    """The maximum of windows, as `MaxPool1D`. x : (batch, channels, depth, height, width)."""

    dims = 3
    layouts = ("NCDHW", "NDHWC")

    def __init__(
        self,
        pool_size: Size = (2, 2, 2),
        strides: Size | None = None,
        padding: Size = 0,
        layout: str = "NCDHW",
        ceil_mode: bool = False,
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        super().__init__(**kwargs)
        self._set_up(pool_size, strides, padding, layout, ceil_mode)


@layer
class AvgPool1D(_AvgPool):
    """The mean of windows; arguments as `MaxPool1D`. x : (batch, channels, width) -> (batch, channels, out).

    count_include_pad : whether padded zeros count in the mean
    """

    dims = 1
    layouts = ("NCW", "NWC")

    def __init__(
        self,
        pool_size: Size = 2,
        strides: Size | None = None,
        padding: Size = 0,
        layout: str = "NCW",
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        super().__init__(**kwargs)
        self._set_up(pool_size, strides, padding, layout, ceil_mode, count_include_pad)


@layer
class AvgPool2D(_AvgPool):
    """The mean of windows, as `AvgPool1D`. x : (batch, channels, height, width) -> (batch, channels, out, out)."""

    dims = 2
    layouts = ("NCHW", "NHWC")

    def __init__(
        self,
        pool_size: Size = (2, 2),
        strides: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        layout: str = "NCHW",
        count_include_pad: bool = True,
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        super().__init__(**kwargs)
        self._set_up(pool_size, strides, padding, layout, ceil_mode, count_include_pad)


@layer
class AvgPool3D(_AvgPool):
    """The mean of windows, as `AvgPool1D`. x : (batch, channels, depth, height, width)."""

    dims = 3
    layouts = ("NCDHW", "NDHWC")

    def __init__(
        self,
        pool_size: Size = (2, 2, 2),
        strides: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        layout: str = "NCDHW",
        count_include_pad: bool = True,
        **kwargs: Unpack[BlockOptions],
    ) -> None:
        super().__init__(**kwargs)
        self._set_up(pool_size, strides, padding, layout, ceil_mode, count_include_pad)


class _Global(_Pool):
    def _set_up_global(self, layout: str) -> None:
        self._set_up(1, None, 0, layout, ceil_mode=True, global_pool=True)


@layer
class GlobalMaxPool1D(_Global, _MaxPool):
    """The maximum over all positions. x : (batch, channels, width) -> (batch, channels, 1)."""

    dims = 1
    layouts = ("NCW", "NWC")

    def __init__(self, layout: str = "NCW", **kwargs: Unpack[BlockOptions]) -> None:
        super().__init__(**kwargs)
        self._set_up_global(layout)


@layer
class GlobalMaxPool2D(_Global, _MaxPool):
    """The maximum over all positions. x : (batch, channels, height, width) -> (batch, channels, 1, 1)."""

    dims = 2
    layouts = ("NCHW", "NHWC")

    def __init__(self, layout: str = "NCHW", **kwargs: Unpack[BlockOptions]) -> None:
        super().__init__(**kwargs)
        self._set_up_global(layout)


@layer
class GlobalMaxPool3D(_Global, _MaxPool):
    """The maximum over all positions. x : (batch, channels, depth, height, width) -> (batch, channels, 1, 1, 1)."""

    dims = 3
    layouts = ("NCDHW", "NDHWC")

    def __init__(self, layout: str = "NCDHW", **kwargs: Unpack[BlockOptions]) -> None:
        super().__init__(**kwargs)
        self._set_up_global(layout)


@layer
class GlobalAvgPool1D(_Global, _AvgPool):
    """The mean over all positions. x : (batch, channels, width) -> (batch, channels, 1)."""

    dims = 1
    layouts = ("NCW", "NWC")

    def __init__(self, layout: str = "NCW", **kwargs: Unpack[BlockOptions]) -> None:
        super().__init__(**kwargs)
        self._set_up_global(layout)


@layer
class GlobalAvgPool2D(_Global, _AvgPool):
    """The mean over all positions. x : (batch, channels, height, width) -> (batch, channels, 1, 1)."""

    dims = 2
    layouts = ("NCHW", "NHWC")

    def __init__(self, layout: str = "NCHW", **kwargs: Unpack[BlockOptions]) -> None:
        super().__init__(**kwargs)
        self._set_up_global(layout)


@layer
class GlobalAvgPool3D(_Global, _AvgPool):
    """The mean over all positions. x : (batch, channels, depth, height, width) -> (batch, channels, 1, 1, 1)."""

    dims = 3
    layouts = ("NCDHW", "NDHWC")

    def __init__(self, layout: str = "NCDHW", **kwargs: Unpack[BlockOptions]) -> None:
        super().__init__(**kwargs)
        self._set_up_global(layout)
