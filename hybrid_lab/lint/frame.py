"""The functions that a check is walking, innermost last: the names in each, and what it returns."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from ..diagnostics.rules.values import Value
from .classes import Function, Module, SourceClass
from .source import Source

Environment = dict[str, Value]


@dataclass(eq=False)
class Frame:
    """One function being walked. returns: (node, value, decided by the mode or the sort of the inputs)."""

    function: Function | None
    module: Module
    source: Source
    env: Environment
    closure: Frame | None = None
    owner: SourceClass | None = None
    returns: list[tuple[ast.AST, Value, bool]] = field(default_factory=list)
    varying: bool = False
    raising: bool = False
