"""Rounding to the narrow floating types of ONNX, which arrays carry in float32."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hybrid_lab.onnx.reading.importers.functions import Functions, Tensor


class Narrow(NamedTuple):
    """A floating type. mantissa : its bits; least : exponent of the smallest normal number; largest : number"""

    mantissa: int
    least: int
    largest: float
    has_infinity: bool
    has_nan: bool = True
    has_minus_zero: bool = True


FLOATS = {
    "FLOAT8E4M3FN": Narrow(3, -6, 448.0, False),
    "FLOAT8E4M3FNUZ": Narrow(3, -7, 240.0, False, has_minus_zero=False),
    "FLOAT8E5M2": Narrow(2, -14, 57344.0, True),
    "FLOAT8E5M2FNUZ": Narrow(2, -15, 57344.0, False, has_minus_zero=False),
    "FLOAT4E2M1": Narrow(1, 0, 6.0, False, has_nan=False),
    "FLOAT8E8M0": Narrow(0, -127, 2.0**127, False),
}  # fmt: skip


def rounded_to(F: Functions, x: Tensor, kind: str, saturate: bool, round_mode: str) -> Tensor:
    """float32 rounded to a narrow type, to even; beyond the largest number: that number, or infinity or NaN."""
    form = FLOATS[kind]
    if kind == "FLOAT8E8M0":
        return _power_of_two(F, x, saturate, round_mode)
    size = F.abs(x)
    # The exponent as a sum of comparisons: exact; a logarithm would be rounded.
    bounds = [2.0 ** (number) for number in range(form.least + 1, int(np.floor(np.log2(form.largest))) + 2)]
    spacing = F.like(2.0 ** (form.least - form.mantissa), x)
    step: Any = F.zeros_like(size) + spacing
    for bound in bounds:
        step = F.select(
            F.truth(F.broadcast_lesser(size, F.like(bound, x))),
            step,
            F.zeros_like(size) + F.like(bound * 2.0**-form.mantissa, x),
        )
    made = F.to_even(size / step) * step
    too_large = F.truth(F.broadcast_greater(made, F.like(form.largest, x)))
    over = form.largest if saturate or not form.has_nan else (np.inf if form.has_infinity else np.nan)
    made = F.select(too_large, F.zeros_like(size) + F.like(over, x), made)
    if not saturate or kind in ("FLOAT8E4M3FNUZ", "FLOAT8E5M2FNUZ") or form.has_infinity:
        infinite = F.truth(F.broadcast_equal(size, F.like(np.inf, x)))
        beyond = form.largest if saturate else (np.inf if form.has_infinity else np.nan)
        made = F.select(infinite, F.zeros_like(size) + F.like(beyond, x), made)
    negative = F.truth(F.broadcast_lesser(x, 0.0))
    made = F.select(negative, -made, made)
    return made


def _power_of_two(F: Functions, x: Tensor, saturate: bool, round_mode: str) -> Tensor:
    """The power of two at x: the next one up, down, or the nearest."""
    exponent = F.log2(F.abs(x))
    whole = {"up": F.ceil, "down": F.floor, "nearest": F.to_even}[round_mode](exponent)
    whole = F.broadcast_maximum(F.broadcast_minimum(whole, 127.0), -127.0)
    return F.broadcast_power(F.like(2.0, x), whole)
