"""The table's entries for order along an axis: sort, argsort, topk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hybrid_lab.engines.torch_kernels.registry import Kernel, dtype_of, entry, shape_of

if TYPE_CHECKING:
    from types import ModuleType

    from torch import Tensor

    from hybrid_lab.graph.node import Node
    from hybrid_lab.ops.arrays.order import ArgSort, Sort, TopK


def _ranking(
    torch: ModuleType, node: Node, op: Sort | ArgSort | TopK
) -> tuple[tuple[int, ...], int, Callable[[Tensor], Tensor]]:
    """The shape that is ordered, the axis in it, and what gives the positions in order, as `ops.order.ranking`."""
    line, axis = op.line(shape_of(node, 0))
    floating = node.inputs[0].dtype.kind == "f"

    def places(data: Tensor) -> Tensor:
        # Sorts by digits take the sign of zeros and of NaN for a difference.
        plain = torch.where(data == data, data + 0.0, float("nan")) if floating else data
        return torch.sort(plain, dim=axis, descending=not op.is_ascend, stable=True)[1]

    return line, axis, places


@entry("sort", whole=(0,), whole_results=True)
def _sort(torch: ModuleType, node: Node, op: Sort) -> Kernel:
    line, axis, ranking = _ranking(torch, node, op)

    def kernel(data: Tensor) -> tuple[Tensor, ...]:
        data = data.reshape(line)
        places = ranking(data)
        return data.gather(axis, places), places

    return kernel


@entry("argsort", whole=(0,), whole_results=True)
def _argsort(torch: ModuleType, node: Node, op: ArgSort) -> Kernel:
    line, _, ranking = _ranking(torch, node, op)
    dtype = dtype_of(torch, node)
    return lambda data: ranking(data.reshape(line)).to(dtype)


@entry("topk", whole=(0,), whole_results=True)
def _topk(torch: ModuleType, node: Node, op: TopK) -> Kernel:
    # torch.topk chooses any of equal elements, and gives them in any order.
    shape, dtype = shape_of(node, 0), getattr(torch, str(op.dtype))
    line, axis, ranking = _ranking(torch, node, op)
    count = op.count(line[axis])

    def kernel(data: Tensor) -> tuple[Tensor, ...] | Tensor:
        data = data.reshape(line)
        places = ranking(data).narrow(axis, 0, count)
        if op.ret_typ == "indices":
            return places.to(dtype)
        if op.ret_typ == "mask":
            return torch.zeros_like(data).scatter_(axis, places, 1).reshape(shape)
        values = data.gather(axis, places)
        return (values, places.to(dtype), places) if op.ret_typ == "both" else (values, places)

    return kernel
