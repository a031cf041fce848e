"""Comparing arrays under tolerances that follow from their dtypes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import SupportsIndex, TypeAlias

import numpy as np

from hybrid_lab.ndarray import NDArray

Dtype: TypeAlias = "np.dtype[np.generic]"
Tolerance: TypeAlias = "float | Mapping[Dtype, float] | None"
ArrayLike: TypeAlias = "np.ndarray | NDArray | float"

_FLOATS = {"float16": (1e-2, 1e-1, 2.0**-6), "float32": (1e-4, 1e-3, 2.0**-9), "float64": (1e-5, 1e-20, 2.0**-14)}
_WHOLE = ("bool", "int8", "uint8", "int32", "uint32", "int64", "uint64")


def default_rtols() -> dict[Dtype, float]:
    """Relative tolerance for each dtype."""
    return {np.dtype(name): values[0] for name, values in _FLOATS.items()} | dict.fromkeys(map(np.dtype, _WHOLE), 0)


def default_atols() -> dict[Dtype, float]:
    """Absolute tolerance for each dtype."""
    return {np.dtype(name): values[1] for name, values in _FLOATS.items()} | dict.fromkeys(map(np.dtype, _WHOLE), 0)


def default_numeric_eps() -> dict[Dtype, float]:
    """Step of a numeric gradient for each dtype: a power of two, so that adding it rounds nothing away."""
    return {np.dtype(name): values[2] for name, values in _FLOATS.items()}


def effective_dtype(dat: np.ndarray | NDArray) -> Dtype:
    """The dtype whose tolerances apply to an array."""
    return np.dtype(dat.dtype)


def get_tolerance(dat: np.ndarray | NDArray, tol: Tolerance, default_tol: Mapping[Dtype, float]) -> float:
    """A tolerance for an array: `tol` itself if it is a number, else what `tol` or `default_tol` has for the dtype."""
    if tol is not None and not isinstance(tol, Mapping):
        return tol
    dtype = effective_dtype(dat)
    return (tol or {}).get(dtype, default_tol[dtype])


def get_tols(x: ArrayLike, y: ArrayLike, rtol: Tolerance, atol: Tolerance) -> tuple[float, float]:
    """Relative and absolute tolerance for two arrays: the larger of both."""
    pair = [each if isinstance(each, NDArray) else host(each) for each in (x, y)]
    relative = max(get_tolerance(each, rtol, default_rtols()) for each in pair)
    return relative, max(get_tolerance(each, atol, default_atols()) for each in pair)


def get_atol(atol: float | None = None, dtype: Dtype = np.dtype("float64")) -> float:
    """`atol`, or the default for a dtype."""
    return default_atols()[dtype] if atol is None else atol


def get_rtol(rtol: float | None = None, dtype: Dtype = np.dtype("float64")) -> float:
    """`rtol`, or the default for a dtype."""
    return default_rtols()[dtype] if rtol is None else rtol


def get_etol(etol: float | None = None) -> float:
    """`etol`, the part of the elements that may differ; 0 by default."""
    return 0 if etol is None else etol


def host(values: ArrayLike | Sequence[float]) -> np.ndarray:
    """The values as a NumPy array."""
    asnumpy: Callable[[], np.ndarray] | None = getattr(values, "asnumpy", None)
    return np.asarray(values) if asnumpy is None else asnumpy()


def same(a: ArrayLike, b: ArrayLike) -> bool:
    """Whether two arrays have the same shape and elements."""
    return np.array_equal(host(a), host(b))


def same_array(array1: NDArray, array2: NDArray) -> bool:
    """Whether two NDArrays share their memory: a write to one shows in the other."""
    array1[:] += 1
    shared = same(array1, array2)
    array1[:] -= 1
    return shared and same(array1, array2)


def checkShapes(a: np.ndarray | NDArray, b: np.ndarray | NDArray) -> None:
    """Raise AssertionError if the shapes differ."""
    if a.shape != b.shape:
        raise AssertionError(f"a.shape = {a.shape} and b.shape = {b.shape} are not equal")


def almost_equal(
    a: ArrayLike,
    b: ArrayLike,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    use_broadcast: bool = True,
) -> bool:
    """Whether |a - b| <= atol + rtol * |b| everywhere."""
    first, second = host(a), host(b)
    if not use_broadcast:
        checkShapes(first, second)
    return np.allclose(first, second, rtol=get_rtol(rtol), atol=get_atol(atol), equal_nan=equal_nan)


def locationError(
    a: np.ndarray, b: np.ndarray, index: tuple[SupportsIndex, ...], names: Sequence[str], maxError: bool = False
) -> str:
    """One difference as a line of text."""
    place = tuple(int(each) for each in index)
    kind = "maximum error" if maxError else "error"
    return f"Location of {kind}: {place}, {names[0]}={a[index]:.8f}, {names[1]}={b[index]:.8f}"


def assert_almost_equal(
    a: ArrayLike,
    b: ArrayLike,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    names: Sequence[str] = ("a", "b"),
    equal_nan: bool = False,
    use_broadcast: bool = True,
    mismatches: tuple[int, int] = (10, 10),
) -> None:
    """Raise AssertionError, which lists the largest differences, if arrays differ by more than the tolerances.

    rtol, atol : numbers, or dtype -> number; by default from the dtypes of both
    names : what to call the arrays; mismatches : how many differences are listed (the second is ignored)
    """
    relative, absolute = get_tols(a, b, rtol, atol)
    first, second = host(a), host(b)
    if not use_broadcast:
        checkShapes(first, second)
    if first.dtype == second.dtype == np.bool_:
        np.testing.assert_equal(first, second)
    elif not almost_equal(first, second, relative, absolute, equal_nan):
        raise AssertionError(_differences(first, second, relative, absolute, names, equal_nan, mismatches[0]))


def assert_allclose(a: ArrayLike, b: ArrayLike, rtol: float = 1e-07, atol: float = 0, equal_nan: bool = True) -> None:
    """`assert_almost_equal` with the tolerances of numpy.testing.assert_allclose."""
    assert_almost_equal(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)


def assert_almost_equal_with_err(
    a: ArrayLike,
    b: ArrayLike,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    etol: float | None = None,
    names: Sequence[str] = ("a", "b"),
    equal_nan: bool = False,
    mismatches: tuple[int, int] = (10, 10),
) -> None:
    """`assert_almost_equal`, but a part `etol` of the elements may differ by any amount."""
    allowed = get_etol(etol)
    if not allowed > 0:
        assert_almost_equal(a, b, rtol, atol, names, equal_nan, mismatches=mismatches)
        return
    relative, absolute = get_tols(a, b, rtol, atol)
    first, second = host(a), host(b)
    close = np.isclose(first, second, rtol=relative, atol=absolute, equal_nan=equal_nan)
    if 1 - np.count_nonzero(close) / max(close.size, 1) > allowed:
        raise AssertionError(_differences(first, second, relative, absolute, names, equal_nan, mismatches[0]))


def assert_almost_equal_ignore_nan(
    a: ArrayLike,
    b: ArrayLike,
    rtol: Tolerance = None,
    atol: Tolerance = None,
    names: Sequence[str] = ("a", "b"),
) -> None:
    """`assert_almost_equal` of the elements that are NaN in neither array."""
    first, second = host(a), host(b)
    number = ~(np.isnan(first) | np.isnan(second))
    assert_almost_equal(np.where(number, first, 0), np.where(number, second, 0), rtol, atol, names)


def find_max_violation(a: np.ndarray, b: np.ndarray, rtol: float, atol: float) -> tuple[tuple[np.intp, ...], float]:
    """Where the difference is the largest multiple of its tolerance, and that multiple."""
    ratios = _ratios(a, b, rtol, atol)
    place = np.unravel_index(int(np.argmax(ratios)), ratios.shape)
    return place, float(ratios[place])


def _ratios(a: np.ndarray, b: np.ndarray, rtol: float, atol: float) -> np.ndarray:
    """The difference of every element as a multiple of its tolerance; NaN differs by an infinite multiple."""
    first, second = np.asarray(a, "float64"), np.asarray(b, "float64")
    with np.errstate(all="ignore"):
        difference = np.where(first == second, 0, np.abs(first - second))
        return np.nan_to_num(difference / (atol + rtol * np.abs(second) + 1e-20), nan=np.inf, posinf=np.inf)


def _differences(
    a: np.ndarray, b: np.ndarray, rtol: float, atol: float, names: Sequence[str], equal_nan: bool, count: int
) -> str:
    """The text of a failed comparison."""
    a, b = np.broadcast_arrays(a, b)
    close = np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)
    ratios = np.where(close, 0.0, _ratios(a, b, rtol, atol))
    wrong = int(close.size - np.count_nonzero(close))
    lines = [
        f"{wrong} of {close.size} elements ({100 * wrong / max(close.size, 1):.4g}%) of shape {a.shape} differ by more "
        f"than rtol={rtol:g}, atol={atol:g}; the largest difference is {ratios.max():g} times the tolerance"
    ]
    for flat in np.argsort(ratios, axis=None)[::-1][: min(count, wrong)]:
        place = np.unravel_index(flat, ratios.shape)
        lines.append(f"  {ratios[place]:g} times. {locationError(a, b, place, names)}")
    return "\n".join(lines)
