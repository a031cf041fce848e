"""The BatchNorms that differ from ONNX's BatchNormalization: over another axis than 1, and of half-precision data.

The axes before and behind the channels are joined, so that the channels are axis 1. No element moves:

    (n, h, w, c), axis 3  ->  Reshape to (n*h*w, c)  ->  BatchNormalization  ->  Reshape to (n, h, w, c)

Before opset 15 all inputs have one type, so data in half precision is converted to the type of the statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hybrid_lab.ops.layers.norm import BatchNorm

    from .emitter import FileEmitter


MIXED_TYPES = 15
"""The first opset in which the data of BatchNormalization may have another type than the statistics."""


def emit(g: FileEmitter, op: BatchNorm, inputs: Sequence[str]) -> tuple[str, ...]:
    """The nodes of a BatchNorm in prediction; returns the names of its outputs. Raises Unmappable."""
    data, *vectors = inputs
    shape, narrow, wide = g.shape(data), g.dtype(data), g.dtype(vectors[0])
    x = data
    if narrow != wide and g.opset < MIXED_TYPES:
        x = g.declare(g.cast(data, wide), shape, wide)
    y, *statistics = g.emit(op.variant(axis=1), [joined(g, x, op.axis), *vectors])
    y = restored(g, y, x)
    return (y if x is data else g.declare(g.cast(y, narrow), shape, narrow), *statistics)


def joined(g: FileEmitter, data: str, axis: int) -> str:
    """The data with its channels at axis 1."""
    shape = g.shape(data)
    axis %= len(shape)
    if axis == 1:
        return data
    inner = shape[axis + 1 :]
    wanted = (prod(shape[:axis]), shape[axis], *([prod(inner)] if inner else []))
    return g.declare(g.Reshape(data, wanted), wanted, g.dtype(data))


def restored(g: FileEmitter, y: str, data: str) -> str:
    """A result of `joined` data in the shape of the data."""
    if g.shape(y) == g.shape(data):
        return y
    return g.declare(g.Reshape(y, g.shape(data)), g.shape(data), g.dtype(y))
