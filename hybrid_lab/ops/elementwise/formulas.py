"""Small formulas with a name of their own: quadratic, div_sqrt_dim, allclose."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from hybrid_lab.diagnostics.errors import ShapeError
from hybrid_lab.ops.framework import Elementwise, Operator, Pointwise, into, printed, sample
from hybrid_lab.ops.framework.lowering import emit_lowering, run_lowering
from hybrid_lab.ops.framework.protocols import Functions, OnnxGraph, Tensor
from hybrid_lab.ops.framework.types import Array, Shape


class Quadratic(Elementwise, name="_contrib_quadratic", aliases=("contrib_quadratic",)):
    """a * data^2 + b * data + c. data : numbers; returns : as data."""

    dtype_kinds = "fiu"
    a: float = 0.0
    b: float = 0.0
    c: float = 0.0
    samples = [sample((3, 4), a=2.0, b=-1.0, c=0.5), sample((2, 3)), sample((3,), b=3.0)]

    @partial(Pointwise, floating=True)
    def triton(self, dtype: np.dtype) -> str:
        a, b, c = (printed(number, dtype) for number in (self.a, self.b, self.c))
        return f"(({a} * {{0}} + {b}) * {{0}} + {c})"

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        y = np.asarray((self.a * data + self.b) * data + self.c).astype(data.dtype, copy=False)
        return into(y, out)

    def grad(self, F: Functions, x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return dy * (x * (2.0 * self.a) + self.b)

    def onnx(self, g: OnnxGraph, x: str) -> str:
        a, b, c = (g.const(number, g.dtype(x)) for number in (self.a, self.b, self.c))
        return g.Add(g.Mul(g.Add(g.Mul(a, x), b), x), c)


class DivSqrtDim(Operator, name="_contrib_div_sqrt_dim", aliases=("contrib_div_sqrt_dim",)):
    """data divided by the square root of its last dimension, as the scores of attention are."""

    dtype_kinds = "f"
    alias_safe = True
    numpy = run_lowering
    onnx = emit_lowering
    samples = [sample((3, 4)), sample((2, 3, 5)), sample((4,))]

    def infer_shape(self, data: Shape) -> Shape:
        if not data or not data[-1]:
            raise ShapeError(f"div_sqrt_dim: data {data} has no last dimension to divide by")
        return data

    def lower(self, F: Functions, data: Tensor) -> Tensor:
        return data * (1.0 / math.sqrt(data.shape[-1]))

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F._contrib_div_sqrt_dim(dy)


class AllClose(Operator, name="_contrib_allclose", aliases=("contrib_allclose",)):
    """1 if |a - b| <= atol + rtol * |b| everywhere, else 0; uint8, shape (). equal_nan : NaN equals NaN."""

    rtol: float = 1e-5
    atol: float = 1e-8
    equal_nan: bool = True
    samples = [
        sample((3, 4), (3, 4), gradient=False),
        sample((3, 4), (3, 4), gradient=False, atol=3.0),
        sample(*[np.array([1.0, np.nan], "float32")] * 2, gradient=False),
        sample(*[np.array([1.0, np.nan], "float32")] * 2, gradient=False, equal_nan=False),
    ]

    def infer_shape(self, a: Shape, b: Shape) -> Shape:
        if a != b:
            raise ShapeError(f"allclose: the shapes {a} and {b} differ")
        return ()

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        super().infer_type(*dtypes)
        return np.dtype("uint8")

    def numpy(self, a: Array, b: Array, out: Array | None = None) -> Array:
        close = np.allclose(a, b, self.rtol, self.atol, self.equal_nan)
        return into(np.full((), close, np.uint8), out)
