"""Functions of `mx.np` that compute element by element, from one table of records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, UnsupportedArgument
from hybrid_lab.numpy.methods import FUNCTIONS
from hybrid_lab.numpy.operators import (
    BOOL,
    R,
    alike,
    as_tensor,
    cast,
    common,
    dtype_of,
    is_tensor,
    kind_of_number,
    write,
)
from hybrid_lab.numpy.types import ArrayLike, Function, Out, Tensor
from hybrid_lab.ops.framework.operator import get
from hybrid_lab.symbol.symbol import Symbol

FLOATING = (
    *("sqrt", "cbrt", "exp", "expm1", "log", "log10", "log2", "log1p", "sin", "cos", "tan", "arcsin", "arccos"),
    *("arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh", "degrees", "radians", "reciprocal"),
)

"""Functions of floating numbers, with the record of the same name; whole numbers become float32 first."""

KEEPING = {
    **{name: name for name in ("abs", "sign", "negative", "square", "floor", "ceil", "trunc", "fix")},
    "absolute": "abs",
    "fabs": "abs",
}
"""Functions that keep the dtype -> record."""

TESTING = {"isnan": "_contrib_isnan", "isinf": "_contrib_isinf", "isfinite": "_contrib_isfinite"}
"""Functions of floating numbers that give bools -> record."""

ARITHMETIC = {
    "add": "broadcast_add",
    "subtract": "broadcast_sub",
    "multiply": "broadcast_mul",
    "mod": "broadcast_mod",
    "remainder": "broadcast_mod",
    "power": "broadcast_power",
    "maximum": "broadcast_maximum",
    "minimum": "broadcast_minimum",
}
"""Functions of two operands in their common dtype -> record."""

QUOTIENTS = {"true_divide": "broadcast_div", "divide": "broadcast_div", "hypot": "broadcast_hypot"}
"""Functions of two operands that give floating numbers -> record."""

COMPARING = {
    "equal": "broadcast_equal",
    "not_equal": "broadcast_not_equal",
    "less": "broadcast_lesser",
    "less_equal": "broadcast_lesser_equal",
    "greater": "broadcast_greater",
    "greater_equal": "broadcast_greater_equal",
    "logical_and": "broadcast_logical_and",
    "logical_or": "broadcast_logical_or",
    "logical_xor": "broadcast_logical_xor",
}
"""Functions of two operands that give bools -> record."""


def refuse_options(name: str, options: Mapping[str, object]) -> None:
    """Raise AttributeSpecError for an argument of NumPy that is not supported and is not its default."""
    defaults = {"where": True, "casting": "same_kind", "order": "K", "dtype": None, "subok": True}
    for key, value in options.items():
        if key not in defaults:
            raise AttributeSpecError(f"np.{name}: unknown argument {key}")
        if value is not defaults[key] and value != defaults[key]:
            raise UnsupportedArgument(f"np.{name}: {key}={value!r} is not supported; the default is {defaults[key]!r}")


def _documented(function: Function, name: str, doc: str) -> Function:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    function.__module__ = "hybrid_lab.numpy"
    return function


def _of_numbers(name: str, *numbers: object) -> Any:
    """NumPy's function on numbers, lists and NumPy arrays."""
    return getattr(np, name)(*numbers)


def _first_line(record: str) -> str:
    return (get(record).__doc__ or "").strip().split("\n")[0]


def _unary(name: str, record: str, floating: bool, test: bool) -> Function:
    run, ufunc = getattr(R, record), getattr(np, name)

    def compute(x: Tensor) -> Tensor:
        if floating:
            (x,) = alike(x, floating=True)
        elif record == "negative" and dtype_of(x) == BOOL:
            raise AttributeSpecError("np.negative of bools: use np.logical_not or ~x")
        elif dtype_of(x) == BOOL:
            return cast(run(cast(x, "int32")), BOOL)
        return cast(run(x), BOOL) if test else run(x)

    def function(x: ArrayLike, out: Out = None, **options: object) -> Tensor:
        if options:
            refuse_options(name, options)
        if not is_tensor(x):
            x = _operand(x)
            if not is_tensor(x):
                return ufunc(x)
        return write(out, compute(x))

    kind = " bools." if test else ""
    return _documented(function, name, f"{_first_line(record)}{kind}\n\nx : an array, or a number, whose result is one")


