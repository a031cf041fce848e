"""The rows of docs/differences.md, and whether a row is about a use of a name."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .uses import Use, is_module

_SHORT = {"initializer": "init", "kvstore": "kv", "module": "mod", "ndarray": "nd", "numpy": "np",
          "numpy_extension": "npx", "symbol": "sym", "visualization": "viz"}  # fmt: skip
"""Modules by the name that docs/differences.md has for them."""


@dataclass(frozen=True)
class Difference:
    """A row of docs/differences.md, for one name in it: the fields of scripts/write_differences.py."""

    name: str
    strings: tuple[str, ...]
    arguments: Mapping[str, str | None]
    traced: bool
    text: str

    def is_about(self, name: str, use: Use) -> bool:
        """Whether the row may matter for this use.

        name : the part of `use.name` that is a name of a module here, "mxnet.np.var"
        """
        if self.strings and not set(self.strings) & _strings(use.call):
            return False
        if self.traced and not use.traced:
            return False
        return (not self.name or self._is_name(name)) and self._has_arguments(use.call)

    def _is_name(self, name: str) -> bool:
        """Whether the row names this: `arange` is a function in any module, `np.var` only in `np`."""
        parts = [_SHORT.get(part, part) for part in name.split(".")[1:]]
        own = self.name.removeprefix("mx.").removeprefix("F.").split(".")
        if len(own) == 1 and not self.name.startswith("mx."):
            return parts[-1:] == own and not is_module(name)
        begins = (0,) if self.name.startswith("mx.") else range(len(parts))
        return any(parts[begin : begin + len(own)] == own for begin in begins)

    def _has_arguments(self, call: ast.Call | None) -> bool:
        if not self.arguments:
            return True
        given = {keyword.arg: keyword.value for keyword in call.keywords} if call is not None else {}
        return all(name in given and _may_be(given[name], value) for name, value in self.arguments.items())


def _strings(call: ast.Call | None) -> set[str]:
    """The texts in the arguments of a call."""
    parts = [*call.args, *call.keywords] if call is not None else []
    return {
        node.value
        for part in parts
        for node in ast.walk(part)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _may_be(node: ast.expr, value: str | None) -> bool:
    """Whether the expression `node` may have the value of the literal `value`; None stands for any value."""
    if value is None or not isinstance(node, ast.Constant):
        return True
    try:
        return bool(node.value == ast.literal_eval(value))
    except (ValueError, SyntaxError):
        return True


@cache
def differences() -> Sequence[Difference]:
    """The rows of docs/differences.md: scripts/write_differences.py writes the file from the page."""
    text = (Path(__file__).parent / "differences.json").read_text(encoding="utf-8")
    return [Difference(**row | {"strings": tuple(row["strings"])}) for row in json.loads(text)]
