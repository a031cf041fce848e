"""The limits of one check: parsed characters and walked nodes, and the parts left out.

They are counts and not times, so that equal sources have equal findings on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator

from hybrid_lab.diagnostics import rules
from hybrid_lab.diagnostics.finding import Finding

from .classes import SourceClass
from .source import Source

NODES = 100_000
"""Nodes that one check walks, over all classes, cells and imported files. The largest module of GluonCV and GluonNLP
has 8,000, all 700 of them together have 150,000."""

NODES_OF_CLASS = 30_000
"""Nodes of one class, so that one endless class does not take all others."""


class Budget:
    """The nodes that a check may still walk, and the classes and sources that it has left out."""

    def __init__(self) -> None:
        self.nodes = NODES
        self._deep: list[SourceClass] = []
        self._long: list[SourceClass] = []
        self._sources: list[Source] = []

    @property
    def is_spent(self) -> bool:
        """Whether nothing more is walked."""
        return self.nodes <= 0

    def leave_deep(self, cls: SourceClass) -> None:
        """Note a class that is nested too deeply."""
        self._deep.append(cls)

    def leave_long(self, cls: SourceClass) -> None:
        """Note a class whose walk was not finished."""
        self._long.append(cls)

    def of_definitions(self) -> int:
        """The nodes that may be walked to find the definitions of one more cell: its share of half of all nodes."""
        return max(0, self.nodes - NODES // 2) // 4

    def leave_source(self, source: Source) -> None:
        """Note a source whose definitions were not all found."""
        self._sources.append(source)

    def findings(self) -> Iterator[Finding]:
        """HL002, once for each reason, at the first place that was left out."""
        reasons = ((self._deep, "is nested too deeply"), (self._long, "takes too many steps to be followed to its end"))
        for classes, reason in reasons:
            if classes:
                first, more = classes[0], len(classes) - 1
                others = "" if not more else " and of 1 other class" if more == 1 else f" and of {more} other classes"
                line, col = first.node.lineno, first.node.col_offset
                what = f"the code of class `{first.name}`{others} {reason}"
                yield not_checked(first.source, what, (line, col, line, col + len("class")))
        if self._sources:
            what = "the code" if len(self._sources) == 1 else f"the code of this cell and {len(self._sources) - 1} more"
            yield not_checked(self._sources[0], f"{what} is too much to be checked at once")


def not_checked(source: Source, what: str, place: tuple[int, int, int, int] = (1, 0, 1, 0)) -> Finding:
    """HL002 about code that was not, or not all, checked."""
    record = rules.get("HL002")
    return source.finding(record, record.message_for(what=what), place, rewrite=record.rewrite_for(what=what).strip())