def _binary(name: str, record: str, floating: bool, test: bool) -> Function:
    run, ufunc = getattr(R, record), getattr(np, name)

    def compute(x1: Any, x2: Any) -> Tensor:
        dtype = common(x1, x2, floating=floating)
        if dtype is None:
            result = run(x1, x2)
            return cast(result, BOOL) if test else result
        narrow = dtype == BOOL and not test  # the arithmetic records do not take bools
        x1, x2 = (cast(item, "int32" if narrow else dtype) if is_tensor(item) else item for item in (x1, x2))
        result = run(x1, x2)
        return cast(result, BOOL) if test or narrow else result

    def function(x1: ArrayLike, x2: ArrayLike, out: Out = None, **options: object) -> Tensor:
        if options:
            refuse_options(name, options)
        if not is_tensor(x1) or not is_tensor(x2):
            x1, x2 = operands(x1, x2)
            if not is_tensor(x1) and not is_tensor(x2):
                return ufunc(x1, x2)
        return write(out, compute(x1, x2))

    kind = " The result is of bools." if test else " Whole numbers give float32." if floating else ""
    return _documented(function, name, f"{_first_line(record)}{kind}\n\nx1, x2 : arrays or numbers, broadcast")


def operands(x1: ArrayLike, x2: ArrayLike) -> tuple[Any, Any]:
    """Two operands: arrays, Symbols and plain numbers are not changed; NumPy arrays and lists become arrays.

    Raises DTypeError for an operand of any other type.
    """
    return _operand(x1), _operand(x2)


def _operand(x: Any) -> Any:
    if isinstance(x, (int, float)) or is_tensor(x):
        return x
    if isinstance(x, (np.ndarray, list, tuple)):
        return as_tensor(x)
    kind_of_number(x)
    return x


FUNCTIONS.update(
    {
        **{name: _unary(name, name, True, False) for name in FLOATING},
        **{name: _unary(name, record, False, False) for name, record in KEEPING.items()},
        **{name: _unary(name, record, True, True) for name, record in TESTING.items()},
        **{name: _binary(name, record, False, False) for name, record in ARITHMETIC.items()},
        **{name: _binary(name, record, True, False) for name, record in QUOTIENTS.items()},
        **{name: _binary(name, record, False, True) for name, record in COMPARING.items()},
    }
)
FUNCTIONS["deg2rad"], FUNCTIONS["rad2deg"] = FUNCTIONS["radians"], FUNCTIONS["degrees"]


@FUNCTIONS.add
def logical_not(x: ArrayLike, out: Out = None, **options: object) -> Tensor:
    """True if x is 0."""
    refuse_options("logical_not", options)
    return write(out, _of_numbers("logical_not", x) if not is_tensor(x) else cast(R.logical_not(_counted(x)), BOOL))


def _counted(x: Tensor) -> Tensor:
    """Bools as int32, other numbers unchanged."""
    return cast(x, "int32") if dtype_of(x) == BOOL else x


@FUNCTIONS.add
def floor_divide(x1: Any, x2: Any, out: Out = None, **options: object) -> Tensor:
    """The quotient rounded down; whole numbers give whole numbers."""
    refuse_options("floor_divide", options)
    x1, x2 = operands(x1, x2)
    if not is_tensor(x1) and not is_tensor(x2):
        return np.floor_divide(x1, x2)
    dtype = common(x1, x2)
    if dtype is not None and dtype.kind in "iu":  # through float64, so that they do not round towards 0
        x1, x2 = (cast(item, "float64") if is_tensor(item) else item for item in (x1, x2))
    else:
        x1, x2 = alike(x1, x2)
    result = R.floor(R.broadcast_div(x1, x2))
    return write(out, result if dtype is None else cast(result, dtype))


