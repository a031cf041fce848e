"""The registry of torch's kernels: operator name -> entry, and which nodes of a graph torch can run.

When a region is compiled, the entry of each node's operator writes a kernel: a function of the node's inputs (tensors,
or numbers where the graph has immediates) that returns a tensor, or a tuple with one per output. An entry that cannot
write the kernel of a node raises Unmappable with the reason. The entries are in `table` and, for some families, in
`images`, `order`, `recurrent` and `workspace`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.graph.node import Node, Value

if TYPE_CHECKING:
    from types import ModuleType

    import torch

    from hybrid_lab.ops.framework.operator import Operator

Kernel: TypeAlias = Callable[..., Any]
#: (torch, the node, its operator) -> the kernel. For an Activation, its operator is the activation function's operator.
WriteKernel: TypeAlias = "Callable[[ModuleType, Node, Any], Kernel]"


@dataclass(frozen=True)
class KernelEntry:
    """How torch computes an operator.

    kernel : writes the kernel of a node
    out : the kernel takes `out=`, which may be an input of the same shape and dtype
    need : the kernel takes `need=`, a mask of the outputs that are read; unread outputs may be None
    shared : the result may be a view of an input, or the same tensor in every call
    whole : positions of inputs that need not be floating
    whole_results : nothing need be floating: the results are positions, or elements of any data
    """

    kernel: WriteKernel
    out: bool = False
    need: bool = False
    shared: bool = False
    whole: tuple[int, ...] = ()
    whole_results: bool = False


#: Operator name -> entry.
TABLE: dict[str, KernelEntry] = {}


def entry(*names: str, **properties: bool | tuple[int, ...]) -> Callable[[WriteKernel], WriteKernel]:
    """Register a function that writes the kernels of these operators. properties : fields of KernelEntry"""

    def enter(function: WriteKernel) -> WriteKernel:
        TABLE.update(dict.fromkeys(names, KernelEntry(function, **properties)))  # type: ignore[arg-type]
        return function

    return enter


def plain_operator(op: Operator) -> Operator:
    """The operator that an Activation stands for; any other one itself."""
    return op.plain if op.name == "Activation" else op  # type: ignore[attr-defined]


def entry_of(op: Operator) -> KernelEntry | None:
    """The entry of an operator; None without one."""
    return TABLE.get(plain_operator(op).name)


def kernel_of(torch: ModuleType, node: Node) -> Kernel:
    """The kernel of a node whose operator has an entry. Raises Unmappable with the reason."""
    op = plain_operator(node.op)
    return TABLE[op.name].kernel(torch, node, op)


def shape_of(node: Node, index: int) -> tuple[int, ...]:
    """The shape of an input, () for a number."""
    item = node.inputs[index]
    return item.shape if isinstance(item, Value) else ()


def dtype_of(torch: ModuleType, node: Node) -> torch.dtype:
    """torch's dtype of the node's first output."""
    return getattr(torch, node.outputs[0].dtype.name)


def needs(condition: bool, reason: str) -> None:
    """Raise Unmappable with the reason, unless the condition holds."""
    if not condition:
        raise Unmappable(reason)


# -- rows with an entry --------------------------------------------------------------------------------------------

#: dtypes of inputs that need not be floating.
_WHOLE_TYPES = frozenset({"uint8", "int8", "int32", "int64", "bool", "float32", "float64"})


class Anything:
    """Stands for torch when an entry is only asked whether it can write the kernel of a node."""

    def __getattr__(self, name: str) -> Anything:
        return self

    def __call__(self, *inputs: object, **keywords: object) -> Anything:
        return self


def unserved(node: Node) -> str | None:
    """Why the entry of the node's operator cannot write a kernel, or None. It does not import torch."""
    if entry_of(node.op) is None:
        return "the table of torch calls has no entry"
    try:
        kernel_of(Anything(), node)  # type: ignore[arg-type]
    except Unmappable as error:
        return str(error)
    return None


def refusal(node: Node) -> str | None:
    """Why torch cannot run the node, or None."""
    if node.op.random:
        return "random numbers come from the counter-based generator that all engines share"
    entry = entry_of(node.op)
    if entry is None:
        return unserved(node)
    given = {value.dtype.name for value in node.outputs}
    floating = given - _WHOLE_TYPES if entry.whole_results else given
    for index, item in enumerate(node.inputs):
        if not isinstance(item, Value):
            continue
        if 0 in item.shape:
            return "arrays without elements"
        if index not in entry.whole:
            floating.add(item.dtype.name)
        elif item.dtype.name not in _WHOLE_TYPES:
            return f"a torch call with {item.dtype.name}"
    whole = not floating and entry.whole_results
    if not whole and floating not in ({"float32"}, {"float64"}) and node.op.name not in ("Cast", "_cast_like"):
        return f"a torch call with {', '.join(sorted(floating))}"
    if not floating <= {"float32", "float64"}:
        return f"a torch call that gives {', '.join(sorted(floating))}"
    return unserved(node)
