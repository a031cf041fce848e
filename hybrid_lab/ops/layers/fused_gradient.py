"""Gradients that engines run as one kernel each: of BatchNorm, LayerNorm, the softmax family and gelu."""

from __future__ import annotations

import math
from math import prod

import numpy as np

from hybrid_lab.diagnostics.errors import ShapeError
from hybrid_lab.ops.arrays.reduce import accumulate
from hybrid_lab.ops.elementwise.special import error_function
from hybrid_lab.ops.framework import Elementwise, Operator, Pointwise, Signature, contiguous, into, kept_shape, sample
from hybrid_lab.ops.framework.lowering import differentiate_lowering, emit_lowering
from hybrid_lab.ops.framework.protocols import Functions, Scratch, Tensor
from hybrid_lab.ops.framework.shapes import axis_of
from hybrid_lab.ops.framework.types import Array, Arrays, Outs, Shape


class _FusedGradient(Operator):
    """Base: differentiated once more, it goes through its lowering."""

    dtype_kinds = "f"
    mxnet = None
    grad = differentiate_lowering

    def first_shape(self, *shapes: Shape) -> Shape:
        return shapes[1]


class BatchNormGrad(_FusedGradient, name="_batch_norm_grad"):
    """The gradients of BatchNorm's data, gamma and beta for batch statistics.

    dy, data : one shape; gamma, mean, inverse : (channels,), the last two BatchNorm's hidden outputs; fix_gamma counts
    gamma as 1; returns : as data, then twice (channels,)
    """

    fix_gamma: bool = True
    axis: int = 1
    signature = Signature(outputs=3)
    onnx = emit_lowering
    samples = [
        sample((4, 3), (4, 3), (3,), (3,), np.array([0.7, 1.3, 0.9], "float32")),
        sample((2, 3, 5), (2, 3, 5), (3,), (3,), np.array([0.7, 1.3, 0.9], "float32"), fix_gamma=False),
        sample((2, 4, 3), (2, 4, 3), (3,), (3,), np.array([0.7, 1.3, 0.9], "float32"), fix_gamma=False, axis=-1),
    ]

    def reads_for(self, output: int, index: int) -> bool:
        if index == 2:
            return output == 0 and not self.fix_gamma
        return output < 2 or index == 0

    def infer_shape(self, dy: Shape, data: Shape, gamma: Shape, mean: Shape, inverse: Shape) -> list[Shape]:
        if dy != data or any(vector != (data[self.axis],) for vector in (gamma, mean, inverse)):
            raise ShapeError(f"{self.name}: data {data} and dy {dy} with vectors {gamma}, {mean} and {inverse}")
        return [data, gamma, gamma]

    def numpy(
        self, dy: Array, data: Array, gamma: Array, mean: Array, inverse: Array, out: Outs = None,
        scratch: Scratch = np.empty,
    ) -> Arrays:  # fmt: skip
        axis = self.axis % data.ndim
        outer, channels, inner = prod(data.shape[:axis]), data.shape[axis], prod(data.shape[axis + 1 :])
        ddata, dgamma, dbeta = out if out is not None else (None, None, None)
        dgamma = np.empty(channels, data.dtype) if dgamma is None else dgamma
        dbeta = np.empty(channels, data.dtype) if dbeta is None else dbeta
        result = contiguous(ddata, data.shape, data.dtype)
        d, x, z = (item.reshape(outer, channels, inner) for item in (dy, data, result))
        count = data.dtype.type(max(outer * inner, 1))
        accumulate(d, (0, 2), dbeta.reshape(1, channels, 1), scratch)
        np.subtract(x, mean[:, None], out=z)
        if inner == 1:
            products = np.multiply(d, z, out=scratch(z.shape, z.dtype))
            np.add.reduce(products[:, :, 0], axis=0, out=dgamma)
        else:
            np.add.reduce(np.vecdot(d, z, out=scratch((outer, channels), z.dtype)), axis=0, out=dgamma)
        dgamma *= inverse
        z *= (dgamma * inverse / -count)[:, None]
        z += d
        z -= (dbeta / count)[:, None]
        z *= (inverse if self.fix_gamma else inverse * gamma)[:, None]
        return into(result, ddata), dgamma, dbeta

    def lower(
        self, F: Functions, dy: Tensor, data: Tensor, gamma: Tensor, mean: Tensor, inverse: Tensor
    ) -> tuple[Tensor, ...]:
        def channels(vector: Tensor) -> Tensor:
            return F._channel_like(vector, data, axis=self.axis)

        scale = channels(inverse if self.fix_gamma else inverse * gamma)
        dbeta = F.sum(dy, axis=self.axis, exclude=True)
        centred = data - channels(mean)
        dgamma = F.sum(dy * centred, axis=self.axis, exclude=True) * inverse
        count = F._size_ratio(data, mean)
        slope, shift = channels(dgamma * inverse / count), channels(dbeta / count)
        return (dy - centred * slope - shift) * scale, dgamma, dbeta