@FUNCTIONS.add
def arctan2(x1: Any, x2: Any, out: Out = None, **options: object) -> Tensor:
    """The angle of the point (x2, x1), between -pi and pi."""
    refuse_options("arctan2", options)
    x1, x2 = operands(x1, x2)
    if not is_tensor(x1) and not is_tensor(x2):
        return np.arctan2(x1, x2)
    return write(out, R._npi_arctan2(*alike(x1, x2, floating=True)))


@FUNCTIONS.add
def copysign(x1: Any, x2: Any, out: Out = None, **options: object) -> Tensor:
    """The magnitude of x1 with the sign of x2."""
    refuse_options("copysign", options)
    x1, x2 = operands(x1, x2)
    if not is_tensor(x1) and not is_tensor(x2):
        return np.copysign(x1, x2)
    x1, x2 = alike(x1, x2, floating=True)
    size = R.abs(x1) if is_tensor(x1) else abs(float(x1))
    below = R.broadcast_lesser(x2, 0.0) if is_tensor(x2) else float(np.signbit(x2))
    sign = R.broadcast_add(R.broadcast_mul(below, -2.0), 1.0) if is_tensor(below) else 1.0 - 2.0 * below
    return write(out, R.broadcast_mul(size, sign))


@FUNCTIONS.add
def ldexp(x1: Any, x2: Any, out: Out = None, **options: object) -> Tensor:
    """x1 * 2**x2."""
    refuse_options("ldexp", options)
    x1, x2 = operands(x1, x2)
    if not is_tensor(x1) and not is_tensor(x2):
        return np.ldexp(x1, x2)
    x1, x2 = alike(x1, x2, floating=True)
    return write(out, R.broadcast_mul(x1, R.broadcast_power(2.0, x2) if is_tensor(x2) else 2.0**x2))


@FUNCTIONS.add
def isneginf(x: ArrayLike, out: Out = None, **options: object) -> Tensor:
    """True if x is -infinity."""
    return write(out, _of_numbers("isneginf", x) if not is_tensor(x) else FUNCTIONS["equal"](x, -np.inf))


@FUNCTIONS.add
def isposinf(x: ArrayLike, out: Out = None, **options: object) -> Tensor:
    """True if x is infinity."""
    return write(out, _of_numbers("isposinf", x) if not is_tensor(x) else FUNCTIONS["equal"](x, np.inf))


@FUNCTIONS.add
def clip(
    a: ArrayLike, a_min: Tensor | float | None = None, a_max: Tensor | float | None = None, out: Out = None
) -> Tensor:
    """a, with numbers below a_min raised to it and numbers above a_max lowered to it."""
    if a_min is None and a_max is None:
        raise AttributeSpecError("np.clip: a_min and a_max cannot both be None")
    a_min, a_max = (None if bound is None else _operand(bound) for bound in (a_min, a_max))
    if is_tensor(a_min) or is_tensor(a_max):
        raised: Any = a if a_min is None else FUNCTIONS["maximum"](a, a_min)
        return write(out, raised if a_max is None else FUNCTIONS["minimum"](raised, a_max))
    low = -np.inf if a_min is None else float(a_min)
    high = np.inf if a_max is None else float(a_max)
    tensor = as_tensor(a)
    dtype = dtype_of(tensor)
    if dtype is not None and dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        low, high = max(low, float(bounds.min)), min(high, float(bounds.max))
    return write(out, R.clip(tensor, a_min=low, a_max=high))


def _to_even(x: Tensor) -> Tensor:
    """The nearest whole number, of two the even one; the record `rint` takes the lower one."""
    lower = R.rint(x)
    upward = R.broadcast_mul(R.broadcast_equal(R.broadcast_sub(x, lower), 0.5), R.broadcast_mod(lower, 2.0))
    return R.broadcast_add(lower, upward)


