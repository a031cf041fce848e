"""Arithmetic with broadcasting: add, sub, mul, div, mod, power, maximum, minimum, hypot; and add_n."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import ShapeError, Unmappable
from hybrid_lab.ops.framework import MAXIMUM, MINIMUM, Binary, Operator, Pointwise, binary, into, is_scalar, sample
from hybrid_lab.ops.framework.lowering import emit_lowering, run_lowering
from hybrid_lab.ops.framework.protocols import Functions, Gradients, Number, OnnxGraph, Tensor
from hybrid_lab.ops.framework.shapes import alike
from hybrid_lab.ops.framework.types import Array, PartialShape, PartialShapes, PartialSizes, Shape

_WHOLE: dict[str, Any] = {"dtype": "int32", "low": 1, "high": 6, "gradient": False}
_POSITIVE = [
    sample((3, 4), (3, 4), low=0.3, high=2.0), sample((2, 3, 4), (3, 1), low=0.3, high=2.0),
    sample((3, 4), 1.7, low=0.3, high=2.0), sample(1.7, (3, 4), low=0.3, high=2.0),
    sample((3, 4), 2, low=-1.0, high=2.0),
]  # fmt: skip

broadcast_add = binary(
    "broadcast_add", numpy=np.add, grad=(lambda F, a, b, y, dy: dy, lambda F, a, b, y, dy: dy), triton="{0} + {1}",
    onnx="Add",
    doc="lhs + rhs, with broadcasting. lhs, rhs : tensors or one of them a number, of one dtype; returns : that dtype.",
    aliases=("elemwise_add", "_plus", "_Plus", "_add", "_grad_add", "broadcast_plus", "add"),
    bound=lambda op, sizes, shapes, filters: sum(sizes),
)  # fmt: skip

broadcast_sub = binary(
    "broadcast_sub", numpy=np.subtract, grad=(lambda F, a, b, y, dy: dy, lambda F, a, b, y, dy: -dy),
    triton="{0} - {1}", onnx="Sub", doc="lhs - rhs, with broadcasting.",
    aliases=("elemwise_sub", "_minus", "_Minus", "_sub", "broadcast_minus", "subtract"),
    bound=lambda op, sizes, shapes, filters: sum(sizes),
)  # fmt: skip

broadcast_mul = binary(
    "broadcast_mul", numpy=np.multiply, grad=(lambda F, a, b, y, dy: dy * b, lambda F, a, b, y, dy: dy * a),
    triton="{0} * {1}", onnx="Mul", doc="lhs * rhs, with broadcasting.",
    aliases=("elemwise_mul", "_mul", "_Mul", "multiply"), bound=lambda op, sizes, shapes, filters: math.prod(sizes),
)  # fmt: skip


def _divide(a: Array, b: Array, out: np.ndarray | None = None) -> Array:
    dtype = (a if hasattr(a, "dtype") else b).dtype
    if dtype.kind == "f":
        return np.divide(a, b, out=out)
    # C's division: towards zero. 0 if the divisor is 0, which would stop MXNet's process.
    a, b = np.asarray(a), np.asarray(b)
    if dtype == np.int64:
        return into(_whole_quotient(a, b), out)
    quotient = np.zeros(np.broadcast_shapes(a.shape, b.shape)) if out is None else np.zeros(out.shape)
    np.divide(a, b, out=quotient, where=b != 0)
    return into(np.trunc(quotient), out, dtype)


def _whole_quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The same of numbers that float64 has not: the quotient downwards, plus 1 if it is broken and negative."""
    divisor = np.where(b == 0, 1, b)
    quotient, rest = np.divmod(a, divisor)
    quotient += (rest != 0) & ((a < 0) != (divisor < 0))
    return np.where(b == 0, 0, quotient)


broadcast_div = binary(
    "broadcast_div", numpy=_divide, grad=(lambda F, a, b, y, dy: dy / b, lambda F, a, b, y, dy: -dy * y / b),
    triton="{0} / {1}", whole="whole_quotient({0}, {1})",
    onnx=lambda op, g, a, b: _onnx_divide(g, a, b),
    doc="lhs / rhs, with broadcasting. Integers divide as in C, towards zero.",
    aliases=("elemwise_div", "_div", "_Div", "divide", "_true_divide"),
    samples=[*_POSITIVE, sample((9,), 2, dtype="int32", low=-9, high=9, gradient=False), sample((4,), (4,), **_WHOLE)],
)  # fmt: skip


def _modulo(a: Array, b: Array, out: np.ndarray | None = None) -> Array:
    if is_scalar(b):
        b = np.asarray(b).astype(a.dtype)[()]
        if b != 0:
            return np.mod(a, b, out=out)
    divisor = np.asarray(b)
    zero = divisor == 0
    if not zero.any():
        return np.mod(a, b, out=out)
    result = np.mod(a, np.where(zero, divisor.dtype.type(1), divisor), out=out)
    np.copyto(result, 0, where=zero)
    return result


