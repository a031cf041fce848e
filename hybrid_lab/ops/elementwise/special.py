"""Special functions: erf and its inverse, the gamma function, its logarithm and their derivatives."""

from __future__ import annotations

import math

import numpy as np
from numpy.polynomial import polynomial

from hybrid_lab.diagnostics.errors import AttributeSpecError
from hybrid_lab.ops.framework import Operator, Pointwise, Unary, into, sample, unary
from hybrid_lab.ops.framework.memory import like_of
from hybrid_lab.ops.framework.protocols import Functions, Scratch, Tensor
from hybrid_lab.ops.framework.types import Array

# erf(x) = x P(x^2) / Q(x^2) for |x| < 4, the rational fit that Eigen uses for float32 (error below 3e-7).
_P = (
    *(-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05),
    *(-7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02),
)
_Q = (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02)
exact_erf = np.frompyfunc(math.erf, 1, 1)


def error_function(x: Array, out: np.ndarray | None = None, scratch: Scratch = np.empty) -> Array:
    """erf of an array; float64 goes element by element through the C library, the others through a rational fit."""
    if out is None:
        out = np.empty(x.shape, x.dtype)
    if x.dtype == np.float64:
        np.copyto(out, exact_erf(x), casting="unsafe")
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

    expensive = True
    triton = Pointwise("tl.erf({0})", floating=True)
    onnx = "Erf"
    ufunc = staticmethod(error_function)
    samples = [sample((3, 4)), sample((2, 3, 4), low=-3.0, high=3.0), sample((2, 3), dtype="float16")]

    def numpy(self, data: Array, out: Array | None = None, scratch: Scratch = np.empty) -> Array:
        return error_function(data, out, scratch) if data.dtype.kind == "f" else super().numpy(data, out)

    def grad(self, F: Functions, x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return dy * F.exp(-(x * x)) * (2.0 / math.sqrt(math.pi))


# -- the inverse of erf ----------------------------------------------------------------------------------------

# Giles, "Approximating the erfinv function" (2010), the single precision fit: erfinv(x) = x p(w), w = -log(1 - x^2).
_CENTRAL = (
    *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503),
    *(-0.00417768164, 0.246640727, 1.50140941),
)
_TAIL = (
    *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613),
    *(0.00943887047, 1.00167406, 2.83297682),
)


def inverse_error_function(x: Array, out: np.ndarray | None = None) -> Array:
    """erfinv: NaN outside of [-1, 1], infinite at the ends. float64 is refined by Newton's method."""
    wide = np.asarray(x, np.float64, like=like_of(x))
    with np.errstate(all="ignore"):
        w = -np.log1p(-wide * wide)
        near, far = np.minimum(w, 5.0) - 2.5, np.sqrt(np.maximum(w, 5.0)) - 3.0
        y = np.where(w < 5.0, np.polyval(_CENTRAL, near), np.polyval(_TAIL, far)) * wide
        if x.dtype == np.float64:
            for _ in range(2):
                y -= (
                    (np.asarray(exact_erf(y), np.float64, like=like_of(x)) - wide)
                    * np.exp(y * y)
                    * (math.sqrt(math.pi) / 2.0)
                )
        y = np.where(np.abs(wide) == 1.0, np.copysign(np.inf, wide), y)
    return into(y, out, x.dtype)


erfinv = unary(
    "erfinv", inverse_error_function, lambda F, x, y, dy: dy * F.exp(y * y) * (math.sqrt(math.pi) / 2.0), None, None,
    "The inverse of erf, for data in (-1, 1).",
    samples=[sample((3, 4), low=-0.95, high=0.95), sample((4,), low=0.999, high=0.99999, smooth=False)], expensive=True,
    precision="float32",
)  # fmt: skip

# -- the gamma function ----------------------------------------------------------------------------------------

# Lanczos' approximation with g = 7 and nine terms (Godfrey's coefficients).
_LANCZOS = (
    *(0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059),
    *(12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7),
)