class LayerNormGrad(_FusedGradient, name="_layer_norm_grad"):
    """The gradients of LayerNorm's data, gamma and beta.

    dy, data : one shape; gamma : (n,); mean, deviation : LayerNorm's hidden outputs, with `axis` as 1
    returns : as data, then twice (n,)
    """

    half_in_float32 = True
    axis: int = -1
    signature = Signature(outputs=3)
    onnx = emit_lowering
    samples = [
        sample((4, 5), (4, 5), (5,), (4, 1), np.array([[0.7], [1.3], [0.9], [1.1]], "float32")),
        sample((2, 3, 2), (2, 3, 2), (3,), (2, 1, 2), np.array([[[0.7, 1.3]], [[0.9, 1.1]]], "float32"), axis=1),
    ]

    def reads_for(self, output: int, index: int) -> bool:
        return output == 0 or index == 0 or (output == 1 and index != 2)

    def infer_shape(self, dy: Shape, data: Shape, gamma: Shape, mean: Shape, deviation: Shape) -> list[Shape]:
        axis = axis_of(self.name, self.axis, len(data))
        row = kept_shape(data, (axis,))
        if dy != data or gamma != (data[axis],) or mean != row or deviation != row:
            raise ShapeError(f"{self.name}: data {data} and dy {dy} with {gamma}, {mean} and {deviation}")
        return [data, gamma, gamma]

    def numpy(
        self, dy: Array, data: Array, gamma: Array, mean: Array, deviation: Array, out: Outs = None,
        scratch: Scratch = np.empty,
    ) -> Arrays:  # fmt: skip
        axis = self.axis % data.ndim
        others = tuple(index for index in range(data.ndim) if index != axis)
        vector = tuple(-1 if index == axis else 1 for index in range(data.ndim))
        ddata, dgamma, dbeta = out if out is not None else (None, None, None)
        dgamma = np.empty(gamma.shape, data.dtype) if dgamma is None else dgamma
        dbeta = np.empty(gamma.shape, data.dtype) if dbeta is None else dbeta
        z = contiguous(ddata, data.shape, data.dtype)
        row, narrow = kept_shape(data.shape, others), kept_shape(data.shape, (axis,))
        count = data.dtype.type(max(data.shape[axis], 1))
        normalized = np.subtract(data, mean, out=scratch(data.shape, data.dtype))
        normalized /= deviation
        accumulate(dy, others, dbeta.reshape(row), scratch)
        accumulate(np.multiply(dy, normalized, out=z), others, dgamma.reshape(row), scratch)
        factor = gamma.reshape(vector)
        z *= factor
        second = accumulate(z, (axis,), scratch(narrow, data.dtype), scratch)
        second /= count
        np.multiply(dy, factor, out=z)
        first = accumulate(z, (axis,), scratch(narrow, data.dtype), scratch)
        first /= count
        z -= first
        normalized *= second
        z -= normalized
        z /= deviation
        return into(z, ddata), dgamma, dbeta

    def lower(
        self, F: Functions, dy: Tensor, data: Tensor, gamma: Tensor, mean: Tensor, deviation: Tensor
    ) -> tuple[Tensor, ...]:
        normalized = (data - mean) / deviation
        scaled = dy * F._channel_like(gamma, data, axis=self.axis)
        first = F.mean(scaled, axis=self.axis, keepdims=True)
        second = F.mean(scaled * normalized, axis=self.axis, keepdims=True)
        ddata = (scaled - first - normalized * second) / deviation
        dgamma = F.sum(dy * normalized, axis=self.axis, exclude=True)
        return ddata, dgamma, F.sum(dy, axis=self.axis, exclude=True)


