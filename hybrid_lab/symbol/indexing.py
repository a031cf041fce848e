"""Indexing a Symbol: the same result as indexing an array, by slice, squeeze and expand_dims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hybrid_lab.ops.framework.operator import Operator, get
from hybrid_lab.symbol import tracing

if TYPE_CHECKING:
    from hybrid_lab.symbol.symbol import Symbol


def index_operators(symbol: Symbol, key: object) -> list[Operator]:
    """The operators that one after the other compute `symbol[key]`: `x[i]`, `x[a:b]`, `x[:, None, -1]`; never none.

    Raises HybridizeError HL132/HL133 for what has no fixed meaning in a graph.
    """
    if getattr(key, "_is_symbol", False):
        raise tracing.refuse("HL133", tensor=symbol)
    keys = key if isinstance(key, tuple) else (key,)
    if any(
        isinstance(item, (list, np.ndarray)) or getattr(item, "_is_symbol", False) or hasattr(item, "_data")
        for item in keys
    ):
        raise tracing.refuse("HL133", tensor=symbol)
    if Ellipsis in keys:
        return _operators_with_ellipsis(symbol, keys)
    begin: list[int | None] = []
    end: list[int | None] = []
    step: list[int | None] = []
    dropped: list[int] = []
    added: list[int] = []
    position = 0
    for item in keys:
        if item is None:
            added.append(position)
            position += 1
            continue
        axis = len(begin)
        if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
            begin.append(int(item))
            end.append(int(item) + 1 if item != -1 else None)
            step.append(None)
            dropped.append(axis)
            continue
        if not isinstance(item, slice):
            raise tracing.refuse("HL132", tensor=symbol)
        begin.append(_int(symbol, item.start))
        end.append(_int(symbol, item.stop))
        step.append(_int(symbol, item.step))
        position += 1
    operators: list[Operator] = []
    if any(item is not None for item in (*begin, *end, *step)):
        attributes: dict[str, Any] = {"begin": tuple(begin), "end": tuple(end)}
        if any(item is not None for item in step):
            attributes["step"] = tuple(step)
        operators.append(get("slice").bind(**attributes))
    if dropped:
        operators.append(get(_DROPPING[symbol.is_np]).bind(axis=tuple(dropped)))
    operators += [get("expand_dims").bind(axis=axis) for axis in added]
    return operators or [get("identity").bind()]


_DROPPING = {False: "squeeze", True: "_drop_axes"}
"""What takes the axes of ints away; of `mx.np` code all axes may go."""


def _int(symbol: Symbol, item: object) -> int | None:
    if item is None:
        return None
    if isinstance(item, (int, np.integer)):
        return int(item)
    raise tracing.refuse("HL132", tensor=symbol)


def _operators_with_ellipsis(symbol: Symbol, keys: tuple[object, ...]) -> list[Operator]:
    """`x[..., i, a:b]` counts axes from the end, so the number of axes need not be known."""
    ellipsis = next(index for index, item in enumerate(keys) if item is Ellipsis)
    head, tail = keys[:ellipsis], keys[ellipsis + 1 :]
    if any(item is Ellipsis or item is None for item in tail) or any(
        isinstance(item, slice) and item.step not in (None, 1) for item in tail
    ):
        raise tracing.refuse("HL132", tensor=symbol)
    operators = index_operators(symbol, head) if head else []
    dropped = []
    for axis, item in zip(range(-len(tail), 0), tail, strict=True):
        if isinstance(item, slice):
            begin, end = _int(symbol, item.start) or 0, _int(symbol, item.stop)
        else:
            begin = _int(symbol, item) or 0
            end = begin + 1 if begin != -1 else None
            dropped.append(axis)
        if begin != 0 or end is not None:
            operators.append(get("slice_axis").bind(axis=axis, begin=begin, end=end))
    if dropped:
        operators.append(get(_DROPPING[symbol.is_np]).bind(axis=tuple(dropped)))
    return operators or [get("identity").bind()]
