"""Numbers of 8 bits with the range that they stand for: quantize, dequantize, requantize, calibrate_entropy.

A range is two arrays of one element, its ends; x is the larger of them without its sign. Numbers are multiplied by
steps / x, rounded to the nearest and cut off at the ends of the dtype, as MXNet does with oneDNN.
"""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError, ShapeError
from hybrid_lab.ops.framework import Operator, Signature, all_into, filled, into, ints, sample
from hybrid_lab.ops.framework.types import Array, Arrays, Outs, PartialShape, PartialShapes, Shape

OutType = Literal["auto", "int8", "uint8"]
_LOW, _HIGH = np.array([-1.5], "float32"), np.array([1.25], "float32")
#: Steps from 0 to the end of the range.
STEPS = {"int8": 127.5, "uint8": 255.5, "int32": float(2**31 - 1)}


def check_ranges(op: Operator, **ends: Shape) -> None:
    """Raise ShapeError unless the ends of ranges have one element each."""
    for name, shape in ends.items():
        if shape not in ((1,), ()):
            raise ShapeError(f"{op.name}: {name} has shape {shape}; one number is needed, (1,)")


def _narrow(number: np.ndarray | np.floating | float) -> np.ndarray | np.float32:
    """float32."""
    return number.astype(np.float32) if hasattr(number, "astype") else np.float32(number)


def largest(low: np.ndarray | np.floating | float, high: np.ndarray | np.floating | float) -> np.float32:
    """The largest number of a range without its sign."""
    return np.maximum(np.abs(_narrow(low)), np.abs(_narrow(high))).reshape(-1)[0]


def to_eight_bits(data: np.ndarray, reach: np.float32, steps: float, dtype: str) -> np.ndarray:
    """float32 as int8 or uint8, `steps` for `reach`."""
    info = np.iinfo(dtype)
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = np.rint(data * (np.float32(steps) / reach))
        return np.clip(np.nan_to_num(scaled), info.min, info.max).astype(dtype)


