"""Traffic: the bytes that a kernel moves to and from memory.

A kernel reads each input once and writes each output once. Values that neighbouring programs read again
- a convolution's windows, a broadcast vector, the factor of a product for each tile - come from a cache and are counted
once. If an array is read in part (a slice, rows of a table), only that part is counted. A kernel that goes over its
rows in several loops reads them once for each: they are taken to be longer than a cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from hybrid_lab.engines.triton.write.source import KernelSource
from hybrid_lab.graph.node import Node, Value


def moved_by(source: KernelSource, reads: dict[Value, int]) -> int:
    """The bytes that one launch reads and writes. reads : see `looked_at`"""
    read = sum(reads.get(value, value.nbytes) * source.passes.get(value, 1) for value in source.inputs)
    return read + sum(value.nbytes for value in source.outputs)


def looked_at(nodes: Iterable[Node]) -> dict[Value, int]:
    """Value from outside -> how many bytes of it these operators look at, through views too."""
    inside = dict.fromkeys(nodes)
    parts: dict[Value, dict[object, int]] = {}
    for node in inside:
        for item in dict.fromkeys(read_of(node)) if not node.op.view else ():
            value, part = item, _part(node, item)
            key: tuple[object, ...] = ()
            while value.node.op.view and value.node in inside:
                key, value = (*key, value.node.op, value.index), value.node.values_in[0]
                part = min(part, prod(value.shape))
            if value.node not in inside:
                parts.setdefault(value, {})[key, part] = part * value.dtype.itemsize
    return {value: min(value.nbytes, sum(sizes.values())) for value, sizes in parts.items()}


def _part(node: Node, value: Value) -> int:
    """How many elements of an input an operator looks at: all, but of a table that it takes rows or elements of."""
    table = {"take": 0, "pick": 0, "gather_nd": 0, "Embedding": 1}.get(node.op.name)
    if table is not None and node.inputs[table] is value:
        return min(prod(value.shape), prod(node.outputs[0].shape))
    return prod(value.shape)


def read_of(node: Node) -> list[Value]:
    """The inputs whose elements, and not only their shapes, an operator reads."""
    return [item for index, item in enumerate(node.inputs) if isinstance(item, Value) and node.op.reads_values(index)]
