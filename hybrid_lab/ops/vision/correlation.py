"""Correlation: two feature maps compared with each other at all displacements up to a limit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hybrid_lab.diagnostics.errors import AttributeSpecError, ShapeError
from hybrid_lab.ops.framework import Operator, Signature, all_into, forward_shape, in_c_order, into, sample
from hybrid_lab.ops.framework.protocols import Functions, Gradients, Tensor
from hybrid_lab.ops.framework.types import Array, Arrays, Outs, PartialShape, PartialShapes, Shape


class _Correlating(Operator):
    """Base: the attributes, and the places of the windows."""

    dtype_kinds = "f"
    half_in_float32 = True
    kernel_size: int = 1
    max_displacement: int = 1
    stride1: int = 1
    stride2: int = 1
    pad_size: int = 0
    is_multiply: bool = True

    def check(self) -> None:
        if self.kernel_size < 1 or self.kernel_size % 2 == 0:
            raise AttributeSpecError(f"{self.name}: kernel_size={self.kernel_size} must be an odd number")
        if min(self.stride1, self.stride2) < 1 or min(self.max_displacement, self.pad_size) < 0:
            raise AttributeSpecError(
                f"{self.name}: stride1 and stride2 must be at least 1, max_displacement and pad_size at least 0"
            )

    def output(self, data: Shape) -> Shape:
        """The shape of the result. Raises ShapeError."""
        if len(data) != 4:
            raise ShapeError(f"{self.name}: data1 has shape {data}; (n, c, h, w) is needed")
        border = self.max_displacement + (self.kernel_size - 1) // 2
        size = tuple(-(-(side + 2 * self.pad_size - 2 * border) // self.stride1) for side in data[2:])
        if any(side < 1 for side in size):
            raise ShapeError(
                f"{self.name}: no window with max_displacement={self.max_displacement} and kernel_size="
                f"{self.kernel_size} fits into data {data} with pad_size={self.pad_size}"
            )
        reach = 2 * (self.max_displacement // self.stride2) + 1
        return (data[0], reach * reach, *size)

    def padded(self, data: np.ndarray) -> np.ndarray:
        """data with zeros around it."""
        return np.pad(data, ((0, 0), (0, 0), (self.pad_size,) * 2, (self.pad_size,) * 2))

    def windows(self, shape: Shape) -> Iterator[tuple[int, tuple[slice, ...], tuple[slice, ...]]]:
        """Per displacement and place of the kernel: the channel of the result, and where in the padded maps the
        elements lie that are compared. shape : of the result
        """
        reach = self.max_displacement // self.stride2
        moves = [step * self.stride2 for step in range(-reach, reach + 1)]
        for channel, (move_y, move_x) in enumerate((y, x) for y in moves for x in moves):
            for row in range(self.kernel_size):
                for column in range(self.kernel_size):
                    start = (self.max_displacement + row, self.max_displacement + column)
                    yield channel, self._cut(start, shape), self._cut((start[0] + move_y, start[1] + move_x), shape)

    def _cut(self, start: tuple[int, int], shape: Shape) -> tuple[slice, ...]:
        step = self.stride1
        spans = (slice(at, at + (size - 1) * step + 1, step) for at, size in zip(start, shape[2:], strict=True))
        return (slice(None), slice(None), *spans)


class Correlation(_Correlating, name="Correlation"):
    """How alike patches of two feature maps are, for every displacement (FlowNet, arXiv 1504.06852).

    data1, data2 : (n, c, h, w); kernel_size : of the patches, odd; stride1 : between patches of data1; stride2 :
    between displacements, which reach up to max_displacement; pad_size : zeros around both maps
    is_multiply : compare by products, else by absolute differences
    returns : (n, displacements, oh, ow), means over channels and patches
    """

    samples = [
        sample((1, 2, 4, 5), (1, 2, 4, 5), max_displacement=1, pad_size=1),
        sample((2, 3, 6, 5), (2, 3, 6, 5), kernel_size=3, max_displacement=2, stride1=2, stride2=2, pad_size=3),
        sample((1, 2, 5, 5), (1, 2, 5, 5), max_displacement=1, is_multiply=False),
    ]

    def complete(self, data1: PartialShape, data2: PartialShape) -> PartialShapes:
        return (data1 or data2, data2 or data1)

    def infer_shape(self, data1: Shape, data2: Shape) -> Shape:
        if data1 != data2:
            raise ShapeError(f"Correlation: data1 {data1} and data2 {data2} need one shape")
        return self.output(data1)

    def numpy(self, data1: Array, data2: Array, out: Array | None = None) -> Array:
        shape = self.output(data1.shape)
        result = np.zeros(shape, data1.dtype, like=data1)
        first, second = self.padded(data1), self.padded(data2)
        for channel, here, there in self.windows(shape):
            pair = first[here], second[there]
            result[:, channel] += (pair[0] * pair[1] if self.is_multiply else abs(pair[0] - pair[1])).sum(axis=1)
        result /= data1.dtype.type(self.kernel_size**2 * data1.shape[1])
        return into(result, out)

    def grad(self, F: Functions, data1: Tensor, data2: Tensor, y: Tensor, dy: Tensor) -> Gradients:
        found: Any = F._correlation_grad(dy, data1, data2, **self.attributes)
        return found[0], found[1]


class CorrelationGrad(_Correlating, name="_correlation_grad"):
    """The gradients of Correlation. dy : its output; data1, data2 : its inputs; returns : as data1, and as data2."""

    mxnet = None
    refuses_gradient = True
    signature = Signature(outputs=2)
    samples = [
        sample((1, 9, 4, 5), (1, 2, 4, 5), (1, 2, 4, 5), max_displacement=1, pad_size=1, gradient=False),
        sample((1, 9, 3, 3), (1, 2, 5, 5), (1, 2, 5, 5), max_displacement=1, is_multiply=False, gradient=False),
    ]

    def infer_shape(self, dy: Shape, data1: Shape, data2: Shape) -> list[Shape]:
        wanted = forward_shape("Correlation", data1, data2, **self.attributes)
        if dy != wanted:
            raise ShapeError(f"{self.name}: dy has shape {dy}; it needs {wanted}")
        return [data1, data2]

    def numpy(self, dy: Array, data1: Array, data2: Array, out: Outs = None) -> Array | Arrays:
        first, second = self.padded(data1), self.padded(data2)
        made = np.zeros_like(first), np.zeros_like(second)
        head = dy / dy.dtype.type(self.kernel_size**2 * data1.shape[1])
        for channel, here, there in self.windows(dy.shape):
            arrived = head[:, channel, None]
            if self.is_multiply:
                made[0][here] += arrived * second[there]
                made[1][there] += arrived * first[here]
            else:
                signed = np.where(first[here] >= second[there], arrived, -arrived)
                made[0][here] += signed
                made[1][there] -= signed
        size = data1.shape[2:]
        inner = (slice(None), slice(None), *(slice(self.pad_size, self.pad_size + side) for side in size))
        return all_into([in_c_order(item[inner]) for item in made], out)
