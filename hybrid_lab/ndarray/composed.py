"""Functions of `nd` that MXNet has in Python: split_v2, histogram, reset_arrays, contrib.boolean_mask ..."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, DTypeError, ShapeError
from hybrid_lab.ndarray.invoke import invoke
from hybrid_lab.ndarray.ndarray import NDArray
from hybrid_lab.ops.arrays.slicing import split_v2_operator
from hybrid_lab.ops.framework.operator import get
from hybrid_lab.ops.framework.shapes import axis_of
from hybrid_lab.ops.layers.norm import BatchNorm
from hybrid_lab.system.provided import Provided

refuse_numbers: Provided[[str, Sequence[object]], None] = Provided("refuse_numbers")
"""Raises where an input is a Symbol and the function reads numbers."""


def split_v2(ary: object, indices_or_sections: int | Sequence[int], axis: int = 0, squeeze_axis: bool = False) -> Any:
    """`ary` cut along `axis`, a list of arrays (one array if there is one part).

    indices_or_sections : a number of equal parts, or the places in front of which to cut: (2, 3) gives ary[:2],
    ary[2:3] and ary[3:]; squeeze_axis drops the axis if the parts are 1 thick
    """
    return invoke(split_v2_operator(indices_or_sections, axis, squeeze_axis), (ary,))


def histogram(a: Any, bins: Any = 10, range: tuple[float, float] | None = None) -> list[NDArray]:
    """Counts (int64) and edges. bins : their number, equal bins over `range` (default: from the smallest element to
    the largest), or an NDArray of rising edges. The last bin holds its upper edge too.
    """
    if isinstance(bins, NDArray):
        return invoke(get("_histogram").bind(), (a, bins))
    if range is None:
        refuse_numbers("nd.histogram", (a,))
        if not a.size:
            raise ShapeError("histogram: an empty array has no range; pass range=(low, high)")
        range = (float(a.min().asscalar()), float(a.max().asscalar()))
    return invoke(get("_histogram").bind(bin_cnt=int(bins), range=tuple(range)), (a,))


def reset_arrays(*data: Any, num_arrays: int | None = None) -> None:
    """Write zeros into all arrays. num_arrays, if given, is their number. Raises AttributeSpecError otherwise."""
    arrays = data[0] if len(data) == 1 and isinstance(data[0], (list, tuple)) else data
    if num_arrays is not None and num_arrays != len(arrays):
        raise AttributeSpecError(f"reset_arrays: num_arrays={num_arrays}; {len(arrays)} were given")
    for array in arrays:
        array[:] = 0


def getnnz(data: NDArray, axis: int | None = None, out: NDArray | None = None) -> NDArray:
    """How many values a csr array stores, int64: in all, (1,), or in each row for axis=1, (rows,).

    Raises DTypeError for another storage type, AttributeSpecError for another axis.
    """
    if getattr(data, "stype", None) != "csr":
        raise DTypeError(f"getnnz takes a csr array, not {getattr(data, 'stype', type(data).__name__)}")
    if axis not in (None, 1):
        raise AttributeSpecError(f"getnnz: axis={axis}; it is None or 1")
    starts = cast(Any, data).indptr.asnumpy()
    counts = NDArray.from_host(np.diff(starts) if axis == 1 else starts[-1:], data.context)
    return counts if out is None else counts.copyto(out)


def cast_storage(data: Any, stype: str, out: NDArray | None = None, name: str | None = None) -> Any:
    """A copy of an array in another storage type, as `data.tostype(stype)`. For a Symbol it is a copy."""
    if not isinstance(data, NDArray):
        return invoke(get("cast_storage").bind(stype=stype), (data,), out, name)
    copy = data.tostype(stype)
    return copy if out is None else copy.copyto(out)


custom_operator: Provided[..., Any] = Provided("custom_operator")


def Custom(*data: NDArray, op_type: str, **kwargs: Any) -> Any:
    """An operator written in Python, registered under the name `op_type`; see `mx.operator`."""
    return custom_operator(*data, op_type=op_type, **kwargs)


def sync_batch_norm(
    data: object,
    gamma: object,
    beta: object,
    moving_mean: object,
    moving_var: object,
    key: str = "",
    ndev: int = 1,
    **attributes: Any,
) -> Any:
    """BatchNorm whose statistics several devices would share. One process computes here, so that it is BatchNorm.

    key, ndev : accepted and ignored; attributes : of BatchNorm
    output_mean_var : also return the mean and the variance (BatchNorm gives 1 / sqrt(var + eps) in its place)
    """
    out, name = attributes.pop("out", None), attributes.pop("name", None)
    inputs, op = (data, gamma, beta, moving_mean, moving_var), BatchNorm.bind(**attributes)
    assert isinstance(op, BatchNorm)
    if not op.output_mean_var:
        return invoke(op, inputs, out, name)
    normalized, mean, rate = invoke(op, inputs, None, name)
    results = [normalized, mean, 1.0 / (rate * rate) - op.eps]
    if out is None:
        return results
    for target, result in zip(out, results, strict=True):
        target[:] = result
    return out


def rand_zipfian(true_classes: Any, num_sampled: int, range_max: int, ctx: object = None) -> tuple[Any, Any, Any]:
    """Classes drawn with the probability log((class + 2) / (class + 1)) / log(range_max + 1), close to the probability
    of words in a list sorted by frequency; for sampled softmax.

    true_classes : (n,), whole numbers; num_sampled : how many are drawn, with replacement; range_max : how many classes
    there are; ctx : as true_classes'
    returns : the classes, (num_sampled,), int64; the expected number of draws of each class of true_classes, and of
    each drawn class, float64
    """

    def apply(operator_name: str, *values: Any, **attributes: object) -> Any:
        return invoke(get(operator_name).bind(**attributes), values)

    return zipfian(apply, true_classes, num_sampled, range_max)


def zipfian(apply: Any, true_classes: Any, num_sampled: int, range_max: int) -> tuple[Any, Any, Any]:
    """`rand_zipfian` for arrays and for Symbols. apply : (operator's name, inputs ..., attributes) -> its output"""
    if range_max < 1 or num_sampled < 1:
        raise AttributeSpecError(
            f"rand_zipfian: num_sampled={num_sampled} and range_max={range_max} must be at least 1"
        )
    whole = float(np.log(range_max + 1))
    drawn = apply("random_uniform", low=0.0, high=whole, shape=(num_sampled,), dtype="float64")
    # rounded down, and for the last class down once more if exp gave range_max + 1
    classes = apply("Cast", apply("exp", drawn) - 1.0, dtype="int64") % range_max

    def expected(numbers: Any) -> Any:
        numbers = apply("Cast", numbers, dtype="float64")
        return apply("log", (numbers + 2.0) / (numbers + 1.0)) * (num_sampled / whole)

    return classes, expected(true_classes), expected(classes)


def boolean_mask(data: object, index: object, axis: int = 0) -> Any:
    """The entries of `data` along `axis` where `index`, a vector, is not 0. Eager: how many there are depends on
    numbers, so that a graph refuses it.
    """
    refuse_numbers("nd.contrib.boolean_mask", (data, index))
    if not isinstance(data, NDArray) or not isinstance(index, NDArray):
        raise DTypeError("boolean_mask: data and index must be NDArrays")
    if index.shape != (data.shape[axis_of("boolean_mask", axis, data.ndim)],):
        raise ShapeError(
            f"boolean_mask: index has shape {index.shape}, which does not match axis {axis} of data {data.shape}"
        )
    chosen = NDArray.from_host(np.flatnonzero(index._data), data.ctx)
    return invoke(get("take").bind(axis=axis), (data, chosen))
