"""The softmax family: softmax, softmin, log_softmax, softmax_cross_entropy."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError
from hybrid_lab.ops.arrays.index import whole
from hybrid_lab.ops.arrays.reduce import accumulate
from hybrid_lab.ops.framework import Element, Operator, Signature, axis_of, get, into, ints, sample
from hybrid_lab.ops.framework.attributes import DType
from hybrid_lab.ops.framework.dtypes import NARROW, is_floating
from hybrid_lab.ops.framework.protocols import (
    Elements,
    Functions,
    Gradient,
    Gradients,
    OnnxGraph,
    Place,
    Scratch,
    Tensor,
)
from hybrid_lab.ops.framework.types import Array, Shape
from hybrid_lab.ops.kernels import short_rows

_SAMPLES = [
    sample((4, 5)), sample((2, 3, 4), axis=1), sample((2, 3), temperature=2.0, low=-4.0, high=4.0),
    sample((2, 3), dtype="float16"),
]  # fmt: skip


class _SoftmaxLike(Operator):
    """Base: normalized over one axis."""

    dtype_kinds = "f"
    precision = "float32"
    axis: int = -1
    temperature: float | None = None
    dtype: DType | None = None
    use_length: bool = False
    alias_safe = True
    samples = _SAMPLES

    def check(self) -> None:
        if self.use_length and self.name != "softmax":
            raise AttributeSpecError(f"{self.name}: use_length is not supported; softmax supports it")
        if self.dtype is not None and not is_floating(np.dtype(self.dtype)):
            raise AttributeSpecError(f"{self.name}: dtype={self.dtype}; a floating dtype is needed")
        if self.temperature == 0:
            raise AttributeSpecError(f"{self.name}: temperature must not be 0")

    @property
    def mode_dependent(self) -> bool:
        """Lengths and another dtype are `_softmax_with`'s, in both modes; here is the plain softmax alone."""
        return self.use_length or self.dtype is not None

    def bind_mode(self, train: bool) -> Operator:
        if not self.mode_dependent:
            return self
        return SoftmaxWith.bind(**{key: self.attributes[key] for key in _SHARED}, kind=self.name)

    def fix_mode(self, train: bool) -> Operator:
        return self

    def infer_shape(self, data: Shape) -> Shape:
        axis_of(self.name, self.axis, len(data))
        return data

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        return np.dtype(self.dtype) if self.dtype is not None and is_floating(dtypes[0]) else dtypes[0]

    def _run(self, data: np.ndarray, out: np.ndarray | None, scratch: Scratch, sign: float = 1.0) -> np.ndarray:
        """The operator of sign * data / temperature, into `out`."""
        if out is None:
            out = np.empty(data.shape, data.dtype)
        if not data.size:
            return out
        axis, factor = self.axis % data.ndim, sign / (self.temperature or 1.0)
        if not short_rows.are_short(data, axis) or not out.flags.c_contiguous:
            self._along(axis, data, out, None, out, factor, scratch)
            return out
        rows, results = data.reshape(-1, data.shape[-1]), out.reshape(-1, data.shape[-1])
        for part in short_rows.blocks(rows):
            columns, result = short_rows.turned(rows[part]), results[part]
            self._along(0, columns, columns, result.reshape(columns.shape), result.T, factor, np.empty)
        return out

    def _along(
        self, axis: int, data: Array, work: Array, spare: Array | None, out: Array, factor: float, scratch: Scratch
    ) -> None:
        """The operator of factor * data over one axis, into `out`.

        work : memory as data, may be data or out; spare : other memory as data, may be out's, or None: from scratch
        """
        raise NotImplementedError

    def _shifted(self, axis: int, data: Array, work: Array, factor: float, scratch: Scratch) -> tuple[Array, Array]:
        """(factor * data minus its maximum, memory for a sum) over the axis."""
        if factor != 1.0:
            data = np.multiply(data, data.dtype.type(factor), out=work)
        top = scratch((*data.shape[:axis], 1, *data.shape[axis + 1 :]), data.dtype)
        np.maximum.reduce(data, axis=axis, keepdims=True, out=top)
        return np.subtract(data, top, out=work), top

    def _scaled(self, value: Tensor, sign: float = 1.0) -> Tensor:
        factor = sign / (self.temperature or 1.0)
        return value if factor == 1.0 else value * factor

    def _emit_scaled(self, g: OnnxGraph, data: str, sign: float = 1.0) -> str:
        factor = sign / (self.temperature or 1.0)
        return data if factor == 1.0 else g.Mul(data, g.const(factor, g.dtype(data)))


