"""What a rule is: operator -> torch call, entered in one table, and what of a graph has an entry.

A rule is called once per node, when a region is compiled, and gives the kernel: a function of the node's inputs
(tensors, or numbers where the graph has immediates) that returns a tensor, or a tuple with one per output. A rule that
cannot serve its node raises Unmappable with the reason. The entries are in `table` and, of some families, in `images`,
`order`, `recurrent` and `workspace`.
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
class Rule:
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


#: Operator name -> rule.
TABLE: dict[str, Rule] = {}


def rule(*names: str, **properties: bool | tuple[int, ...]) -> Callable[[WriteKernel], WriteKernel]:
    """Enter what writes the kernels of these operators; properties : those of Rule"""

    def enter(function: WriteKernel) -> WriteKernel:
        TABLE.update(dict.fromkeys(names, Rule(function, **properties)))  # type: ignore[arg-type]
        return function

    return enter


def plain_operator(op: Operator) -> Operator:
    """The operator that an Activation stands for; any other one itself."""
    return op.plain if op.name == "Activation" else op  # type: ignore[attr-defined]


def rule_of(op: Operator) -> Rule | None:
    """The rule of an operator, or None."""
    return TABLE.get(plain_operator(op).name)


def kernel_of(torch: ModuleType, node: Node) -> Kernel:
    """The kernel of a node whose operator has a rule. Raises Unmappable with the reason."""
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


# -- what has an entry ---------------------------------------------------------------------------------------------

#: dtypes of inputs that need not be floating.
_WHOLE_TYPES = frozenset({"uint8", "int8", "int32", "int64", "bool", "float32", "float64"})


class Anything:
    """Stands for torch where a rule is only asked whether it would serve a node."""

    def __getattr__(self, name: str) -> Anything:
        return self

    def __call__(self, *inputs: object, **keywords: object) -> Anything:
        return self


def unserved(node: Node) -> str | None:
    """Why the node's rule cannot write its kernel, or None. torch itself is not asked: nobody waits for its import."""
    if rule_of(node.op) is None:
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
    rule = rule_of(node.op)
    if rule is None:
        return unserved(node)
    given = {value.dtype.name for value in node.outputs}
    floating = given - _WHOLE_TYPES if rule.whole_results else given
    for index, item in enumerate(node.inputs):
        if not isinstance(item, Value):
            continue
        if 0 in item.shape:
            return "arrays without elements"
        if index not in rule.whole:
            floating.add(item.dtype.name)
        elif item.dtype.name not in _WHOLE_TYPES:
            return f"a torch call with {item.dtype.name}"
    whole = not floating and rule.whole_results
    if not whole and floating not in ({"float32"}, {"float64"}) and node.op.name not in ("Cast", "_cast_like"):
        return f"a torch call with {', '.join(sorted(floating))}"
    if not floating <= {"float32", "float64"}:
        return f"a torch call that gives {', '.join(sorted(floating))}"
    return unserved(node)
