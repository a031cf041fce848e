"""Reductions over axes: sum, mean, prod, max, min, norm, argmax; and the shape-only operators their gradients need."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, ClassVar

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, DTypeError, ShapeError, Unmappable
from hybrid_lab.ops.framework import Element, Operator, Reduce, contiguous, into, kept_shape, reduced_axes, sample
from hybrid_lab.ops.framework.attributes import Axis, DType
from hybrid_lab.ops.framework.dtypes import is_bfloat16, is_floating
from hybrid_lab.ops.framework.lowering import emit_lowering, run_lowering
from hybrid_lab.ops.framework.protocols import Elements, Functions, Gradients, OnnxGraph, Place, Scratch, Tensor
from hybrid_lab.ops.framework.types import Array, Shape
from hybrid_lab.ops.kernels.short_rows import reduced

_AXES = [
    sample((2, 3, 4)), sample((2, 3, 4), axis=1), sample((2, 3, 4), axis=(0, -1)),
    sample((2, 3, 4), axis=1, keepdims=True), sample((2, 3, 4), axis=1, exclude=True),
    sample((2, 3), axis=(0, 1), keepdims=True), sample((5,), axis=0),
]  # fmt: skip
_WHOLE = sample((2, 3), dtype="int32", low=-9, high=9, gradient=False, axis=1)


class Reduction(Operator):
    """Base of the reductions: the shape rule, the ONNX form, and `out` seen with all axes kept."""

    axis: Axis = None
    keepdims: bool = False
    exclude: bool = False
    onnx_name: ClassVar[Any] = None

    def axes(self, rank: int) -> tuple[int, ...]:
        return reduced_axes(self.name, self.axis, rank, self.exclude)

    def infer_shape(self, data: Shape) -> Shape:
        axes = self.axes(len(data))
        if self.keepdims:
            return kept_shape(data, axes)
        return tuple(size for index, size in enumerate(data) if index not in axes) or (1,)

    def numpy(self, data: Array, out: Array | None = None, scratch: Scratch = np.empty) -> Array:
        axes = self.axes(data.ndim)
        result = contiguous(out, self.infer_shape(data.shape) if out is None else out.shape, data.dtype, data)
        self.reduce(data, axes, result.reshape(kept_shape(data.shape, axes)), scratch)
        return into(result, out)

    def reduce(self, data: np.ndarray, axes: tuple[int, ...], out: np.ndarray, scratch: Scratch) -> np.ndarray:
        """Fill `out`, which has every axis of data, the reduced ones as 1."""
        raise NotImplementedError

    def spread(self, F: Functions, value: Tensor, data: Tensor) -> Tensor:
        """`value`, of the output's shape, with the reduced axes back as 1, so that it broadcasts against data."""
        return value if self.keepdims else F._restore_axes(value, data, axis=self.axis, exclude=self.exclude)

    def onnx(self, g: OnnxGraph, data: str) -> str | tuple[str, ...]:
        rank = len(g.shape(data))
        axes, keep = self.axes(rank), int(self.keepdims)
        if not axes:
            return g.Identity(data) if rank else g.Reshape(data, self.infer_shape(()))
        if self.onnx_name == "ReduceSum":  # in opset 17 it takes axes as an input, the others as an attribute
            result = g.ReduceSum(data, axes, keepdims=keep)
        else:
            result = getattr(g, self.onnx_name)(data, axes=list(axes), keepdims=keep)
        return g.Reshape(result, [1]) if len(axes) == rank and not keep else result


