"""Output layers of the Symbol API: their gradient is a loss's gradient, whatever gradient arrives from above.

SoftmaxOutput, LinearRegressionOutput, LogisticRegressionOutput, MAERegressionOutput, SVMOutput, MakeLoss; and
SoftmaxActivation, whose gradient is its derivative.
"""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar, Literal

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError
from hybrid_lab.ops.framework import Operator, all_into, forward_shape, into, ints, known_shape, sample
from hybrid_lab.ops.framework.lowering import emit_lowering, run_lowering
from hybrid_lab.ops.framework.protocols import Functions, Gradients, Tensor
from hybrid_lab.ops.framework.types import Array, Arrays, Operand, Outs, PartialShape, Shape


def copied(op: Operator, *inputs: Operand, out: Array | Outs = None) -> Array | Arrays:
    """The kernel of an operator whose output is its first input."""
    data: Any = inputs[0]
    return data.copy() if out is None else all_into([data], out)


# -- softmax ---------------------------------------------------------------------------------------------------


class _SoftmaxOutput(Operator):
    """Base: the attributes of SoftmaxOutput."""

    dtype_kinds = "f"
    grad_scale: float = 1.0
    ignore_label: float = -1.0
    multi_output: bool = False
    use_ignore: bool = False
    preserve_shape: bool = False
    normalization: Literal["null", "batch", "valid"] = "null"
    out_grad: bool = False
    smooth_alpha: float = 0.0

    def check(self) -> None:
        if not 0 <= self.smooth_alpha <= 1:
            raise AttributeSpecError(f"SoftmaxOutput: smooth_alpha={self.smooth_alpha} must be in [0, 1]")

    def rows(self, data: tuple[int, ...]) -> tuple[int, ...]:
        """The shape with the classes along axis 1."""
        if self.multi_output:
            return (*data[:2], prod(data[2:]))
        return (prod(data[:-1]), data[-1]) if self.preserve_shape else (data[0], prod(data[1:]))

    def labels(self, data: Shape) -> Shape:
        """The shape of class numbers for data."""
        if self.multi_output:
            return (data[0], *data[2:])
        return data[:-1]


