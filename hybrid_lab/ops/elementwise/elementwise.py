"""Elementwise maths of one operand: signs, rounding, powers, exponentials, logarithms, trigonometry."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hybrid_lab.ops.framework import into, sample, unary
from hybrid_lab.ops.framework.protocols import OnnxGraph
from hybrid_lab.ops.framework.types import Array
from hybrid_lab.ops.kernels.exact import cube_root, logarithm_10

_COUNTED = sample((3, 4), dtype="int32", low=-5, high=5, gradient=False)
_SIGNED = [sample((3, 4)), sample((2, 3, 4), low=-3.0, high=3.0)]
_POSITIVE = [sample((3, 4), low=0.1, high=3.0), sample((2, 2), dtype="float16", low=0.5, high=3.0)]
_INSIDE = [sample((3, 4), low=-0.9, high=0.9)]
_ROUNDED = [
    _COUNTED,
    sample((3, 4), low=-3.0, high=3.0),
    sample(np.array([0.5, 1.5, 2.5, -0.5, -1.5], "float32"), gradient=False),
]


negative = unary(
    "negative", np.negative, lambda F, x, y, dy: -dy, "-{0}", "Neg", "-data.", aliases=("_np_negative",),
    samples=[*_SIGNED, _COUNTED], integers=True,
)  # fmt: skip
abs_ = unary(
    "abs", np.abs, lambda F, x, y, dy: dy * F.sign(x), "tl.abs({0})", "Abs", "The absolute value.",
    samples=[*_SIGNED, _COUNTED], integers=True,
)  # fmt: skip
sign = unary(
    "sign", np.sign, None, "tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, tl.where({0} == 0, 0.0, {0})))", "Sign",
    "-1, 0 or 1; gradient 0.", samples=[*_SIGNED, _COUNTED], integers=True, jumps=True,
)  # fmt: skip


# Half added to an odd number of 24 bits, or to the one below 0.5, is rounded up: so fractions are looked at instead.


def _half_away(x: Array, out: np.ndarray | None = None) -> Array:
    """Round halves away from zero, as C's round."""
    whole = np.trunc(x)
    with np.errstate(invalid="ignore"):  # infinite numbers have no fraction
        further = np.abs(x - whole) >= x.dtype.type(0.5)
    return np.add(whole, np.copysign(further.astype(x.dtype), x), out=out)


def _half_down(x: Array, out: np.ndarray | None = None) -> Array:
    """Round halves downwards, as MXNet's rint."""
    low, high = np.floor(x), np.ceil(x)
    with np.errstate(invalid="ignore"):
        return into(np.where(x - low <= high - x, low, high), out)


def onnx_half_away(op: str, g: OnnxGraph, x: str) -> str:
    """round, of ONNX's operators."""
    whole = _onnx_truncate(op, g, x)
    further = g.GreaterOrEqual(g.Abs(g.Sub(x, whole)), g.const(0.5, g.dtype(x)))
    return g.Add(whole, g.Mul(g.Sign(x), g.cast(further, g.dtype(x))))


def _onnx_half_down(op: str, g: OnnxGraph, x: str) -> str:
    low, high = g.Floor(x), g.Ceil(x)
    return g.Where(g.LessOrEqual(g.Sub(x, low), g.Sub(high, x)), low, high)


round_ = unary(
    "round", _half_away, None, "half_away({0})", onnx_half_away,
    "The nearest whole number; halves go away from zero. Gradient 0.", samples=_ROUNDED, jumps=True,
)  # fmt: skip
rint = unary(
    "rint", _half_down, None, "tl.where({0} - tl.floor({0}) <= tl.ceil({0}) - {0}, tl.floor({0}), tl.ceil({0}))",
    _onnx_half_down, "The nearest whole number; halves go down (as MXNet). Gradient 0.", samples=_ROUNDED, jumps=True,
)  # fmt: skip
ceil = unary(
    "ceil", np.ceil, None, "tl.ceil({0})", "Ceil", "The least whole number not below data. Gradient 0.",
    samples=_ROUNDED, jumps=True,
)  # fmt: skip
floor = unary(
    "floor", np.floor, None, "tl.floor({0})", "Floor", "The largest whole number not above data. Gradient 0.",
    samples=_ROUNDED, jumps=True,
)  # fmt: skip