def accumulate(data: np.ndarray, axes: tuple[int, ...], out: np.ndarray, scratch: Scratch) -> np.ndarray:
    """The sum over `axes` into `out` (axes kept as 1), float16 added up in float32; fast if trailing axes go."""
    dtype = np.float32 if data.dtype == np.float16 else data.dtype
    if dtype != out.dtype:
        wide = np.add.reduce(data, axis=axes, keepdims=True, dtype=dtype, out=scratch(out.shape, dtype))
        np.copyto(out, wide, casting="unsafe")
        return out
    if len(axes) == 1 or not data.flags.c_contiguous:
        return reduced(np.add, data, axes, out)
    first_kept = next((index for index in range(data.ndim) if index not in axes), None)
    last_kept = next((index for index in reversed(range(data.ndim)) if index not in axes), -1)
    if first_kept and 0 < last_kept < data.ndim - 1:
        # Sums over trailing axes are pairwise and fast; the leading axes have few numbers then.
        inner = data.shape[: last_kept + 1]
        partial = np.add.reduce(
            data.reshape(*inner, prod(data.shape[last_kept + 1 :])), axis=-1, out=scratch(inner, dtype)
        )
        rest = tuple(axis for axis in axes if axis <= last_kept)
        np.add.reduce(partial, axis=rest, keepdims=True, out=out.reshape(kept_shape(inner, rest)))
        return out
    return np.add.reduce(data, axis=axes, keepdims=True, dtype=dtype, out=out)


def whole_quotient(total: np.ndarray, count: int, out: np.ndarray) -> np.ndarray:
    """total / count of whole numbers into `out`, cut towards 0; total may be out."""
    wide = total.astype(np.int64)
    quotient = wide // count
    quotient += (wide < 0) & (quotient * count != wide)
    np.copyto(out, quotient, casting="unsafe")
    return out


class Sum(Reduction, name="sum", aliases=("sum_axis",)):
    """The sum over `axis` (None: all, giving shape (1,)); `exclude` sums over all other axes.

    data : any shape and dtype; returns : the dtype of data
    """

    precision = "float32"
    triton = Reduce("sum")
    onnx_name = "ReduceSum"
    samples = [
        *_AXES, _WHOLE, sample((2, 3), dtype="float16", axis=1),
    ]  # fmt: skip

    def reduce(self, data: np.ndarray, axes: tuple[int, ...], out: np.ndarray, scratch: Scratch) -> np.ndarray:
        return accumulate(data, axes, out, scratch)

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F.broadcast_like(self.spread(F, dy, data), data)


class SquareSum(Reduction, name="_square_sum"):
    """The sum of the squares over `axis`, as `sum(square(data))`."""

    dtype_kinds = "fiu"
    precision = "float32"
    onnx_name = "ReduceSumSquare"
    samples = [sample((2, 3), axis=1), sample((2, 3), axis=0, keepdims=True)]

    def reduce(self, data: np.ndarray, axes: tuple[int, ...], out: np.ndarray, scratch: Scratch) -> np.ndarray:
        return accumulate(np.square(data, out=scratch(data.shape, data.dtype)), axes, out, scratch)

    def lower(self, F: Functions, data: Tensor) -> Tensor:
        return F.sum(F.square(data), axis=self.axis, keepdims=self.keepdims, exclude=self.exclude)

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return 2.0 * data * F.broadcast_like(self.spread(F, dy, data), data)


