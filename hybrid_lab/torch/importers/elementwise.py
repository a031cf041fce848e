"""ATen's elementwise operators: functions, arithmetic, comparison, logic, activations."""

from __future__ import annotations

import numpy as np

from hybrid_lab.torch.importers.functions import Functions, Operand, Result, Tensor
from hybrid_lab.torch.importers.table import Function, aten, onnx

_FUNCTIONS = {
    "abs": "abs", "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan",
    "atanh": "arctanh", "ceil": "ceil", "cos": "cos", "cosh": "cosh", "erf": "erf", "exp": "exp", "expm1": "expm1",
    "floor": "floor", "log": "log", "log10": "log10", "log1p": "log1p", "log2": "log2", "neg": "negative",
    "reciprocal": "reciprocal", "relu": "relu", "rsqrt": "rsqrt", "sigmoid": "sigmoid", "sign": "sign", "sin": "sin",
    "sinh": "sinh", "sqrt": "sqrt", "square": "square", "tan": "tan", "tanh": "tanh", "trunc": "trunc",
    "fix": "trunc", "lgamma": "gammaln", "digamma": "_digamma", "erfinv": "erfinv",
}  # fmt: skip
"""ATen operator -> record, for which whole numbers become floating where torch's do."""
_COMPARISONS = {
    "eq": "broadcast_equal", "ne": "broadcast_not_equal", "gt": "broadcast_greater", "lt": "broadcast_lesser",
    "ge": "broadcast_greater_equal", "le": "broadcast_lesser_equal",
}  # fmt: skip
_LOGIC = {
    "logical_and": "broadcast_logical_and", "logical_or": "broadcast_logical_or",
    "logical_xor": "broadcast_logical_xor",
}  # fmt: skip


def _unary(record: str) -> Function:
    return lambda F, x: getattr(F, record)(*F.promoted(x))


def _compared(record: str) -> Function:
    return lambda F, a, b: F.cast(getattr(F, record)(*F.in_common(a, b)), "bool")


def _logic(record: str) -> Function:
    return lambda F, a, b: F.cast(getattr(F, record)(F.truth(F.operand(a)), F.truth(F.operand(b))), "bool")


for _name, _record in _FUNCTIONS.items():
    aten(_name)(_unary(_record))
for _name, _record in _COMPARISONS.items():
    aten(_name)(_compared(_record))
for _name, _record in _LOGIC.items():
    aten(_name)(_logic(_record))


@aten("round")
def _round(F: Functions, x: Tensor, *, decimals: int = 0) -> Tensor:
    if not x.is_floating:
        return x
    return F.to_even(x * 10.0**decimals) / 10.0**decimals if decimals else F.to_even(x)


@aten("polygamma")
def _polygamma(F: Functions, n: int, x: Tensor) -> Tensor:
    (x,) = F.promoted(x)
    return F._digamma(x) if n == 0 else F._polygamma(x, order=n)


@aten("logical_not")
def _logical_not(F: Functions, x: Tensor) -> Tensor:
    return F.cast(F.logical_not(F.truth(x)), "bool")


@aten("bitwise_not")
def _bitwise_not(F: Functions, x: Tensor) -> Tensor:
    return _logical_not(F, x) if x.dtype == bool else -x - 1


def _bitwise(record: str, name: str) -> Function:
    def function(F: Functions, a: Operand, b: Operand) -> Tensor:
        if F.dtype == bool:
            return _logic(record)(F, a, b)
        return onnx(name)(F, *(F.operand(item) for item in F.promoted(a, b)))

    return function


for _name, _record, _like in (
    ("bitwise_and", "broadcast_logical_and", "BitwiseAnd"), ("bitwise_or", "broadcast_logical_or", "BitwiseOr"),
    ("bitwise_xor", "broadcast_logical_xor", "BitwiseXor"),
):  # fmt: skip
    aten(_name)(_bitwise(_record, _like))


@aten("isnan")
def _isnan(F: Functions, x: Tensor) -> Tensor:
    return F.cast(F._contrib_isnan(x), "bool")


@aten("isinf")
def _isinf(F: Functions, x: Tensor) -> Tensor:
    return F.cast(F._contrib_isinf(x), "bool")


@aten("isfinite")
def _isfinite(F: Functions, x: Tensor) -> Tensor:
    return F.cast(F._contrib_isfinite(x), "bool")


# -- arithmetic ------------------------------------------------------------------------------------------------------


@aten("add")
def _add(F: Functions, a: Operand, b: Operand, *, alpha: float = 1) -> Tensor:
    if F.dtype == bool:
        return _logic("broadcast_logical_or")(F, a, b)
    x, y = F.promoted(a, b)
    return x + (y if alpha == 1 else y * alpha)


