"""The units of an executable (kernels, sessions), and its graph with the operators inside them, as the lab shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

from hybrid_lab.diagnostics.words import count
from hybrid_lab.engines.engine import Executable
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Node, Value
from hybrid_lab.graph.partition import Region
from hybrid_lab.insight.reference import region_in
from hybrid_lab.lab.messages import GraphGroup, GroupKind

if TYPE_CHECKING:
    from hybrid_lab.engines.triton.run.steps import KernelOperator
    from hybrid_lab.ops.framework.operator import Operator

PROLOGUE: Final = "prologue"


@dataclass
class Units:
    """The graph that an executable runs, operator by operator.

    graph : every kernel and session opened
    of : the name of the unit that an operator runs in, where it is in one; names are unique
    engines : which engine runs an operator; "" for a view, which runs nowhere
    groups : GraphGroup records of the protocol, in the order in which they run
    """

    graph: Graph
    of: dict[Node, str] = field(default_factory=dict)
    engines: dict[Node, str] = field(default_factory=dict)
    groups: list[GraphGroup] = field(default_factory=list)

    def add_prologue(self, prologue: Graph, engine: str) -> None:
        """Add the prologue, which runs before the graph once per change of the parameters, as a unit."""
        operators = prologue.operators
        self.of |= dict.fromkeys(operators, PROLOGUE)
        self.engines |= dict.fromkeys(operators, engine)
        note = "computed when a parameter changes, not in every call"
        self.add(PROLOGUE, PROLOGUE, count(len(operators), "operator"), "", [note])

    def add(self, name: str, kind: GroupKind, summary: str, text: str, notes: Sequence[str]) -> None:
        """Describe a unit under its name."""
        self.groups.append(
            {
                "id": f"g{len(self.groups)}",
                "name": name,
                "kind": kind,
                "summary": summary,
                "text": text,
                "notes": list(notes),
            }
        )


def units_of(executable: Executable, engine: str) -> Units:
    """The units of an executable that `engine` compiled; it may have been released."""
    graph = executable.graph
    new: dict[Value, Value] = {}
    opened = Units(graph)
    numbers: dict[str, int] = {}
    for node in graph.nodes:
        region = region_in(node)
        if region is None:
            moved = _moved(node, new)
            new.update(zip(node.outputs, moved.outputs, strict=True))
            if not isinstance(node.op, (Input, Constant)):
                opened.engines[moved] = _runs_on(node, engine)
            continue
        label = getattr(node.op, "label", "")
        number = numbers[label or node.op.name] = numbers.get(label or node.op.name, -1) + 1
        name = label + f" ({number + 1})" * bool(number) if label else f"{node.op.name} {number}"
        inside = dict(zip(region.inputs, (new[value] for value in node.values_in), strict=True))
        for inner in region.nodes:
            moved = _moved(inner, inside)
            inside.update(zip(inner.outputs, moved.outputs, strict=True))
            opened.of[moved], opened.engines[moved] = name, node.op.name
        new.update(zip(node.outputs, (inside[value] for value in region.outputs), strict=False))
        opened.add(name, *_described(node.op, region))
    opened.graph = graph.over(new)
    return opened


def _moved(node: Node, new: dict[Value, Value]) -> Node:
    """The node with inputs from `new`; constants of a region are no inputs of it and stay."""
    inputs = tuple(new.get(item, item) if isinstance(item, Value) else item for item in node.inputs)
    return node if inputs == node.inputs else node.replace(inputs=inputs)


def _runs_on(node: Node, engine: str) -> str:
    """The engine of an operator that is in no unit."""
    if node.op.view:
        return ""
    if engine != "triton":
        return "numpy"
    from hybrid_lab.engines.triton.run.steps import on_torch

    return "torch" if on_torch(node) else "numpy"


def _described(op: Operator, region: Region) -> tuple[GroupKind, str, str, list[str]]:
    """(kind, summary, text, notes) of a unit."""
    sources = [kernel.source for kernel in getattr(op, "kernels", ())]
    operators = count(sum(not node.op.view for node in region.nodes), "operator")
    if not sources:
        return "session", f"{operators}, run together by {op.name}", "", []
    kinds = " and ".join(dict.fromkeys(source.kind for source in sources))
    launches = f", {count(len(sources), 'launch')}" if len(sources) > 1 else ""
    text = "\n\n".join(source.text for source in sources if hasattr(source, "text"))  # the vendor's has none
    return "kernel", f"{operators}, {kinds}{launches}", text, [*_notes(cast("KernelOperator", op))]


def _notes(op: KernelOperator) -> Iterator[str]:
    """The launches in words: how many programs, of which tiles, and the bytes they move."""
    from hybrid_lab.engines.triton.kernels import launches_of

    for kernel in launches_of(op):
        known = f"{kernel.name}, {kernel.kind}; " if len(op.kernels) == 1 else ""
        yield kernel.headline.removeprefix(known)
