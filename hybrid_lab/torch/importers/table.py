"""The table of ATen's operators: which function imports an operator. It is the table of ONNX's, in a domain of its own.

A function takes (F, *arguments) with the names and defaults of ATen's schema. Tensors are F's, dtypes NumPy's, sizes
numbers or SymbolicSizes; device, layout and the like are left out.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from hybrid_lab.onnx.reading.importers import ROWS_LOADED, table

assert ROWS_LOADED  # imported so that the functions of ONNX's operators are in their table
Function = Callable[..., Any]
DOMAIN = "aten"
MODES = "hybrid_lab"
"""The domain of operators that stand for one of ATen's in both modes, training and prediction."""
_NEWEST = 10_000


def aten(*names: str, domain: str = DOMAIN) -> Callable[[Function], Function]:
    """Enter a function for operators, in all overloads: `@aten("add")`."""

    def enter(function: Function) -> Function:
        for name in names:
            table.add(name, function, 1, domain)
        return function

    return enter


def find(domain: str, name: str) -> Function | None:
    """The function of an operator."""
    row = table.find(domain, name, _NEWEST)
    return None if row is None else row.function


def names() -> list[str]:
    """ATen's operators in the table."""
    return table.names(DOMAIN)


def nearest(name: str) -> str:
    """The operator in the table whose name is most like another; "" if none is."""
    found = difflib.get_close_matches(name, names(), 1, 0.5)
    return found[0] if found else ""


def onnx(name: str, domain: str = "") -> Function:
    """The composition of this package's operators for an operator of ONNX, which some of ATen's are too."""
    row = table.find(domain, name, _NEWEST)
    assert row is not None, name
    return row.function
