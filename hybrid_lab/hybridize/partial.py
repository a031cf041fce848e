"""The values that a trace had computed when it failed, found in the variables of the running code."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

from hybrid_lab.graph.graph import reachable
from hybrid_lab.graph.node import Value
from hybrid_lab.symbol.symbol import Symbol

_DEPTH = 3
"""Levels of lists, tuples and dicts in which Symbols are looked for."""


def last_values(traceback: TracebackType | None) -> list[Value]:
    """The Values that the frames of an exception hold, without those that others of them are computed from."""
    values: dict[Value, None] = {}
    while traceback is not None:
        for variable in tuple(traceback.tb_frame.f_locals.values()):
            values |= dict.fromkeys(_values(variable, _DEPTH))
        traceback = traceback.tb_next
    read = {value for node in reachable(values) for value in node.values_in}
    return [value for value in values if value not in read and not value.is_input]


def _values(item: object, depth: int) -> Iterator[Value]:
    if isinstance(item, Symbol):
        yield from item.outputs
    elif depth and type(item) in (list, tuple, dict):
        for part in tuple(item.values() if isinstance(item, dict) else item):  # type: ignore[var-annotated, arg-type]
            yield from _values(part, depth - 1)
