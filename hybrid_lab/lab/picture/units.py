"""The units of an executable (kernels, sessions), and its graph with the operators inside them, as the lab shows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from hybrid_lab.diagnostics.formatting import count
from hybrid_lab.engines.engine import Executable
from hybrid_lab.graph.graph import Graph
from hybrid_lab.graph.node import Constant, Input, Node, Value
from hybrid_lab.graph.passes.partition import Region
from hybrid_lab.insight.reference import region_in
from hybrid_lab.lab.messages.graphs import BoxKind

if TYPE_CHECKING:
    from hybrid_lab.engines.triton.run.steps import KernelOperator
    from hybrid_lab.ops.framework.operator import Operator


@dataclass(frozen=True, eq=False)
class Unit:
    """Operators of a compiled graph that run together; the fields are fields of the protocol's GraphBox."""

    name: str
    kind: BoxKind
    summary: str
    text: str = ""
    notes: list[str] = field(default_factory=list)


@dataclass
class Units:
    """The graph that an executable runs, operator by operator.

    graph : every kernel and session opened
    of : the unit that an operator runs in, if it is in one
    engines : which engine runs an operator; "" for a view, which runs nowhere
    drawn : a node of the executable, or of a region in it -> the unit or the node of `graph` that it became
    """

    graph: Graph
    of: dict[Node, Unit] = field(default_factory=dict)
    engines: dict[Node, str] = field(default_factory=dict)
    drawn: dict[Node, Node | Unit] = field(default_factory=dict)

    @property
    def units(self) -> list[Unit]:
        """In the order in which they run."""
        return list(dict.fromkeys(self.of.values()))


def units_of(executable: Executable, engine: str) -> Units:
    """The units of an executable that `engine` compiled; it may have been released."""
    graph = executable.graph
    new = _Moved()
    nodes: list[Node] = []
    opened = Units(graph)
    numbers: dict[str, int] = {}
    for node in graph.nodes:
        region = region_in(node)
        if region is None:
            moved = _moved(node, new)
            nodes.append(moved)
            if moved is not node:
                new.update(zip(node.outputs, moved.outputs, strict=True))
            opened.drawn[node] = moved
            if not isinstance(node.op, (Input, Constant)):
                opened.engines[moved] = _runs_on(node, engine)
            continue
        label = getattr(node.op, "label", "")
        number = numbers[label or node.op.name] = numbers.get(label or node.op.name, -1) + 1
        name = label + f" ({number + 1})" * bool(number) if label else f"{node.op.name} {number}"
        unit = opened.drawn[node] = Unit(name, *_described(node.op, region))
        inside = dict(zip(region.inputs, (new[value] for value in node.values_in), strict=True))
        for inner in region.nodes:
            for value in inner.values_in:  # constants of a region are no inputs of it
                if value not in inside:
                    inside[value] = value
                    nodes.append(value.node)
            moved = opened.drawn[inner] = _moved(inner, inside)
            nodes.append(moved)
            inside.update(zip(inner.outputs, moved.outputs, strict=True))
            opened.of[moved], opened.engines[moved] = unit, node.op.name
        new.update(zip(node.outputs, (inside[value] for value in region.outputs), strict=False))
    opened.graph = graph.over(new, list(dict.fromkeys(nodes)))
    return opened


class _Moved(dict[Value, Value]):
    """Values in the place of others; any other Value maps to itself."""

    def __missing__(self, value: Value) -> Value:
        return value


def _moved(node: Node, new: dict[Value, Value]) -> Node:
    """The node with inputs from `new`."""
    if not new:
        return node
    inputs = tuple(new[item] if isinstance(item, Value) else item for item in node.inputs)
    return node if inputs == node.inputs else node.replace(inputs=inputs)


def _runs_on(node: Node, engine: str) -> str:
    """The engine of an operator that is in no unit."""
    if node.op.view:
        return ""
    if engine != "triton":
        return "numpy"
    from hybrid_lab.engines.triton.run.steps import on_torch

    return "torch" if on_torch(node) else "numpy"


def _described(op: Operator, region: Region) -> tuple[BoxKind, str, str, list[str]]:
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