class SoftmaxOutput(_SoftmaxOutput, name="SoftmaxOutput", aliases=("Softmax",)):
    """Softmax of data; the gradient is the cross entropy's to label: softmax minus one hot.

    data : (n, classes), with multi_output (n, classes, ...), with preserve_shape (..., classes)
    label : class numbers - (n,), with multi_output (n, ...) without axis 1 - or probabilities of data's shape
    use_ignore : rows labelled ignore_label have no gradient; smooth_alpha : share of the label's probability, spread
    over the other classes; normalization : divide by nothing, the batch, or the number of labels, ignored labels
    excluded;
    out_grad : multiply with the gradient from above, which is not read otherwise
    """

    typed_like = 0
    precision = "float32"
    numpy, onnx = run_lowering, emit_lowering
    samples = [
        sample((4, 5), ints((4,), 0, 5)),
        sample((4, 5), (4, 5), low=0.0),
        sample((4, 5), ints((4,), 0, 5), grad_scale=0.5, normalization="batch"),
        sample((4, 5), ints((4,), 0, 3), use_ignore=True, ignore_label=1.0, normalization="valid"),
        sample((2, 3, 4), ints((2, 4), 0, 3), multi_output=True),
        sample(
            (2, 3, 4), ints((2, 4), 0, 3), multi_output=True, use_ignore=True, ignore_label=2, normalization="valid"
        ),
        sample((2, 3, 2, 2), ints((2, 2, 2), 0, 3), multi_output=True, normalization="batch"),
        sample((2, 3, 4), ints((2, 3), 0, 4), preserve_shape=True),
        sample((4, 5), ints((4,), 0, 5), smooth_alpha=0.1),
        sample((4, 5), ints((4,), 0, 5), out_grad=True),
        sample((2, 3, 4), (2, 3, 4), low=0.0),
    ]

    @property
    def own_gradient(self) -> bool:
        return not self.out_grad

    def complete(self, data: PartialShape, label: PartialShape) -> tuple[PartialShape, PartialShape]:
        shape = known_shape(data)
        return data, self.labels(shape) if label is None and shape is not None else label

    def infer_shape(self, data: Shape, label: Shape) -> Shape:
        if len(data) < 2 or self.rows(data)[1] == 0:
            raise ShapeError(f"SoftmaxOutput: data {data} has no classes; (n, classes) is needed")
        wanted = self.labels(data)
        if label != data and len(data) > 2 and not (self.multi_output or self.preserve_shape):
            raise ShapeError(
                f"SoftmaxOutput: data {data} has classes along one of several axes; multi_output=True takes axis 1, "
                "preserve_shape=True the last one"
            )
        if label != data and prod(label) != prod(wanted):
            raise ShapeError(f"SoftmaxOutput: label has shape {label}; data {data} needs {wanted}, or its own shape")
        return data

    def lower(self, F: Functions, data: Tensor, label: Tensor) -> Tensor:
        if self.multi_output or len(data.shape) == 2:
            return F.softmax(data, axis=1)
        if self.preserve_shape:
            return F.softmax(data, axis=-1)
        return F.reshape_like(F.softmax(F.Reshape(data, shape=self.rows(data.shape)), axis=1), data)

    def grad(self, F: Functions, data: Tensor, label: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        dx = F._softmax_output_grad(y, label, **self.attributes)
        return dx * dy if self.out_grad else dx, None


class SoftmaxOutputGrad(_SoftmaxOutput, name="_softmax_output_grad"):
    """The gradient of SoftmaxOutput from its output y and label; returns : as y."""

    refuses_gradient = True
    typed_like = 0
    mxnet = None
    samples = [
        sample((4, 5), ints((4,), 0, 5), gradient=False),
        sample((2, 3, 4), ints((2, 4), 0, 3), gradient=False, multi_output=True, smooth_alpha=0.2),
    ]

    def infer_shape(self, y: Shape, label: Shape) -> Shape:
        return forward_shape("SoftmaxOutput", y, label, **self.attributes)

    def numpy(self, y: Array, label: Array, out: Array | None = None) -> Array:
        dtype = y.dtype.type
        if label.shape == y.shape:
            return into((y - label.astype(y.dtype)) * dtype(self.grad_scale), out)
        if not y.size:  # a mean over nothing below
            return into(np.zeros_like(y), out)
        rows = y.reshape(self.rows(y.shape))
        classes = rows.shape[1]
        spread = self.smooth_alpha / max(classes - 1, 1)
        numbers = label.astype(np.int64).reshape(rows.shape[:1] + rows.shape[2:])
        places = numbers[:, None]
        result = rows - dtype(spread)
        inside = (places >= 0) & (places < classes)
        clipped = np.clip(places, 0, classes - 1)
        values = np.take_along_axis(result, clipped, 1)
        np.put_along_axis(
            result, clipped, np.where(inside, values - dtype(1.0 - self.smooth_alpha - spread), values), 1
        )
        ignored = numbers == int(self.ignore_label)
        if self.use_ignore:
            result[np.broadcast_to(ignored[:, None], result.shape)] = 0
        result *= dtype(self.grad_scale / self._divisor(rows, ignored))
        return into(result.reshape(y.shape), out)

    def lower(self, F: Functions, y: Tensor, label: Tensor) -> Tensor:
        if label.shape == y.shape:
            return (y - F._cast_like(label, y)) * self.grad_scale
        if 0 in y.shape:  # a mean over nothing below
            return F.zeros_like(y)
        rows = F.Reshape(y, shape=self.rows(y.shape))
        n, classes, *spatial = rows.shape
        spread = self.smooth_alpha / max(classes - 1, 1)
        numbers = F.Reshape(label, shape=(n, *spatial))
        named = F._cast_like(F.SwapAxis(F.one_hot(numbers, depth=classes), dim1=1, dim2=len(spatial) + 1), y)
        if self.smooth_alpha:
            rows, named = rows - spread, named * (1.0 - self.smooth_alpha - spread)
        result = rows - named
        known = F.broadcast_not_equal(F.Cast(numbers, dtype="int32"), int(self.ignore_label))
        if self.use_ignore:
            result = F.where(F.expand_dims(known, axis=1), result, 0.0)
        if self.normalization == "valid":
            result = result / F.broadcast_maximum(F.sum(F._cast_like(known, y)), 1.0)
        elif self.normalization == "batch":
            result = result * (1.0 / n)
        scale = self.grad_scale if self.normalization == "valid" else self.grad_scale / prod(spatial)
        return F.reshape_like(result * scale, y)

    def _divisor(self, rows: np.ndarray, ignored: np.ndarray) -> float:
        spatial = rows.shape[2] if self.multi_output else 1
        if self.normalization == "valid":
            return max(int(np.count_nonzero(~ignored)), 1)
        return spatial * (len(rows) if self.normalization == "batch" else 1)


class SoftmaxActivation(Operator, name="SoftmaxActivation"):
    """Softmax along the last axis, or with mode='channel' along axis 1. data : (n, ...); returns : as data."""

    dtype_kinds = "f"
    precision = "float32"
    mode: Literal["instance", "channel"] = "instance"
    numpy, onnx = run_lowering, emit_lowering
    samples = [sample((3, 4)), sample((2, 3, 4), mode="channel"), sample((2, 3, 2))]

    def infer_shape(self, data: Shape) -> Shape:
        least = 3 if self.mode == "channel" else 2
        if len(data) < least:
            raise ShapeError(
                f"SoftmaxActivation(mode={self.mode!r}): data {data}; {least} or more dimensions are needed"
            )
        return data

    @property
    def axis(self) -> int:
        """The axis that sums to 1."""
        return 1 if self.mode == "channel" else -1

    def lower(self, F: Functions, data: Tensor) -> Tensor:
        return F.softmax(data, axis=self.axis)

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        product = dy * y
        return product - y * F.sum(product, axis=self.axis, keepdims=True)


# -- regression ------------------------------------------------------------------------------------------------


class _Regression(Operator):
    """Base: a function of data whose gradient is grad_scale * difference(y, label) per output of an instance."""

    typed_like = 0
    dtype_kinds = "f"
    precision = "float32"
    own_gradient = True
    grad_scale: float = 1.0
    kind: ClassVar[str]
    numpy, onnx = copied, emit_lowering
    samples = [sample((3, 4), (3, 4)), sample((3, 1), (3,), grad_scale=0.5), sample((2, 3, 2), (2, 3, 2))]

    def complete(self, data: PartialShape, label: PartialShape) -> tuple[PartialShape, PartialShape]:
        return data, data if label is None else label

    def infer_shape(self, data: Shape, label: Shape) -> Shape:
        if not data or data[:1] != label[:1] or prod(data) != prod(label):
            raise ShapeError(f"{self.name}: label has shape {label}; data {data} needs as many numbers")
        return data

    def lower(self, F: Functions, data: Tensor, label: Tensor) -> Tensor:
        return F.identity(data)

    def grad(self, F: Functions, data: Tensor, label: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        return F._regression_output_grad(y, label, grad_scale=self.grad_scale, kind=self.kind), None


class LinearRegressionOutput(_Regression, name="LinearRegressionOutput"):
    """data unchanged; the gradient is grad_scale * (data - label), divided by the numbers per instance: L2 loss."""

    kind = "difference"
    samples = _Regression.samples


class MAERegressionOutput(_Regression, name="MAERegressionOutput"):
    """data unchanged; the gradient is grad_scale * sign(data - label), divided by the numbers per instance: L1 loss."""

    kind = "sign"
    samples = _Regression.samples


class LogisticRegressionOutput(_Regression, name="LogisticRegressionOutput"):
    """sigmoid(data); the gradient is grad_scale * (sigmoid(data) - label), divided by the numbers per instance."""

    kind = "difference"
    numpy = run_lowering
    samples = [sample((3, 4), (3, 4), low=0.0), sample((3, 1), (3,), low=0.0, grad_scale=0.5)]

    def lower(self, F: Functions, data: Tensor, label: Tensor) -> Tensor:
        return F.sigmoid(data)


class RegressionOutputGrad(Operator, name="_regression_output_grad"):
    """The gradient of the regression outputs from output and label: the difference, or its sign; returns : as y."""

    arrays_only = ("label",)
    refuses_gradient = True
    shaped_like = 0
    typed_like = 0
    dtype_kinds = "f"
    mxnet = None
    grad_scale: float = 1.0
    kind: Literal["difference", "sign"] = "difference"
    numpy = run_lowering
    samples = [sample((3, 4), (3, 4), gradient=False), sample((3, 1), (3,), gradient=False, kind="sign")]

    def lower(self, F: Functions, y: Tensor, label: Tensor) -> Tensor:
        difference = y - F._cast_like(F.reshape_like(label, y), y)
        difference = F.sign(difference) if self.kind == "sign" else difference
        return difference * (self.grad_scale / max(prod(y.shape[1:]), 1))


# -- margins and losses ----------------------------------------------------------------------------------------


class SVMOutput(Operator, name="SVMOutput"):
    """data unchanged; the gradient is the hinge loss's for each class: of the squared hinge loss, or of the plain loss
    with use_linear.

    data : (n, classes); label : (n,) class numbers; margin and regularization_coefficient : the loss's
    """

    typed_like = 0
    dtype_kinds = "f"
    precision = "float32"
    own_gradient = True
    margin: float = 1.0
    regularization_coefficient: float = 1.0
    use_linear: bool = False
    numpy, onnx = copied, emit_lowering
    samples = [
        sample((4, 5), ints((4,), 0, 5), low=-2.0, high=2.0),
        sample((4, 5), ints((4,), 0, 5), low=-2.0, high=2.0, use_linear=True, margin=0.5),
        sample((3, 2), ints((3,), 0, 2), regularization_coefficient=0.5),
    ]

    def complete(self, data: PartialShape, label: PartialShape) -> tuple[PartialShape, PartialShape]:
        return data, data[:1] if label is None and data is not None else label

    def infer_shape(self, data: Shape, label: Shape) -> Shape:
        if len(data) != 2 or label != data[:1]:
            raise ShapeError(f"SVMOutput: data {data} and label {label}; (n, classes) and (n,) are needed")
        return data

    def lower(self, F: Functions, data: Tensor, label: Tensor) -> Tensor:
        return F.identity(data)

    def grad(self, F: Functions, data: Tensor, label: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        # The label's score counts against the margin with its own sign, the other classes' scores with the opposite
        # sign.
        side = F._one_hot_subtract(F.ones_like(data), label) * 2.0 - 1.0
        missing = side * data + self.margin
        violated = F.broadcast_greater(missing, 0.0)
        amount = violated if self.use_linear else violated * missing * 2.0
        return side * amount * self.regularization_coefficient, None


class MakeLoss(Operator, name="MakeLoss"):
    """data unchanged, a loss: its gradient is grad_scale, whatever gradient arrives from above.

    normalization : divide by nothing, the batch, or the number of elements above valid_thresh
    """

    shaped_like = 0
    dtype_kinds = "f"
    precision = "float32"
    own_gradient = True
    grad_scale: float = 1.0
    valid_thresh: float = 0.0
    normalization: Literal["null", "batch", "valid"] = "null"
    numpy, onnx = copied, emit_lowering
    samples = [
        sample((3, 4)),
        sample((3, 4), grad_scale=0.5, normalization="batch"),
        sample((3, 4), normalization="valid", valid_thresh=0.2),
    ]

    def lower(self, F: Functions, data: Tensor) -> Tensor:
        return F.identity(data)

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        ones = F.ones_like(data) * self.grad_scale
        if self.normalization == "null":
            return ones
        if self.normalization == "batch":
            return ones / F._size_ratio(F.sum(data, axis=0, exclude=True), F.sum(data))
        count = F.sum(F.broadcast_greater(data, self.valid_thresh))
        return F._sum_like(ones / F.broadcast_maximum(count, 1.0), data)  # the count of a scalar has an axis
