"""Conversions between element types, and operators on the bits of whole numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hybrid_lab.onnx import element_types
from hybrid_lab.onnx.reading.importers.functions import Functions, Tensor
from hybrid_lab.onnx.reading.importers.narrow import FLOATS, rounded_to
from hybrid_lab.onnx.reading.importers.table import Function, add, operator

# -- conversions -----------------------------------------------------------------------------------------------------


def converted(F: Functions, x: Tensor, kind: str, saturate: bool = True, round_mode: str = "up") -> Tensor:
    """x in another element type of ONNX."""
    dtype = element_types.dtype_for(kind)
    if dtype is None:
        raise F.unsupported(f"elements of type {kind} are not supported")
    if kind in FLOATS:
        made = x if x.carries == kind else rounded_to(F, F.cast(x, "float32"), kind, saturate, round_mode)
    elif x.is_floating and kind in element_types.BITS and element_types.BITS[kind] < 32:
        made = F.wrapped(F.cast(F.cast(x, "int64"), dtype), kind)
        made = F.cast(made, dtype)
    elif kind in element_types.BITS and element_types.BITS[kind] < 64 and kind in element_types.CARRIERS:
        wide = F.cast(F.trunc(x) if x.is_floating else x, "int64")
        made = F.cast(F.wrapped(wide, kind), dtype)
    else:
        made = F.cast(x, dtype)
    return made.carrying(element_types.carried(kind))


@operator("Cast", 6)
def _cast(F: Functions, x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up") -> Tensor:
    try:
        kind = element_types.type_name(to)
    except ValueError:
        raise F.unsupported(f"there is no element type {to}") from None
    return converted(F, x, kind, bool(saturate), round_mode)


@operator("CastLike", 15)
def _cast_like(F: Functions, x: Tensor, like: Tensor, *, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return converted(F, x, element_types.name_for(like), bool(saturate), round_mode)


# -- bits ------------------------------------------------------------------------------------------------------------


@operator("BitShift", 11)
def _bit_shift(F: Functions, x: Tensor, by: Tensor, *, direction: str) -> Tensor:
    kind = element_types.name_for(x)
    bits = element_types.BITS[kind]
    powers = F.constant(np.array([1 << number for number in range(63)], np.int64))
    by, wide = F.cast(by, "int64"), F.cast(x, "int64")
    inside = F.broadcast_greater_equal(by, 0) * F.broadcast_lesser(by, bits)
    factor = F.take(powers, by)
    if direction == "RIGHT":
        moved = (wide - F.broadcast_mod(wide, factor)) / factor  # downwards, as bits move
        beyond = F.broadcast_lesser(wide, 0) * -1
    else:
        moved, beyond = F.wrapped(wide * factor, kind), F.zeros_like(wide)
    return F.cast(F.select(F.truth(inside), moved, beyond), x.dtype)


def _bitwise(join: Callable[[Any, Any, Any], Any]) -> Function:
    """Both operands taken apart into their bits, and put together again."""

    def function(F: Functions, a: Tensor, b: Tensor) -> Tensor:
        kind = element_types.name_for(a)
        bits = element_types.BITS[kind]
        dtype = a.dtype
        a, b = F.cast(a, "int64"), F.cast(b, "int64")
        total: Any = None
        for place in range(bits):
            one, two = _bit(F, a, place, bits), _bit(F, b, place, bits)
            weight = np.array([1 << place], np.uint64).astype(np.int64)[0]
            if place == bits - 1 and not kind.startswith("U"):
                weight = -(1 << place)
            part = join(F, one, two) * F.constant(weight, np.int64)
            total = part if total is None else total + part
        return F.cast(total, dtype)

    return function


def _bit(F: Functions, x: Tensor, place: int, bits: int) -> Tensor:
    if place == 63:
        made: Tensor = F.cast(F.broadcast_lesser(x, 0), "int64")
        return made
    modulus = F.constant(2, np.int64)
    power = F.constant(1 << place, np.int64)
    lowered = (x - F.broadcast_mod(x, power)) / power  # the quotient downwards
    result: Tensor = F.broadcast_mod(lowered, modulus)
    return result


add("BitwiseAnd", _bitwise(lambda F, a, b: a * b), 18)
add("BitwiseOr", _bitwise(lambda F, a, b: F.broadcast_maximum(a, b)), 18)
add("BitwiseXor", _bitwise(lambda F, a, b: F.broadcast_not_equal(a, b)), 18)


@operator("BitwiseNot", 18)
def _bitwise_not(F: Functions, x: Tensor) -> Tensor:
    kind = element_types.name_for(x)
    least, most = element_types.limits_of(kind)
    return F.constant(least + most, x.dtype) - x


@operator("BitCast", 26)
def _bit_cast(F: Functions, x: Tensor, *, to: int) -> Tensor:
    kind, own = element_types.type_name(to), element_types.name_for(x)
    if kind in element_types.BITS and own in element_types.BITS:
        return converted(F, x, kind)
    if x.is_constant and x.array is not None and own in element_types.OWN and kind in element_types.OWN:
        return F.constant(x.array.view(element_types.dtype_for(kind)))
    if own == "BOOL" and element_types.BITS.get(kind) == 8:
        return converted(F, x, kind)
    raise F.unsupported(f"the bits of {own} as {kind}: no operator here reads the bits of fractions")