@FUNCTIONS.add
def rint(x: ArrayLike, out: Out = None, **options: object) -> Tensor:
    """The nearest whole number, of two the even one."""
    refuse_options("rint", options)
    return around(x, 0, out)


@FUNCTIONS.add
def around(x: ArrayLike, decimals: int = 0, out: Out = None, **options: object) -> Tensor:
    """x rounded to `decimals` digits after the point, halves to the even neighbour."""
    if not is_tensor(x):
        return _of_numbers("around", x, decimals)
    dtype = dtype_of(x)
    if dtype is not None and dtype.kind not in "fV":
        if decimals >= 0:
            return write(out, x)
        return write(out, cast(around(cast(x, "float64"), decimals), dtype))
    scale = float(10 ** abs(decimals))
    if decimals == 0:
        return write(out, _to_even(x))
    scaled = R.broadcast_mul(x, scale) if decimals > 0 else R.broadcast_div(x, scale)
    whole = _to_even(scaled)
    return write(out, R.broadcast_div(whole, scale) if decimals > 0 else R.broadcast_mul(whole, scale))


FUNCTIONS["round"] = FUNCTIONS["round_"] = around


@FUNCTIONS.add
def nan_to_num(
    x: ArrayLike,
    copy: bool = True,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
    **options: object,
) -> Tensor:
    """x with NaN replaced by `nan`, and infinities by `posinf` and `neginf` (the largest and smallest numbers)."""
    if not is_tensor(x):
        return _of_numbers("nan_to_num", x, True, nan, posinf, neginf)
    if isinstance(x, Symbol) and not copy:
        raise UnsupportedArgument("np.nan_to_num: copy=False writes to its argument, which code of a graph cannot do")
    dtype = dtype_of(x)
    if dtype is not None and dtype.kind not in "fV":
        return x
    bounds = np.finfo(dtype or np.float32)
    high = float(bounds.max) if posinf is None else float(posinf)
    low = float(bounds.min) if neginf is None else float(neginf)
    result = R.where(R._contrib_isnan(x), R.full_like(x, fill_value=float(nan)), x)
    result = R.where(R.broadcast_equal(result, np.inf), R.full_like(x, fill_value=high), result)
    result = R.where(R.broadcast_equal(result, -np.inf), R.full_like(x, fill_value=low), result)
    return result if copy or isinstance(x, Symbol) else write(x, result)


def _bits(name: str) -> Function:
    ufunc = getattr(np, name)
    record = {"bitwise_and": "mul", "bitwise_or": "maximum", "bitwise_xor": "not_equal"}[name]

    def function(x1: Any, x2: Any, out: Out = None, **options: object) -> Tensor:
        refuse_options(name, options)
        x1, x2 = operands(x1, x2)
        if not is_tensor(x1) and not is_tensor(x2):
            return ufunc(x1, x2)
        dtype = common(x1, x2)
        if dtype is None or dtype == BOOL:  # of 0 and 1 they are arithmetic
            x1, x2 = (cast(item, "int32") if is_tensor(item) else int(item) for item in (x1, x2))
            return write(out, cast(getattr(R, f"broadcast_{record}")(x1, x2), BOOL))
        return write(out, FUNCTIONS["_host_bits"](name, x1, x2, dtype))

    return _documented(function, name, f"The bits of `{name}`; of bools their logical counterpart.")


for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    FUNCTIONS[_name] = _bits(_name)


@FUNCTIONS.add
def invert(x: ArrayLike, out: Out = None, **options: object) -> Tensor:
    """The opposite of each bit: ~x of whole numbers, `logical_not` of bools."""
    refuse_options("invert", options)
    if not is_tensor(x):
        return _of_numbers("invert", x)
    if dtype_of(x) == BOOL:
        return logical_not(x, out)
    return write(out, R.broadcast_sub(R.negative(x), 1))


FUNCTIONS["bitwise_not"] = invert
