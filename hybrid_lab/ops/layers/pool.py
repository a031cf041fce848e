"""Pooling over one to three spatial axes (max, avg, sum, lp), and its gradients as operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import inf, prod
from typing import Any, Literal

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, DTypeError, ShapeError, Unmappable
from hybrid_lab.ops.arrays.reduce import whole_quotient
from hybrid_lab.ops.framework import Adjoint, Element, forward_shape, get, gradient_samples, sample
from hybrid_lab.ops.framework.attributes import Shape
from hybrid_lab.ops.framework.dtypes import is_floating
from hybrid_lab.ops.framework.protocols import Elements, Functions, Gradients, OnnxGraph, Place, Scratch, Tensor
from hybrid_lab.ops.framework.types import Array
from hybrid_lab.ops.kernels import windows as in_kernels
from hybrid_lab.ops.kernels.windows import Windows, everywhere, lowest
from hybrid_lab.ops.layers.channels import LAYOUTS, WithLayout, first_shape, last_shape
from hybrid_lab.ops.layers.conv import check_axes


class Pooled(WithLayout):
    """Base of Pooling and its gradients: the shared attributes and the geometry."""

    kernel: Shape = ()
    pool_type: Literal["max", "avg", "sum", "lp"] = "max"
    global_pool: bool = False
    pooling_convention: Literal["valid", "full", "same"] = "valid"
    stride: Shape = ()
    pad: Shape = ()
    p_value: int | None = None
    count_include_pad: bool | None = None
    layout: str | None = None

    def check(self) -> None:
        self.check_layout("Pooling")
        if self.global_pool:
            if any(size < 1 for size in (*self.kernel, *self.stride)):
                raise AttributeSpecError(f"Pooling: kernel={self.kernel} and stride={self.stride} must be at least 1")
            return
        check_axes(self, "Pooling", self.kernel, ("stride",), ("pad",) if any(self.pad) else ())
        if any(self.pad) and any(pad >= kernel for pad, kernel in zip(self.pad, self.kernel, strict=True)):
            raise AttributeSpecError(f"Pooling: pad={self.pad} must be smaller than kernel={self.kernel}")
        if self.pooling_convention == "same" and (len(self.kernel) > 1 or any(self.pad) or self.pool_type != "max"):
            raise AttributeSpecError(
                "Pooling: pooling_convention='same' is of maxima over one spatial axis without pad; use pad with "
                "'valid' or 'full'"
            )
        if self.pool_type == "lp" and self.p_value not in (1, 2, 3):
            raise AttributeSpecError(f"Pooling: pool_type='lp' needs p_value 1, 2 or 3, it is {self.p_value}")

    @property
    def shared(self) -> dict[str, Any]:
        """The attributes of this pooling, for its gradients."""
        return {key: value for key, value in self.attributes.items() if key != "layout"}

    def checked_output(self, data: Shape, y: Shape) -> Shape:
        """The shape of the pooling's output. Raises ShapeError if an input that must have it, y, does not."""
        wanted = forward_shape("Pooling", data, **self.shared)
        if y != wanted:
            raise ShapeError(f"{self.name}: {y} is not {wanted}, the shape of the output for data {data}")
        return wanted

    @lru_cache(1024)  # noqa: B019 - operators are interned and live for ever
    def windows(self, spatial: tuple[int, ...]) -> Windows:
        """The geometry for that input size. Raises ShapeError."""
        if self.global_pool:
            if self.pool_type == "max" and 0 in spatial:
                raise ShapeError(f"Pooling: there is no largest element in windows of {spatial}")
            return Windows(spatial, spatial, (1,) * len(spatial), (0,) * len(spatial), (1,) * len(spatial))
        rank = len(self.kernel)
        output = self.output_sizes(spatial)
        return Windows(spatial, self.kernel, self.stride or (1,) * rank, self._padding, output)

    @property
    def _padding(self) -> tuple[int, ...]:
        return self.pad if any(self.pad) else (0,) * len(self.kernel)

    def output_sizes(self, spatial: Shape) -> Shape:
        """The spatial sizes of the output, from the spatial sizes of the input; both may be symbolic. Raises
        ShapeError.
        """
        if self.global_pool:
            return (1,) * len(spatial)
        rank = len(self.kernel)
        if len(spatial) != rank:
            raise ShapeError(
                f"Pooling: kernel={self.kernel} needs {rank + 2} dimensions ({LAYOUTS[rank]}), "
                f"data has {len(spatial) + 2}"
            )
        pad, output = self._padding, []
        for size, kernel, step, border in zip(spatial, self.kernel, self.stride or (1,) * rank, pad, strict=True):
            if kernel > size + 2 * border:
                raise ShapeError(f"Pooling: kernel={self.kernel} with pad={pad} does not fit into {spatial}")
            # The last window of "same" starts inside and may reach beyond.
            reach = size if self.pooling_convention == "same" else size + 2 * border - kernel + step
            output.append(reach // step if self.pooling_convention == "valid" else -(-reach // step))
        return tuple(output)

    def divisor(self, windows: Windows, dtype: np.dtype) -> Array:
        """What avg divides by, as an array that broadcasts over the output (or one number)."""
        counts = windows.counts(self.count_include_pad is not False)
        if all((vector == vector[0]).all() for vector in counts):
            return np.dtype(dtype).type(prod(int(vector[0]) for vector in counts))
        result = np.ones((), dtype)
        for vector in counts:
            result = result[..., None] * vector.astype(dtype)
        return result


_POOLS = [
    sample((2, 3, 8), kernel=2, stride=2, pool_type="max"),
    sample((2, 3, 6, 6), kernel=(2, 2), stride=(2, 2), pool_type="max"),
    sample((2, 3, 7, 6), kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max"),
    sample((2, 3, 7, 6), kernel=(3, 2), pool_type="max"),
    sample((2, 3, 6, 6), kernel=(3, 3), stride=(2, 2), pooling_convention="full", pool_type="max"),
    sample((2, 3, 6, 5), global_pool=True, pool_type="max", kernel=(1, 1)),
    sample((2, 3, 7, 6), kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="avg"),
    sample((2, 3, 7, 6), kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="avg", count_include_pad=False),
    sample((2, 3, 6, 6), kernel=(3, 3), stride=(2, 2), pooling_convention="full", pool_type="avg"),
    sample((2, 3, 6, 5), global_pool=True, pool_type="avg", kernel=(1, 1)),
    sample((2, 3, 6, 6), kernel=(2, 2), stride=(2, 2), pool_type="sum"),
    sample((2, 3, 6, 6), kernel=(2, 2), stride=(2, 2), pool_type="lp", p_value=2, low=0.1),
    sample((1, 2, 4, 4, 4), kernel=(2, 2, 2), stride=(2, 2, 2), pool_type="max"),
    sample((2, 3, 7), kernel=3, stride=2, pad=(0, 0, 0), pool_type="max", pooling_convention="same"),
    sample(np.array([[[1.0, 1.0, 0.0, 2.0, 2.0, 2.0]]], "float32"), kernel=3, stride=1, pool_type="max", smooth=False),
]


class Pooling(Pooled, name="Pooling"):
    """The maximum, mean, sum or p-norm over windows.

    data : (n, c, *spatial); returns : (n, c, *output), output = floor((size + 2 pad - kernel) / stride) + 1, or ceil
    with pooling_convention='full', or ceil(size / stride) with 'same'; (n, c, 1, ...) with global_pool. Among equal
    maxima the first takes the gradient.
    count_include_pad=False divides by the elements inside the input only. float16 is added up in float32.
    layout : None, or NWC, NHWC or NDHWC for data and output
    """

    dtype_kinds = "fiu"
    samples = _POOLS

    def infer_type(self, *dtypes: np.dtype | None) -> np.dtype:
        found: np.dtype = super().infer_type(*dtypes)
        if self.pool_type == "lp" and not is_floating(found):
            raise DTypeError(f"Pooling: pool_type='lp' needs floating numbers, not {found.name}")
        return found

    @property
    def half_in_float32(self) -> bool:
        """Sums may overflow in float16 although means do not."""
        return self.pool_type != "max"

    def infer_shape(self, data: Shape) -> Shape:
        if not 3 <= len(data) <= 5:
            raise ShapeError(f"Pooling: data has shape {data}; three to five dimensions are needed (n, c, ...)")
        if self.channels_last:
            return last_shape(self.with_channels_first.infer_shape(first_shape(data)))
        if self.global_pool and self.pool_type == "max" and any(size == 0 for size in data[2:]):
            raise ShapeError(f"Pooling: there is no largest element in windows of {data[2:]}")
        return (*data[:2], *self.output_sizes(data[2:]))

    def numpy(self, data: Array, out: Array | None = None, scratch: Scratch = np.empty) -> Array:
        if self.channels_last:
            return self.run_with_channels_first((data,), out, scratch)
        windows = self.windows(data.shape[2:])
        if out is None:
            out = np.empty((*data.shape[:2], *windows.output), data.dtype, like=data)
        if self.global_pool:
            return self._global(data, out)
        if self.pool_type == "max":
            return windows.sweep(windows.padding(data, lowest(data.dtype), scratch), np.maximum, out, scratch)
        if self.pool_type == "lp":
            assert self.p_value is not None
            data = np.abs(data) ** self.p_value
        windows.sweep(windows.padding(data, 0, scratch), np.add, out, scratch)
        if self.pool_type == "avg":
            divisor = self.divisor(windows, data.dtype)
            np.divide(out, divisor, out=out) if data.dtype.kind == "f" else np.floor_divide(out, divisor, out=out)
        elif self.pool_type == "lp":
            np.power(out, out.dtype.type(1 / (self.p_value or 1)), out=out)
        return out

    def _global(self, data: np.ndarray, out: np.ndarray) -> np.ndarray:
        axes = tuple(range(2, data.ndim))
        if self.pool_type == "max":
            return np.maximum.reduce(data, axis=axes, keepdims=True, out=out)
        if self.pool_type == "lp":
            power = self.p_value or 2
            return np.power((np.abs(data) ** power).sum(axis=axes, keepdims=True), 1 / power, out=out, dtype=data.dtype)
        np.add.reduce(data, axis=axes, keepdims=True, out=out)
        if self.pool_type == "avg":
            count = prod(data.shape[2:])
            return np.divide(out, count, out=out) if is_floating(out.dtype) else whole_quotient(out, count, out)
        return out

    def lower(self, F: Functions, data: Tensor) -> Tensor:
        if not self.global_pool:
            raise Unmappable("windows, which are no reduction over axes")
        over: dict[str, Any] = {"axis": (0, 1), "exclude": True, "keepdims": True}
        if self.pool_type == "lp":
            power = float(self.p_value or 2)
            return F.broadcast_power(F.sum(F.broadcast_power(F.abs(data), power), **over), 1 / power)
        return {"max": F.max, "avg": F.mean, "sum": F.sum}[self.pool_type](data, **over)

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        windows = self.windows(elements.shape(0)[2:])
        if not is_floating(elements.dtype()) and self.pool_type in ("avg", "lp"):
            raise Unmappable(f"Pooling: pool_type={self.pool_type!r} of whole numbers")
        found = in_kernels.covered(elements, windows, place)
        if self.pool_type == "max":
            padding = elements.literal(lowest(elements.dtype()))
            return in_kernels.largest(elements, [elements.where(guard, name, padding) for name, guard in found])
        power = int(self.p_value or 2) if self.pool_type == "lp" else 0
        total = in_kernels.added(
            elements, [elements.where(guard, _power(name, power), elements.literal(0)) for name, guard in found]
        )
        if self.pool_type == "avg":
            return (
                f"({total}) / {in_kernels.divisor(elements, windows, place[2:], self.count_include_pad is not False)}"
            )
        return {2: f"tl.sqrt({total})", 3: f"tl.exp(tl.log({total}) / 3)"}.get(power, total)

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        if self.channels_last:
            turned = (self.first(F, each) for each in (data, y, dy))
            gradient: Tensor = self.with_channels_first.grad(F, *turned)
            return self.last(F, gradient)
        if self.pool_type == "max":
            return F._max_pool_grad(dy, data, y, **self.shared)
        if self.pool_type == "lp":
            p = float(self.p_value or 2)
            norm = F.where(y, y, F.ones_like(y))  # windows of zeros have the gradient 0
            inner = F._spread_pool_grad(
                dy * F.broadcast_power(norm, 1.0 - p), data, **{**self.shared, "pool_type": "sum"}
            )
            return inner * F.sign(data) * F.broadcast_power(F.abs(data), p - 1.0)
        return F._spread_pool_grad(dy, data, **self.shared)

    def bound(self, sizes: Sequence[float], shapes: Sequence[Shape], filters: Callable[[int], float]) -> float:
        if self.pool_type == "max":
            return sizes[0]
        window = shapes[0][2:] if self.global_pool else self.kernel
        return sizes[0] * prod(window) if self.pool_type in ("avg", "sum") else inf

    def onnx(self, g: OnnxGraph, data: str) -> str:
        shape, dtype = g.shape(data), g.dtype(data)
        windows = self.windows(shape[2:])
        if self.global_pool:
            if self.pool_type == "sum":
                return g.ReduceSum(data, list(range(2, len(shape))), keepdims=1)
            if self.pool_type == "lp":
                return g.GlobalLpPool(data, p=self.p_value or 2)
            return g.GlobalMaxPool(data) if self.pool_type == "max" else g.GlobalAveragePool(data)
        attributes = emit_windows(windows)
        if self.pool_type == "lp" and windows.padded:
            raise Unmappable("Pooling: pool_type='lp' with padding")
        data = _emit_padding(g, data, attributes, dtype, self.pool_type)
        if self.pool_type == "max":
            return g.MaxPool(data, **attributes)
        if self.pool_type == "lp":
            return g.LpPool(data, p=self.p_value, **attributes)
        # AveragePool divides by the window's size; the division that MXNet makes takes its place.
        average = g.AveragePool(data, count_include_pad=1, **attributes)
        divisor = self.divisor(windows, dtype)
        if self.pool_type == "avg" and np.all(divisor == prod(windows.kernel)):
            return average
        total = g.Mul(average, g.const(prod(windows.kernel), dtype))
        return total if self.pool_type == "sum" else g.Div(total, g.const(divisor, dtype))


def emit_windows(windows: Windows) -> dict[str, Any]:
    """ONNX attributes: the padding at the far end reaches as far as the windows, so that no rounding mode is needed."""
    after = [
        max(0, reach - size - border)
        for reach, size, border in zip(windows.reach, windows.spatial, windows.pad, strict=True)
    ]
    return {"kernel_shape": list(windows.kernel), "strides": list(windows.stride), "pads": [*windows.pad, *after]}


def _emit_padding(g: OnnxGraph, data: str, attributes: dict[str, Any], dtype: np.dtype, pool_type: str) -> str:
    """The data with its padding, if that is as wide as a window, which ONNX Runtime refuses; else the data."""
    pads, kernel = attributes["pads"], attributes["kernel_shape"]
    if all(border < size for border, size in zip(pads, 2 * kernel, strict=True)):
        return data
    if pool_type == "max":
        raise Unmappable("Pooling: a window that lies in the padding alone, whose maximum is -inf")
    rank = len(kernel)
    attributes["pads"] = [0] * len(pads)
    return g.Pad(data, [0, 0, *pads[:rank], 0, 0, *pads[rank:]], g.const(0, dtype))


def _power(name: str, power: int) -> str:
    """|x|^power in kernels; power 0 : x unchanged."""
    return " * ".join([f"tl.abs({name})"] * (power % 2) + [name] * (power - power % 2)) or name


def is_max(attributes: dict[str, Any]) -> bool:
    """Whether a Pooling with these attributes takes maxima."""
    return attributes["pool_type"] == "max"


def _without_padding(windows: Windows, total: np.ndarray, out: np.ndarray) -> np.ndarray:
    """`out`, filled with what `total`, as far as windows reach, has inside of the padding; without padding they are
    one.
    """
    if windows.padded:
        source, target = windows.inside()
        if any(part.stop < size for part, size in zip(target, out.shape[2:], strict=True)):
            out.fill(0)
        np.copyto(out[everywhere(target)], total[everywhere(source)])
    return out


class MaxPoolGrad(Pooled, name="_max_pool_grad"):
    """The gradient of max pooling: dy goes to the first maximum of each window.

    dy, y : the pooling's output shape; data : its input; returns : as data
    """

    shaped_like = 1
    mxnet = None
    samples = gradient_samples(Pooling, "dy", "data", "y", chosen=is_max)

    def first_shape(self, dy: Shape, data: Shape, y: Shape) -> Shape:
        return self.checked_output(data, y)

    def numpy(self, dy: Array, data: Array, y: Array, out: Array | None = None, scratch: Scratch = np.empty) -> Array:
        with np.errstate(all="ignore"):
            finite = np.isfinite(dy.sum())
        if not finite:  # below a share is a product with 0 or 1
            place: Any = get("_max_pool_place").bind(**self.shared)
            spread: Any = get("_max_pool_spread").bind(**self.shared)
            return spread.numpy(dy, place.numpy(data, scratch=scratch), data, out, scratch)
        windows = self.windows(data.shape[2:])
        padded = windows.padding(data, lowest(data.dtype), scratch)
        whole = not windows.padded and windows.reach == data.shape[2:]
        if out is None:
            out = np.empty(data.shape, dy.dtype)
        total = out if not windows.padded else scratch(padded.shape, dy.dtype)
        disjoint = windows.disjoint
        if (
            not disjoint
            or not whole
            or any(step > size for step, size in zip(windows.stride, windows.kernel, strict=True))
        ):
            total.fill(0)
        rest = scratch(dy.shape, dy.dtype)
        np.copyto(rest, dy)
        hit, share = scratch(dy.shape, np.bool_), scratch(dy.shape, dy.dtype)
        for where in windows.places():
            np.equal(padded[everywhere(where)], y, out=hit)
            np.multiply(rest, hit, out=share)
            rest -= share
            target = total[everywhere(where)]
            if disjoint:
                np.copyto(target, share)
            else:
                target += share
        return _without_padding(windows, total, out)

    def lower(self, F: Functions, dy: Tensor, data: Tensor, y: Tensor) -> Tensor:
        # Not by comparing data with y: kernels of their own round each in their way.
        return F._max_pool_spread(dy, F._max_pool_place(data, **self.shared), data, **self.shared)

    def grad(self, F: Functions, dy: Tensor, data: Tensor, y: Tensor, dx: Tensor, d: Tensor) -> Gradients:
        return F._max_pool_pick(d, data, y, **self.shared), None, None

    def onnx(self, g: OnnxGraph, dy: str, data: str, y: str) -> str:
        shape = g.shape(data)
        attributes = emit_windows(self.windows(shape[2:]))
        _, indices = g.MaxPool(data, outputs=2, **attributes)
        zeros = g.Expand(g.const(0, g.dtype(dy)), g.Reshape(g.Size(data), [1]))
        total = g.ScatterElements(zeros, g.Reshape(indices, [-1]), g.Reshape(dy, [-1]), axis=0, reduction="add")
        return g.Reshape(total, g.Shape(data))


class MaxPoolPick(Pooled, name="_max_pool_pick"):
    """The elements of d where max pooling of data found its first maxima.

    d : as data; y : the pooling's output; returns : as y.
    """

    shaped_like = 2
    mxnet = None
    samples = gradient_samples(Pooling, "d", "data", "y", chosen=is_max)

    def first_shape(self, d: Shape, data: Shape, y: Shape) -> Shape:
        self.checked_output(data, y)
        return data

    def numpy(self, d: Array, data: Array, y: Array, out: Array | None = None, scratch: Scratch = np.empty) -> Array:
        windows = self.windows(data.shape[2:])
        padded = windows.padding(data, lowest(data.dtype), scratch)
        values = windows.padding(d, 0, scratch)
        out = np.zeros(y.shape, d.dtype, like=d) if out is None else out
        out.fill(0)
        open_ = np.ones_like(y, np.bool_)
        for where in windows.places():
            hit = (padded[everywhere(where)] == y) & open_
            open_ &= ~hit
            np.copyto(out, values[everywhere(where)], where=hit)
        return out

    def grad(self, F: Functions, d: Tensor, data: Tensor, y: Tensor, picked: Tensor, dd: Tensor) -> Gradients:
        return F._max_pool_grad(dd, data, y, **self.shared), None, None


class SpreadPoolGrad(Adjoint, Pooled, name="_spread_pool_grad"):
    """The gradient of avg and sum pooling: dy spread evenly over each window.

    dy : the output; data : read for its shape; returns : that.
    """

    adjoint_of = "Pooling"
    dtype_kinds = "f"
    half_in_float32 = True
    samples = gradient_samples(Pooling, "dy", "data", chosen=lambda given: given["pool_type"] in ("avg", "sum"))

    def numpy(self, dy: Array, data: Array, out: Array | None = None, scratch: Scratch = np.empty) -> Array:
        if not is_floating(dy.dtype):
            raise DTypeError(
                f"the gradient of Pooling with pool_type={self.pool_type!r} needs floating numbers, not {dy.dtype}; "
                "use F.cast(x, dtype='float32')"
            )
        windows = self.windows(data.shape[2:])
        if out is None:
            out = np.empty(data.shape, dy.dtype)
        if self.pool_type == "avg":
            dy = np.divide(dy, self.divisor(windows, dy.dtype), out=scratch(dy.shape, dy.dtype))
        if self.global_pool:
            np.copyto(out, dy)
            return out
        total = out if not windows.padded else scratch((*data.shape[:2], *windows.reach), dy.dtype)
        total.fill(0)
        for where in windows.places():
            total[everywhere(where)] += dy
        return _without_padding(windows, total, out)

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        windows = self.windows(elements.shape(1)[2:])
        parts = []
        for window, _, guard in in_kernels.covering(elements, windows, place):
            share = elements.read(0, window, guard)
            if self.pool_type == "avg":
                share += f" / {in_kernels.divisor(elements, windows, window[2:], self.count_include_pad is not False)}"
            parts.append(elements.where(guard, share, elements.literal(0)))
        return in_kernels.added(elements, parts)

    def onnx(self, g: OnnxGraph, dy: str, data: str) -> str:
        shape, dtype = g.shape(data), g.dtype(dy)
        windows = self.windows(shape[2:])
        if self.pool_type == "avg":
            dy = g.Div(dy, g.const(self.divisor(windows, dtype), dtype))
        if self.global_pool:
            return g.Expand(dy, g.Shape(data))
        # A transposed convolution with a kernel of ones, channel by channel.
        channels = shape[1]
        rest = [
            size + border - reach for size, border, reach in zip(shape[2:], windows.pad, windows.reach, strict=True)
        ]
        spread = g.ConvTranspose(
            dy, g.const(np.ones((channels, 1, *windows.kernel)), dtype), kernel_shape=list(windows.kernel),
            strides=list(windows.stride), pads=[*windows.pad, *(max(0, -number) for number in rest)], group=channels,
        )  # fmt: skip
        missing = [max(0, number) for number in rest]
        if any(missing):
            lead = [0] * len(shape)
            spread = g.Pad(spread, [*lead, 0, 0, *missing], g.const(0, dtype))
        return spread