class Mean(Reduction, name="mean"):
    """The mean over `axis` (None: all, giving shape (1,)). data : any shape; returns : the dtype of data."""

    precision = "float32"
    onnx_name = "ReduceMean"
    samples = [*_AXES, _WHOLE]

    def reduce(self, data: np.ndarray, axes: tuple[int, ...], out: np.ndarray, scratch: Scratch) -> np.ndarray:
        narrow = out.dtype == np.float16  # its sums may overflow although its means do not
        total = accumulate(data, axes, scratch(out.shape, np.float32) if narrow else out, scratch)
        count = max(data.size // max(out.size, 1), 1)
        if data.dtype.kind == "f":
            return np.divide(total, count, out=out, casting="same_kind")
        return whole_quotient(total, count, out)

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return F.broadcast_like(self.spread(F, dy * F._size_ratio(dy, data), data), data)

    def lower(self, F: Functions, data: Tensor) -> Tensor:
        total = F.sum(data, axis=self.axis, keepdims=self.keepdims, exclude=self.exclude)
        return F.broadcast_div(total, F._size_ratio(data, total))


class Prod(Reduction, name="prod"):
    """The product over `axis` (None: all, giving shape (1,)). The gradient divides by data, as MXNet's does."""

    precision = "float32"
    triton = Reduce("prod")
    onnx_name = "ReduceProd"
    samples = [sample(item.inputs[0], low=0.5, high=1.5, **item.attributes) for item in _AXES]

    def reduce(self, data: np.ndarray, axes: tuple[int, ...], out: np.ndarray, scratch: Scratch) -> np.ndarray:
        return np.multiply.reduce(data, axis=axes, keepdims=True, dtype=data.dtype, out=out)

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return self.spread(F, dy * y, data) / data


class _WithoutNaN(Reduction):
    """Base: NaN counts as `neutral`."""

    dtype_kinds = "fiu"
    precision = "float32"
    neutral: ClassVar[int]
    plain: ClassVar[type[Reduction]]
    """The reduction of what is left."""
    onnx = emit_lowering  # type: ignore[assignment]

    def reduce(self, data: np.ndarray, axes: tuple[int, ...], out: np.ndarray, scratch: Scratch) -> np.ndarray:
        known = scratch(data.shape, data.dtype)
        np.copyto(known, data)
        np.copyto(known, self.neutral, where=np.isnan(data, out=scratch(data.shape, np.bool_)))
        return self.plain.reduce(self, known, axes, out, scratch)

    def lower(self, F: Functions, data: Tensor) -> Tensor:
        known = F.where(F.broadcast_equal(data, data), data, float(self.neutral))
        reduction = getattr(F, self.plain.name)
        return reduction(known, axis=self.axis, keepdims=self.keepdims, exclude=self.exclude)


class NanSum(_WithoutNaN, name="nansum"):
    """The sum over `axis` with NaN counted as 0."""

    neutral, plain = 0, Sum
    samples = [*_AXES[:3], sample(np.array([[1.0, np.nan], [2.0, 3.0]], "float32"), axis=0)]

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return self.spread(F, dy, data) * F.broadcast_equal(data, data)


class NanProd(_WithoutNaN, name="nanprod"):
    """The product over `axis` with NaN counted as 1. The gradient divides by data, as MXNet's does."""

    neutral, plain = 1, Prod
    samples = [
        *(sample(item.inputs[0], low=0.5, high=1.5, **item.attributes) for item in _AXES[:3]),
        sample(np.array([[1.0, np.nan], [2.0, 3.0]], "float32"), axis=0, smooth=False),
    ]

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        known = F.broadcast_equal(data, data)
        return F.where(known, self.spread(F, dy * y, data) / data, 0.0)


def chosen(op: Operator, data: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """`shape`, the result of choosing elements of data. Raises ShapeError if there are none to choose from."""
    if 0 in data and 0 not in shape:
        raise ShapeError(f"{op.name}: {data} is empty, there is nothing to choose from")
    return shape


class _Extreme(Reduction):
    """Base: the largest or the smallest element; all ties receive the gradient, as in MXNet."""

    ufunc: ClassVar[np.ufunc]

    def reduce(self, data: np.ndarray, axes: tuple[int, ...], out: np.ndarray, scratch: Scratch) -> np.ndarray:
        return reduced(self.ufunc, data, axes, out)

    def infer_shape(self, data: Shape) -> Shape:
        return chosen(self, data, super().infer_shape(data))

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        return self.spread(F, dy, data) * F.broadcast_equal(data, self.spread(F, y, data))


_TIED = sample(np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 0.0]], "float32"), axis=1, smooth=False)


class Max(_Extreme, name="max", aliases=("max_axis",)):
    """The largest element over `axis` (None: all, giving shape (1,)). All ties receive the gradient, as in MXNet."""

    triton = Reduce("max")
    onnx_name = "ReduceMax"
    ufunc = np.maximum
    samples = [*_AXES, _TIED, _WHOLE]


