"""Pointwise kernels: each element is computed on its own; a program computes one tile of them."""

from __future__ import annotations

from math import prod

from hybrid_lab.engines.triton.write.body import Body
from hybrid_lab.engines.triton.write.source import KernelSource, counted, kernel_name, kernel_source
from hybrid_lab.engines.triton.write.syntax import typed
from hybrid_lab.graph.node import Constant
from hybrid_lab.graph.passes.partition import Region

#: Elements per program on a GPU, the same for small arrays, so that small and large arrays share the kernel. A quarter
#: of that if an element takes more loads than MANY, whose values would not fit into the registers of a thread.
BLOCK, MANY = 1024, 16


def write_pointwise(group: Region) -> KernelSource:
    """The kernel of a group whose outputs have equally many elements."""
    elements = prod(group.outputs[0].shape)
    body = Body(group)
    body.fresh("n")
    body.counts = [(count, "") for count in (*_counts(group, elements), *_counts_of_sizes(group))]
    offsets = body.declare("offsets", elements, "inside")
    names = [body.value(value, offsets.digits(value.shape)) for value in group.outputs]
    for (value, pointer), name in zip(body.pointers.items(), names, strict=True):
        body.runs_along(offsets, value.dtype)
        body.line(f"tl.store({pointer} + offsets, {name}, mask=inside)")
    summary = f"{counted(group.nodes)} over {typed(group.outputs[-1])}."
    head = ["offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)", "inside = offsets < n"]
    sizes = {"n": elements} | {item: count for count, item in body.counts if item}
    block = BLOCK if max(body.loads) <= MANY else BLOCK // 4
    return kernel_source(
        body, "pointwise", kernel_name(group.nodes), summary, head, sizes, {"BLOCK": block},
        {"BLOCK": elements}, (("n", "BLOCK"),), together=body.together({"offsets": "n"}),
    )  # fmt: skip


def _counts(group: Region, elements: int) -> list[int]:
    """The number of output elements for each element of a broadcast input: what means over them divide by."""
    sizes = [prod(value.shape) for value in group.inputs]
    return [elements // size for size in sizes if 1 < size < elements and elements % size == 0]


def _counts_of_sizes(group: Region) -> list[int]:
    """Constants that were computed from sizes of the data, as divisors of means whose sums other kernels compute."""
    read = dict.fromkeys(value for node in group.nodes for value in node.values_in)
    numbers = [
        value.node.op.array.item()
        for value in read
        if isinstance(value.node.op, Constant) and value.node.op.sized and value.node.op.array.size == 1
    ]
    counts = [1 / number if 0 < number < 1 else number for number in numbers]
    return [int(count) for count in counts if 1 < count < 1 << 31 and not count % 1]