def _onnx_truncate(op: str, g: OnnxGraph, x: str) -> str:
    return g.Mul(g.Sign(x), g.Floor(g.Abs(x)))


trunc = unary(
    "trunc", np.trunc, None, "tl.where({0} < 0, tl.ceil({0}), tl.floor({0}))", _onnx_truncate,
    "data without its fraction. Gradient 0.", samples=_ROUNDED, jumps=True,
)  # fmt: skip
fix = unary(
    "fix", np.trunc, None, "tl.where({0} < 0, tl.ceil({0}), tl.floor({0}))", _onnx_truncate,
    "The nearest whole number towards zero. Gradient 0.", samples=_ROUNDED, jumps=True,
)  # fmt: skip

square = unary(
    "square", np.square, lambda F, x, y, dy: dy * (x * 2.0), "{0} * {0}", lambda op, g, x: g.Mul(x, x), "data^2.",
    samples=[*_SIGNED, _COUNTED], integers=True, precision="float32",
)  # fmt: skip
sqrt = unary(
    "sqrt", np.sqrt, lambda F, x, y, dy: dy * 0.5 / y, "tl.sqrt({0})", "Sqrt", "The square root.", samples=_POSITIVE
)


def _rsqrt(x: Array, out: np.ndarray | None = None) -> Array:
    root = np.sqrt(x, out=out)
    return np.reciprocal(root, out=out)


rsqrt = unary(
    "rsqrt", _rsqrt, lambda F, x, y, dy: dy * (y * y * y) * -0.5, "(1.0 / tl.sqrt({0}))",
    lambda op, g, x: g.Reciprocal(g.Sqrt(x)), "1 / sqrt(data).", samples=_POSITIVE, precision="float32",
)  # fmt: skip


def _onnx_cbrt(op: str, g: OnnxGraph, x: str) -> str:
    root = g.Mul(g.Sign(x), g.Pow(g.Abs(x), g.const(1 / 3, g.dtype(x))))
    surplus = g.Mul(root, g.const(2.0 ** (g.dtype(x).itemsize * 4 - 5) + 1, g.dtype(x)))
    short = g.Sub(surplus, g.Sub(surplus, root))  # the leading bits, as in ops/kernels/exact.py
    normal = g.GreaterOrEqual(g.Abs(x), g.const(np.finfo(g.dtype(x)).smallest_normal, g.dtype(x)))
    return g.Where(g.And(g.Equal(g.Mul(g.Mul(short, short), short), x), normal), short, root)


cbrt = unary(
    "cbrt", cube_root, lambda F, x, y, dy: dy / (y * y * 3.0), "cube_root({0})", _onnx_cbrt, "The cube root.",
    samples=[sample((3, 4)), sample((3, 4), low=0.2, high=4.0)],
)  # fmt: skip


def _rcbrt(x: Array, out: np.ndarray | None = None) -> Array:
    return np.reciprocal(cube_root(x), out=out)


rcbrt = unary(
    "rcbrt", _rcbrt, lambda F, x, y, dy: dy * y / x * (-1.0 / 3.0), "(1.0 / cube_root({0}))",
    lambda op, g, x: g.Reciprocal(_onnx_cbrt(op, g, x)), "1 / cbrt(data).", samples=_POSITIVE, precision="float32",
)  # fmt: skip


def _reciprocal(x: Array, out: np.ndarray | None = None) -> Array:
    return np.divide(x.dtype.type(1), x, out=out)


reciprocal = unary(
    "reciprocal", _reciprocal, lambda F, x, y, dy: -dy * (y * y), "(1.0 / {0})", "Reciprocal", "1 / data.",
    samples=_POSITIVE, precision="float32",
)  # fmt: skip

exp = unary(
    "exp", np.exp, lambda F, x, y, dy: dy * y, "tl.exp({0})", "Exp", "e^data.",
    samples=[*_SIGNED, sample((2, 3), dtype="float16"), _COUNTED], expensive=True, precision="float32",
)  # fmt: skip


def _onnx_expm1(op: str, g: OnnxGraph, x: str) -> str:
    one, half = g.const(1, g.dtype(x)), g.const(0.5, g.dtype(x))
    # exp(x) - 1 loses the digits of a small x; 2 t / (1 - t) with t = tanh(x / 2) keeps them.
    t = g.Tanh(g.Mul(x, half))
    return g.Where(g.Less(g.Abs(x), half), g.Div(g.Add(t, t), g.Sub(one, t)), g.Sub(g.Exp(x), one))


