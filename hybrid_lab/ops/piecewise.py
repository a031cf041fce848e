"""Functions made of pieces: clip and its gradient, smooth_l1."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np

from hybrid_lab.ops.pointwise import MAXIMUM, MINIMUM, Pointwise, Unary
from hybrid_lab.ops.sample import sample


class SmoothL1(Unary, name="smooth_l1"):
    """With s = scalar: (s x)^2 / 2 where |x| < 1/s^2, else |x| - 0.5/s^2.

    data : any shape, floating; returns : as data
    """

    scalar: float = 1.0
    samples = [sample((3, 4), low=-2.0, high=2.0), sample((3, 4), low=-2.0, high=2.0, scalar=2.0)]

    @property
    def triton(self) -> str:  # type: ignore[override]
        square = self.scalar**2
        inner, outer = f"{0.5 * square!r} * {{0}} * {{0}}", f"tl.abs({{0}}) - {0.5 / square!r}"
        return f"tl.where(tl.abs({{0}}) < {1 / square!r}, {inner}, {outer})"

    def ufunc(self, data: Any, out: Any = None) -> Any:
        square, size = self.scalar**2, np.abs(data)
        result = np.where(size < 1 / square, 0.5 * square * data * data, size - 0.5 / square)
        if out is None:
            return result
        np.copyto(out, result)
        return out

    def grad(self, F: Any, x: Any, y: Any, dy: Any) -> Any:
        square = self.scalar**2
        return dy * F.clip(x * square, a_min=-1.0, a_max=1.0)

    def onnx(self, g: Any, x: Any) -> Any:
        square, dtype = self.scalar**2, g.dtype(x)
        size = g.Abs(x)
        inner = g.Mul(g.Mul(x, x), g.const(0.5 * square, dtype))
        return g.Where(g.Less(size, g.const(1 / square, dtype)), inner, g.Sub(size, g.const(0.5 / square, dtype)))


def _printed(limit: float) -> str:
    """A number in the text of a kernel."""
    return repr(limit) if isfinite(limit) else f"float('{limit}')"


class Clip(Pointwise, name="clip"):
    """data limited to [a_min, a_max]; the gradient passes where data lies inside, limits included.

    data : any shape and dtype; returns : as data
    """

    a_min: float
    a_max: float
    samples = [
        sample((3, 4), low=-2.0, high=2.0, a_min=-0.9, a_max=1.1),
        sample((3, 4), dtype="int32", low=-5, high=5, gradient=False, a_min=-2, a_max=3),
    ]

    @property
    def triton(self) -> str:  # type: ignore[override]
        low, high = map(_printed, (self.a_min, self.a_max))
        return MINIMUM.format(MAXIMUM.format("{0}", low), high)

    def infer_shape(self, data: tuple[int, ...]) -> tuple[int, ...]:
        return data

    def numpy(self, data: Any, out: Any = None) -> Any:
        low, high = (np.asarray(limit).astype(data.dtype) for limit in (self.a_min, self.a_max))
        return np.minimum(np.maximum(data, low, out=out), high, out=out)

    def grad(self, F: Any, x: Any, y: Any, dy: Any) -> Any:
        return F._clip_grad(dy, x, a_min=self.a_min, a_max=self.a_max)

    def onnx(self, g: Any, x: Any) -> Any:
        return g.Clip(x, g.const(self.a_min, g.dtype(x)), g.const(self.a_max, g.dtype(x)))


class ClipGrad(Pointwise, name="_clip_grad"):
    """dy where a_min <= x <= a_max, else 0. dy, x : one shape; returns : as dy."""

    a_min: float
    a_max: float
    mxnet = None
    samples = [sample((3, 4), (3, 4), a_min=-0.5, a_max=0.6)]

    @property
    def triton(self) -> str:  # type: ignore[override]
        low, high = map(_printed, (self.a_min, self.a_max))
        return f"tl.where(({{1}} >= {low}) & ({{1}} <= {high}), {{0}}, 0.0)"

    def infer_shape(self, dy: tuple[int, ...], x: tuple[int, ...]) -> tuple[int, ...]:
        return dy

    def numpy(self, dy: Any, x: Any, out: Any = None, scratch: Any = np.empty) -> Any:
        inside = np.greater_equal(x, self.a_min, out=scratch(x.shape, np.bool_))
        inside &= np.less_equal(x, self.a_max, out=scratch(x.shape, np.bool_))
        return np.multiply(dy, inside, out=out)

    def grad(self, F: Any, dy: Any, x: Any, y: Any, ddy: Any) -> tuple[Any, Any]:
        return F._clip_grad(ddy, x, a_min=self.a_min, a_max=self.a_max), None

    def onnx(self, g: Any, dy: Any, x: Any) -> Any:
        dtype = g.dtype(x)
        inside = g.And(g.GreaterOrEqual(x, g.const(self.a_min, dtype)), g.LessOrEqual(x, g.const(self.a_max, dtype)))
        return g.Where(inside, dy, g.const(0, dtype))
