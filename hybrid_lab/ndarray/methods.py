"""Operators as methods of NDArray, made from the records when they are first used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hybrid_lab.ops  # noqa: F401  (registers all records)
from hybrid_lab.ndarray import calls
from hybrid_lab.ops.framework.operator import Operator, registered_names
from hybrid_lab.ops.framework.operator import find as find_record
from hybrid_lab.ops.framework.surface import make_function


def records() -> dict[str, type[Operator]]:
    """Method name -> record: every operator with a public name whose first input is an array."""
    return {name: record for name, record in registered_names().items() if _is_method(name, record)}


def names() -> list[str]:
    """The names of all methods that come from records."""
    return list(records())


def find(name: str) -> Callable[..., Any] | None:
    """The method, or None."""
    record = find_record(name)
    return make_function(record, _dispatch, name) if record is not None and _is_method(name, record) else None


def _is_method(name: str, record: type[Operator]) -> bool:
    return not name.startswith("_") and bool(record.input_names) and not record.variadic


def _dispatch(op: Operator, inputs: list[object], out: object, name: str | None) -> object:
    return calls.invoke(op, inputs, out, name)