class Softmax(_SoftmaxLike, name="softmax"):
    """Softmax along one axis: y = exp(x / t) / sum(exp(x / t)).

    data : (..., n, ...), floating; length, with use_length : data's shape without `axis`, how many elements count, the
    others become 0; returns : as data, or in `dtype`
    """

    _sign = 1.0
    samples = [
        *_SAMPLES,
        sample((2, 3, 4), ints((2, 3), 0, 5, "int32"), use_length=True),
        sample((2, 3, 4), ints((2, 4), 0, 4, "int32"), use_length=True, axis=1, temperature=2.0),
        sample((2, 3), dtype="float16", attrs={"dtype": "float32"}),
    ]

    @cached_property
    def signature(self) -> Signature:
        return Signature(("data", "length") if self.use_length else ("data",))

    def infer_shape(self, data: Shape, length: tuple[int, ...] | None = None) -> Shape:
        axis = axis_of(self.name, self.axis, len(data))
        if length is not None and length != (*data[:axis], *data[axis + 1 :]):
            raise ShapeError(
                f"softmax: length has shape {length}; data {data} with axis={self.axis} needs "
                f"{(*data[:axis], *data[axis + 1 :])}"
            )
        return data

    def numpy(
        self, data: Array, length: Array | None = None, out: Array | None = None, scratch: Scratch = np.empty
    ) -> Array:
        if self.mode_dependent:
            given = (data,) if length is None else (data, length)
            return self.bind_mode(True).numpy(*given, out=out)
        return self._run(data, out, scratch, self._sign)

    def _along(
        self, axis: int, data: Array, work: Array, spare: Array | None, out: Array, factor: float, scratch: Scratch
    ) -> None:
        shifted, total = self._shifted(axis, data, work, factor, scratch)
        np.exp(shifted, out=shifted)
        np.divide(shifted, accumulate(shifted, (axis,), total, scratch), out=out)

    def grad(self, F: Functions, x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return self._scaled(F._softmax_grad(dy, y, axis=self.axis), self._sign)

    def lower(self, F: Functions, x: Tensor) -> Tensor:
        x = self._scaled(x, self._sign)
        e = F.exp(x - F.max(x, axis=self.axis, keepdims=True))
        return e / F.sum(e, axis=self.axis, keepdims=True)

    def onnx(self, g: OnnxGraph, x: str) -> str:
        return g.Softmax(self._emit_scaled(g, x, self._sign), axis=self.axis)


class Softmin(Softmax, name="softmin"):
    """Softmax of -data. data : (..., n, ...), floating; returns : as data."""

    _sign = -1.0
    samples = _SAMPLES

    @cached_property
    def signature(self) -> Signature:
        return Signature(("data",))

    def infer_shape(self, data: Shape) -> Shape:
        return super().infer_shape(data)


class LogSoftmax(_SoftmaxLike, name="log_softmax"):
    """The logarithm of softmax, without its rounding: y = x / t - log(sum(exp(x / t))).

    data : floating; returns : as data, or in `dtype`.
    """

    samples = [*_SAMPLES, sample((2, 3), dtype="float16", attrs={"dtype": "float32"})]

    def numpy(self, data: Array, out: Array | None = None, scratch: Scratch = np.empty) -> Array:
        if self.mode_dependent:
            return self.bind_mode(True).numpy(data, out=out)
        return self._run(data, out, scratch)

    def _along(
        self, axis: int, data: Array, work: Array, spare: Array | None, out: Array | None, factor: float,
        scratch: Scratch,
    ) -> None:  # fmt: skip
        shifted, total = self._shifted(axis, data, work, factor, scratch)
        exponentials = np.exp(shifted, out=scratch(data.shape, data.dtype) if spare is None else spare)
        accumulate(exponentials, (axis,), total, scratch)
        np.subtract(shifted, np.log(total, out=total), out=out)

    def grad(self, F: Functions, x: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return self._scaled(F._log_softmax_grad(dy, y, axis=self.axis))

    def lower(self, F: Functions, x: Tensor) -> Tensor:
        x = self._scaled(x)
        shifted = x - F.max(x, axis=self.axis, keepdims=True)
        return shifted - F.log(F.sum(F.exp(shifted), axis=self.axis, keepdims=True))

    def onnx(self, g: OnnxGraph, x: str) -> str:
        return _emit_log_softmax(g, self._emit_scaled(g, x), self.axis, g.shape(x), g.dtype(x))


def _emit_log_softmax(g: OnnxGraph, x: str, axis: int, shape: tuple[int, ...], dtype: np.dtype) -> str:
    """The nodes of log_softmax. ONNX Runtime's own node gives -inf in float64 if a row holds NaN or infinities."""
    if dtype != np.float64:
        return g.LogSoftmax(x, axis=axis)
    axis %= len(shape)
    shifted = g.Sub(x, g.ReduceMax(x, axes=[axis], keepdims=1))
    return g.Sub(shifted, g.Log(g.ReduceSum(g.Exp(shifted), [axis], keepdims=1)))


_SHARED = ("axis", "temperature", "dtype", "use_length")


class SoftmaxWith(Operator, name="_softmax_with"):
    """softmax, softmin or log_softmax over the first `length` elements of each vector, or in another dtype.

    data : (..., n, ...), floating; length, with use_length : data's shape without `axis`; returns : as data, in `dtype`
    """

    dtype_kinds = "f"
    precision = "float32"
    mxnet = None
    axis: int = -1
    temperature: float | None = None
    dtype: DType | None = None
    use_length: bool = False
    kind: Literal["softmax", "softmin", "log_softmax"] = "softmax"
    samples = [
        sample((2, 3, 4), ints((2, 3), 0, 5, "int32"), use_length=True),
        sample((2, 3, 4), ints((2, 3), 0, 5, "int32"), use_length=True, temperature=-0.5),
        sample((2, 3), kind="softmin", attrs={"dtype": "float64"}),
        sample((2, 3), kind="log_softmax", temperature=0.5, attrs={"dtype": "float64"}),
    ]

    @cached_property
    def signature(self) -> Signature:
        return Signature(("data", "length") if self.use_length else ("data",))

    def plain(self) -> Any:
        """The operator without lengths and dtype."""
        return get(self.kind).bind(axis=self.axis, temperature=self.temperature)

    @property
    def _ignored(self) -> float:
        """The number whose exponential is 0 after the division by the temperature."""
        return -np.inf if (self.temperature or 1.0) > 0 else np.inf

    def infer_shape(self, data: Shape, length: tuple[int, ...] | None = None) -> Shape:
        return Softmax.bind(axis=self.axis, use_length=self.use_length).infer_shape(
            *((data,) if length is None else (data, length))
        )

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        return np.dtype(self.dtype) if self.dtype is not None and is_floating(dtypes[0]) else dtypes[0]

    def counted(self, data: np.ndarray, length: np.ndarray) -> np.ndarray:
        """Which elements are within their length."""
        steps = np.arange(data.shape[self.axis]).reshape(-1, *(1,) * (data.ndim - 1 - self.axis % data.ndim))
        return steps < np.expand_dims(length, self.axis)

    def numpy(self, data: Array, length: Array | None = None, out: Array | None = None) -> Array:
        dtype = self.infer_type(data.dtype)
        wide = data.astype(np.float32 if dtype == np.float16 else dtype)
        if length is None:
            return into(self.plain().numpy(wide).astype(dtype), out)
        inside = self.counted(data, length)
        # A vector of no elements keeps its numbers for the quotient, and is all 0 then.
        some = inside.any(axis=self.axis, keepdims=True)
        y = self.plain().numpy(np.where(inside | ~some, wide, wide.dtype.type(self._ignored)))
        return into(np.where(inside, y, wide.dtype.type(0)).astype(dtype), out)

    def lower(self, F: Functions, data: Tensor, length: Tensor | None = None) -> Tensor:
        dtype = self.infer_type(data.dtype)
        narrow = dtype.name in NARROW and dtype != data.dtype
        wide = F.Cast(data, dtype="float32" if narrow else dtype.name)
        if length is None:
            y = self.plain().lower(F, wide)
        else:
            # Steps and lengths are counted in a dtype that can.
            steps = F._contrib_arange_like(F.Cast(data, dtype="float32"), axis=self.axis)
            steps = F._channel_like(steps, data, axis=self.axis)
            inside = F.broadcast_lesser(steps, F.Cast(F.expand_dims(length, axis=self.axis), dtype="float32"))
            y = F.where(inside, self.plain().lower(F, F.where(inside, wide, self._ignored)), 0.0)
        return F.Cast(y, dtype=dtype.name)

    def grad(self, F: Functions, x: Tensor, *rest: Tensor) -> Gradient | Gradients:
        y, dy = rest[-2:]
        sign = -1.0 if self.kind == "softmin" else 1.0
        gradient = F._log_softmax_grad if self.kind == "log_softmax" else F._softmax_grad
        factor = sign / (self.temperature or 1.0)
        dx = gradient(dy, y, axis=self.axis)
        dx = F._cast_like(dx if factor == 1.0 else dx * factor, x)
        return (dx, None) if self.use_length else dx

    def onnx(self, g: OnnxGraph, data: str, length: str | None = None) -> str:
        dtype = self.infer_type(g.dtype(data))
        wide = data if dtype == g.dtype(data) else g.declare(g.cast(data, dtype), g.shape(data), dtype)
        if length is None:
            return self.plain().onnx(g, wide)
        shape = g.shape(data)
        axis = self.axis % len(shape)
        steps = g.const(np.arange(shape[axis]).reshape(-1, *(1,) * (len(shape) - 1 - axis)), "int64")
        ends = g.Unsqueeze(g.cast(length, "int64"), [axis])
        inside = g.Less(steps, ends)
        # A vector of no elements keeps its numbers for the quotient, as in NumPy.
        kept = g.Or(inside, g.Less(ends, g.const(1, "int64")))
        masked = g.declare(g.Where(kept, wide, g.const(self._ignored, dtype)), shape, dtype)
        return g.Where(inside, self.plain().onnx(g, masked), g.const(0, dtype))


class SoftmaxCrossEntropy(Operator, name="softmax_cross_entropy"):
    """The sum over rows of -log softmax(data)[label].

    data : (n, classes), floating; label : (n,) class numbers; returns : (1,)
    """

    typed_like = 0
    dtype_kinds = "f"
    precision = "float32"
    samples = [sample((4, 5), ints((4,), 0, 5))]

    def infer_shape(self, data: Shape, label: Shape) -> Shape:
        if len(data) != 2 or label != data[:1]:
            raise ShapeError(f"softmax_cross_entropy: data {data} and label {label}; (n, classes) and (n,) are needed")
        if data[1] == 0:
            raise ShapeError(f"softmax_cross_entropy: data {data} has no classes")
        return (1,)

    def numpy(self, data: Array, label: Array, out: Array | None = None) -> Array:
        logarithms = data - data.max(axis=1, keepdims=True)
        logarithms -= np.log(np.exp(logarithms).sum(axis=1, keepdims=True))
        total = -logarithms[np.arange(len(data)), whole(label, data.shape[1], "raise", self.name)].sum()
        if out is None:
            return np.full(1, total, data.dtype)
        out[...] = total
        return out

    def grad(self, F: Functions, data: Tensor, label: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        probabilities = F.softmax(data)
        return F._one_hot_subtract(probabilities, label) * dy, None

    def lower(self, F: Functions, data: Tensor, label: Tensor) -> Tensor:
        return -F.sum(F.pick(F.log_softmax(data), label))

    def onnx(self, g: OnnxGraph, data: str, label: str) -> str:
        places = g.Unsqueeze(g.cast(label, "int64"), [1])
        logarithms = _emit_log_softmax(g, data, 1, g.shape(data), g.dtype(data))
        picked = g.GatherElements(logarithms, places, axis=1)
        return g.Neg(g.Reshape(g.ReduceSum(picked, keepdims=0), [1]))


class OneHotSubtract(Operator, name="_one_hot_subtract"):
    """data with 1 taken from the entry that label names in each row.

    data : (n, classes); label : (n,); returns : as data.
    """

    arrays_only = ("label",)
    shaped_like = 0
    typed_like = 0
    dtype_kinds = "fiu"
    mxnet = None
    samples = [sample((3, 4), ints((3,), 0, 4))]

    def numpy(self, data: Array, label: Array, out: Array | None = None) -> Array:
        if out is None:
            out = data.copy()
        else:
            np.copyto(out, data)
        out[np.arange(len(data)), whole(label, data.shape[1], "raise", "softmax_cross_entropy")] -= 1
        return out

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        data, label = elements.read(0, place), elements.number(1, place[:1], elements.shape(0)[1])
        return f"tl.where(({label}) == ({place[1]}), {data} - {elements.literal(1)}, {data})"

    def grad(self, F: Functions, data: Tensor, label: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        return dy, None

    def onnx(self, g: OnnxGraph, data: str, label: str) -> str:
        classes = g.const(np.arange(g.shape(data)[1]), "int64")
        hit = g.Equal(g.Unsqueeze(g.cast(label, "int64"), [1]), classes)
        return g.Sub(data, g.cast(hit, g.dtype(data)))
