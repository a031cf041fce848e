"""What a rule is: operator -> torch call, entered in one table, and what of a graph has an entry.

A rule is called once per node, when a region is compiled, and gives the kernel: a function of the node's inputs
(tensors, or numbers where the graph has immediates) that returns a tensor, or a tuple with one per output. A rule that
cannot serve its node raises Unmappable with the reason. The entries are in `table` and, of some families, in `images`,
`order` and `recurrent`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hybrid_lab.diagnostics.errors import Unmappable
from hybrid_lab.graph.node import Node, Value
from hybrid_lab.ops.framework.operator import Operator

if TYPE_CHECKING:
    from types import ModuleType

Kernel = Callable[..., Any]
#: A Node whose operator is an instance of the record that the rule is for.
RuleNode = Any
Rule = Callable[[Any, Node], Kernel]

#: Operator name -> rule.
TABLE: dict[str, Rule] = {}
#: Operators whose kernel takes `out=`, which may be an input of the same shape and dtype.
OUT: set[str] = set()
#: Operators whose result may be a view of an input, or the same tensor in every call.
SHARED: set[str] = set()
#: Operators whose kernel takes `need=`, which of the outputs somebody reads. The others may be None.
NEED: set[str] = set()
#: Operator -> positions of inputs that need not be floating.
WHOLE: dict[str, tuple[int, ...]] = {}
#: Operators of which nothing need be floating: their results are positions, or elements of any data.
WHOLE_RESULTS: set[str] = set()


def rule(
    *names: str,
    out: bool = False,
    need: bool = False,
    shared: bool = False,
    whole: tuple[int, ...] = (),
    whole_results: bool = False,
) -> Callable[[Rule], Rule]:
    """Enter a rule under these names."""

    def enter(function: Rule) -> Rule:
        for name in names:
            TABLE[name] = function
            WHOLE[name] = whole
            if out:
                OUT.add(name)
            if need:
                NEED.add(name)
            if shared:
                SHARED.add(name)
            if whole_results:
                WHOLE_RESULTS.add(name)
        return function

    return enter


class OwnKernel(Operator):
    """An operator that only torch has: no record, it comes with its rule."""

    def rule(self, torch: ModuleType, node: Any) -> Kernel:
        """As the rules of the table."""
        raise NotImplementedError


def rule_of(op: Operator) -> Rule:
    """The rule of an operator that has one."""
    return op.rule if isinstance(op, OwnKernel) else TABLE[op.name]


def shape_of(node: Node, index: int) -> tuple[int, ...]:
    """The shape of an input, () for a number."""
    item = node.inputs[index]
    return item.shape if isinstance(item, Value) else ()


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

    def __call__(self, *inputs: Any, **keywords: Any) -> Anything:
        return self


def refusal(node: Node) -> str | None:
    """Why torch cannot run the node, or None. torch itself is not asked, so that nobody waits for its import."""
    op = node.op
    if op.random:
        return "random numbers come from the counter-based generator that all engines share"
    if isinstance(op, OwnKernel):
        return None
    if op.name not in TABLE:
        return "the table of torch calls has no entry"
    given = {value.dtype.name for value in node.outputs}
    floating = given - _WHOLE_TYPES if op.name in WHOLE_RESULTS else given
    for index, item in enumerate(node.inputs):
        if not isinstance(item, Value):
            continue
        if 0 in item.shape:
            return "arrays without elements"
        if index not in WHOLE[op.name]:
            floating.add(item.dtype.name)
        elif item.dtype.name not in _WHOLE_TYPES:
            return f"a torch call with {item.dtype.name}"
    whole = not floating and op.name in WHOLE_RESULTS
    if not whole and floating not in ({"float32"}, {"float64"}) and op.name not in ("Cast", "_cast_like"):
        return f"a torch call with {', '.join(sorted(floating))}"
    if not floating <= {"float32", "float64"}:
        return f"a torch call that gives {', '.join(sorted(floating))}"
    try:
        TABLE[op.name](Anything(), node)
    except Unmappable as error:
        return str(error)
    return None
