"""Calls of torch that compute several operators in one pass: squared differences, their gradient, scaled sums."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from hybrid_lab.engines.torch_kernels.registry import Kernel, KernelEntry, entry_of, kernel_of
from hybrid_lab.graph.node import Node, Value

if TYPE_CHECKING:
    from types import ModuleType

    from torch import Tensor

    from hybrid_lab.graph.passes.partition import Region
    from hybrid_lab.ops.framework.operator import Operator

#: An input of a node: a Value, or a number.
Item: TypeAlias = "Value | complex"
#: How often each value that a region computes is read, by the region's nodes and from outside.
Readers: TypeAlias = Mapping[Value, int]


@dataclass(frozen=True)
class TorchCall:
    """One torch call of a program.

    node : the node whose outputs it computes
    entry : writes the kernel; inputs : the arguments of the kernel. A fused call reads the inputs of the nodes before
    """

    node: Node
    entry: KernelEntry
    inputs: tuple[Item, ...]

    @property
    def values(self) -> tuple[Value, ...]:
        return tuple(item for item in self.inputs if isinstance(item, Value))


def calls_of(region: Region) -> list[TorchCall]:
    """The calls that compute a region, in order. A fused call includes nodes without other readers."""
    counts = Counter(value for node in region.nodes for value in node.values_in) + Counter(region.outputs)
    inside = set(region.nodes)
    readers = {value: count for value, count in counts.items() if value.node in inside}
    calls: list[TorchCall] = []
    needed = set(region.outputs)
    for node in reversed(region.nodes):
        if not needed.isdisjoint(node.outputs):
            fused = _squared(node, readers) or _squared_grad(node, readers) or _scaled_sum(node, readers)
            calls.append(fused or _single(node))
            needed.update(calls[-1].values)
    return calls[::-1]


def _single(node: Node) -> TorchCall:
    entry = entry_of(node.op)
    assert entry is not None, node
    return TorchCall(node, entry, node.inputs)


def _squared(node: Node, readers: Readers) -> TorchCall | None:
    """square(a - b)"""
    pair = _difference(node.inputs[0], readers) if node.op.name == "square" else None
    return None if pair is None else TorchCall(node, KernelEntry(_square_difference), pair)


def _square_difference(torch: ModuleType, node: Node, op: Operator) -> Kernel:
    squared = torch.ops.aten.mse_loss
    return lambda a, b: squared(a, b, 0)


def _squared_grad(node: Node, readers: Readers) -> TorchCall | None:
    """dy * ((a - b) * 2), or ((a - b) * 2) * dy"""
    if node.op.name != "broadcast_mul":
        return None
    for dy, factor in (node.inputs, node.inputs[::-1]):
        twice = _only_read_here(factor, "broadcast_mul", readers)
        pair = _difference(twice.inputs[0], readers) if twice is not None and twice.inputs[1] == 2.0 else None
        if pair is not None and isinstance(dy, Value) and pair[0].shape == node.outputs[0].shape:
            return TorchCall(node, KernelEntry(_square_difference_grad), (dy, *pair))
    return None


def _square_difference_grad(torch: ModuleType, node: Node, op: Operator) -> Kernel:
    backward = torch.ops.aten.mse_loss_backward.grad_input

    def kernel(dy: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return backward(dy, a, b, 0, grad_input=torch.empty_like(a))

    return kernel


#: From this many elements on, a pass over them takes longer than looking whether their sums are finite.
_MANY = 1 << 17


def _scaled_sum(node: Node, readers: Readers) -> TorchCall | None:
    """sum(x * c) or mean(x * c) of large x, where |c| is at most 1."""
    scaled = _only_read_here(node.inputs[0], "broadcast_mul", readers) if node.op.name in ("sum", "mean") else None
    if scaled is None or len(scaled.values_in) > 1 or not isinstance(scaled.inputs[0], Value):
        return None
    x, factor = scaled.inputs
    if math.prod(x.shape) < _MANY or not abs(factor) <= 1:
        return None

    def write(torch: ModuleType, node: Node, op: Operator) -> Kernel:
        total = kernel_of(torch, node)

        def kernel(x: Tensor, factor: float) -> Tensor:
            """The sums of x are scaled instead of x, unless they overflow."""
            result = total(x).mul_(factor)
            return result if math.isfinite(result.sum()) else total(x * factor)

        return kernel

    return TorchCall(node, KernelEntry(write), (x, factor))


def _difference(item: Item, readers: Readers) -> tuple[Value, Value] | None:
    """a and b, of one shape, if the item is a - b."""
    node = _only_read_here(item, "broadcast_sub", readers)
    if node is None or len(node.values_in) < 2 or node.values_in[0].shape != node.values_in[1].shape:
        return None
    a, b = node.values_in
    return a, b


def _only_read_here(item: Item, name: str, readers: Readers) -> Node | None:
    """The region's node of this name that makes the item, if the item has no other reader."""
    if isinstance(item, Value) and item.node.op.name == name and readers.get(item) == 1:
        return item.node
    return None