def _reflected(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where x < 1/2, the argument z >= 1/2 that stands for it there, and sin(pi x)."""
    low, nearest = x < 0.5, np.rint(x)
    sign = np.where(np.remainder(nearest, 2.0) == 0, 1.0, -1.0)
    return low, np.where(low, 1.0 - x, x), sign * np.sin(np.pi * (x - nearest))  # exact digits near whole numbers


def _lanczos(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The series and the base t of gamma(z) = sqrt(2 pi) t^(z - 1/2) e^-t series, for z >= 1/2."""
    series = np.full_like(z, _LANCZOS[0])
    for index, coefficient in enumerate(_LANCZOS[1:]):
        series += coefficient / (z + index)
    return series, z + 6.5


#: gamma(x) of a larger x overflows in float64.
_LARGEST = 171.7


def _poles(x: np.ndarray) -> np.ndarray:
    """Where x is 0, a negative whole number or -infinity."""
    return (x <= 0) & (x == np.floor(x))


#: gamma(1), gamma(2) ... up to the last that float64 holds.
_FACTORIALS = np.array([float(math.factorial(number)) for number in range(171)])


def _factorials(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where x is a whole number whose gamma function is in the table, and gamma(x) there."""
    listed = (x >= 1) & (x <= len(_FACTORIALS)) & (x == np.floor(x))
    return listed, np.asarray(_FACTORIALS, like=like_of(x))[x[listed].astype(np.int64) - 1]


def gamma_function(x: Array, out: np.ndarray | None = None) -> Array:
    """gamma(x); (x - 1)! exactly, NaN at the negative whole numbers, infinite at 0."""
    wide = np.asarray(x, np.float64, like=like_of(x))
    with np.errstate(all="ignore"):
        low, z, sine = _reflected(wide)
        series, t = _lanczos(z)
        half = t ** ((z - 0.5) / 2)  # squared below, so that it does not overflow before its factor
        y = math.sqrt(2 * math.pi) * (half * np.exp(-t)) * half * series
        y = np.where(z > _LARGEST, np.inf, y)
        y = np.where(low, np.pi / (sine * y), y)
        y = np.where(_poles(wide), np.where(wide == 0, np.copysign(np.inf, wide), np.nan), y)
        listed, factorials = _factorials(wide)
        y[listed] = factorials
    return into(y, out, x.dtype)


def log_gamma(x: Array, out: np.ndarray | None = None) -> Array:
    """log |gamma(x)|; 0 at 1 and 2, infinite at 0 and the negative whole numbers."""
    wide = np.asarray(x, np.float64, like=like_of(x))
    with np.errstate(all="ignore"):
        low, z, sine = _reflected(wide)
        series, t = _lanczos(z)
        y = 0.5 * math.log(2 * math.pi) + (z - 0.5) * np.log(t) - t + np.log(series)
        y = np.where(low, math.log(math.pi) - np.log(np.abs(sine)) - y, y)
        y = np.where(_poles(wide) | (wide == np.inf), np.inf, y)
        listed, factorials = _factorials(wide)
        y[listed] = np.log(factorials)
    return into(y, out, x.dtype)


#: B_2k / 2k of the asymptotic series of digamma, and B_2k of trigamma, in powers of 1 / x^2.
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
_TRIGAMMA = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


def _shifted(x: np.ndarray, power: int, up_to: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """x moved up to 10 (`up_to`) or more, and the sum of 1 / x^power on the way."""
    total = np.zeros_like(x)
    for _ in range(up_to):
        small = x < up_to
        total += np.where(small, 1.0 / np.where(small, x, 1.0) ** power, 0.0)
        x = x + small
    return x, total


def digamma_function(x: Array, out: np.ndarray | None = None) -> Array:
    """The derivative of log gamma(x); infinite at 0 and the negative whole numbers."""
    wide = np.asarray(x, np.float64, like=like_of(x))
    with np.errstate(all="ignore"):
        low = wide < 0.5
        z, passed = _shifted(np.where(low, 1.0 - wide, wide), 1)
        squared = 1.0 / (z * z)
        y = np.log(z) - 0.5 / z - squared * np.polyval(_DIGAMMA[::-1], squared) - passed
        y = np.where(low, y - np.pi / np.tan(np.pi * wide), y)
        y = np.where(_poles(wide), np.inf, y)
    return into(y, out, x.dtype)


def trigamma_function(x: Array, out: np.ndarray | None = None) -> Array:
    """The derivative of digamma."""
    wide = np.asarray(x, np.float64, like=like_of(x))
    with np.errstate(all="ignore"):
        low, mirrored, sine = _reflected(wide)
        z, passed = _shifted(mirrored, 2)
        squared = 1.0 / (z * z)
        y = 1.0 / z + 0.5 * squared + squared / z * np.polyval(_TRIGAMMA[::-1], squared) + passed
        y = np.where(low, (np.pi / sine) ** 2 - y, y)
        y = np.where(_poles(wide), np.inf, y)
    return into(y, out, x.dtype)


#: The Bernoulli numbers B_2, B_4 ...
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798)


def _cotangent_derivative(order: int) -> np.ndarray:
    """The coefficients of P, for which P(cot z) is derivative number `order` of cot z: P' (-1 - c^2), repeatedly."""
    found = np.array([0.0, 1.0])
    for _ in range(order):
        found = polynomial.polymul(polynomial.polyder(found), [-1.0, 0.0, -1.0])
    return found


def polygamma_function(x: Array, order: int, out: np.ndarray | None = None) -> Array:
    """Derivative number `order` of digamma (Abramowitz and Stegun, 6.4.6, 6.4.7 and 6.4.11)."""
    wide = np.asarray(x, np.float64, like=like_of(x))
    sign, factorial = (-1.0) ** (order + 1), math.factorial(order)
    with np.errstate(all="ignore"):
        low = wide < 0.5
        z, passed = _shifted(np.where(low, 1.0 - wide, wide), order + 1, up_to=10 + order)
        series = math.factorial(order - 1) / z**order + factorial / (2 * z ** (order + 1))
        for number, bernoulli in enumerate(_BERNOULLI, 1):
            rising = math.factorial(2 * number + order - 1) / math.factorial(2 * number)
            series = series + bernoulli * rising / z ** (2 * number + order)
        y = sign * (series + factorial * passed)
        slope = polynomial.polyval(1.0 / np.tan(np.pi * wide), _cotangent_derivative(order)) * np.pi ** (order + 1)
        y = np.where(low, -sign * y - slope, y)
        y = np.where(_poles(wide), np.inf, y)
    return into(y, out, x.dtype)


_GAMMA_SAMPLES = [
    sample((3, 4), low=0.3, high=5.0), sample((4,), low=-0.9, high=-0.1), sample((3,), low=10.0, high=20.0),
]  # fmt: skip


class Polygamma(Operator, name="_polygamma"):
    """Derivative number `order` of digamma, 1 or more; returns : as data."""

    shaped_like = 0
    dtype_kinds = "f"
    precision = "float32"
    mxnet = None
    order: int
    samples = [
        *(sample(item.inputs[0], low=item.low, high=item.high, order=2) for item in _GAMMA_SAMPLES),
        sample((3, 4), low=0.3, high=5.0, order=3),
    ]

    def check(self) -> None:
        if self.order < 1:
            raise AttributeSpecError(f"_polygamma: order={self.order}; at least 1 is needed")

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        return polygamma_function(data, self.order, out)

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return dy * F._polygamma(data, order=self.order + 1)


trigamma = unary(
    "_trigamma", trigamma_function, lambda F, x, y, dy: dy * F._polygamma(x, order=2), None, None,
    "The derivative of digamma.", samples=_GAMMA_SAMPLES, mxnet=None, precision="float32",
)  # fmt: skip
digamma = unary(
    "_digamma", digamma_function, lambda F, x, y, dy: dy * F._trigamma(x), None, None,
    "The derivative of log gamma(data).", samples=_GAMMA_SAMPLES, mxnet=None, precision="float32",
)  # fmt: skip
gamma = unary(
    "gamma", gamma_function, lambda F, x, y, dy: dy * y * F._digamma(x), None, None,
    "The gamma function: (n - 1)! at the whole number n.", samples=_GAMMA_SAMPLES, expensive=True, precision="float32",
)  # fmt: skip
gammaln = unary(
    "gammaln", log_gamma, lambda F, x, y, dy: dy * F._digamma(x), None, None,
    "log |gamma(data)|, without the overflow of gamma.", samples=_GAMMA_SAMPLES, expensive=True, precision="float32",
)  # fmt: skip