class SoftmaxGrad(_FusedGradient, name="_softmax_grad"):
    """The gradient of softmax from its output: y * (dy - sum(dy * y)). dy, y : one shape; returns : that shape."""

    shaped_like = 1
    axis: int = -1
    alias_safe = True
    onnx = emit_lowering
    samples = [sample((4, 5), (4, 5)), sample((2, 3, 4), (2, 3, 4), axis=1)]

    def numpy(self, dy: Array, y: Array, out: Array | None = None, scratch: Scratch = np.empty) -> Array:
        axis = self.axis % y.ndim
        products = np.multiply(dy, y, out=scratch(y.shape, y.dtype))
        total = accumulate(products, (axis,), scratch(kept_shape(y.shape, (axis,)), y.dtype), scratch)
        shifted = np.subtract(dy, total, out=products)
        return np.multiply(shifted, y, out=np.empty(y.shape, y.dtype) if out is None else out)

    def lower(self, F: Functions, dy: Tensor, y: Tensor) -> Tensor:
        product = dy * y
        return product - y * F.sum(product, axis=self.axis, keepdims=True)


class LogSoftmaxGrad(_FusedGradient, name="_log_softmax_grad"):
    """The gradient of log_softmax from its output: dy - exp(y) * sum(dy). dy, y : one shape; returns : that shape."""

    shaped_like = 1
    axis: int = -1
    onnx = emit_lowering
    samples = [sample((4, 5), (4, 5)), sample((2, 3, 4), (2, 3, 4), axis=1)]

    def numpy(self, dy: Array, y: Array, out: Array | None = None, scratch: Scratch = np.empty) -> Array:
        axis = self.axis % y.ndim
        total = accumulate(dy, (axis,), scratch(kept_shape(y.shape, (axis,)), y.dtype), scratch)
        result = np.exp(y, out=np.empty(y.shape, y.dtype) if out is None else out)
        result *= total
        return np.subtract(dy, result, out=result)

    def lower(self, F: Functions, dy: Tensor, y: Tensor) -> Tensor:
        return dy - F.exp(y) * F.sum(dy, axis=self.axis, keepdims=True)


_HALF, _DENSITY = math.sqrt(0.5), 1.0 / math.sqrt(2.0 * math.pi)


class GeluGrad(Elementwise, name="_gelu_grad"):
    """The gradient of gelu: dy * (P(x) + x * p(x)), P and p the normal distribution and its density.

    dy, x : one shape; returns : that shape
    """

    shaped_like = 1
    dtype_kinds = "f"
    mxnet = None
    grad = differentiate_lowering
    alias_safe = False
    triton = Pointwise(
        f"{{0}} * (0.5 + 0.5 * tl.erf({{1}} * {_HALF!r}) + {{1}} * tl.exp({{1}} * {{1}} * -0.5) * {_DENSITY!r})"
    )
    onnx = emit_lowering
    samples = [sample((3, 4), (3, 4), low=-3.0, high=3.0)]

    def numpy(self, dy: Array, x: Array, out: Array | None = None, scratch: Scratch = np.empty) -> Array:
        kind = x.dtype.type
        out = np.empty(x.shape, x.dtype) if out is None else out
        slope = np.multiply(x, kind(_HALF), out=scratch(x.shape, x.dtype))
        error_function(slope, out, scratch)
        out += kind(1)
        out *= kind(0.5)
        np.multiply(x, x, out=slope)
        slope *= kind(-0.5)
        np.exp(slope, out=slope)
        slope *= x
        slope *= kind(_DENSITY)
        out += slope
        out *= dy
        return out

    def lower(self, F: Functions, dy: Tensor, x: Tensor) -> Tensor:
        return dy * ((F.erf(x * _HALF) + 1.0) * 0.5 + x * F.exp(x * x * -0.5) * _DENSITY)