expm1 = unary(
    "expm1", np.expm1, lambda F, x, y, dy: dy * (y + 1.0),
    "tl.where(tl.abs({0}) < 0.01, {0} * (1.0 + {0} * (0.5 + {0} * 0.16666666666666666)), tl.exp({0}) - 1.0)",
    _onnx_expm1, "e^data - 1.", samples=_SIGNED, expensive=True,
    precision="float32",
)  # fmt: skip
log = unary(
    "log", np.log, lambda F, x, y, dy: dy / x, "tl.log({0})", "Log", "The natural logarithm.", samples=_POSITIVE,
    expensive=True, precision="float32",
)  # fmt: skip


def _scaled_log(base: float) -> Callable[[str, OnnxGraph, str], str]:
    """The logarithm to another base, of ONNX's operators: whole at the powers of the base."""

    def mapping(op: str, g: OnnxGraph, x: str) -> str:
        y = g.Mul(g.Log(x), g.const(1 / math.log(base), g.dtype(x)))
        whole = g.Round(y)
        return g.Where(g.Equal(g.Pow(g.const(base, g.dtype(x)), whole), x), whole, y)

    return mapping


log10 = unary(
    "log10", logarithm_10, lambda F, x, y, dy: dy / (x * math.log(10.0)), "(tl.log2({0}) * 0.30102999566398120)",
    _scaled_log(10.0), "The logarithm to base 10.", samples=_POSITIVE, expensive=True, precision="float32",
)  # fmt: skip
log2 = unary(
    "log2", np.log2, lambda F, x, y, dy: dy / (x * math.log(2.0)), "tl.log2({0})", _scaled_log(2.0),
    "The logarithm to base 2.", samples=_POSITIVE, expensive=True, precision="float32",
)  # fmt: skip


def _onnx_log1p(op: str, g: OnnxGraph, x: str) -> str:
    one, half = g.const(1, g.dtype(x)), g.const(0.5, g.dtype(x))
    # log(1 + x) loses the digits of a small x. With y = 1 + x as rounded, log(y) * x / (y - 1) keeps them.
    y = g.Add(x, one)
    log, rounded = g.Log(y), g.Sub(y, one)
    small = g.Where(g.Equal(rounded, g.const(0, g.dtype(x))), x, g.Div(g.Mul(log, x), rounded))
    return g.Where(g.Less(g.Abs(x), half), small, log)


log1p = unary(
    "log1p", np.log1p, lambda F, x, y, dy: dy / (x + 1.0), "log_plus_one({0})",
    _onnx_log1p, "log(1 + data).", samples=[sample((3, 4), low=-0.8, high=3.0)], expensive=True, precision="float32",
)  # fmt: skip

