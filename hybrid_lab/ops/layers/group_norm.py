"""Normalization within one sample: GroupNorm, InstanceNorm, LRN; and moments, the mean and variance alone."""

from __future__ import annotations

from functools import cached_property
from math import prod

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError, Unmappable
from hybrid_lab.ops.framework import (
    Element,
    Operator,
    Signature,
    contiguous,
    filled,
    into,
    kept_shape,
    reduced_axes,
    sample,
)
from hybrid_lab.ops.framework.attributes import Axis
from hybrid_lab.ops.framework.lowering import emit_lowering, run_lowering
from hybrid_lab.ops.framework.protocols import (
    Elements,
    Functions,
    Gradient,
    Gradients,
    OnnxGraph,
    Place,
    Scratch,
    Tensor,
)
from hybrid_lab.ops.framework.types import Array, Arrays, Outs, PartialShape, PartialShapes, Shape
from hybrid_lab.ops.kernels import windows as in_kernels


class _Grouped(Operator):
    """Base: y = (x - mean) / sqrt(var + eps) * gamma + beta, the statistics per sample and group of channels."""

    dtype_kinds = "f"
    half_in_float32 = True
    eps: float = 1e-5
    signature = Signature(outputs=3)

    def groups(self, data: tuple[int, ...]) -> int:
        """How many groups the channels form. Raises ShapeError."""
        raise NotImplementedError

    def grouped(self, F: Functions, data: Tensor) -> Tensor:
        """data as (n, groups, ...)."""
        raise NotImplementedError

    def reads_for(self, output: int, index: int) -> bool:
        return output == 0 or index == 0

    def infer_shape(self, data: Shape, gamma: Shape, beta: Shape) -> list[Shape]:
        groups = self.groups(data)
        for name, shape in (("gamma", gamma), ("beta", beta)):
            if shape != (groups,):
                raise ShapeError(f"{self.name}: {name} has shape {shape}; data {data} needs {(groups,)}")
        return [data, (data[0], groups), (data[0], groups)]

    def numpy(self, data: Array, gamma: Array, beta: Array, out: Outs = None, scratch: Scratch = np.empty) -> Arrays:
        n, groups = data.shape[0], self.groups(data.shape)
        size = prod(data.shape[1:]) // max(groups, 1)
        y, mean, deviation = out if out is not None else (None, None, None)
        mean = np.empty((n, groups), data.dtype) if mean is None else mean
        deviation = np.empty((n, groups), data.dtype) if deviation is None else deviation
        result = contiguous(y, data.shape, data.dtype)
        x, z = data.reshape(n, groups, size), result.reshape(n, groups, size)
        np.add.reduce(x, axis=2, out=mean)
        mean /= max(size, 1)
        np.subtract(x, mean[..., None], out=z)
        squares = np.vecdot(z, z, out=scratch((n, groups), data.dtype))
        squares /= max(size, 1)
        squares += data.dtype.type(self.eps)
        np.sqrt(squares, out=squares)
        np.copyto(deviation, squares)
        np.divide(gamma, squares, out=squares)
        z *= squares[..., None]
        z += beta[:, None]
        return into(result, y), mean, deviation

    def _statistic(self, F: Functions, value: Tensor, grouped: Tensor) -> Tensor:
        return F._restore_axes(value, grouped, axis=(0, 1), exclude=True)

    def _mean(self, F: Functions, value: Tensor) -> Tensor:
        return F.mean(value, axis=(0, 1), exclude=True, keepdims=True)

    def grad(
        self, F: Functions, data: Tensor, gamma: Tensor, beta: Tensor, y: Tensor, mean: Tensor, deviation: Tensor,
        dy: Tensor | None, *others: Tensor,
    ) -> Gradients:  # fmt: skip
        if dy is None:
            return None, None, None
        x, head = self.grouped(F, data), self.grouped(F, dy)
        divisor = self._statistic(F, deviation, x)
        normalized = (x - self._statistic(F, mean, x)) / divisor
        scaled = head * F._channel_like(gamma, x)
        inner = scaled - self._mean(F, scaled) - normalized * self._mean(F, scaled * normalized)
        dgamma = F.sum(head * normalized, axis=1, exclude=True)
        return F.reshape_like(inner / divisor, data), dgamma, F.sum(head, axis=1, exclude=True)

    def lower(self, F: Functions, data: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor, ...]:
        x = self.grouped(F, data)
        mean = F.mean(x, axis=(0, 1), exclude=True)
        centred = x - self._statistic(F, mean, x)
        deviation = F.sqrt(F.mean(F.square(centred), axis=(0, 1), exclude=True) + self.eps)
        y = centred / self._statistic(F, deviation, x) * F._channel_like(gamma, x) + F._channel_like(beta, x)
        return F.reshape_like(y, data), mean, deviation

    def onnx(self, g: OnnxGraph, data: str, gamma: str, beta: str) -> tuple[str, ...]:
        groups, dtype = self.groups(g.shape(data)), g.dtype(data)
        x = g.Reshape(data, [0, groups, -1])
        y = g.Reshape(g.InstanceNormalization(x, gamma, beta, epsilon=self.eps), g.Shape(data))
        mean = g.ReduceMean(x, axes=[2], keepdims=1)
        centred = g.Sub(x, mean)
        variance = g.ReduceMean(g.Mul(centred, centred), axes=[2], keepdims=0)
        deviation = g.Sqrt(g.Add(variance, g.const(self.eps, dtype)))
        return y, g.Squeeze(mean, [2]), deviation