@aten("sub")
def _sub(F: Functions, a: Operand, b: Operand, *, alpha: float = 1) -> Tensor:
    x, y = F.promoted(a, b)
    return x - (y if alpha == 1 else y * alpha)


@aten("rsub")
def _rsub(F: Functions, a: Operand, b: Operand, alpha: float = 1) -> Tensor:
    x, y = F.promoted(a, b)
    return y - (x if alpha == 1 else x * alpha)


@aten("mul")
def _mul(F: Functions, a: Operand, b: Operand) -> Tensor:
    if F.dtype == bool:
        return _logic("broadcast_logical_and")(F, a, b)
    x, y = F.promoted(a, b)
    return x * y


@aten("div", "true_divide")
def _div(F: Functions, a: Operand, b: Operand, *, rounding_mode: str | None = None) -> Tensor:
    if rounding_mode == "floor":
        return _floor_divide(F, a, b)
    x, y = F.promoted(a, b)
    if F.dtype.kind not in "fV":
        return F.operand(x) / F.cast(F.operand(y), F.dtype)  # whole numbers divide towards zero
    made = x / y
    return F.trunc(made) if rounding_mode == "trunc" else made


@aten("floor_divide")
def _floor_divide(F: Functions, a: Operand, b: Operand) -> Tensor:
    dtype = F.dtype
    if dtype.kind in "fV":
        x, y = F.promoted(a, b)
        return F.floor(x / y)
    x, y = (F.cast(F.operand(item), dtype) for item in (a, b))
    return (x - F.broadcast_mod(x, y)) / y


@aten("remainder")
def _remainder(F: Functions, a: Operand, b: Operand) -> Tensor:
    a, b = F.promoted(a, b)
    return F.broadcast_mod(F.cast(F.operand(a), F.dtype), F.cast(F.operand(b), F.dtype))


@aten("fmod")
def _fmod(F: Functions, a: Operand, b: Operand) -> Tensor:
    a, b = F.promoted(a, b)
    return onnx("Mod")(F, a, F.cast(F.operand(b), F.dtype), fmod=1)


@aten("pow")
def _pow(F: Functions, a: Operand, b: Operand) -> Tensor:
    if not isinstance(b, Tensor) and isinstance(a, Tensor):
        a = F.cast(a, F.dtype)
        if b == 2:
            return F.square(a)
        return F.broadcast_power(a, b)
    a, b = (F.cast(F.operand(item), F.dtype) for item in (a, b))
    return F.broadcast_power(a, b)


@aten("maximum")
def _maximum(F: Functions, a: Operand, b: Operand) -> Tensor:
    return F.broadcast_maximum(*F.promoted(a, b))


@aten("minimum")
def _minimum(F: Functions, a: Operand, b: Operand) -> Tensor:
    return F.broadcast_minimum(*F.promoted(a, b))


@aten("atan2")
def _atan2(F: Functions, a: Operand, b: Operand) -> Tensor:
    return F._npi_arctan2(*F.promoted(a, b))


