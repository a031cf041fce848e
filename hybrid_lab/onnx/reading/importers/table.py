"""The table of ONNX operators: which function imports an operator of which opset."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from functools import cached_property
from typing import Any

from hybrid_lab.onnx.errors import UnsupportedOperatorError

Function = Callable[..., Any]


class Row:
    """One row: an ONNX operator from one opset on.

    function : (F, *inputs, **attributes) -> Tensor or tuple of them. Its positional parameters are the inputs of the
        operator (None if an optional one is left out), its keyword parameters the attributes under ONNX's names.
        It may also take `outputs`, the number of outputs that the node names.
    """

    def __init__(self, name: str, since: int, function: Function, domain: str) -> None:
        self.name, self.since, self.function, self.domain = name, since, function, domain

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The parameters of the function after F."""
        return dict(list(inspect.signature(self.function).parameters.items())[1:])

    @cached_property
    def attributes(self) -> frozenset[str]:
        """Names of the attributes that the function takes."""
        return frozenset(name for name, item in self.parameters.items() if item.kind is item.KEYWORD_ONLY)

    @cached_property
    def most_inputs(self) -> int | None:
        """How many inputs the function takes; None for any number."""
        kinds = [item.kind for item in self.parameters.values()]
        if inspect.Parameter.VAR_POSITIONAL in kinds:
            return None
        return sum(kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for kind in kinds)

    @cached_property
    def fewest_inputs(self) -> int:
        """How many inputs it needs."""
        return sum(
            item.kind is item.POSITIONAL_OR_KEYWORD and item.default is item.empty for item in self.parameters.values()
        )


_ROWS: dict[tuple[str, str], list[Row]] = {}


def operator(name: str, since: int = 1, domain: str = "") -> Callable[[Function], Function]:
    """Enter a function into the table. since : the first opset whose form of the operator it takes"""

    def enter(function: Function) -> Function:
        add(name, function, since, domain)
        return function

    return enter


def add(name: str, function: Function, since: int = 1, domain: str = "") -> None:
    """The same for a function that is no definition of its own."""
    rows = _ROWS.setdefault((domain, name), [])
    rows.append(Row(name, since, function, domain))
    rows.sort(key=lambda row: -row.since)


def find(domain: str, name: str, opset: int) -> Row | None:
    """The row of an operator in an opset."""
    return next((row for row in _ROWS.get((domain, name), ()) if row.since <= opset), None)


def names(domain: str = "") -> list[str]:
    """The operators in the table, of one domain."""
    return sorted(name for own, name in _ROWS if own == domain)


def unknown(domain: str, name: str, node: str, opset: int) -> UnsupportedOperatorError:
    """The error for an operator that is not in the table."""
    shown = f"{domain}.{name}" if domain else name
    near = difflib.get_close_matches(name, names(domain), 1, 0.5)
    hint = f"; the nearest one that is: {near[0]}" if near else ""
    return UnsupportedOperatorError(
        f"node {node!r}: the operator {shown} of opset {opset} is not supported{hint}", name
    )
