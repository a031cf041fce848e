"""The softmax family: softmax, softmin, log_softmax, softmax_cross_entropy."""

from __future__ import annotations

from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError
from hybrid_lab.ops.attributes import DType
from hybrid_lab.ops.operator import Operator
from hybrid_lab.ops.reduce import accumulate
from hybrid_lab.ops.sample import ints, sample
from hybrid_lab.ops.shapes import axis_of

_SAMPLES = [
    sample((4, 5)),
    sample((2, 3, 4), axis=1),
    sample((2, 3), temperature=2.0, low=-4.0, high=4.0),
    sample((2, 3), dtype="float16"),
]


class _SoftmaxLike(Operator):
    """Base: normalized over one axis."""

    kinds = "f"
    axis: int = -1
    temperature: float | None = None
    dtype: DType | None = None
    use_length: bool = False
    alias_safe = True
    samples = _SAMPLES

    def check(self) -> None:
        if self.use_length:
            raise AttributeSpecError(
                f"{self.name}: use_length is not supported; mask with F.SequenceMask or F.where before it"
            )
        if self.dtype is not None:
            raise AttributeSpecError(
                f"{self.name}: dtype is not supported; cast with F.cast(x, dtype={self.dtype!r}) before it"
            )
        if self.temperature == 0:
            raise AttributeSpecError(f"{self.name}: a temperature of 0")

    def infer_shape(self, data: tuple[int, ...]) -> tuple[int, ...]:
        axis_of(self.name, self.axis, len(data))
        return data

    def _shifted(self, data: np.ndarray, out: np.ndarray | None, scratch: Any, sign: float = 1.0) -> np.ndarray:
        """sign * data / temperature minus its maximum."""
        if not data.size:
            return np.empty(data.shape, data.dtype) if out is None else out
        factor = sign / (self.temperature or 1.0)
        top = scratch(data.shape[: self.axis % data.ndim] + (1,) + data.shape[self.axis % data.ndim + 1 :], data.dtype)
        if factor != 1.0:
            data = out = np.multiply(data, data.dtype.type(factor), out=out)
        np.maximum.reduce(data, axis=self.axis, keepdims=True, out=top)
        return np.subtract(data, top, out=out)

    def _normalizer(self, exponentials: np.ndarray, scratch: Any) -> np.ndarray:
        axis = self.axis % exponentials.ndim
        shape = exponentials.shape[:axis] + (1,) + exponentials.shape[axis + 1 :]
        return accumulate(exponentials, (axis,), scratch(shape, exponentials.dtype), scratch)

    def _scaled(self, value: Any, sign: float = 1.0) -> Any:
        factor = sign / (self.temperature or 1.0)
        return value if factor == 1.0 else value * factor

    def _emit_scaled(self, g: Any, data: Any, sign: float = 1.0) -> Any:
        factor = sign / (self.temperature or 1.0)
        return data if factor == 1.0 else g.Mul(data, g.const(factor, g.dtype(data)))


class Softmax(_SoftmaxLike, name="softmax"):
    """Softmax along one axis: y = exp(x / t) / sum(exp(x / t)).

    data : (..., n, ...), floating; returns : as data
    """

    _sign = 1.0

    def numpy(self, data: Any, out: Any = None, scratch: Any = np.empty) -> Any:
        shifted = self._shifted(data, out, scratch, self._sign)
        np.exp(shifted, out=shifted)
        shifted /= self._normalizer(shifted, scratch)
        return shifted

    def grad(self, F: Any, x: Any, y: Any, dy: Any) -> Any:
        return self._scaled(F._softmax_grad(dy, y, axis=self.axis), self._sign)

    def lower(self, F: Any, x: Any) -> Any:
        x = self._scaled(x, self._sign)
        e = F.exp(x - F.max(x, axis=self.axis, keepdims=True))
        return e / F.sum(e, axis=self.axis, keepdims=True)

    def onnx(self, g: Any, x: Any) -> Any:
        return g.Softmax(self._emit_scaled(g, x, self._sign), axis=self.axis)


class Softmin(Softmax, name="softmin"):
    """Softmax of -data. data : (..., n, ...), floating; returns : as data."""

    _sign = -1.0
    samples = _SAMPLES