class Min(_Extreme, name="min", aliases=("min_axis",)):
    """The smallest element over `axis` (None: all, giving shape (1,)). All ties receive the gradient, as in MXNet."""

    triton = Reduce("min")
    onnx_name = "ReduceMin"
    ufunc = np.minimum
    samples = [*_AXES, _TIED, _WHOLE]


class Norm(Reduction, name="norm"):
    """The L1 or L2 norm over `axis` (None: all, giving shape (1,)). data : numbers; integers are cut, as in MXNet.

    out_dtype : dtype of the result; floating numbers are then added up in the wider of both dtypes
    """

    dtype_kinds = "fiu"
    precision = "float32"
    ord: int = 2
    axis: Axis = None
    out_dtype: DType | None = None
    keepdims: bool = False
    exclude: bool = False
    samples = [
        sample((2, 3, 4)), sample((2, 3, 4), axis=1), sample((2, 3, 4), axis=(0, 2), keepdims=True),
        sample((2, 3, 4), ord=1, axis=1), sample((2, 3, 4), axis=1, out_dtype="float64"),
        sample((2, 3, 4), ord=1, out_dtype="float16", smooth=False),
        sample((2, 3), dtype="int32", low=-9, high=9, gradient=False, out_dtype="float32"),
    ]  # fmt: skip

    def check(self) -> None:
        if self.ord not in (1, 2):
            raise AttributeSpecError(f"norm: ord={self.ord}; only the L1 and L2 norms exist")
        if self.exclude:
            raise AttributeSpecError("norm has no attribute exclude; give the axes that are summed over as axis")

    def infer_type(self, data: np.dtype) -> np.dtype:
        if data.kind == "b":
            raise DTypeError("norm: data is bool; convert it with F.cast(x, dtype=...)")
        return data if self.out_dtype is None else np.dtype(self.out_dtype)

    def added_in(self, data: np.dtype) -> np.dtype:
        """The dtype that numbers of the dtype `data` are added up in."""
        wider = self.out_dtype is not None and is_floating(data) and is_floating(np.dtype(self.out_dtype))
        return np.promote_types(data, np.dtype(self.out_dtype)) if wider else data

    def numpy(self, data: Array, out: Array | None = None, scratch: Scratch = np.empty) -> Array:
        dtype = self.infer_type(data.dtype)
        if dtype == data.dtype:
            return super().numpy(data, out, scratch)
        result = super().numpy(data.astype(self.added_in(data.dtype)), None, scratch)
        return into(result.astype(dtype), out)

    def reduce(self, data: np.ndarray, axes: tuple[int, ...], out: np.ndarray, scratch: Scratch) -> np.ndarray:
        if self.ord == 1:
            return accumulate(np.abs(data, out=scratch(data.shape, data.dtype)), axes, out, scratch)
        wide = np.dtype(np.float32) if data.dtype == np.float16 else data.dtype
        squares = np.square(data, out=scratch(data.shape, wide), dtype=wide)
        return np.sqrt(accumulate(squares, axes, scratch(out.shape, wide), scratch), out=out, casting="unsafe")

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        number = data
        if self.out_dtype is not None and is_floating(np.dtype(self.out_dtype)):
            number = F.Cast(data, dtype=self.out_dtype)
        elif self.out_dtype is not None:
            y, dy = F._cast_like(y, data), F._cast_like(dy, data)
        if self.ord == 1:
            dx = self.spread(F, dy, data) * F.sign(number)
        else:
            dx = self.spread(F, dy / y, data) * number
        return dx if number is data else F._cast_like(dx, data)

    def lower(self, F: Functions, data: Tensor) -> Tensor:
        wide = self.added_in(data.dtype)
        number = data if wide == data.dtype else F.Cast(data, dtype=wide.name)
        inner = F.abs(number) if self.ord == 1 else F.square(number)
        total = F.sum(inner, axis=self.axis, keepdims=self.keepdims, exclude=self.exclude)
        norm = total if self.ord == 1 else F.sqrt(total)
        return norm if self.infer_type(data.dtype) == wide else F.Cast(norm, dtype=self.out_dtype)

    def onnx(self, g: OnnxGraph, data: str) -> str | tuple[str, ...]:
        return super().onnx(g, data) if self.out_dtype is None else emit_lowering(self, g, data)

    @property
    def onnx_name(self) -> str:
        return "ReduceL1" if self.ord == 1 else "ReduceL2"


