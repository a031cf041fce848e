"""Which regions are worth a session: a rough price of what ONNX Runtime saves against NumPy."""

from __future__ import annotations

import math

from hybrid_lab.graph.node import Node
from hybrid_lab.graph.passes.partition import Region

#: Why a region stays in NumPy.
TOO_SMALL = "too little work for a session of its own"

#: Microseconds a session call costs, and each input and output of it.
CALL, BORDER = 6.0, 0.6
#: Microseconds that an operator costs less in a session before it touches data.
OPERATOR = 0.5

#: Nanoseconds per output element that ONNX Runtime is faster, negative if NumPy is; measured with two threads.
#: Operators and families that are not listed take as long in both.
_PER_ELEMENT = {
    "erf": 3.5,
    "LeakyReLU": 5.0,
    "relu": 0.2,
    "exp": 0.2,
    "sin": -4.0,
    "cos": -4.0,
    "transpose": 1.0,
    "SwapAxis": 1.0,
    "Concat": -0.5,
    "softmax": 2.0,
    "norm": 1.5,
    "_softmax_grad": 1.0,
    "_log_softmax_grad": 1.0,
    "_gelu_grad": 8.0,
    "pool": 4.0,
    "rnn": 20.0,
    "comparison": -0.3,
    "arithmetic": -0.1,
}
#: The same per multiply-add. NumPy's BLAS is as fast alone, but its threads fare worse beside other processes; its
#: convolutions unfold the image first.
_PER_PRODUCT = {"linalg": 0.002, "conv": 0.06}

#: A session of more operators than this takes long to make: tens of milliseconds.
MANY = 100
#: Seconds to make a session, per operator of a graph with gradients.
SESSION = 1.2e-3


def saving(node: Node) -> float:
    """Microseconds that ONNX Runtime saves on one operator, negative if NumPy is faster."""
    if node.op.view:
        return -OPERATOR
    elements = sum(math.prod(value.shape) for value in node.outputs)
    rate = _PER_ELEMENT.get(node.op.name, _PER_ELEMENT.get(node.op.family, 0.0))
    total = rate * elements
    if node.op.family in _PER_PRODUCT:
        total += _PER_PRODUCT[node.op.family] * multiply_adds(node)
    return total / 1000 + OPERATOR


def worth(region: Region) -> str | None:
    """None, or why the region stays in NumPy."""
    border = CALL + BORDER * (len(region.inputs) + len(region.outputs))
    return None if sum(map(saving, region.nodes)) > border else TOO_SMALL


def multiply_adds(node: Node) -> float:
    """Multiply-adds of a product, a convolution, a recurrence or their gradients, about.

    (m, k) x (k, n) takes the root of the product of the three sizes, and so does a convolution per position of its
    kernel, in either direction. A recurrence multiplies every parameter at every step of every sequence, and its
    gradient does so twice.
    """
    if node.op.name in ("RNN", "_rnn_grad"):
        data, parameters = node.values_in[:2]
        times = 2.0 if node.op.name == "_rnn_grad" else 1.0
        return times * math.prod(data.shape[:2]) * math.prod(parameters.shape)
    if node.op.family == "rnn":
        return 0.0
    tensors = [value for value in (*node.values_in, node.outputs[0]) if len(value.shape) > 1][:3]
    positions = math.prod(getattr(node.op, "kernel", ()))
    return math.prod(math.prod(value.shape) for value in tensors) ** 0.5 * positions**0.5
