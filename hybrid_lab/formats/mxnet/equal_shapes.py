"""Classes of values of a neutral graph whose shapes are equal for every input, proved from the operators alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Node, Value
from hybrid_lab.ops.framework.pointwise import Binary, Unary

_KEEP_SHAPE = frozenset({
    "Activation", "LeakyReLU", "Dropout", "BatchNorm", "LayerNorm", "InstanceNorm", "GroupNorm", "softmax",
    "log_softmax", "softmin", "clip", "Cast", "smooth_l1", "BlockGrad", "identity", "zeros_like", "ones_like",
    "L2Normalization", "LRN",
})  # fmt: skip
"""Operators whose first output has the shape of their first input."""


#: Equal keys mean equal shapes.
Key = Hashable
Number = Callable[[Key], int]


def shape_classes(graph: Graph) -> dict[Value, Key]:
    """Value -> a key; equal keys mean equal shapes, whatever the inputs' shapes are. Unequal keys mean nothing."""
    classes: dict[Value, Key] = {}
    numbers: dict[Key, int] = {}

    def number(key: Key) -> int:
        """Keys as small numbers, so that they do not grow with the depth of the graph."""
        return numbers.setdefault(key, len(numbers))

    for node in graph.nodes:
        for value, key in zip(node.outputs, _keys(node, classes, number), strict=True):
            classes[value] = key
    return classes


def _keys(node: Node, classes: dict[Value, Key], number: Number) -> list[Key]:
    op: Any = node.op
    if isinstance(op, Input):
        shape = node.outputs[0].shape
        complete = shape is not None and None not in shape
        return [number(("shape", tuple(shape)) if complete else ("input", node.name))]
    if isinstance(op, Constant):
        return [number(("shape", op.array.shape))]
    inputs = [classes[item] for item in node.inputs if isinstance(item, Value)]
    own: list[Key] = [number((op, tuple(inputs), index)) for index in range(len(node.outputs))]
    if not inputs:
        return own
    if isinstance(op, Unary) or op.name in _KEEP_SHAPE or (isinstance(op, Binary) and len(set(inputs)) == 1):
        own[0] = inputs[0]
    elif op.name in ("Convolution", "Pooling"):
        own[0] = _image(node, inputs[0], number)
    elif op.name == "FullyConnected":
        own[0] = number(("rows", _rows(inputs[0]) if op.flatten else inputs[0], op.num_hidden))
    return own


def _image(node: Node, data: Key, number: Number) -> Key:
    """Batch, channels and extent apart: a convolution of another one's output may come back to its shape."""
    op: Any = node.op
    batch, channels, extent = (
        data if isinstance(data, tuple) else (("batch", data), ("channels", data), ("extent", data))
    )
    if op.name == "Convolution":
        channels = op.num_filter
    elif op.global_pool:
        return (batch, channels, ("one", extent))
    rank = len(op.kernel)
    stride, pad, dilate = (
        tuple(getattr(op, name, ()) or (default,) * rank)
        for name, default in (("stride", 1), ("pad", 0), ("dilate", 1))
    )
    same = all(s == 1 and d * (k - 1) == 2 * p for k, s, p, d in zip(op.kernel, stride, pad, dilate, strict=False))
    if not same:
        convention = getattr(op, "pooling_convention", "valid")
        extent = number((extent, op.kernel, stride, pad, dilate, convention))
    return (batch, channels, extent)


def _rows(data: Key) -> Key:
    return data[0] if isinstance(data, tuple) else ("batch", data)
