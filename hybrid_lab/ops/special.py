"""Special functions: erf."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hybrid_lab.ops.pointwise import Unary
from hybrid_lab.ops.sample import sample

# erf(x) = x P(x^2) / Q(x^2) for |x| < 4, the rational fit that Eigen uses for float32 (error below 3e-7).
_P = (
    *(-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05),
    *(-7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02),
)
_Q = (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02)
_exact = np.frompyfunc(math.erf, 1, 1)


def error_function(x: Any, out: np.ndarray | None = None, scratch: Any = np.empty) -> Any:
    """erf of an array; float64 goes element by element through the C library, the others through a rational fit."""
    if out is None:
        out = np.empty(x.shape, x.dtype)
    if x.dtype == np.float64:
        np.copyto(out, _exact(x), casting="unsafe")
        return out
    if not x.ndim:
        error_function(x.reshape(1), out.reshape(1), scratch)
        return out
    clipped, squared, upper, lower = scratch((4, *x.shape), np.float32)
    np.copyto(clipped, x)
    np.clip(clipped, np.float32(-4), np.float32(4), out=clipped)
    np.square(clipped, out=squared)
    for total, coefficients in ((upper, _P), (lower, _Q)):
        total.fill(coefficients[0])
        for coefficient in coefficients[1:]:
            total *= squared
            total += np.float32(coefficient)
    upper *= clipped
    upper /= lower
    np.copyto(out, upper, casting="same_kind")
    return out


class Erf(Unary, name="erf"):
    """The error function: 2 / sqrt(pi) * integral of exp(-t^2) from 0 to data. data : floating; returns : as data."""

    triton = "tl.erf({0})"
    onnx = "Erf"
    ufunc = staticmethod(error_function)
    samples = [sample((3, 4)), sample((2, 3, 4), low=-3.0, high=3.0), sample((2, 3), dtype="float16")]

    def numpy(self, data: Any, out: Any = None, scratch: Any = np.empty) -> Any:
        return error_function(data, out, scratch) if data.dtype.kind == "f" else super().numpy(data, out)

    def grad(self, F: Any, x: Any, y: Any, dy: Any) -> Any:
        return dy * F.exp(-(x * x)) * (2.0 / math.sqrt(math.pi))
