"""Layers in 8 bits: Convolution with BatchNorm, a sum and ReLU in one operator, and Pooling.

MXNet makes them of trained networks for oneDNN. Numbers of 8 bits come with the ends of the range that they stand for,
as quantize_v2 gives them. The arithmetic is oneDNN's: products of whole numbers are added up exactly, and what follows
is float32, rounded to the nearest whole number at the end. So results equal MXNet's bit for bit on processors with
VNNI. On others oneDNN adds up pairs of products in 16 bits, which overflow, and halves the weights for int8 data.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, DTypeError, ShapeError
from hybrid_lab.ops.elementwise.quantize import STEPS, check_ranges, largest
from hybrid_lab.ops.framework import Signature, all_into, filled, ints, sample
from hybrid_lab.ops.framework.protocols import Scratch
from hybrid_lab.ops.framework.types import Array, Arrays, Outs, PartialShape, PartialShapes, Shape
from hybrid_lab.ops.kernels import convolution
from hybrid_lab.ops.layers.conv import Convolving
from hybrid_lab.ops.layers.pool import Pooled, Pooling

#: The largest bias that oneDNN adds up without an overflow.
_MOST_BIAS = np.float32(2**31) / np.float32(2)


def scale_of(
    dtype: np.dtype | str, low: np.ndarray | np.floating | float, high: np.ndarray | np.floating | float
) -> np.float32:
    """The number by which numbers are multiplied before they are rounded to a dtype of 8 bits."""
    with np.errstate(divide="ignore"):
        return (np.float32(STEPS[np.dtype(dtype).name]) / largest(low, high)).astype(np.float32)


def rounded(values: np.ndarray, dtype: np.dtype | str) -> np.ndarray:
    """float32 as whole numbers of a dtype: rounded to the nearest even one, cut off at the ends of the dtype."""
    info = np.iinfo(dtype)
    return np.clip(np.nan_to_num(np.rint(values)), info.min, info.max).astype(dtype)


def folded(named: Mapping[str, Array], eps: float, fix_gamma: bool) -> tuple[np.ndarray, np.ndarray]:
    """Weight and bias, in float32, of one convolution that equals a convolution and the BatchNorm behind it."""
    weight = named["weight"]
    gamma = np.ones_like(named["gamma"]) if fix_gamma else named["gamma"]
    scale = (gamma / np.sqrt(named["var"].astype(np.float64) + eps)).astype(np.float32)
    mean = named["bias"] - named["mean"] if "bias" in named else -named["mean"]
    return weight * scale.reshape(-1, *(1,) * (weight.ndim - 1)), named["beta"] + scale * mean


def weight_scales(weight: np.ndarray, bias: np.ndarray | None, data_scale: np.float32) -> np.ndarray:
    """The scale of the weights of each output channel: its largest weight is the largest number of int8.

    It is smaller for a bias that would not fit int32.
    """
    with np.errstate(divide="ignore"):
        scales = np.float32(STEPS["int8"]) / np.abs(weight.reshape(len(weight), -1)).max(axis=1)
        if bias is not None:
            scales = np.minimum(scales, np.where(bias != 0, _MOST_BIAS / np.abs(bias) / data_scale, np.inf))
    return scales.astype(np.float32)


class QuantizedConvolution(Convolving, name="_sg_mkldnn_conv"):
    """Convolution of numbers of 8 bits, then BatchNorm as it predicts, ReLU, a sum with another array, ReLU.

    data : uint8 or int8, (n, c, *spatial); weight, bias, gamma, beta, mean, var : float32, as of Convolution and
    BatchNorm; sum : uint8 or int8, as the result; data_min, data_max, sum_min, sum_max : (1,)
    with_bn, with_act, with_sum, with_postsum_act : which parts there are
    min_calib_range, max_calib_range : the range of the result; a result with a sum is also cut off at the ends of the
    dtype of sum, as in MXNet
    returns : (n, num_filter, *output), uint8 behind a ReLU, else int8; and the ends of its range, (1,) each
    """

    arrays_only = ("args",)
    dtype_kinds = "iu"
    with_bn: bool = False
    eps: float = 1e-3
    fix_gamma: bool = True
    with_act: bool = False
    with_sum: bool = False
    with_postsum_act: bool = False
    min_calib_range: float
    max_calib_range: float
    samples = [
        sample(
            ints((2, 3, 7, 6), 0, 127, "uint8"), (4, 3, 3, 3), (4,), np.array([0.0], "float32"),
            np.array([1.5], "float32"), kernel=(3, 3), num_filter=4, min_calib_range=-2.0, max_calib_range=2.5,
            gradient=False,
        ),
        sample(
            ints((1, 4, 5, 5), 0, 255, "uint8"), (4, 1, 3, 3), (4,), (4,), (4,),
            np.array([0.7, 1.3, 0.9, 1.1], "float32"), np.array([0.0], "float32"), np.array([1.5], "float32"),
            kernel=(3, 3), pad=(1, 1), num_filter=4, num_group=4, no_bias=True, with_bn=True, fix_gamma=False,
            with_act=True, min_calib_range=0.0, max_calib_range=1.0, gradient=False,
        ),
        *(
            sample(
                ints((1, 4, 5, 5), 0, 127, "uint8"), (3, 4, 1, 1), ints((1, 3, 3, 3), 0, 127, dtype),
                np.array([0.0], "float32"), np.array([1.5], "float32"), np.array([0.0], "float32"),
                np.array([2.5], "float32"), kernel=(1, 1), stride=(2, 2), num_filter=3, no_bias=True, with_sum=True,
                with_postsum_act=True, min_calib_range=0.0, max_calib_range=1.0, gradient=False,
            )
            for dtype in ("uint8", "int8")
        ),
        sample(
            ints((1, 3, 5, 5), -128, 127, "int8"), (4, 3, 3, 3), np.array([-1.0], "float32"),
            np.array([1.5], "float32"), kernel=(3, 3), num_filter=4, no_bias=True, min_calib_range=-1.0,
            max_calib_range=2.0, gradient=False,
        ),
    ]  # fmt: skip

    @cached_property
    def signature(self) -> Signature:
        names = ["data", "weight", *([] if self.no_bias else ["bias"])]
        names += ["gamma", "beta", "mean", "var"] if self.with_bn else []
        names += ["sum"] if self.with_sum else []
        names += ["data_min", "data_max"]
        names += ["sum_min", "sum_max"] if self.with_sum else []
        return Signature(tuple(names), 3, aux=("mean", "var") if self.with_bn else ())

    def check(self) -> None:
        super().check()
        if self.with_act and self.with_sum:
            raise AttributeSpecError(f"{self.name}: with_sum needs its ReLU behind the sum: with_postsum_act")

    @property
    def target(self) -> np.dtype:
        """The dtype of the result."""
        return np.dtype("uint8" if self.with_act or self.with_postsum_act else "int8")

    def complete(self, *shapes: PartialShape) -> PartialShapes:
        named = dict(zip(self.signature.inputs, shapes, strict=True))
        data = named["data"]
        wanted: dict[str, tuple[int | None, ...]] = {name: (1,) for name in named if name.endswith(("_min", "_max"))}
        wanted |= dict.fromkeys(("bias", "gamma", "beta", "mean", "var"), (self.num_filter,))
        wanted["weight"] = self.weight_shape(data[1] if data is not None and len(data) > 1 else None)
        if data is not None and None not in data:
            wanted["sum"] = self.output_shape(tuple(size for size in data if size is not None))
        return tuple(
            filled(shape, wanted[name]) if name in wanted and None not in wanted[name] else shape or wanted.get(name)
            for name, shape in named.items()
        )

    def infer_shape(self, *shapes: Shape) -> list[Shape]:
        if len(shapes) != len(self.signature.inputs):
            wanted = ", ".join(self.signature.inputs)
            raise ShapeError(f"{self.name}: {len(shapes)} inputs are given; the attributes need {wanted}")
        named = dict(zip(self.signature.inputs, shapes, strict=True))
        output = self.output_shape(named["data"])
        self.check_parameters(named["data"], named["weight"], named.get("bias"))
        for name in ("gamma", "beta", "mean", "var"):
            if named.get(name, (self.num_filter,)) != (self.num_filter,):
                raise ShapeError(f"{self.name}: {name} has shape {named[name]}; it needs {(self.num_filter,)}")
        if named.get("sum", output) != output:
            raise ShapeError(f"{self.name}: sum has shape {named['sum']}; it needs that of the result, {output}")
        check_ranges(self, **{name: shape for name, shape in named.items() if name.endswith(("_min", "_max"))})
        return [output, (1,), (1,)]

    def infer_type(self, *dtypes: np.dtype) -> list[np.dtype]:
        for name, dtype in zip(self.signature.inputs, dtypes, strict=True):
            allowed = ("int8", "uint8") if name in ("data", "sum") else ("float32",)
            if dtype.name not in allowed:
                raise DTypeError(f"{self.name}: {name} must be {' or '.join(allowed)}, it is {dtype}")
        return [self.target, np.dtype("float32"), np.dtype("float32")]

    def sums(self, data: Array, weight: Array, scratch: Scratch) -> Array:
        """The exact sums of products of the data and of the scaled weights, which are rounded to int8."""
        whole = rounded(weight, "int8").astype(np.float64)
        if type(data) is not np.ndarray:
            return self._sums_on_device(data.astype(np.float64), whole)
        exact = np.empty(self.output_shape(data.shape), np.float64)  # whole numbers below 2^53
        convolution.forward(data.astype(np.float64), whole, None, self.geometry, exact, scratch)
        return exact

    def _sums_on_device(self, data: Array, weight: Array) -> Array:
        """The sums by NumPy's functions alone, which a device has; one place of the kernel after the other."""
        geometry, output = self.geometry, self.output_shape(data.shape)[2:]
        groups, count = geometry.groups, len(data)
        padded = np.pad(data, ((0, 0), (0, 0), *((size, size) for size in geometry.pad)))
        matrix = weight.reshape(groups, len(weight) // groups, weight.shape[1], -1)
        total = np.zeros((count, groups, len(weight) // groups, prod(output)), np.float64, like=data)
        for number, place in enumerate(np.ndindex(*geometry.kernel)):
            starts = [at * wide for at, wide in zip(place, geometry.dilate, strict=True)]
            cut = [
                slice(start, start + (size - 1) * step + 1, step)
                for start, size, step in zip(starts, output, geometry.stride, strict=True)
            ]
            pixels = padded[(slice(None), slice(None), *cut)].reshape(count, groups, weight.shape[1], prod(output))
            total += np.matmul(matrix[..., number], pixels)
        return total.reshape(count, len(weight), *output)

    def numpy(self, *inputs: Array, out: Outs = None, scratch: Scratch = np.empty) -> Array | Arrays:
        named = dict(zip(self.signature.inputs, inputs, strict=True))
        data, weight, bias = named["data"], named["weight"], named.get("bias")
        if self.with_bn:
            weight, bias = folded(named, self.eps, self.fix_gamma)
        low, high = np.float32(self.min_calib_range), np.float32(self.max_calib_range)
        result_scale = scale_of(self.target, low, high)
        data_scale = scale_of(data.dtype, named["data_min"], named["data_max"])
        scales = weight_scales(weight, bias, data_scale)
        per_channel = scales.reshape(-1, *(1,) * (data.ndim - 2))
        values = self.sums(data, weight * per_channel[..., None], scratch).astype(np.float32)
        if bias is not None:
            values += np.rint(bias * (scales * data_scale)).reshape(per_channel.shape)
        values *= result_scale / data_scale / per_channel
        if self.with_sum:
            sum_scale = result_scale / scale_of(named["sum"].dtype, named["sum_min"], named["sum_max"])
            values = (values + named["sum"] * np.float64(sum_scale)).astype(np.float32)
        if self.with_act or self.with_postsum_act:
            values = np.maximum(values, 0)
        # A sum lies in the memory of the result, so oneDNN rounds to the dtype of the sum.
        made = rounded(values, named["sum"].dtype if self.with_sum else self.target).view(self.target)
        return all_into([made, np.array([low]), np.array([high])], out)


class QuantizedPooling(Pooled, name="_contrib_quantized_pooling"):
    """The maximum or mean of numbers of 8 bits over windows; see Pooling.

    data : uint8 or int8, (n, c, *spatial); min_data, max_data : (1,); returns : (n, c, *output), and the same range
    """

    dtype_kinds = "iu"
    signature = Signature(outputs=3)
    samples = [
        sample(
            ints((2, 3, 7, 6), 0, 255, "uint8"), np.array([0.0], "float32"), np.array([1.5], "float32"),
            kernel=(3, 3), stride=(2, 2), pad=(1, 1), gradient=False,
        ),
        sample(
            ints((2, 3, 6, 4), -128, 127, "int8"), np.array([-1.0], "float32"), np.array([1.5], "float32"),
            kernel=(2, 2), stride=(2, 2), pool_type="avg", gradient=False,
        ),
        sample(
            ints((2, 3, 6, 5), 0, 255, "uint8"), np.array([0.0], "float32"), np.array([1.5], "float32"),
            kernel=(1, 1), pool_type="avg", global_pool=True, gradient=False,
        ),
    ]  # fmt: skip

    def check(self) -> None:
        super().check()
        if self.pool_type not in ("max", "avg"):
            raise AttributeSpecError(f"{self.name}: pool_type={self.pool_type!r} is not supported; use 'max' or 'avg'")

    def complete(self, data: PartialShape, min_data: PartialShape, max_data: PartialShape) -> PartialShapes:
        return data, filled(min_data, (1,)), filled(max_data, (1,))

    def infer_shape(self, data: Shape, min_data: Shape, max_data: Shape) -> list[Shape]:
        check_ranges(self, min_data=min_data, max_data=max_data)
        return [Pooling.bind(**self.attributes).infer_shape(data), (1,), (1,)]

    def infer_type(self, *dtypes: np.dtype) -> list[np.dtype]:
        if dtypes[0].name not in ("int8", "uint8") or any(dtype != np.float32 for dtype in dtypes[1:]):
            raise DTypeError(f"{self.name}: data must be int8 or uint8, it is {dtypes[0]}; the range float32")
        return list(dtypes)

    def numpy(
        self, data: Array, min_data: Array, max_data: Array, out: Outs = None, scratch: Scratch = np.empty
    ) -> Array | Arrays:
        if self.pool_type == "max":
            pooling: Any = Pooling.bind(**self.attributes)
            pooled = pooling.numpy(data, scratch=scratch)
        else:
            total: Any = Pooling.bind(**{**self.attributes, "pool_type": "sum"})
            sums = total.numpy(data.astype(np.float32), scratch=scratch)
            count = self.divisor(self.windows(data.shape[2:]), np.dtype("float32"))
            pooled = rounded(sums / count, data.dtype)
        return all_into([pooled, min_data.reshape(1), max_data.reshape(1)], out)