sin = unary(
    "sin", np.sin, lambda F, x, y, dy: dy * F.cos(x), "tl.sin({0})", "Sin", "The sine of radians.", samples=_SIGNED,
    expensive=True,
)  # fmt: skip
cos = unary(
    "cos", np.cos, lambda F, x, y, dy: -dy * F.sin(x), "tl.cos({0})", "Cos", "The cosine of radians.", samples=_SIGNED,
    expensive=True,
)  # fmt: skip
tan = unary(
    "tan", np.tan, lambda F, x, y, dy: dy * (y * y + 1.0), "(tl.sin({0}) / tl.cos({0}))", "Tan",
    "The tangent of radians.", samples=_SIGNED[:1], expensive=True, precision="float32",
)  # fmt: skip
arcsin = unary(
    "arcsin", np.arcsin, lambda F, x, y, dy: dy * F.rsqrt(1.0 - x * x),
    "arc_tangent({0} / tl.sqrt((1.0 - {0}) * (1.0 + {0})))", "Asin", "The inverse sine.", samples=_INSIDE,
    expensive=True, precision="float32",
)  # fmt: skip
arccos = unary(
    "arccos", np.arccos, lambda F, x, y, dy: -dy * F.rsqrt(1.0 - x * x),
    "(2.0 * arc_tangent(tl.sqrt((1.0 - {0}) / (1.0 + {0}))))", "Acos", "The inverse cosine.", samples=_INSIDE,
    expensive=True, precision="float32",
)  # fmt: skip
arctan = unary(
    "arctan", np.arctan, lambda F, x, y, dy: dy / (x * x + 1.0), "arc_tangent({0})", "Atan", "The inverse tangent.",
    samples=_SIGNED, expensive=True,
)  # fmt: skip
sinh = unary(
    "sinh", np.sinh, lambda F, x, y, dy: dy * F.cosh(x), "hyperbolic_sine({0}, tl.exp(0.5 * {0}))", "Sinh",
    "The hyperbolic sine.", samples=_SIGNED, expensive=True, precision="float32",
)  # fmt: skip
cosh = unary(
    "cosh", np.cosh, lambda F, x, y, dy: dy * F.sinh(x), "hyperbolic_cosine(tl.exp(0.5 * {0}))", "Cosh",
    "The hyperbolic cosine.", samples=_SIGNED, expensive=True, precision="float32",
)  # fmt: skip
tanh = unary(
    "tanh",
    np.tanh,
    lambda F, x, y, dy: dy * (1.0 - y * y),
    # The series keeps small arguments exact, for which 1 - exp(-2x) would cancel.
    "tl.where(tl.abs({0}) < 0.25, {0} * (1.0 + {0} * {0} * (-0.333333333 + {0} * {0} * (0.133333333 + {0} * {0} * "
    "(-0.0539682540 + {0} * {0} * 0.0218694885)))), 2.0 / (1.0 + tl.exp(-2.0 * ({0}))) - 1.0)",
    "Tanh",
    "The hyperbolic tangent.",
    samples=_SIGNED,
    expensive=True,
    bound=lambda op, sizes, shapes, filters: 1.0,
)
arcsinh = unary(
    "arcsinh",
    np.arcsinh,
    lambda F, x, y, dy: dy * F.rsqrt(x * x + 1.0),
    # From 1e9 on the root is the number, whose square overflows later.
    "area_tangent({0} / tl.where(tl.abs({0}) < 1e9, tl.sqrt({0} * {0} + 1.0), 1.0), "
    "tl.where({0} < 0, -1.0, 1.0) * (tl.log(tl.abs({0}) * 0.5 + "
    "0.5 * tl.where(tl.abs({0}) < 1e9, tl.sqrt({0} * {0} + 1.0), tl.abs({0}))) + 0.6931471805599453))",
    "Asinh",
    "The inverse hyperbolic sine.",
    samples=_SIGNED,
    expensive=True,
)
arccosh = unary(
    "arccosh",
    np.arccosh,
    lambda F, x, y, dy: dy * F.rsqrt(x * x - 1.0),
    "tl.where({0} < 1.0, float('nan'), tl.where({0} < 1e9, "
    "area_tangent(tl.sqrt(({0} - 1.0) * ({0} + 1.0)) / {0}, tl.log({0} + tl.sqrt(({0} - 1.0) * ({0} + 1.0)))), "
    "tl.log({0}) + 0.6931471805599453))",
    "Acosh",
    "The inverse hyperbolic cosine, for data >= 1.",
    samples=[sample((3, 4), low=1.2, high=4.0)],
    expensive=True,
)
arctanh = unary(
    "arctanh", np.arctanh, lambda F, x, y, dy: dy / (1.0 - x * x),
    "area_tangent({0}, tl.log((1.0 + {0}) / (1.0 - {0})) * 0.5)", "Atanh",
    "The inverse hyperbolic tangent, for |data| < 1.", samples=_INSIDE, expensive=True, precision="float32",
)  # fmt: skip
degrees = unary(
    "degrees", np.degrees, lambda F, x, y, dy: dy * (180.0 / math.pi), "({0} * 57.29577951308232)",
    lambda op, g, x: g.Mul(x, g.const(180.0 / math.pi, g.dtype(x))), "Radians to degrees.", samples=_SIGNED,
)  # fmt: skip
radians = unary(
    "radians", np.radians, lambda F, x, y, dy: dy * (math.pi / 180.0), "({0} * 0.017453292519943295)",
    lambda op, g, x: g.Mul(x, g.const(math.pi / 180.0, g.dtype(x))), "Degrees to radians.",
    samples=[sample((3, 4), low=-90.0, high=90.0)],
)  # fmt: skip