class _ArgExtreme(Operator):
    """Base of argmax and argmin."""

    axis: int | None = None
    keepdims: bool = False
    find: ClassVar[Callable[..., Array]]
    samples = [
        sample((2, 3, 4)), sample((2, 3, 4), axis=1), sample((2, 3, 4), axis=-1, keepdims=True), sample((5,), axis=0),
    ]  # fmt: skip

    def infer_shape(self, data: Shape) -> Shape:
        axes = reduced_axes(self.name, self.axis, len(data))
        kept = kept_shape(data, axes)
        dropped = tuple(size for index, size in enumerate(data) if index not in axes) or (1,)
        return chosen(self, data, kept if self.keepdims else dropped)

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        return _position_type(super().infer_type(*dtypes))

    def lower(self, F: Functions, data: Tensor) -> Tensor:
        shape = self.infer_shape(data.shape)
        if 0 in data.shape:
            raise Unmappable(f"{self.name} of an empty array")
        if is_bfloat16(data.dtype):
            data = F.Cast(data, dtype="float32")
        line = F.Reshape(data, shape=(-1,)) if self.axis is None else data
        axis = 0 if self.axis is None else self.axis % len(line.shape)
        best = (F.max if self.name == "argmax" else F.min)(line, axis=axis, keepdims=True)
        # If there is a NaN it is the largest and the smallest, and equal to nothing.
        hit = F.broadcast_equal(line, best) + F.broadcast_not_equal(line, line)
        steps = F.broadcast_like(F._channel_like(F._contrib_arange_like(line, axis=axis), line, axis=axis), line)
        first = F.min(F.where(hit, steps, F.broadcast_like(F._size_ratio(line, best), line)), axis=axis, keepdims=True)
        return F.Reshape(first, shape=shape)

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        shape = self.infer_shape(data.shape)
        where = np.asarray(type(self).find(data, axis=self.axis)) if data.size else np.zeros(shape)
        if out is None:
            return where.astype(data.dtype).reshape(shape)
        np.copyto(out, np.reshape(where, shape), casting="unsafe")
        return out

    def onnx(self, g: OnnxGraph, data: str) -> str:
        axis, dtype = self.axis, g.dtype(data)
        shape = self.infer_shape(g.shape(data))
        if axis is None:
            data, axis = g.Reshape(data, [-1]), 0
        where = getattr(g, {"argmax": "ArgMax", "argmin": "ArgMin"}[self.name])(data, axis=axis, keepdims=1)
        result = g.cast(where, dtype)
        if self.axis is not None and self.keepdims:
            return result
        if self.axis is not None and shape != (1,):
            return g.Squeeze(result, [axis])
        return g.Reshape(result, shape)


def _position_type(dtype: np.dtype) -> np.dtype:
    """The dtype of positions in data of this one: of bfloat16, which has whole numbers up to 256, float32."""
    return np.dtype(np.float32) if is_bfloat16(dtype) else dtype


class ArgMax(_ArgExtreme, name="argmax"):
    """Position of the first largest element along `axis` (None: in the flattened data), in the dtype of data; float32
    for bfloat16.

    Gradient 0.
    """

    find = np.argmax
    samples = _ArgExtreme.samples


class ArgMin(_ArgExtreme, name="argmin"):
    """Position of the first smallest element along `axis` (None: in the flattened data), in the dtype of data; float32
    for bfloat16.

    Gradient 0.
    """

    find = np.argmin
    samples = _ArgExtreme.samples