#: In ONNX a product with a square of this many rows adds up windows over channels.
MOST_CHANNELS = 4096


class GroupNorm(_Grouped, name="GroupNorm"):
    """Each sample normalized over num_groups groups of channels: y = (x - mean) / sqrt(var + eps) * gamma + beta.

    data : (n, channels, ...), floating; gamma, beta : (num_groups,), one number per group, as in MXNet
    returns : as data; with output_mean_var also the mean and sqrt(var + eps), both (n, num_groups)
    """

    precision = "float32"
    num_groups: int = 1
    eps: float = 1e-5
    output_mean_var: bool = False
    samples = [
        sample((2, 4, 3, 3), (2,), (2,), num_groups=2),
        sample((3, 6, 5), (3,), (3,), num_groups=3, eps=1e-3),
        sample((2, 3, 4), (1,), (1,), gradient=False),
        sample((2, 4, 3), (2,), (2,), num_groups=2, output_mean_var=True, gradient=False),
    ]

    @cached_property
    def signature(self) -> Signature:
        return Signature(self.input_names, 3, 3 if self.output_mean_var else 1)

    def check(self) -> None:
        if self.num_groups < 1:
            raise AttributeSpecError(f"GroupNorm: num_groups={self.num_groups}; at least 1 is needed")

    def complete(self, data: PartialShape, *vectors: PartialShape) -> PartialShapes:
        return (data, *(filled(shape, (self.num_groups,)) for shape in vectors))

    def groups(self, data: tuple[int, ...]) -> int:
        if len(data) < 2 or data[1] % self.num_groups:
            raise ShapeError(f"GroupNorm: axis 1 of {data} cannot be cut into num_groups={self.num_groups} groups")
        return self.num_groups

    def grouped(self, F: Functions, data: Tensor) -> Tensor:
        return F.Reshape(data, shape=(0, -4, self.num_groups, -1, -2))


class InstanceNorm(_Grouped, name="InstanceNorm"):
    """Each channel of each sample normalized: y = (x - mean) / sqrt(var + eps) * gamma + beta (arXiv 1607.08022).

    data : (n, channels, ...), three or more dimensions, floating; gamma, beta : (channels,); returns : as data
    """

    precision = "float32"
    eps: float = 1e-3
    signature = Signature(outputs=3, visible=1)
    samples = [
        sample((2, 3, 4), (3,), (3,)), sample((2, 3, 4, 5), (3,), (3,), eps=1e-5), sample((1, 2, 2, 3, 2), (2,), (2,)),
    ]  # fmt: skip

    def complete(self, data: PartialShape, *vectors: PartialShape) -> PartialShapes:
        size = None if data is None or len(data) < 2 else data[1]
        return (data, *(filled(shape, (size,)) for shape in vectors))

    def groups(self, data: tuple[int, ...]) -> int:
        if len(data) < 3:
            raise ShapeError(f"InstanceNorm: data has shape {data}; three or more dimensions are needed (n, c, ...)")
        return data[1]

    def grouped(self, F: Functions, data: Tensor) -> Tensor:
        return data


class LRN(Operator, name="LRN"):
    """Local response normalization: y = x / (knorm + alpha / nsize * s)^beta, s the sum of x^2 over nsize channels.

    data : (n, channels, ...), floating; nsize : odd, the number of channels around each channel; returns : as data
    """

    dtype_kinds = "f"
    precision = "float32"
    alpha: float = 1e-4
    beta: float = 0.75
    knorm: float = 2.0
    nsize: int
    signature = Signature(outputs=2, visible=1)
    numpy = run_lowering
    samples = [
        sample((2, 5, 3, 3), nsize=3, alpha=0.5),
        sample((2, 5, 2, 2), nsize=5, alpha=1.0, beta=0.5, knorm=1.0),
        sample((1, 2, 3, 2), nsize=1, alpha=1.0),
    ]

    def check(self) -> None:
        if self.nsize < 1 or self.nsize % 2 == 0:
            raise AttributeSpecError(f"LRN: nsize={self.nsize}; an odd number of channels is needed")

    def infer_shape(self, data: Shape) -> list[Shape]:
        if len(data) < 2:
            raise ShapeError(f"LRN: data has shape {data}; two or more dimensions are needed (n, c, ...)")
        return [data, data]

    def grad(self, F: Functions, data: Tensor, y: Tensor, norm: Tensor, dy: Tensor) -> Tensor:
        power = F.broadcast_power(norm, -self.beta)
        inner = F._channel_window_sum(dy * data * power / norm, nsize=self.nsize)
        return dy * power - data * inner * (2.0 * self.beta * self.alpha / self.nsize)

    def lower(self, F: Functions, data: Tensor) -> tuple[Tensor, ...]:
        norm = F._channel_window_sum(F.square(data), nsize=self.nsize) * (self.alpha / self.nsize) + self.knorm
        return data * F.broadcast_power(norm, -self.beta), norm

    def onnx(self, g: OnnxGraph, data: str) -> tuple[str, ...]:
        shape, dtype = g.shape(data), g.dtype(data)
        total = _emit_window_sum(g, g.Mul(data, data), shape, dtype, self.nsize)
        norm = g.Add(g.Mul(total, g.const(self.alpha / self.nsize, dtype)), g.const(self.knorm, dtype))
        if len(shape) == 4:
            return g.LRN(data, alpha=self.alpha, beta=self.beta, bias=self.knorm, size=self.nsize), norm
        return g.Mul(data, g.Pow(norm, g.const(-self.beta, dtype))), norm


