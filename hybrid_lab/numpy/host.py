"""Functions of `mx.np` that read the numbers of arrays and run in NumPy: results whose shape depends on the numbers,
and rarely used functions. They have no gradient, and are not in graphs: hybridized Blocks that call one run eagerly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import (
    AttributeSpecError,
    AutogradError,
    ShapeError,
)
from hybrid_lab.ndarray import tape
from hybrid_lab.ndarray.context import CPU
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.numpy.array import ndarray
from hybrid_lab.numpy.methods import FUNCTIONS
from hybrid_lab.numpy.operators import R, as_tensor, cast, dtype_of, shape_of, write
from hybrid_lab.numpy.types import ArrayLike, Function, Tensor
from hybrid_lab.ops.framework.dtypes import DTYPES
from hybrid_lab.symbol import nd_calls
from hybrid_lab.system.provided import signed_like

READING = (
    *("argwhere", "flatnonzero", "extract", "compress", "trim_zeros", "in1d", "isin", "union1d"),
    *("intersect1d", "setdiff1d", "setxor1d", "searchsorted", "digitize", "bincount", "argpartition", "packbits"),
    *("unpackbits", "lexsort", "ix_", "tril_indices_from", "triu_indices_from", "diag_indices_from", "nanargmax"),
    *("nanargmin", "signbit", "shares_memory", "may_share_memory", "histogram_bin_edges", "histogram2d"),
    *("histogramdd", "unravel_index", "piecewise", "select", "choose", "apply_along_axis", "apply_over_axes"),
    *("partition", "median", "percentile", "quantile", "nanmedian", "nanpercentile", "nanquantile", "nanmax"),
    *("nanmin", "nancumsum", "nancumprod", "nanmean", "nanstd", "nanvar", "cov", "corrcoef", "correlate"),
    *("convolve", "interp", "i0", "sinc", "spacing", "frexp", "modf", "float_power", "heaviside", "unwrap"),
    *("trapezoid", "gradient", "poly", "polyadd", "polydiv", "polyfit", "polyint", "polyder", "polymul", "polysub"),
    *("roots", "vander", "resize", "bitwise_left_shift", "bitwise_right_shift", "left_shift", "right_shift"),
    *("array_equal", "array_equiv", "allclose", "isclose", "divmod", "gcd", "lcm", "cumprod", "ptp", "fmod"),
    *("fmax", "fmin", "nextafter", "logaddexp", "logaddexp2", "exp2", "positive", "real", "imag", "mask_indices"),
    *("put_along_axis", "take_along_axis"),
)

"""Functions of NumPy that run as they are."""


def to_host(item: Any) -> Any:
    """Arrays, also in lists, tuples and dicts, as NumPy arrays."""
    if isinstance(item, NDArray):
        return item._data
    if isinstance(item, (list, tuple)) and not hasattr(item, "_fields"):
        return type(item)(to_host(part) for part in item)
    if isinstance(item, dict):
        return {key: to_host(part) for key, part in item.items()}
    return item


def numbers_of(function: str, *arguments: Any) -> tuple[Any, ...]:
    """`to_host` of arguments of `np.<function>`. Raises HybridizeError HL133 if one is part of a graph."""
    nd_calls.refuse_numbers(f"np.{function}", arrays_in(arguments))
    return tuple(map(to_host, arguments))


def to_arrays(item: Any, narrow: bool = True) -> Any:
    """NumPy arrays as `mx.np` arrays; narrow : float64, which NumPy computed from numbers of float32, as float32"""
    if isinstance(item, (np.ndarray, np.generic)):
        values = np.array(item, order="C")
        if narrow and values.dtype == np.float64:
            values = values.astype(np.float32)
        if values.dtype.name not in DTYPES:
            wider = {"u": np.int64, "i": np.int64, "c": None}.get(values.dtype.kind)
            if wider is None:
                return item
            values = values.astype(wider)
        return ndarray.from_host(values, CPU)
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return tuple(to_arrays(part, narrow) for part in item)
    if isinstance(item, (list, tuple)):
        return type(item)(to_arrays(part, narrow) for part in item)
    return item


def arrays_in(item: Any) -> list[Any]:
    """All arrays and Symbols in lists, tuples and dicts."""
    if isinstance(item, NDArray) or getattr(item, "_is_symbol", False):
        return [item]
    if isinstance(item, dict):
        item = tuple(item.values())
    if isinstance(item, (list, tuple)):
        return [found for part in item for found in arrays_in(part)]
    return []


def run_on_host(name: str, function: Callable[..., object], args: Sequence[object], keywords: dict[str, Any]) -> Any:
    """NumPy's function on the numbers of the arrays. Raises AutogradError if a gradient would be lost."""
    found = arrays_in((args, keywords))
    nd_calls.refuse_numbers(f"np.{name}", found)
    out = keywords.pop("out", None)
    result = function(*to_host(tuple(args)), **to_host(keywords))
    narrow = not any(item.host_view.dtype == np.float64 for item in found)
    if tape.state.recording and any(tape.link(item) is not None for item in found) and _has_fractions(result):
        raise AutogradError(
            f"np.{name} runs in NumPy and has no gradient; call it outside of autograd.record(), or on x.detach()"
        )
    return write(out, to_arrays(result, narrow))


def _has_fractions(result: object) -> bool:
    if isinstance(result, (list, tuple)):
        return any(_has_fractions(part) for part in result)
    return isinstance(result, (np.ndarray, np.floating)) and result.dtype.kind == "f"


