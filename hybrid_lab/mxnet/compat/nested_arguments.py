"""MXNet's functions for nested arguments of Blocks, which libraries import from `mxnet.gluon.block` (GluonTS)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from hybrid_lab.gluon.parameter import tensor_types

#: How one argument is nested: 0 for an array, -1 for None, the number of outputs for a Symbol with several of them,
#: and for a list or tuple a list of the formats of its items.
Format: TypeAlias = "int | list[Format]"


def _flatten(args: object, inout_str: str) -> tuple[list[Any], Format]:
    """The arrays and Symbols in nested lists and tuples, in order, with None unchanged, and how they were nested.

    inout_str : the arguments' role, for the message. Raises ValueError for anything else.
    """
    if args is None:
        return [None], -1
    if isinstance(args, tensor_types):
        outputs = len(args.list_outputs()) if hasattr(args, "list_outputs") else 1
        return [args], outputs if outputs > 1 else 0
    if not isinstance(args, (list, tuple)):
        raise ValueError(
            f"the {inout_str} must be arrays, Symbols or None, or nested lists of them; it is of type "
            f"{type(args).__name__}: {args}"
        )
    flat: list[Any] = []
    formats: list[Format] = []
    for item in args:
        items, one = _flatten(item, inout_str)
        flat += items
        formats.append(one)
    return flat, formats


def _regroup(args: Sequence[Any], fmt: Format) -> tuple[Any, Sequence[Any]]:
    """The first of the flat arguments nested as `_flatten` found them, and the arguments that are left."""
    if isinstance(fmt, int):
        if fmt == -1:
            if args[0] is not None:
                raise ValueError(f"the first argument must be None; it is of type {type(args[0]).__name__}")
            return None, args[1:]
        return (args[0], args[1:]) if fmt == 0 else (args[:fmt], args[fmt:])
    nested = []
    for one in fmt:
        item, args = _regroup(args, one)
        nested.append(item)
    return nested, args
