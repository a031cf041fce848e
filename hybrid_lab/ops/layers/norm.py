"""Normalization: BatchNorm with its running statistics, LayerNorm, L2Normalization."""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Any, Literal, cast

import numpy as np

from hybrid_lab.diagnostics.errors import DTypeError, ShapeError
from hybrid_lab.ops.arrays.reduce import accumulate
from hybrid_lab.ops.framework import Operator, Signature, axis_of, contiguous, filled, into, sample
from hybrid_lab.ops.framework.lowering import emit_lowering
from hybrid_lab.ops.framework.protocols import Functions, Gradients, OnnxGraph, Scratch, Tensor, Wanted
from hybrid_lab.ops.framework.types import Array, Arrays, Outs, PartialShape, PartialShapes, Shape


def _check_vectors(name: str, wanted: tuple[int, ...], data: tuple[int, ...], **given: tuple[int, ...]) -> None:
    for key, shape in given.items():
        if shape != wanted:
            raise ShapeError(f"{name}: {key} has shape {shape}; data {data} needs {wanted}")


class BatchNorm(Operator, name="BatchNorm"):
    """Each channel normalized over the batch: y = (x - mean) / sqrt(var + eps) * gamma + beta.

    In training mean and variance (divided by the count, not count - 1) come from the batch and the running ones follow:
    running = running * momentum + batch * (1 - momentum). In prediction, or with use_global_stats, the running
    statistics are used.
    fix_gamma counts gamma as 1.

    data : (n, ..., channels, ...), floating; gamma, beta, moving_mean, moving_var : (channels,)
    returns : as data; with output_mean_var also the mean and 1 / sqrt(var + eps), both (channels,)
    """

    dtype_kinds = "f"
    half_in_float32 = True
    eps: float = 1e-3
    momentum: float = 0.9
    fix_gamma: bool = True
    use_global_stats: bool = False
    output_mean_var: bool = False
    axis: int = 1
    _training: bool = False

    mode_dependent = True
    samples = [
        sample((4, 3), (3,), (3,), (3,), np.array([0.7, 1.3, 0.9], "float32")),
        sample((4, 3, 5), (3,), (3,), (3,), np.array([0.7, 1.3, 0.9], "float32"), fix_gamma=False, eps=1e-5),
        sample(
            (2, 3, 4, 4), (3,), (3,), (3,), np.array([0.7, 1.3, 0.9], "float32"), fix_gamma=False, use_global_stats=True
        ),
        sample(
            (4, 5, 3),
            (3,),
            (3,),
            (3,),
            np.array([0.7, 1.3, 0.9], "float32"),
            fix_gamma=False,
            axis=-1,
            output_mean_var=True,
            gradient=False,
        ),
    ]

    @cached_property
    def signature(self) -> Signature:
        visible = 3 if self.output_mean_var else 1
        return Signature(self.input_names, 3, visible, aux=("moving_mean", "moving_var"))

    @property
    def from_batch(self) -> bool:
        """Whether the statistics of the batch are used."""
        return self._training and not self.use_global_stats

    def reads_for(self, output: int, index: int) -> bool:
        if output == 0:
            return index < 3 or not self.from_batch
        return index == (0 if self.from_batch else output + 2)

    def bind_mode(self, train: bool) -> Operator:
        return self if self._training == train else self.variant(_training=train)

    def fix_mode(self, train: bool) -> Operator | None:
        return self if self.use_global_stats else None if train else self.variant(use_global_stats=True)

    def complete(self, data: PartialShape, *vectors: PartialShape) -> PartialShapes:
        size = None if data is None else data[axis_of("BatchNorm", self.axis, len(data))]
        return (data, *(filled(shape, (size,)) for shape in vectors))

    def infer_shape(self, data: Shape, gamma: Shape, beta: Shape, moving_mean: Shape, moving_var: Shape) -> list[Shape]:
        vector = (data[axis_of("BatchNorm", self.axis, len(data))],)
        _check_vectors(
            "BatchNorm", vector, data, gamma=gamma, beta=beta, moving_mean=moving_mean, moving_var=moving_var
        )
        return [data, vector, vector]

    def infer_type(self, *dtypes: np.dtype) -> list[np.dtype]:
        # Parameters may stay float32 beside float16 data, as Gluon keeps them.
        if any(dtype != dtypes[1] for dtype in dtypes[2:]):
            given = ", ".join(dtype.name for dtype in dtypes[1:])
            raise DTypeError(f"{self.name}: gamma, beta, moving_mean and moving_var need one dtype, they have {given}")
        return [dtypes[0], dtypes[3] or dtypes[0], dtypes[4] or dtypes[0]]

    def numpy(
        self, data: Array, gamma: Array, beta: Array, moving_mean: Array, moving_var: Array, out: Outs = None,
        scratch: Scratch = np.empty,
    ) -> Arrays:  # fmt: skip
        axis = self.axis % data.ndim
        outer, channels, inner = prod(data.shape[:axis]), data.shape[axis], prod(data.shape[axis + 1 :])
        y, mean, inverse = out if out is not None else (None, None, None)
        mean = np.empty(channels, moving_mean.dtype) if mean is None else mean
        inverse = np.empty(channels, moving_var.dtype) if inverse is None else inverse
        result = contiguous(y, data.shape, data.dtype)
        x, z = data.reshape(outer, channels, inner), result.reshape(outer, channels, inner)
        if self.from_batch:
            accumulate(x, (0, 2), mean.reshape(1, channels, 1), scratch)
            mean /= max(outer * inner, 1)
            np.subtract(x, mean[:, None], out=z)
            self._variance(z, inverse, scratch)
        else:
            np.copyto(mean, moving_mean)
            np.copyto(inverse, moving_var)
            np.subtract(x, mean[:, None], out=z)
        inverse += inverse.dtype.type(self.eps)
        np.sqrt(inverse, out=inverse)
        np.reciprocal(inverse, out=inverse)
        z *= inverse[:, None] if self.fix_gamma else (inverse * gamma)[:, None]
        z += beta[:, None]
        return into(result, y), mean, inverse

    @staticmethod
    def _variance(centred: np.ndarray, variance: np.ndarray, scratch: Scratch) -> None:
        outer, channels, inner = centred.shape
        if inner == 1:
            flat = centred.reshape(outer, channels)
            np.add.reduce(np.square(flat, out=scratch(flat.shape, flat.dtype)), axis=0, out=variance)
        else:
            squares = np.vecdot(centred, centred, out=scratch((outer, channels), centred.dtype))
            np.add.reduce(squares, axis=0, out=variance)
        variance /= max(outer * inner, 1)

    def aux(self, F: Functions, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
        if not self.from_batch:
            return {}
        moving_mean, moving_var = inputs[3], inputs[4]
        _, mean, inverse = outputs
        # Rounding leaves a constant channel a little beside 0, and a variance below 0 has no root.
        variance = F.broadcast_maximum(1.0 / F.square(inverse) - self.eps, 0.0)
        rest = 1.0 - self.momentum
        return {
            "moving_mean": moving_mean * self.momentum + mean * rest,
            "moving_var": moving_var * self.momentum + variance * rest,
        }

    def grad(
        self, F: Functions, data: Tensor, gamma: Tensor, beta: Tensor, moving_mean: Tensor, moving_var: Tensor,
        *rest: Tensor, wanted: Wanted = None,
    ) -> Gradients:  # fmt: skip
        _, mean, inverse, dy = rest[:4]
        if dy is None:
            return None, None, None, None, None
        wanted = wanted or (True,) * 5
        # float16 data may stand beside float32 parameters and statistics: the gradients are computed in their dtype.
        given, data, dy = data, F._cast_like(data, mean), F._cast_like(dy, mean)
        if self.from_batch:
            shared = {"fix_gamma": self.fix_gamma, "axis": self.axis}
            gradients = F._batch_norm_grad(dy, data, gamma, mean, inverse, **shared)
            ddata, dgamma, dbeta = cast(Gradients, gradients)
            return F._cast_like(ddata, given), None if self.fix_gamma else dgamma, dbeta, None, None
        ddata = dgamma = None
        if wanted[1] and not self.fix_gamma:
            centred = data - F._channel_like(mean, data, axis=self.axis)
            dgamma = F.sum(dy * centred, axis=self.axis, exclude=True) * inverse
        if wanted[0]:
            scale = F._channel_like(inverse if self.fix_gamma else inverse * gamma, data, axis=self.axis)
            ddata = F._cast_like(dy * scale, given)
        dbeta = F.sum(dy, axis=self.axis, exclude=True)
        return ddata, None if self.fix_gamma else dgamma, dbeta, None, None

    def lower(
        self, F: Functions, data: Tensor, gamma: Tensor, beta: Tensor, moving_mean: Tensor, moving_var: Tensor
    ) -> tuple[Tensor, ...]:
        mean, variance = moving_mean, moving_var
        given, data = data, F._cast_like(data, moving_mean)  # float16 data beside float32 parameters
        if self.from_batch:
            mean = F.mean(data, axis=self.axis, exclude=True)
        centred = data - F._channel_like(mean, data, axis=self.axis)
        if self.from_batch:
            variance = F.mean(F.square(centred), axis=self.axis, exclude=True)
        inverse = F.rsqrt(variance + self.eps)
        scale = inverse if self.fix_gamma else inverse * gamma
        y = centred * F._channel_like(scale, data, axis=self.axis) + F._channel_like(beta, data, axis=self.axis)
        return F._cast_like(y, given), mean if self.from_batch else F.identity(mean), inverse

    def in_parts(self, rank: int) -> bool:
        """Whether ONNX has no operator for it."""
        return self.from_batch or self.axis % rank != 1

    def onnx(self, g: OnnxGraph, *inputs: str) -> tuple[str, ...]:
        data, gamma, beta, mean, variance = inputs
        shape = g.shape(data)
        if self.in_parts(len(shape)):
            return emit_lowering(self, g, *inputs)
        gamma = g.const(np.ones(shape[1]), g.dtype(beta)) if self.fix_gamma else gamma
        y = g.BatchNormalization(data, gamma, beta, mean, variance, epsilon=self.eps, momentum=self.momentum)
        return y, g.Identity(mean), g.Reciprocal(g.Sqrt(g.Add(variance, g.const(self.eps, g.dtype(variance)))))


class BatchNormWithReLU(BatchNorm, name="_contrib_BatchNormWithReLU"):
    """BatchNorm and then max(y, 0), in one operator. Inputs, attributes and outputs are BatchNorm's."""

    samples = [
        sample((4, 3), (3,), (3,), (3,), np.array([0.7, 1.3, 0.9], "float32")),
        sample((2, 3, 4, 4), (3,), (3,), (3,), np.array([0.7, 1.3, 0.9], "float32"), fix_gamma=False, eps=1e-5),
    ]

    def numpy(
        self, data: Array, gamma: Array, beta: Array, moving_mean: Array, moving_var: Array, out: Outs = None,
        scratch: Scratch = np.empty,
    ) -> Arrays:  # fmt: skip
        outputs = super().numpy(data, gamma, beta, moving_mean, moving_var, out, scratch)
        np.maximum(outputs[0], 0, out=outputs[0])
        return outputs

    def grad(self, F: Functions, *values: Tensor, wanted: Wanted = None) -> Gradients:
        inputs, (y, mean, inverse), heads = values[:5], values[5:8], values[8:]
        if heads[0] is not None:
            heads = (F._relu_grad(heads[0], y), *heads[1:])
        return super().grad(F, *inputs, y, mean, inverse, *heads, wanted=wanted)

    def lower(self, F: Functions, *inputs: Tensor) -> tuple[Tensor, ...]:
        y, mean, inverse = super().lower(F, *inputs)
        return F.relu(y), mean, inverse

    def onnx(self, g: OnnxGraph, *inputs: str) -> tuple[str, ...]:
        y, mean, inverse = super().onnx(g, *inputs)
        return y if self.in_parts(len(g.shape(inputs[0]))) else g.Relu(y), mean, inverse


class LayerNorm(Operator, name="LayerNorm"):
    """Each vector along `axis` normalized: y = (x - mean) / sqrt(var + eps) * gamma + beta.

    data : (..., n, ...), floating; gamma, beta : (n,)
    returns : as data; with output_mean_var also the mean and sqrt(var + eps), with `axis` as 1
    """

    dtype_kinds = "f"
    precision = "float32"
    half_in_float32 = True
    axis: int = -1
    eps: float = 1e-5
    output_mean_var: bool = False

    samples = [
        sample((4, 5), (5,), (5,)),
        sample((2, 3, 4), (3,), (3,), axis=1, eps=1e-3),
        sample((2, 5), (5,), (5,), output_mean_var=True, gradient=False),
    ]

    @cached_property
    def signature(self) -> Signature:
        return Signature(self.input_names, 3, 3 if self.output_mean_var else 1)

    def complete(self, data: PartialShape, *vectors: PartialShape) -> PartialShapes:
        size = None if data is None else data[axis_of("LayerNorm", self.axis, len(data))]
        return (data, *(filled(shape, (size,)) for shape in vectors))

    def reads_for(self, output: int, index: int) -> bool:
        return output == 0 or index == 0

    def infer_shape(self, data: Shape, gamma: Shape, beta: Shape) -> list[Shape]:
        axis = axis_of("LayerNorm", self.axis, len(data))
        _check_vectors("LayerNorm", (data[axis],), data, gamma=gamma, beta=beta)
        kept = (*data[:axis], 1, *data[axis + 1 :])
        return [data, kept, kept]

    def _vector(self, F: Functions, value: Tensor, data: Tensor) -> Tensor:
        return F._channel_like(value, data, axis=self.axis)

    def numpy(self, data: Array, gamma: Array, beta: Array, out: Outs = None, scratch: Scratch = np.empty) -> Arrays:
        axis = self.axis % data.ndim
        shape = (*data.shape[:axis], 1, *data.shape[axis + 1 :])
        y, mean, deviation = out if out is not None else (None, None, None)
        y = np.empty(data.shape, data.dtype) if y is None else y
        mean = np.empty(shape, data.dtype) if mean is None else mean
        deviation = np.empty(shape, data.dtype) if deviation is None else deviation
        count = data.dtype.type(max(data.shape[axis], 1))
        accumulate(data, (axis,), mean, scratch)
        mean /= count
        np.subtract(data, mean, out=y)
        accumulate(np.square(y, out=scratch(data.shape, data.dtype)), (axis,), deviation, scratch)
        deviation /= count
        deviation += data.dtype.type(self.eps)
        np.sqrt(deviation, out=deviation)
        y /= deviation
        vector = tuple(-1 if index == axis else 1 for index in range(data.ndim))
        y *= gamma.reshape(vector)
        y += beta.reshape(vector)
        return y, mean, deviation

    def grad(
        self, F: Functions, data: Tensor, gamma: Tensor, beta: Tensor, y: Tensor, mean: Tensor, deviation: Tensor,
        dy: Tensor | None, *others: Tensor,
    ) -> Gradients:  # fmt: skip
        if dy is None:
            return None, None, None
        return cast(Gradients, F._layer_norm_grad(dy, data, gamma, mean, deviation, axis=self.axis))

    def lower(self, F: Functions, data: Tensor, gamma: Tensor, beta: Tensor) -> tuple[Tensor, ...]:
        mean = F.mean(data, axis=self.axis, keepdims=True)
        centred = data - mean
        deviation = F.sqrt(F.mean(F.square(centred), axis=self.axis, keepdims=True) + self.eps)
        y = centred / deviation * self._vector(F, gamma, data) + self._vector(F, beta, data)
        return y, mean, deviation

    def onnx(self, g: OnnxGraph, data: str, gamma: str, beta: str) -> tuple[str, ...]:
        axis = self.axis % len(g.shape(data))
        if axis != len(g.shape(data)) - 1:
            return emit_lowering(self, g, data, gamma, beta)
        mean = g.ReduceMean(data, axes=[axis], keepdims=1)
        centred = g.Sub(data, mean)
        variance = g.ReduceMean(g.Mul(centred, centred), axes=[axis], keepdims=1)
        deviation = g.Sqrt(g.Add(variance, g.const(self.eps, g.dtype(data))))
        return g.LayerNormalization(data, gamma, beta, axis=axis, epsilon=self.eps), mean, deviation


class L2Normalization(Operator, name="L2Normalization"):
    """x / sqrt(sum(x^2) + eps), the sum per sample (instance), over axis 1 (channel) or over the axes behind it
    (spatial).

    data : one or more dimensions (channel and spatial: three or more), floating; returns : as data
    """

    dtype_kinds = "f"
    precision = "float32"
    eps: float = 1e-10
    mode: Literal["instance", "channel", "spatial"] = "instance"
    onnx = emit_lowering
    samples = [sample((2, 3, 4), mode=mode) for mode in ("instance", "channel", "spatial")]

    def infer_shape(self, data: Shape) -> Shape:
        if len(data) < (1 if self.mode == "instance" else 3):
            raise ShapeError(f"L2Normalization: mode={self.mode!r} needs more dimensions than {data} has")
        return data

    @property
    def _axes(self) -> dict[str, Any]:
        if self.mode == "channel":
            return {"axis": 1}
        return {"axis": 0 if self.mode == "instance" else (0, 1), "exclude": True}

    def numpy(self, data: Array, out: Array | None = None) -> Array:
        axes = (1,) if self.mode == "channel" else tuple(range(1 if self.mode == "instance" else 2, data.ndim))
        size = np.sqrt(np.square(data).sum(axis=axes, keepdims=True) + data.dtype.type(self.eps))
        return np.divide(data, size, out=out)

    def grad(self, F: Functions, data: Tensor, y: Tensor, dy: Tensor) -> Tensor:
        size = F.sqrt(F.sum(F.square(data), keepdims=True, **self._axes) + self.eps)
        return (dy - y * F.sum(dy * y, keepdims=True, **self._axes)) / size

    def lower(self, F: Functions, data: Tensor) -> Tensor:
        return data / F.sqrt(F.sum(F.square(data), keepdims=True, **self._axes) + self.eps)
