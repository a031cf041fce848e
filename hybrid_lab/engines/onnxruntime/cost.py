"""Which regions are worth a session: a rough price of each operator in NumPy and in ONNX Runtime."""

from __future__ import annotations

import numpy as np

from hybrid_lab.graph.node import Node
from hybrid_lab.graph.partition import Region

#: Why a region stays in NumPy.
TOO_SMALL = "too little work for a session of its own"

#: Microseconds a session call costs, and one more input or output.
CALL, BORDER = 7.0, 0.6
#: Microseconds one operator costs before it touches data, in NumPy.
NUMPY_OPERATOR, ORT_OPERATOR = 1.0, 0.7

#: Nanoseconds per output element in NumPy and in ONNX Runtime, by family.
_PER_ELEMENT = {
    "arithmetic": (0.4, 0.3),
    "comparison": (0.8, 0.4),
    "elementwise": (2.0, 0.7),
    "activation": (3.0, 0.7),
    "softmax": (8.0, 1.2),
    "norm": (6.0, 1.2),
    "pool": (12.0, 1.5),
    "movement": (0.8, 0.5),
    "slicing": (0.5, 0.5),
}
#: Nanoseconds per input element for operators that reduce.
_PER_INPUT = {"reduce": (0.4, 0.3), "pool": (4.0, 1.0)}
#: Nanoseconds per multiply-add. NumPy's BLAS is as good as ONNX Runtime's products; its convolutions unfold first.
_PER_PRODUCT = {"linalg": (0.02, 0.02), "conv": (0.08, 0.025)}


def saving(node: Node) -> float:
    """Microseconds that ONNX Runtime saves on one operator, negative where NumPy is faster."""
    family = node.op.family
    elements = sum(_size(value.shape) for value in node.outputs)
    given = sum(_size(value.shape) for value in node.values_in)
    if node.op.view:
        return -ORT_OPERATOR
    slow, fast = _PER_ELEMENT.get(family, (0.5, 0.5))
    total = (slow - fast) * elements
    slow, fast = _PER_INPUT.get(family, (0.0, 0.0))
    total += (slow - fast) * given
    if family in _PER_PRODUCT:
        slow, fast = _PER_PRODUCT[family]
        total += (slow - fast) * _products(node)
    return total / 1000 + NUMPY_OPERATOR - ORT_OPERATOR


def worth(region: Region) -> str | None:
    """None, or why the region stays in NumPy."""
    border = CALL + BORDER * (len(region.inputs) + len(region.outputs))
    gain = sum(map(saving, region.nodes))
    if gain > border:
        return None
    return TOO_SMALL


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _products(node: Node) -> float:
    """Multiply-adds, about: those of (a, k) x (k, b) are the root of the product of the three sizes."""
    sizes = sorted((_size(value.shape) for value in (*node.values_in[:2], node.outputs[0])), reverse=True)
    total = 1.0
    for size in sizes:
        total *= max(size, 1)
    return total**0.5