def on_host(name: str, function: Callable[..., object]) -> Function:
    """The function of `mx.np` that runs a function of NumPy."""

    def run(*args: object, **keywords: object) -> Any:
        return run_on_host(name, function, args, keywords)

    run.__name__ = run.__qualname__ = name.rpartition(".")[2]
    run.__doc__ = f"`numpy.{name}` on the numbers of arrays, without a gradient and not in graphs."
    has_signature = not isinstance(function, np.ufunc) or hasattr(function, "__signature__")
    return signed_like(function)(run) if has_signature else run


def _quantile(name: str) -> Callable[..., object]:
    """NumPy's function of quantiles, which takes `interpolation`, as MXNet and older NumPy call `method`. It raises
    ShapeError for an array without elements.
    """
    function: Callable[..., object] = getattr(np, name)

    def run(*args: Any, interpolation: str | None = None, **keywords: Any) -> object:
        if interpolation is not None:
            keywords["method"] = interpolation
        try:
            return function(*args, **keywords)
        except np.exceptions.AxisError:
            raise
        except IndexError:  # NumPy chooses from no element
            shape = np.shape(args[0] if args else keywords["a"])
            raise ShapeError(f"np.{name}: the array has shape {shape} and no elements") from None

    return run


for _name in READING:
    _function = getattr(np, _name, None)
    if _function is not None:
        FUNCTIONS[_name] = on_host(_name, _function)


if "in1d" not in FUNCTIONS:
    FUNCTIONS["in1d"] = on_host("in1d", lambda ar1, ar2, **options: np.isin(ar1, ar2, **options).reshape(-1))
for _name in ("quantile", "percentile", "nanquantile", "nanpercentile"):
    FUNCTIONS[_name] = on_host(_name, _quantile(_name))
FUNCTIONS["trapz"] = on_host("trapz", np.trapezoid)
FUNCTIONS["msort"] = on_host("msort", lambda a: np.sort(a, axis=0))


@FUNCTIONS.add
def nonzero(a: ArrayLike) -> tuple[Tensor, ...]:
    """The places of the elements that are not 0: one array of int64 for each axis; not in graphs. An array of shape ()
    counts as one with an axis.
    """
    made = run_on_host("nonzero", lambda values: np.nonzero(np.atleast_1d(values)), (as_tensor(a),), {})
    return tuple(made)


@FUNCTIONS.add
def unique(
    ar: ArrayLike, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
    axis: int | None = None,
) -> Tensor | tuple[Tensor, ...]:  # fmt: skip
    """The different elements, sorted; with their first places, the way back, and how often each occurs if asked for."""
    options = {"return_index": return_index, "return_inverse": return_inverse, "return_counts": return_counts}
    return run_on_host("unique", np.unique, (as_tensor(ar),), {**options, "axis": axis})


@FUNCTIONS.add
def histogram(
    a: ArrayLike,
    bins: ArrayLike = 10,
    range: tuple[float, float] | None = None,
    normed: bool | None = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """Counts (int64) and edges of bins."""
    if normed or weights is not None or density:
        raise AttributeSpecError("np.histogram: normed, weights and density are not supported")
    counts, edges = run_on_host("histogram", np.histogram, (a, bins), {"range": range})
    return counts, edges


@FUNCTIONS.add
def sort(a: ArrayLike, axis: int | None = -1, kind: str | None = None, order: str | None = None) -> Tensor:
    """The elements in rising order along an axis; flattened with axis=None."""
    a = as_tensor(a)
    if axis is None:
        a, axis = R._np_reshape(a, newshape=(-1,)), 0
    return R.sort(a, axis=axis)


@FUNCTIONS.add
def argsort(a: ArrayLike, axis: int | None = -1, kind: str | None = None, order: str | None = None) -> Tensor:
    """The places of the elements in rising order, int64."""
    a = as_tensor(a)
    if axis is None:
        a, axis = R._np_reshape(a, newshape=(-1,)), 0
    return R.argsort(a, axis=axis, dtype="int64")


@FUNCTIONS.add
def isnat(x: ArrayLike) -> Tensor:
    """No element is a date: all False."""
    return cast(R.zeros_like(as_tensor(x)), "bool")


@FUNCTIONS.add
def _host_bits(name: str, x1: ArrayLike, x2: ArrayLike, dtype: np.dtype) -> Tensor:
    """The operators & | ^ of whole numbers."""
    if dtype.kind == "f":
        raise TypeError(f"{name} takes whole numbers and bools")
    made = run_on_host(name, getattr(np, name), (x1, x2), {})
    return made if dtype_of(made) == dtype else cast(made, dtype)


@FUNCTIONS.add
def polyval(p: ArrayLike, x: ArrayLike) -> Tensor:
    """The polynomial with the coefficients p, the highest power first, at x."""
    p, x = as_tensor(p), as_tensor(x)
    shape = shape_of(p)
    if len(shape) != 1:
        raise ValueError("np.polyval: p must be a vector")
    result = R.zeros_like(x)
    for index in range(shape[0]):
        result = R.broadcast_add(R.broadcast_mul(result, x), p[index])
    return result


def shape(a: Any) -> tuple[int, ...]:
    """The sizes along the axes."""
    return tuple(a.shape) if hasattr(a, "shape") else np.shape(a)


def ndim(a: ArrayLike) -> int:
    """The number of axes."""
    return len(shape(a))


def size(a: ArrayLike, axis: int | None = None) -> int:
    """The number of elements, or the size along an axis."""
    sizes = shape(a)
    return int(np.prod(sizes)) if axis is None else sizes[axis]


def result_type(*items: ArrayLike) -> np.dtype:
    """The dtype of a result of these arrays."""
    return np.result_type(*to_host(items))


FUNCTIONS.update(shape=shape, ndim=ndim, size=size, result_type=result_type)
