"""Nested lists of arrays as flat lists, and back: the data, states and results of control flow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

#: None for one array, a list of formats for a list or tuple.
Format = Any


def flatten(item: Any, what: str) -> tuple[list[Any], Format]:
    """The arrays (or Symbols) in nested lists, and their arrangement. Raises TypeError for anything else."""
    if hasattr(item, "_is_symbol") and len(item.outputs) > 1:  # of several outputs, which arrays are a list of
        item = list(item)
    elif hasattr(item, "_is_symbol") or hasattr(item, "_data"):
        return [item], None
    if isinstance(item, (list, tuple)):
        arrays: list[Any] = []
        formats = []
        for part in item:
            leaves, form = flatten(part, what)
            arrays += leaves
            formats.append(form)
        return arrays, formats
    raise TypeError(f"{what} must be a tensor or a list of tensors, not {type(item).__name__}")


def regroup(leaves: Iterator[object], form: Format) -> Any:
    """The arrangement with other leaves."""
    return next(leaves) if form is None else [regroup(leaves, part) for part in form]