@aten("addcmul")
def _addcmul(F: Functions, x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    product = a * b
    return x + (product if value == 1 else product * value)


@aten("addcdiv")
def _addcdiv(F: Functions, x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    quotient = a / b
    return x + (quotient if value == 1 else quotient * value)


@aten("lerp")
def _lerp(F: Functions, a: Tensor, b: Tensor, weight: Operand) -> Tensor:
    return a + (b - a) * weight


@aten("where")
def _where(F: Functions, condition: Tensor, a: Operand, b: Operand) -> Tensor:
    a, b = (F.cast(F.operand(item), F.dtype) for item in (a, b))
    return F.select(condition, a, b)


@aten("masked_fill")
def _masked_fill(F: Functions, x: Tensor, mask: Tensor, value: Operand) -> Tensor:
    return F.select(mask, F.cast(F.operand(value), x.dtype), x)


@aten("clamp", "clip")
def _clamp(F: Functions, x: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    (x,) = F.promoted(x)
    if x.is_floating and isinstance(min, (int, float)) and isinstance(max, (int, float)) and min <= max:
        return F.clip(x, a_min=float(min), a_max=float(max))
    if min is not None:
        x = F.broadcast_maximum(x, F.promoted(min)[0])
    return x if max is None else F.broadcast_minimum(x, F.promoted(max)[0])


@aten("clamp_min")
def _clamp_min(F: Functions, x: Tensor, min: Operand | None) -> Tensor:
    return _clamp(F, x, min)


@aten("clamp_max")
def _clamp_max(F: Functions, x: Tensor, max: Operand | None) -> Tensor:
    return _clamp(F, x, None, max)


@aten("_to_copy", "to")
def _to_copy(F: Functions, x: Tensor, dtype: np.dtype | None = None, **_: object) -> Tensor:
    return x if dtype is None else F.truth(x) if dtype.kind == "b" else F.cast(x, dtype)


@aten("clone", "alias", "contiguous", "lift_fresh_copy", "detach_copy", "alias_copy")
def _same(F: Functions, x: Tensor, **_: object) -> Tensor:
    return x


@aten("detach")
def _detach(F: Functions, x: Tensor) -> Tensor:
    return x if x.is_constant else F.BlockGrad(x)


# -- activations -----------------------------------------------------------------------------------------------------


@aten("gelu")
def _gelu(F: Functions, x: Tensor, *, approximate: str = "none") -> Tensor:
    return onnx("Gelu")(F, x, approximate=approximate)


@aten("silu")
def _silu(F: Functions, x: Tensor) -> Tensor:
    return x * F.sigmoid(x)


@aten("mish")
def _mish(F: Functions, x: Tensor) -> Tensor:
    return onnx("Mish")(F, x)


@aten("hardtanh")
def _hardtanh(F: Functions, x: Tensor, min_val: float = -1, max_val: float = 1) -> Tensor:
    return F.clip(x, a_min=float(min_val), a_max=float(max_val))


@aten("relu6")
def _relu6(F: Functions, x: Tensor) -> Tensor:
    return F.clip(x, a_min=0.0, a_max=6.0)


@aten("hardsigmoid")
def _hardsigmoid(F: Functions, x: Tensor) -> Tensor:
    return F.hard_sigmoid(x, alpha=1 / 6, beta=0.5)


@aten("hardswish")
def _hardswish(F: Functions, x: Tensor) -> Tensor:
    return onnx("HardSwish")(F, x)


@aten("leaky_relu")
def _leaky_relu(F: Functions, x: Tensor, negative_slope: float = 0.01) -> Tensor:
    return F.LeakyReLU(x, act_type="leaky", slope=float(negative_slope))


@aten("elu")
def _elu(F: Functions, x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    made = F.LeakyReLU(x if input_scale == 1 else x * input_scale, act_type="elu", slope=float(alpha))
    return made if scale == 1 else made * scale


@aten("prelu", "_prelu_kernel")
def _prelu(F: Functions, x: Tensor, weight: Tensor) -> Tensor:
    if F.operator.endswith("prelu") and weight.rank == 1 and x.rank > 1:
        weight = F.reshape_to(weight, (weight.shape[0], *(1,) * (x.rank - 2)))
    return onnx("PRelu")(F, x, weight)


@aten("rrelu_with_noise_functional", "rrelu_with_noise")
def _rrelu(
    F: Functions, x: Tensor, noise: Tensor, lower: float = 0.125, upper: float = 1 / 3, training: bool = False
) -> Result:
    if training:
        raise F.unsupported("slopes that are drawn at random are not supported; import the module as it predicts")
    made = _leaky_relu(F, x, (lower + upper) / 2)
    return (made, None) if isinstance(F.result, (tuple, list)) else made


@aten("log_sigmoid")
def _log_sigmoid(F: Functions, x: Tensor) -> Tensor:
    return F.negative(F.Activation(F.negative(x), act_type="softrelu"))


@aten("log_sigmoid_forward")
def _log_sigmoid_forward(F: Functions, x: Tensor) -> Result:
    return _log_sigmoid(F, x), None


@aten("softplus")
def _softplus(F: Functions, x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    made = F.Activation(x if beta == 1 else x * beta, act_type="softrelu")
    return made if beta == 1 else made / beta


@aten("hardshrink")
def _hardshrink(F: Functions, x: Tensor, lambd: float = 0.5) -> Tensor:
    return x * F.cast(F.broadcast_greater(F.abs(x), lambd), x.dtype)


@aten("softshrink")
def _softshrink(F: Functions, x: Tensor, lambd: float = 0.5) -> Tensor:
    return onnx("Shrink")(F, x, bias=float(lambd), lambd=float(lambd))


@aten("threshold")
def _threshold(F: Functions, x: Tensor, threshold: float, value: float) -> Tensor:
    return F.select(F.truth(F.broadcast_greater(x, threshold)), x, F.like(value, x))


@aten("nan_to_num")
def _nan_to_num(
    F: Functions, x: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    limits = np.finfo(x.dtype)
    x = F.select(F.truth(F._contrib_isnan(x)), F.like(nan or 0.0, x), x)
    high = float(limits.max) if posinf is None else posinf
    low = float(limits.min) if neginf is None else neginf
    x = F.select(F.truth(F.broadcast_equal(x, np.inf)), F.like(high, x), x)
    return F.select(F.truth(F.broadcast_equal(x, -np.inf)), F.like(low, x), x)