class LogSoftmax(_SoftmaxLike, name="log_softmax"):
    """The logarithm of softmax, without its rounding: y = x / t - log(sum(exp(x / t))).

    data : floating; returns : as data.
    """

    def numpy(self, data: Any, out: Any = None, scratch: Any = np.empty) -> Any:
        shifted = self._shifted(data, out, scratch)
        total = self._normalizer(np.exp(shifted, out=scratch(data.shape, data.dtype)), scratch)
        shifted -= np.log(total, out=total)
        return shifted

    def grad(self, F: Any, x: Any, y: Any, dy: Any) -> Any:
        return self._scaled(F._log_softmax_grad(dy, y, axis=self.axis))

    def lower(self, F: Any, x: Any) -> Any:
        x = self._scaled(x)
        shifted = x - F.max(x, axis=self.axis, keepdims=True)
        return shifted - F.log(F.sum(F.exp(shifted), axis=self.axis, keepdims=True))

    def onnx(self, g: Any, x: Any) -> Any:
        return g.LogSoftmax(self._emit_scaled(g, x), axis=self.axis)


class SoftmaxCrossEntropy(Operator, name="softmax_cross_entropy"):
    """The sum over rows of -log softmax(data)[label].

    data : (n, classes), floating; label : (n,) class numbers; returns : (1,)
    """

    kinds = "f"
    samples = [sample((4, 5), ints((4,), 0, 5))]

    def infer_shape(self, data: tuple[int, ...], label: tuple[int, ...]) -> tuple[int, ...]:
        if len(data) != 2 or label != data[:1]:
            raise ShapeError(f"softmax_cross_entropy: data {data} and label {label}; (n, classes) and (n,) are needed")
        return (1,)

    def infer_type(self, *dtypes: Any) -> Any:
        return dtypes[0]

    def numpy(self, data: Any, label: Any, out: Any = None) -> Any:
        logarithms = data - data.max(axis=1, keepdims=True)
        logarithms -= np.log(np.exp(logarithms).sum(axis=1, keepdims=True))
        total = -logarithms[np.arange(len(data)), label.astype(np.int64)].sum()
        if out is None:
            return np.full(1, total, data.dtype)
        out[...] = total
        return out

    def grad(self, F: Any, data: Any, label: Any, y: Any, dy: Any) -> tuple[Any, Any]:
        probabilities = F.softmax(data)
        return F._one_hot_subtract(probabilities, label) * dy, F.zeros_like(label)

    def lower(self, F: Any, data: Any, label: Any) -> Any:
        return -F.sum(F.pick(F.log_softmax(data), label))

    def onnx(self, g: Any, data: Any, label: Any) -> Any:
        places = g.Unsqueeze(g.cast(label, "int64"), g.const([1], "int64"))
        picked = g.GatherElements(g.LogSoftmax(data, axis=1), places, axis=1)
        return g.Neg(g.Reshape(g.ReduceSum(picked, keepdims=0), g.const([1], "int64")))


class OneHotSubtract(Operator, name="_one_hot_subtract"):
    """data with 1 taken from the entry that label names in each row.

    data : (n, classes); label : (n,); returns : as data.
    """

    kinds = "fiu"
    mxnet = None
    samples = [sample((3, 4), ints((3,), 0, 4))]

    def infer_shape(self, data: tuple[int, ...], label: tuple[int, ...]) -> tuple[int, ...]:
        return data

    def infer_type(self, *dtypes: Any) -> Any:
        return dtypes[0]

    def numpy(self, data: Any, label: Any, out: Any = None) -> Any:
        if out is None:
            out = data.copy()
        else:
            np.copyto(out, data)
        out[np.arange(len(data)), label.astype(np.int64)] -= 1
        return out

    def grad(self, F: Any, data: Any, label: Any, y: Any, dy: Any) -> tuple[Any, Any]:
        return dy, F.zeros_like(label)

    def onnx(self, g: Any, data: Any, label: Any) -> Any:
        classes = g.const(np.arange(g.shape(data)[1]), "int64")
        hit = g.Equal(g.Unsqueeze(g.cast(label, "int64"), g.const([1], "int64")), classes)
        return g.Sub(data, g.cast(hit, g.dtype(data)))
