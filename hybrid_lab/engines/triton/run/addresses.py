"""At which addresses the arrays of a program lie.

Kernels are compiled for addresses in multiples of 16 bytes, so that one instruction loads four floats. Allocated memory
and every value in the arena have such addresses. A view begins inside another array: its graph alone tells whether the
view's address is a multiple; if not, the kernel is compiled without the promise for this argument. Addresses of inputs,
of memory for gradients and of torch's results are checked in each call.
"""

from __future__ import annotations

from dataclasses import replace

from hybrid_lab.engines.triton.run.kernel import Kernel
from hybrid_lab.engines.triton.run.steps import KernelOperator
from hybrid_lab.engines.triton.write.index import strides_in, strides_of
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Value

#: Addresses are multiples of ALIGNED bytes, unless a kernel's source says otherwise.
ALIGNED = 16


def bytes_before(value: Value) -> int:
    """How many bytes behind the beginning of an aligned array the value lies: 0 unless it is a view of one."""
    node = value.node
    if not node.op.view or not node.inputs or not isinstance(node.inputs[0], Value):
        return 0
    strides = strides_in(node, value.index)
    if strides is None:
        return 0
    steps = zip(strides[0], strides_of(value.shape), value.shape, strict=True)
    if any(step != wanted and size > 1 for step, wanted, size in steps):
        return 0  # programs copy views that are not in C order
    return bytes_before(node.inputs[0]) + int(strides[1]) * value.dtype.itemsize


def is_aligned(value: Value) -> bool:
    """Whether the value lies at a multiple of ALIGNED bytes, if the array that it is a view of does."""
    return bytes_before(value) % ALIGNED == 0


def promise_only_what_holds(steps: Graph) -> None:
    """Let the kernels of a graph's groups be compiled for arguments where views of it lie."""
    for node in steps.operators:
        if not isinstance(node.op, KernelOperator):
            continue
        places = node.op.places(node.inputs, node.outputs)
        for number, kernel in enumerate(node.op.kernels):
            if not isinstance(kernel, Kernel):
                continue
            anywhere = [
                index for index, value in enumerate(kernel.source.inputs) if not is_aligned(places.get(value, value))
            ]
            if anywhere:
                node.op.kernels[number] = Kernel(replace(kernel.source, anywhere=tuple(anywhere)))
