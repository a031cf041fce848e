"""ONNX's elementwise operators: functions, arithmetic, comparison, logic, activations."""

from __future__ import annotations

from functools import reduce

import numpy as np

from hybrid_lab.onnx.reading.importers.functions import Functions, Tensor
from hybrid_lab.onnx.reading.importers.table import Function, add, operator

_FUNCTIONS = {
    "Abs": "abs", "Acos": "arccos", "Acosh": "arccosh", "Asin": "arcsin", "Asinh": "arcsinh", "Atan": "arctan",
    "Atanh": "arctanh", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor",
    "Log": "log", "Neg": "negative", "Reciprocal": "reciprocal", "Relu": "relu", "Round": "to_even",
    "Sigmoid": "sigmoid",
    "Sign": "sign", "Sin": "sin", "Sinh": "sinh", "Softsign": "softsign", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip
"""ONNX operator -> record."""
_COMPARISONS = {
    "Equal": "broadcast_equal", "Greater": "broadcast_greater", "Less": "broadcast_lesser",
    "GreaterOrEqual": "broadcast_greater_equal", "LessOrEqual": "broadcast_lesser_equal",
}  # fmt: skip
_LOGIC = {"And": "broadcast_logical_and", "Or": "broadcast_logical_or", "Xor": "broadcast_logical_xor"}


def _unary(record: str) -> Function:
    return lambda F, x: getattr(F, record)(x)


def _compared(record: str) -> Function:
    def function(F: Functions, a: Tensor, b: Tensor) -> Tensor:
        made: Tensor = F.cast(getattr(F, record)(a, b), "bool")
        return made

    return function


for _name, _record in _FUNCTIONS.items():
    add(_name, _unary(_record), 6)
for _name, _record in {**_COMPARISONS, **_LOGIC}.items():
    add(_name, _compared(_record), 7)


@operator("Not")
def _not(F: Functions, x: Tensor) -> Tensor:
    return F.logical_not(x)


@operator("IsNaN", 9)
def _is_nan(F: Functions, x: Tensor) -> Tensor:
    return F.cast(F._contrib_isnan(x), "bool")


@operator("IsInf", 10)
def _is_inf(F: Functions, x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    if detect_negative and detect_positive:
        return F.cast(F._contrib_isinf(x), "bool")
    if not detect_negative and not detect_positive:
        return F.cast(F.zeros_like(x), "bool")
    bound = F.like(np.inf if detect_positive else -np.inf, x)
    return F.cast(F.broadcast_equal(x, bound), "bool")


# -- arithmetic ------------------------------------------------------------------------------------------------------


@operator("Add", 7)
def _add(F: Functions, a: Tensor, b: Tensor) -> Tensor:
    return a + b


@operator("Sub", 7)
def _sub(F: Functions, a: Tensor, b: Tensor) -> Tensor:
    return F.wrapped(a - b, a.carries)


@operator("Mul", 7)
def _mul(F: Functions, a: Tensor, b: Tensor) -> Tensor:
    return a * b


@operator("Div", 7)
def _div(F: Functions, a: Tensor, b: Tensor) -> Tensor:
    return a / b


@operator("Mod", 10)
def _mod(F: Functions, a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    if not fmod:
        made = F.broadcast_mod(a, b)
        if not a.is_floating:
            return made
        none = F.truth(F.broadcast_equal(b, 0.0))  # of 0 there is no rest; the record says 0
        return F.select(none, made + F.like(np.nan, a), made)
    if not a.is_floating:
        return a - a / b * b  # whole numbers divide towards zero
    size = F.broadcast_mod(F.abs(a), F.abs(b))  # exact; a quotient would be rounded
    return F.select(F.truth(F.broadcast_lesser(a, 0.0)), -size, size)


@operator("Pow", 7)
def _pow(F: Functions, a: Tensor, b: Tensor) -> Tensor:
    if b.is_constant and b.array is not None and b.array.size == 1 and b.rank <= a.rank:
        return F.broadcast_power(a, b.array.reshape(-1)[0].item())
    if a.dtype == b.dtype:
        return F.broadcast_power(a, b)
    wide = "float64" if "float64" in (a.dtype.name, b.dtype.name) or not a.is_floating else "float32"
    return F.cast(F.broadcast_power(F.cast(a, wide), F.cast(b, wide)), a.dtype)


def _folded(record: str) -> Function:
    return lambda F, *arrays: reduce(getattr(F, record), arrays)


add("Max", _folded("broadcast_maximum"), 6)
add("Min", _folded("broadcast_minimum"), 6)
add("Sum", _folded("broadcast_add"), 6)


@operator("Mean", 6)
def _mean(F: Functions, *arrays: Tensor) -> Tensor:
    return reduce(F.broadcast_add, arrays) / float(len(arrays))


@operator("Where", 9)
def _where(F: Functions, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return F.select(condition, x, y)


@operator("Clip", 6)
def _clip_between(
    F: Functions, x: Tensor, *, min: float = -3.4028234663852886e38, max: float = 3.4028234663852886e38
) -> Tensor:
    return F.clip(x, a_min=min, a_max=max)


@operator("Clip", 11)
def _clip(F: Functions, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    bounds = [None if item is None else item.array for item in (low, high)]
    if x.is_floating and all(item is not None and item.size == 1 for item in bounds):
        least, most = (item.reshape(-1)[0].item() for item in bounds if item is not None)
        if least <= most:
            return F.clip(x, a_min=least, a_max=most)
    if low is not None:
        x = F.broadcast_maximum(x, F.reshape_to(low, ()))
    return x if high is None else F.broadcast_minimum(x, F.reshape_to(high, ()))


# -- activations -----------------------------------------------------------------------------------------------------


@operator("Identity")
def _identity(F: Functions, x: Tensor) -> Tensor:
    return x


@operator("LeakyRelu", 6)
def _leaky_relu(F: Functions, x: Tensor, *, alpha: float = 0.01) -> Tensor:
    return F.LeakyReLU(x, act_type="leaky", slope=alpha)


@operator("PRelu", 7)
def _prelu(F: Functions, x: Tensor, slope: Tensor) -> Tensor:
    if not x.is_floating:
        return F.select(F.truth(F.broadcast_lesser(x, 0)), x * slope, x)
    return F.broadcast_maximum(x, 0.0) + slope * F.broadcast_minimum(x, 0.0)


@operator("Elu", 6)
def _elu(F: Functions, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.LeakyReLU(x, act_type="elu", slope=alpha)


@operator("Selu", 6)
def _selu(F: Functions, x: Tensor, *, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> Tensor:
    return F.LeakyReLU(x, act_type="elu", slope=alpha) * gamma


@operator("Celu", 12)
def _celu(F: Functions, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return F.relu(x) + F.broadcast_minimum(F.expm1(F.broadcast_minimum(x, 0.0) / alpha) * alpha, 0.0)


@operator("ThresholdedRelu", 10)
def _thresholded_relu(F: Functions, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x * F.broadcast_greater(x, alpha)


@operator("HardSigmoid", 6)
def _hard_sigmoid(F: Functions, x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    return F.hard_sigmoid(x, alpha=alpha, beta=beta)


@operator("HardSwish", 14)
def _hard_swish(F: Functions, x: Tensor) -> Tensor:
    return x * F.hard_sigmoid(x, alpha=1 / 6, beta=0.5)


@operator("Softplus")
def _softplus(F: Functions, x: Tensor) -> Tensor:
    return F.Activation(x, act_type="softrelu")


@operator("Mish", 18)
def _mish(F: Functions, x: Tensor) -> Tensor:
    return x * F.tanh(F.Activation(x, act_type="softrelu"))


@operator("Gelu", 20)
def _gelu(F: Functions, x: Tensor, *, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        return 0.5 * x * (1.0 + F.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
    return F.LeakyReLU(x, act_type="gelu")


@operator("Shrink", 9)
def _shrink(F: Functions, x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    below = F.cast(F.broadcast_lesser(x, -lambd), x.dtype)
    above = F.cast(F.broadcast_greater(x, lambd), x.dtype)
    return below * (x + bias) + above * (x - bias)


@operator("Swish", 24)
def _swish(F: Functions, x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x * F.sigmoid(x * alpha)


@operator("Binarizer", 1, "ai.onnx.ml")
def _binarizer(F: Functions, x: Tensor, *, threshold: float = 0.0) -> Tensor:
    return F.broadcast_greater(x, threshold)