broadcast_mod = binary(
    "broadcast_mod",
    numpy=_modulo,
    grad=(lambda F, a, b, y, dy: dy, lambda F, a, b, y, dy: -dy * F.floor(F.broadcast_div(a, b))),
    triton="modulo({0}, {1})",
    jumps=True,
    onnx=lambda op, g, a, b: _onnx_modulo(g, a, b),
    doc="lhs modulo rhs with the sign of rhs, and 0 where rhs is 0 (as MXNet).",
    aliases=("_mod", "_Mod", "modulo"),
    samples=[
        sample((3, 4), (3, 4), low=0.3, high=4.0),
        sample((2, 3, 4), (3, 1), low=-4.0, high=-0.3),
        sample((3, 4), 0.7, low=-4.0, high=4.0),
        sample(5.3, (3, 4), low=0.3, high=4.0),
        sample((9,), 3, dtype="int32", low=-9, high=9, gradient=False),
        sample(np.array([5.0, -5.0, 7.0], "float32"), np.array([-3.0, 3.0, 0.0], "float32"), gradient=False),
    ],
)


def _safe_divisor(name: str, g: OnnxGraph, b: str) -> str:
    """A whole divisor with 1 in the place of 0 and -1: dividing by 0, or the least number by -1, would end the process
    in onnxruntime.
    """
    dtype = g.dtype(b)
    if dtype.name not in ("int32", "int64"):
        raise Unmappable(f"{name} of {dtype.name}")
    harmful = g.Or(g.Equal(b, g.const(0, dtype)), g.Equal(b, g.const(-1, dtype)))
    return g.Where(harmful, g.const(1, dtype), b)


def _onnx_divide(g: OnnxGraph, a: str, b: str) -> str:
    dtype = g.dtype(a)
    if dtype.kind == "f":
        return g.Div(a, b)
    quotient = g.Div(a, _safe_divisor("broadcast_div", g, b))
    zero, one, minus = (g.const(number, dtype) for number in (0, 1, -1))
    sign = g.Where(g.Equal(b, zero), zero, g.Where(g.Equal(b, minus), minus, one))
    return g.Mul(quotient, sign)


def _onnx_modulo(g: OnnxGraph, a: str, b: str) -> str:
    if g.dtype(a).kind != "f":
        return g.Mod(a, _safe_divisor("broadcast_mod", g, b))  # by 1 the rest is 0, as by -1, and by 0 here
    zero, one = g.const(0, g.dtype(b)), g.const(1, g.dtype(b))
    is_zero = g.Equal(b, zero)
    divisor = g.Where(is_zero, one, b)
    rest = g.Sub(a, g.Mul(g.Floor(g.Div(a, divisor)), divisor))
    return g.Where(is_zero, zero, rest)


def _power(a: Array, b: Array, out: np.ndarray | None = None) -> Array:
    dtype = (a if hasattr(a, "dtype") else b).dtype
    if dtype.kind != "f":
        result = np.power(a.astype(np.float64) if hasattr(a, "astype") else np.float64(a), b)
        return into(result, out, dtype)
    if is_scalar(b):
        fast = _POWERS.get(float(b))
        if fast is not None:
            return fast(a, out=out)
    return np.power(a, b, out=out)


_POWERS = {2.0: np.square, 0.5: np.sqrt, -1.0: np.reciprocal, 1.0: np.positive}


def _power_base(F: Functions, a: Number, b: Number, y: Tensor, dy: Tensor) -> Tensor:
    if is_scalar(b):
        if b == 2:
            return dy * (a * 2.0)
        return dy * (F.broadcast_power(a, b - 1.0) * float(b))
    return dy * (b * F.broadcast_power(a, b - 1.0))


def _power_exponent(F: Functions, a: Number, b: Number, y: Tensor, dy: Tensor) -> Tensor:
    if is_scalar(a):
        return dy * y * float(np.log(a))
    return dy * y * F.log(a)


def _onnx_power(op: str, g: OnnxGraph, a: str, b: str) -> str:
    return g.Pow(a, b)


broadcast_power = binary(
    "broadcast_power", numpy=_power, grad=(_power_base, _power_exponent), triton="raised({0}, {1})", floating=True,
    onnx=_onnx_power, doc="lhs to the power of rhs, with broadcasting.", aliases=("_power", "_Power", "power", "pow"),
    samples=[*_POSITIVE, sample((4,), 2, **_WHOLE), sample((4,), 0.5, **_WHOLE)], expensive=True, precision="float32",
)  # fmt: skip

broadcast_maximum = binary(
    "broadcast_maximum",
    numpy=np.maximum,
    grad=(
        lambda F, a, b, y, dy: dy * F.broadcast_greater_equal(a, b),
        lambda F, a, b, y, dy: dy * F.broadcast_lesser(a, b),
    ),
    triton=MAXIMUM,
    onnx="Max",
    doc="The larger of lhs and rhs, with broadcasting. Where they are equal the gradient goes to lhs.",
    aliases=("_maximum", "_Maximum", "maximum"),
)

