"""Functions made of pieces: clip and its gradient, smooth_l1."""

from __future__ import annotations

from functools import partial
from math import isnan

import numpy as np

from hybrid_lab.ops.framework import MAXIMUM, MINIMUM, Elementwise, Pointwise, Unary, into, printed, sample
from hybrid_lab.ops.framework.protocols import Functions, Gradients, OnnxGraph, Scratch, Tensor
from hybrid_lab.ops.framework.types import Array


class SmoothL1(Unary, name="smooth_l1"):
    """With s = scalar: (s x)^2 / 2 where |x| < 1/s^2, else |x| - 0.5/s^2.

    data : any shape; returns : as data. For data of whole numbers the fraction of s is dropped, as in MXNet
    """

    precision = "float32"
    scalar: float = 1.0
    samples = [sample((3, 4), low=-2.0, high=2.0), sample((3, 4), low=-2.0, high=2.0, scalar=2.0)]

    @property
    def _numbers(self) -> tuple[float, float, float]:
        """s^2 / 2, 0.5 / s^2 and 1 / s^2."""
        square = self.scalar**2
        inverse = 1 / square if square else float("inf")
        return 0.5 * square, 0.5 * inverse, inverse

    @partial(Pointwise, floating=True)
    def triton(self, dtype: np.dtype) -> str:
        half, less, limit = (printed(number, dtype) for number in self._numbers)
        return f"tl.where(tl.abs({{0}}) < {limit}, {half} * {{0}} * {{0}}, tl.abs({{0}}) - {less})"

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        if data.dtype.kind in "iu" and np.trunc(self.scalar) != self.scalar:
            return SmoothL1.bind(scalar=float(np.trunc(self.scalar))).numpy(data, out=out)
        return super().numpy(data, out)

    def ufunc(self, data: Array, out: Array | None = None) -> Array:
        (half, less, limit), size = self._numbers, np.abs(data)
        result = np.where(size < limit, half * data * data, size - less)
        return into(result, out)

    def grad(self, F: Functions, x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        square = self.scalar**2
        return dy * F.clip(x * square, a_min=-1.0, a_max=1.0)

    def onnx(self, g: OnnxGraph, x: str) -> str:
        half, less, limit = (g.const(number, g.dtype(x)) for number in self._numbers)
        size = g.Abs(x)
        return g.Where(g.Less(size, limit), g.Mul(g.Mul(x, x), half), g.Sub(size, less))


class Clip(Elementwise, name="clip"):
    """data limited to [a_min, a_max]; the gradient passes where data lies inside, limits included.

    data : any shape, of floating point or whole numbers; returns : as data. For whole numbers, a limit is rounded
    towards zero; a limit that is NaN or outside the range of the dtype has no effect
    """

    dtype_kinds = "fiu"
    a_min: float
    a_max: float
    samples = [
        sample((3, 4), low=-2.0, high=2.0, a_min=-0.9, a_max=1.1),
        sample((3, 4), dtype="int32", low=-5, high=5, gradient=False, a_min=-2, a_max=3),
    ]

    @Pointwise
    def triton(self, dtype: np.dtype) -> str:
        low, high = (printed(limit, dtype) for limit in self.limits(dtype))
        return MINIMUM.format(MAXIMUM.format("{0}", low), high)

    def limits(self, dtype: np.dtype) -> tuple[float, float]:
        """a_min and a_max as numbers that a dtype has."""
        if dtype.kind not in "iu":
            return self.a_min, self.a_max
        range_ = np.iinfo(dtype)
        low = range_.min if isnan(self.a_min) else self.a_min
        high = range_.max if isnan(self.a_max) else self.a_max
        return int(max(range_.min, min(low, range_.max))), int(max(range_.min, min(high, range_.max)))

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        low, high = (np.asarray(limit).astype(data.dtype) for limit in self.limits(data.dtype))
        return np.minimum(np.maximum(data, low, out=out), high, out=out)

    def grad(self, F: Functions, x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F._clip_grad(dy, x, a_min=self.a_min, a_max=self.a_max)

    def onnx(self, g: OnnxGraph, x: str) -> str:
        low, high = (g.const(limit, g.dtype(x)) for limit in self.limits(g.dtype(x)))
        return g.Clip(x, low, high)


class ClipGrad(Elementwise, name="_clip_grad"):
    """dy if a_min <= x <= a_max, else 0, whatever dy is, as in MXNet. dy, x : one shape; returns : as dy."""

    a_min: float
    a_max: float
    mxnet = None
    samples = [sample((3, 4), (3, 4), a_min=-0.5, a_max=0.6)]

    @partial(Pointwise, jumps=True)
    def triton(self, dtype: np.dtype) -> str:
        low, high = (printed(limit, dtype) for limit in (self.a_min, self.a_max))
        return f"tl.where(({{1}} >= {low}) & ({{1}} <= {high}), {{0}}, 0.0)"

    def numpy(self, dy: Array, x: Array, out: Array | None = None, scratch: Scratch = np.empty) -> Array:
        inside = np.greater_equal(x, self.a_min, out=scratch(x.shape, np.bool_))
        inside &= np.less_equal(x, self.a_max, out=scratch(x.shape, np.bool_))
        if out is None:
            return np.where(inside, dy, dy.dtype.type(0))
        np.copyto(out, dy)
        np.copyto(out, out.dtype.type(0), where=np.logical_not(inside, out=inside))
        return out

    def grad(self, F: Functions, dy: Tensor, x: Tensor, y: Tensor, ddy: Tensor) -> Gradients:
        return F._clip_grad(ddy, x, a_min=self.a_min, a_max=self.a_max), None

    def onnx(self, g: OnnxGraph, dy: str, x: str) -> str:
        dtype = g.dtype(x)
        inside = g.And(g.GreaterOrEqual(x, g.const(self.a_min, dtype)), g.LessOrEqual(x, g.const(self.a_max, dtype)))
        return g.Where(inside, dy, g.const(0, dtype))
