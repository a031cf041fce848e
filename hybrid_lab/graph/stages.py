"""Stages: the passes that made a graph, in order, each one printable with the graph before and after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import unified_diff
from typing import TypeVar

from hybrid_lab.graph.dump import dump
from hybrid_lab.ops.framework.sizes import NeedsNumber

T = TypeVar("T")


@dataclass(frozen=True)
class Stage:
    """One pass that ran.

    name : of the pass, as HYBRID_LAB_DUMP knows it
    before, after : what its argument and its result: a Graph, or a Split or Specialized, which hold several
    """

    name: str
    before: object
    after: object

    @property
    def changed(self) -> bool:
        """Whether the printed program is another one."""
        return str(self.before) != str(self.after)

    def diff(self) -> str:
        """The lines that went and came, as a unified diff without a header; "" where nothing changed."""
        lines = unified_diff(str(self.before).splitlines(), str(self.after).splitlines(), n=1, lineterm="")
        return "\n".join([line for line in lines if not line.startswith(("---", "+++"))])

    def __str__(self) -> str:
        return f"--- {self.name}: before\n{self.before}\n--- {self.name}: after\n{self.after}"


def run_pass(
    stages: list[Stage] | None, name: str, function: Callable[..., T], before: object, *arguments: object
) -> T:
    """`function(before, *arguments)`, printed where HYBRID_LAB_DUMP asks for it. stages : get the Stage, if not None"""
    try:
        after = dump(name, function(before, *arguments))
    except NeedsNumber as need:
        raise NeedsNumber(need.symbols, need.rule or f"{name}: the pass") from None
    if stages is not None:
        stages.append(Stage(name, before, after))
    return after