broadcast_minimum = binary(
    "broadcast_minimum",
    numpy=np.minimum,
    grad=(
        lambda F, a, b, y, dy: dy * F.broadcast_lesser_equal(a, b),
        lambda F, a, b, y, dy: dy * F.broadcast_greater(a, b),
    ),
    triton=MINIMUM,
    onnx="Min",
    doc="The smaller of lhs and rhs, with broadcasting. Where they are equal the gradient goes to lhs.",
    aliases=("_minimum", "_Minimum", "minimum"),
)


def _hypot(a: Array, b: Array, out: np.ndarray | None = None) -> Array:
    dtype = (a if hasattr(a, "dtype") else b).dtype
    if dtype.kind == "f":
        return np.hypot(a, b, out=out)
    result = np.trunc(np.hypot(np.asarray(a, np.float64), np.asarray(b, np.float64)))
    return into(result, out, dtype)


class Hypot(Binary, name="broadcast_hypot", aliases=("_hypot", "hypot")):
    """sqrt(lhs^2 + rhs^2), with broadcasting and without overflow inside."""

    precision = "float32"
    ufunc = staticmethod(_hypot)
    triton = Pointwise("hypotenuse({0}, {1})")
    samples = _POSITIVE[:3]

    def grad(self, F: Functions, a: Tensor, b: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        da = None if is_scalar(a) else F._sum_like(dy * a / y, a)
        db = None if is_scalar(b) else F._sum_like(dy * b / y, b)
        return da, db

    def onnx(self, g: OnnxGraph, a: str, b: str) -> str:
        dtype = g.dtype(a)
        a, b = g.Abs(a), g.Abs(b)
        smaller = g.Less(a, b)
        longer, shorter = g.Where(smaller, b, a), g.Where(smaller, a, b)

        def const(value: float) -> str:
            return g.const(value, dtype)

        info = np.finfo(dtype)
        plain = g.Sqrt(g.Add(g.Mul(a, a), g.Mul(b, b)))
        # Squares of numbers near the ends of the dtype overflow, or become 0.
        slope = g.Div(shorter, g.Where(g.Equal(longer, const(0)), const(1), longer))
        scaled = g.Mul(longer, g.Sqrt(g.Add(const(1), g.Mul(slope, slope))))
        low, high = float(np.sqrt(info.tiny)) / float(info.eps), float(np.sqrt(info.max)) / 2
        inside = g.And(g.Less(const(low), longer), g.Less(longer, const(high)))
        endless = g.Or(g.Equal(a, const(np.inf)), g.Equal(b, const(np.inf)))
        return g.Where(endless, const(np.inf), g.Where(inside, plain, scaled))


class Arctan2(Binary, name="_npi_arctan2"):
    """The angle of the point (rhs, lhs) between -pi and pi, with broadcasting; lhs, rhs : floating."""

    mxnet = None
    dtype_kinds = "f"
    precision = "float32"
    ufunc = staticmethod(np.arctan2)
    samples = [
        sample(np.array([1.5, -0.5, 2.0], "float32"), np.array([[0.7], [-1.2]], "float32")), sample((3, 4), 0.75),
        sample(0.75, (3, 4)), sample((2, 3), (2, 3), dtype="float16"),
    ]  # fmt: skip

    def grad(self, F: Functions, a: Tensor, b: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        scaled = dy / (a * a + b * b)
        da = None if is_scalar(a) else F._sum_like(scaled * b, a)
        db = None if is_scalar(b) else F._sum_like(-(scaled * a), b)
        return da, db


class AddN(Operator, name="add_n", aliases=("ElementWiseSum",)):
    """The sum of all inputs, which share one shape and dtype; returns : that shape and dtype."""

    dtype_kinds = "fiu"
    alias_safe = True
    numpy = run_lowering
    samples = [
        sample((3, 4)), sample((3, 4), (3, 4)), sample((2, 3), (2, 3), (2, 3), (2, 3)),
        sample((3,), (3,), (3,), dtype="int32", low=-5, high=5, gradient=False),
    ]  # fmt: skip

    def complete(self, *args: PartialShape) -> PartialShapes:
        return alike(args)

    def complete_from(self, output: PartialSizes, *args: PartialShape) -> PartialShapes:
        return alike((*args, output))[:-1]

    def infer_shape(self, *args: Shape) -> Shape:
        if not args:
            raise ShapeError("add_n: there is nothing to add")
        if any(shape != args[0] for shape in args):
            raise ShapeError(f"add_n: the shapes {' and '.join(map(str, args))} differ")
        return args[0]

    def grad(self, F: Functions, *values: Tensor) -> Gradients:
        return (values[-1],) * (len(values) - 2)

    def lower(self, F: Functions, *args: Tensor) -> Tensor:
        first, *rest = args
        for item in rest:
            first = first + item
        return F.identity(first) if not rest else first

    def onnx(self, g: OnnxGraph, *args: str) -> str | tuple[str, ...]:
        return g.Sum(*args) if g.dtype(args[0]).kind == "f" else emit_lowering(self, g, *args)