def symmetric(dtype: str, low: np.float32, high: np.float32) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the range that numbers of a dtype stand for, made from numbers between low and high."""
    ends = (low, high) if dtype == "uint8" else (-largest(low, high), largest(low, high))
    return np.reshape(_narrow(ends[0]), 1), np.reshape(_narrow(ends[1]), 1)


class _ToEightBits(Operator):
    """Base: an array in another dtype, and the ends of its range."""

    dtype_kinds = "iu"
    signature = Signature(outputs=3)

    @property
    def target(self) -> str:
        """The dtype of the result."""
        raise NotImplementedError

    def infer_type(self, *dtypes: np.dtype) -> list[np.dtype]:
        return [np.dtype(self.target), np.dtype("float32"), np.dtype("float32")]


class Quantize(_ToEightBits, name="_contrib_quantize"):
    """float32 as uint8 or int8. data : any shape; min_range, max_range : (1,); returns : as data, and two of (1,)."""

    out_type: Literal["int8", "uint8"] = "uint8"
    samples = [
        sample((3, 4), _LOW, _HIGH, gradient=False, low=-1.4, high=1.2),
        sample((3, 4), _LOW, _HIGH, gradient=False, out_type="int8"),
    ]

    @property
    def target(self) -> str:
        return self.out_type

    def complete(self, data: PartialShape, min_range: PartialShape, max_range: PartialShape) -> PartialShapes:
        return data, filled(min_range, (1,)), filled(max_range, (1,))

    def infer_shape(self, data: Shape, min_range: Shape, max_range: Shape) -> list[Shape]:
        check_ranges(self, min_range=min_range, max_range=max_range)
        return [data, (1,), (1,)]

    def infer_type(self, *dtypes: np.dtype) -> list[np.dtype]:
        if any(dtype != np.float32 for dtype in dtypes):
            raise DTypeError(f"{self.name}: the inputs must be float32, they are {', '.join(map(str, dtypes))}")
        return super().infer_type(*dtypes)

    def numpy(self, data: Array, min_range: Array, max_range: Array, out: Outs = None) -> Array | Arrays:
        low, high = min_range.reshape(-1)[0], max_range.reshape(-1)[0]
        made = to_eight_bits(data, largest(low, high), STEPS[self.target] - 0.5, self.target)  # a step less than later
        return all_into([made, *symmetric(self.target, low, high)], out)


class QuantizeV2(_ToEightBits, name="_contrib_quantize_v2"):
    """float32 as int8 or uint8, in the given range or the range of the data; 8-bit inputs are copied.

    out_type : 'auto' is uint8 if min_calib_range is 0 or more, else int8
    data : any shape; returns : as data, and the ends of the range, (1,) each
    """

    out_type: OutType = "int8"
    min_calib_range: float | None = None
    max_calib_range: float | None = None
    samples = [
        sample((3, 4), gradient=False),
        sample((3, 4), gradient=False, out_type="uint8"),
        sample((3, 4), gradient=False, out_type="auto", min_calib_range=0.0, max_calib_range=1.5, low=0.1),
        sample((3, 4), gradient=False, out_type="auto", min_calib_range=-0.5, max_calib_range=0.75),
        sample(ints((3, 4), -9, 9, "int8"), gradient=False),
    ]

    @cached_property
    def calibrated(self) -> bool:
        """Whether the range is given."""
        return self.min_calib_range is not None and self.max_calib_range is not None

    @property
    def target(self) -> str:
        if self.out_type != "auto":
            return self.out_type
        return "uint8" if self.calibrated and (self.min_calib_range or 0.0) >= 0 else "int8"

    def infer_shape(self, data: Shape) -> list[Shape]:
        if 0 in data and not self.calibrated:
            raise ShapeError(f"{self.name}: data {data} is empty: it has no range")
        return [data, (1,), (1,)]

    def infer_type(self, *dtypes: np.dtype) -> list[np.dtype]:
        if dtypes[0] != np.float32 and dtypes[0] != self.target:
            raise DTypeError(f"{self.name}: data must be float32 or {self.target}, it is {dtypes[0]}")
        return super().infer_type(*dtypes)

    def numpy(self, data: Array, out: Outs = None) -> Array | Arrays:
        if self.calibrated:
            low, high = np.float32(self.min_calib_range or 0.0), np.float32(self.max_calib_range or 0.0)
        elif data.dtype == np.float32:
            low, high = data.min(), data.max()
        else:
            high = np.float32(STEPS[data.dtype.name])
            low = np.float32(0) if data.dtype == np.uint8 else -high
        if data.dtype != np.float32:
            return all_into([data.copy(), np.array([low]), np.array([high])], out)
        made = to_eight_bits(data, largest(low, high), STEPS[self.target], self.target)
        return all_into([made, *symmetric(self.target, low, high)], out)


class Dequantize(Operator, name="_contrib_dequantize"):
    """What numbers of 8 or 32 bits stand for. data : int8, uint8 or int32; min_range, max_range : (1,)
    returns : as data, float32
    """

    arrays_only = ("data",)
    out_type: Literal["float32"] = "float32"
    samples = [
        sample(ints((3, 4), -120, 120, "int8"), _LOW, _HIGH, gradient=False),
        sample(ints((3, 4), 0, 240, "uint8"), _LOW, _HIGH, gradient=False),
    ]

    def complete(self, data: PartialShape, min_range: PartialShape, max_range: PartialShape) -> PartialShapes:
        return data, filled(min_range, (1,)), filled(max_range, (1,))

    def infer_shape(self, data: Shape, min_range: Shape, max_range: Shape) -> Shape:
        check_ranges(self, min_range=min_range, max_range=max_range)
        return data

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        if dtypes[0].name not in STEPS or any(dtype != np.float32 for dtype in dtypes[1:]):
            raise DTypeError(f"{self.name}: data must be int8, uint8 or int32, it is {dtypes[0]}; the range float32")
        return np.dtype("float32")

    def numpy(self, data: Array, min_range: Array, max_range: Array, out: Array | None = None) -> Array:
        return into(data * (largest(min_range, max_range) / np.float32(STEPS[data.dtype.name])), out, np.float32)


class Requantize(_ToEightBits, name="_contrib_requantize"):
    """int32 as int8, in the range between min_calib_range and max_calib_range or in the range of the data.

    data : int32, any shape; min_range, max_range : (1,), of data
    returns : as data, and the ends of the range, (1,) each
    """

    out_type: OutType = "int8"
    min_calib_range: float | None = None
    max_calib_range: float | None = None
    samples = [
        sample(ints((3, 4), -(2**30), 2**30, "int32"), _LOW, _HIGH, gradient=False),
        sample(
            ints((3, 4), -(2**30), 2**30, "int32"), _LOW, _HIGH, gradient=False, min_calib_range=-0.4,
            max_calib_range=0.5,
        ),
    ]  # fmt: skip

    @property
    def calibrated(self) -> bool:
        """Whether the range is given."""
        return self.min_calib_range is not None and self.max_calib_range is not None

    @property
    def target(self) -> str:
        """The dtype of the result: 'auto' is uint8 for a given range that starts at 0 or above."""
        if self.out_type == "auto":
            return "uint8" if self.calibrated and (self.min_calib_range or 0.0) >= 0 else "int8"
        return self.out_type

    def complete(self, data: PartialShape, min_range: PartialShape, max_range: PartialShape) -> PartialShapes:
        return data, filled(min_range, (1,)), filled(max_range, (1,))

    def infer_shape(self, data: Shape, min_range: Shape, max_range: Shape) -> list[Shape]:
        check_ranges(self, min_range=min_range, max_range=max_range)
        if 0 in data:
            raise ShapeError(f"{self.name}: data {data} is empty: it has no range")
        return [data, (1,), (1,)]

    def infer_type(self, *dtypes: np.dtype) -> list[np.dtype]:
        if dtypes[0] != np.int32 or any(dtype != np.float32 for dtype in dtypes[1:]):
            raise DTypeError(f"{self.name}: data must be int32, it is {dtypes[0]}; the range float32")
        return super().infer_type(*dtypes)

    def numpy(self, data: Array, min_range: Array, max_range: Array, out: Outs = None) -> Array | Arrays:
        step = largest(min_range, max_range) / np.float32(STEPS["int32"])
        values = data.astype(np.float32) * step
        if self.min_calib_range is None or self.max_calib_range is None:
            reach = largest(_narrow(data.min()) * step, _narrow(data.max()) * step)
        else:
            reach = largest(self.min_calib_range, self.max_calib_range)
        target = self.target
        eight = to_eight_bits(values, reach, STEPS[target] - 0.5, target)
        low = -reach if target == "int8" else reach * 0
        return all_into([eight, *symmetric(target, low, reach)], out)


def _smoothed(counts: np.ndarray) -> np.ndarray | None:
    """A histogram as a distribution without zeros; None if nothing is in it."""
    zeros = counts == 0
    if zeros.all():
        return None
    epsilon = 1e-4
    share = epsilon * zeros.sum() / (~zeros).sum()
    if share >= 1:
        return None
    result: np.ndarray = counts.astype(np.float64) + epsilon * zeros - share * ~zeros
    return result


def _divergence(counts: np.ndarray, first: int, stop: int, levels: int) -> float:
    """The information lost if a histogram is cut to bins first to stop and reduced to `levels` levels (Kullback-Leibler
    divergence).
    """
    inner = counts[first:stop].copy()
    clipped = inner.astype(np.float64)
    inner[0] = 0  # as in MXNet, whose first bin only takes the counts cut off
    clipped[0] += counts[:first].sum()
    clipped[-1] += counts[stop:].sum()
    merged = len(inner) // levels
    edges = np.minimum(np.arange(len(inner)) // max(merged, 1), levels - 1)
    totals, used = np.bincount(edges, inner, levels), np.bincount(edges, inner != 0, levels)
    spread = np.where(clipped != 0, totals[edges] / np.maximum(used[edges], 1), 0)
    p, q = _smoothed(clipped), _smoothed(spread)
    if p is None or q is None:
        return np.inf
    p, q = p / p.sum(), q / q.sum()
    return float((p * np.log(p / q)).sum())


class CalibrateEntropy(Operator, name="_contrib_calibrate_entropy"):
    """The threshold at which a histogram of an odd number of bins around 0 is best cut before it is quantized.

    hist : (bins,); hist_edges : (bins + 1,); num_quantized_bins : levels that are left
    returns : the threshold and the divergence of the cut histogram, (1,) each
    """

    dtype_kinds = "f"
    num_quantized_bins: int = 255
    signature = Signature(outputs=2)
    samples = [
        sample(
            np.array([0, 1, 2, 5, 9, 30, 42, 33, 12, 4, 1, 0, 1], "float32"),
            np.linspace(-2, 2, 14).astype("float32"), num_quantized_bins=5, gradient=False,
        )
    ]  # fmt: skip

    def infer_shape(self, hist: Shape, hist_edges: Shape) -> list[Shape]:
        bins = hist[0] if len(hist) == 1 else 0
        if bins % 2 == 0 or hist_edges != (bins + 1,) or bins < self.num_quantized_bins:
            raise ShapeError(
                f"calibrate_entropy: hist {hist} must have an odd number of bins, at least {self.num_quantized_bins}, "
                f"and hist_edges {hist_edges} one more"
            )
        return [(1,), (1,)]

    def infer_type(self, *dtypes: np.dtype) -> list[np.dtype]:
        return [np.dtype("float32")] * 2

    def numpy(self, hist: Array, hist_edges: Array, out: Outs = None) -> Array | Arrays:
        middle, half = len(hist) // 2, self.num_quantized_bins // 2
        found = [
            (
                _divergence(hist, middle - reach, middle + reach + 1, self.num_quantized_bins),
                hist_edges[middle + reach + 1],
            )
            for reach in range(half, middle + 1)
        ]
        divergence, threshold = min(found, key=lambda item: item[0])
        return all_into([np.reshape(_narrow(threshold), 1), np.array([divergence], np.float32)], out)
