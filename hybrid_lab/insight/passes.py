"""The passes that led to a program, each with the graph before and after it, as text, HTML and data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hybrid_lab.graph.dump import Stage
from hybrid_lab.graph.graph import Graph
from hybrid_lab.insight.table import Column, Row, Table, code, folded, frame


class Passes:
    """`passes["simplify"]` is a Stage with `before`, `after` and `diff()`; printed it lists the changes of each
    pass.
    """

    def __init__(self, stages: Sequence[Stage]):
        self.stages = tuple(stages)

    def __getitem__(self, key: str | int) -> Stage:
        """A stage by number, or the first one of a pass by name. Raises KeyError, which lists the passes."""
        if isinstance(key, int):
            return self.stages[key]
        for stage in self.stages:
            if stage.name == key:
                return stage
        raise KeyError(f"there is no pass {key!r}; there are {', '.join(stage.name for stage in self.stages)}")

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    def __len__(self) -> int:
        return len(self.stages)

    def data(self) -> list[dict[str, Any]]:
        """Per pass its name, whether it changed anything, the programs before and after, and their operators."""
        return [
            {
                "name": stage.name,
                "changed": stage.changed,
                "before": str(stage.before),
                "after": str(stage.after),
                "operators_before": operators(stage.before),
                "operators_after": operators(stage.after),
            }
            for stage in self.stages
        ]

    def _table(self) -> Table:
        rows = [
            Row([stage.name, str(operators(stage.before)), str(operators(stage.after)), _summary(stage)])
            for stage in self.stages
        ]
        numbers = (Column("operators", right=True), Column("after", right=True))
        return Table((Column("pass"), *numbers, Column("", flexible=True)), rows)

    def __str__(self) -> str:
        return "\n".join(self._table().lines(""))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = [self._table().html()]
        for stage in self.stages:
            if stage.changed:
                title = f"{stage.name}: before"
                inner = code(str(stage.before).split("\n")) + "<b>after</b>" + code(str(stage.after).split("\n"))
                parts.append(folded(title, inner))
        return frame(f"{len(self.stages)} passes", *parts)


def operators(result: object) -> int:
    """The number of operators in the result of a pass: a graph, or an object with several graphs."""
    if isinstance(result, Graph):
        return len(result.operators)
    graphs = [getattr(result, name, None) for name in ("prologue", "forward", "backward")]
    return sum(len(graph.operators) for graph in graphs if isinstance(graph, Graph))


def _summary(stage: Stage) -> str:
    """The change that a pass made, in a few words."""
    if not isinstance(stage.after, Graph):
        parts = [(name, getattr(stage.after, name, None)) for name in ("prologue", "forward", "backward")]
        return ", ".join(f"{len(graph.operators)} in the {name}" for name, graph in parts if isinstance(graph, Graph))
    if not stage.changed:
        return "changed nothing"
    before, after = _names(stage.before), _names(stage.after)
    gone = {name: number - after.get(name, 0) for name, number in before.items() if number > after.get(name, 0)}
    come = {name: number - before.get(name, 0) for name, number in after.items() if number > before.get(name, 0)}
    words = [f"- {_listed(gone)}" if gone else "", f"+ {_listed(come)}" if come else ""]
    return "  ".join(word for word in words if word) or "shapes, dtypes or attributes"


def _names(graph: object) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node in graph.operators if isinstance(graph, Graph) else ():
        counts[node.op.name] = counts.get(node.op.name, 0) + 1
    return counts


def _listed(names: dict[str, int]) -> str:
    shown = [f"{number} {name}" if number > 1 else name for name, number in list(names.items())[:6]]
    return ", ".join(shown) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