def window_sum(data: np.ndarray, nsize: int, out: np.ndarray) -> np.ndarray:
    """out[:, c] = the sum of data[:, c - nsize // 2 ... c + nsize // 2], as far as there are channels."""
    np.copyto(out, data)
    for step in range(1, min(nsize // 2, data.shape[1] - 1) + 1):
        out[:, step:] += data[:, :-step]
        out[:, :-step] += data[:, step:]
    return out


def _emit_window_sum(g: OnnxGraph, data: str, shape: Shape, dtype: np.dtype, nsize: int) -> str:
    """The same in ONNX: a product with a band of ones over the channels."""
    if shape[1] > MOST_CHANNELS:
        raise Unmappable(f"a window over {shape[1]} channels: the band that adds them would be too large")
    line = np.arange(shape[1])
    band = np.abs(line[:, None] - line) <= nsize // 2
    rows = g.Reshape(data, [0, shape[1], -1])
    return g.Reshape(g.MatMul(g.const(band, dtype), rows), [0, *shape[1:]])


class ChannelWindowSum(Operator, name="_channel_window_sum"):
    """The sum over the nsize (odd) channels around each one. data : (n, channels, ...); returns : as data."""

    shaped_like = 0
    nsize: int
    mxnet = None
    dtype_kinds = "fiu"
    samples = [sample((2, 5, 3), nsize=3), sample((2, 2, 3), nsize=7)]

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        return window_sum(data, self.nsize, np.empty(data.shape, data.dtype) if out is None else out)

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        channels, parts = elements.shape(0)[1], []
        reach = min(self.nsize // 2, channels - 1)
        in_kernels.few(2 * reach + 1)
        for step in range(-reach, reach + 1):
            guard = elements.guard(place[1] + step, channels)
            name = elements.read(0, (place[0], place[1] + step, *place[2:]), guard)
            parts.append(elements.where(guard, name, elements.literal(0)))
        return in_kernels.added(elements, parts)

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F._channel_window_sum(dy, nsize=self.nsize)

    def onnx(self, g: OnnxGraph, data: str) -> str:
        return _emit_window_sum(g, data, g.shape(data), g.dtype(data), self.nsize)


class Moments(Operator, name="moments"):
    """Mean and variance (divided by the count) over `axes`; None: over all, giving shape (1,).

    data : floating; returns : mean, variance
    """

    dtype_kinds = "f"
    precision = "float32"
    axes: Axis = None
    keepdims: bool = False
    half_in_float32 = True
    signature = Signature(outputs=2)
    numpy, onnx = run_lowering, emit_lowering
    samples = [
        sample((2, 3, 4), axes=(1,)), sample((2, 3, 4), axes=(0, 2), keepdims=True), sample((3, 4), axes=(0, 1)),
        sample((2, 3, 4), axes=-1),
    ]  # fmt: skip

    def infer_shape(self, data: Shape) -> list[Shape]:
        axes = reduced_axes("moments", self.axes, len(data))
        kept = kept_shape(data, axes)
        shape = kept if self.keepdims else tuple(size for axis, size in enumerate(data) if axis not in axes) or (1,)
        return [shape, shape]

    def _spread(self, F: Functions, value: Tensor, data: Tensor) -> Tensor:
        return value if self.keepdims else F._restore_axes(value, data, axis=self.axes)

    def grad(
        self, F: Functions, data: Tensor, mean: Tensor, variance: Tensor, dmean: Tensor | None, dvariance: Tensor | None
    ) -> Gradient:
        ddata = None
        if dmean is not None:
            ddata = F.broadcast_like(self._spread(F, dmean / F._size_ratio(data, mean), data), data)
        if dvariance is not None:
            slope = self._spread(F, dvariance * 2.0 / F._size_ratio(data, variance), data)
            part = (data - self._spread(F, mean, data)) * slope
            ddata = part if ddata is None else ddata + part
        return ddata

    def lower(self, F: Functions, data: Tensor) -> tuple[Tensor, ...]:
        mean = F.mean(data, axis=self.axes, keepdims=self.keepdims)
        centred = data - self._spread(F, mean, data)
        return mean, F.mean(F.square(centred), axis=self.axes, keepdims=self.keepdims)
