"""Scale and shift per channel: the rest of a BatchNorm once its statistics stand still."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hybrid_lab.diagnostics.errors import ShapeError
from hybrid_lab.ops.framework import Operator, axis_of, sample
from hybrid_lab.ops.framework.lowering import emit_lowering
from hybrid_lab.ops.framework.protocols import Functions, Gradients, OnnxGraph, Tensor
from hybrid_lab.ops.framework.types import Array, PartialShape, PartialShapes, Shape


class ChannelAffine(Operator, name="_channel_affine"):
    """y = data * scale + shift, with one number of scale and shift per channel.

    data : (n, ..., channels, ...), floating; scale, shift : (channels,); axis : the channels of data
    returns : as data
    """

    dtype_kinds = "f"
    mxnet = None
    alias_safe = True
    axis: int = 1
    samples = [
        sample((4, 3), (3,), (3,)), sample((2, 3, 4, 5), (3,), (3,)), sample((2, 4, 3), (3,), (3,), axis=-1),
        sample((2, 3, 4), (3,), (3,), dtype="float16"),
    ]  # fmt: skip

    def complete(self, data: PartialShape, *vectors: PartialShape) -> PartialShapes:
        size = None if data is None else data[axis_of(self.name, self.axis, len(data))]
        return (data, *((size,) if shape is None else shape for shape in vectors))

    def infer_shape(self, data: Shape, scale: Shape, shift: Shape) -> Shape:
        expected = (data[axis_of(self.name, self.axis, len(data))],)
        if scale != expected or shift != expected:
            raise ShapeError(
                f"{self.name}: data {data} needs scale and shift of shape {expected}, not {scale}, {shift}"
            )
        return data

    def numpy(self, data: Array, scale: Array, shift: Array, out: Array | None = None) -> Array:
        vector = tuple(-1 if index == self.axis % data.ndim else 1 for index in range(data.ndim))
        result = np.multiply(data, scale.reshape(vector), out=out)
        result += shift.reshape(vector)
        return result

    def bound(self, sizes: Sequence[float], shapes: Sequence[Shape], filters: Callable[[int], float]) -> float:
        return sizes[0] * sizes[1] + sizes[2]

    def grad(self, F: Functions, data: Tensor, scale: Tensor, shift: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        return (
            dy * F._channel_like(scale, data, axis=self.axis),
            F.sum(dy * data, axis=self.axis, exclude=True),
            F.sum(dy, axis=self.axis, exclude=True),
        )

    def lower(self, F: Functions, data: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        return data * F._channel_like(scale, data, axis=self.axis) + F._channel_like(shift, data, axis=self.axis)

    def onnx(self, g: OnnxGraph, data: str, scale: str, shift: str) -> str | tuple[str, ...]:
        shape, dtype = g.shape(data), g.dtype(data)
        if self.axis % len(shape) != 1 or len(shape) == 2:
            return emit_lowering(self, g, data, scale, shift)
        # One pass over the data: mean 0, variance 1 and no epsilon leave a scale and a shift.
        zeros, ones = np.zeros(shape[1]), np.ones(shape[1])
        return g.BatchNormalization(data, scale, shift, g.const(zeros, dtype), g.const(ones, dtype), epsilon=0.0)