class SumLike(Operator, name="_sum_like"):
    """data summed over the axes along which `like` was broadcast: undoes broadcasting in gradients.

    data : the broadcast shape; like : only its shape is read; returns : the shape of like
    """

    arrays_only = ("like",)
    shaped_like = 1
    typed_like = 0
    identity_if_alike = True
    mxnet = None
    shape_only = ("like",)
    onnx = emit_lowering
    samples = [sample((2, 3, 4), (3, 1)), sample((2, 3), (2, 3)), sample((2, 3), (1,)), sample((2, 3, 4), (2, 1, 4))]

    @staticmethod
    def axes(data: tuple[int, ...], like: tuple[int, ...]) -> tuple[int, ...]:
        """The axes of data to sum over."""
        lead = len(data) - len(like)
        return tuple(i for i in range(len(data)) if i < lead or (like[i - lead] == 1 and data[i] != 1))

    def numpy(self, data: Array, like: Array, out: Array | None = None, scratch: Scratch = np.empty) -> Array:
        if data.shape == like.shape:
            return into(data, out)
        axes, result = self.axes(data.shape, like.shape), contiguous(out, like.shape, data.dtype, data)
        accumulate(data, axes, result.reshape(kept_shape(data.shape, axes)), scratch)
        return into(result, out)

    def lower(self, F: Functions, data: Tensor, like: Tensor) -> Tensor:
        axes = self.axes(data.shape, like.shape)
        total = F.sum(data, axis=axes, keepdims=True) if axes else F.identity(data)
        return total if len(data.shape) == len(like.shape) else F.reshape_like(total, like)

    def grad(self, F: Functions, data: Tensor, like: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        return F.broadcast_like(dy, data), None


class SizeRatio(Operator, name="_size_ratio"):
    """How many elements of data there are per element of `like`, with shape (1,) and the dtype of data.

    Both are read for shapes only.
    """

    arrays_only = ("like",)
    typed_like = 0
    mxnet = None
    shape_only = ("data", "like")
    samples = [sample((2, 3, 4), (2, 1, 4), gradient=False), sample((2, 3), (1,), gradient=False)]

    def infer_shape(self, data: Shape, like: Shape) -> Shape:
        return (1,)

    def numpy(self, data: Array, like: Array, out: Array | None = None) -> Array:
        if out is None:
            out = np.empty(1, data.dtype)
        out[...] = data.size / max(like.size, 1)
        return out

    @Element
    def triton(self, elements: Elements, place: Place) -> str:
        ratio, dtype = prod(elements.shape(0)) / prod(elements.shape(1)), elements.dtype()
        if dtype.kind in "iu" or dtype == np.float16:
            largest = np.finfo(dtype).max if dtype == np.float16 else np.iinfo(dtype).max
            if ratio > int(largest):  # then what counts with it stays whole
                raise Unmappable(f"more elements than {dtype.name} can count")
        return str(elements.literal(ratio))

    def onnx(self, g: OnnxGraph, data: str, like: str) -> str:
        above, below = prod(g.shape(data)), max(prod(g.shape(like)), 1)
        ratio = above / below if above % below else above // below  # also of sizes that are no numbers
        return g.Identity(g.const([ratio], g.dtype(data)))


class ArgMaxChannel(Operator, name="argmax_channel"):
    """Position of the largest element along axis 1. data : (n, m, ...); returns : (n, ...), in the dtype of data, of
    bfloat16 in float32. For a vector it is the position in the vector, with shape (1,).
    """

    numpy = run_lowering
    onnx = emit_lowering
    samples = [sample((3, 4), gradient=False)]

    def lower(self, F: Functions, data: Tensor) -> Tensor:
        return F.argmax(data, axis=min(1, len(data.shape) - 1))

    def infer_shape(self, data: Shape) -> Shape:
        if not data:
            raise ShapeError("argmax_channel: a number has no axis; data needs one or more")
        return (data[0], *data[2:]) if len(data) > 1 else (1,)

    def infer_type(self, *dtypes: np.dtype) -> np.dtype:
        return _position_type(super().infer_type(*dtypes))
