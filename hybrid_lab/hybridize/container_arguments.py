"""Lists and dicts among the arguments of a Block: traced code gets its caller's own containers, as in an eager call.

pair = [x, y]; self.child(pair)     the child may write pair[0] = ..., append to it or keep it: its caller sees it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hybrid_lab.graph.node import Value
from hybrid_lab.hybridize.structure import containers, is_named
from hybrid_lab.ops.framework.operator import get
from hybrid_lab.symbol import tracing
from hybrid_lab.symbol.symbol import Symbol, compose


def separated(args: Sequence[object]) -> tuple[tuple[Any, ...], Callable[[object], Any]]:
    """The arguments of a nested call, and a function that gives its result to the caller.

    Each argument is a Value of its own, so that the graph of the call can be told from the rest: a tensor that comes in
    again is replaced by its identity, also in lists and dicts. The function takes these out again.
    """
    trace = tracing.current()
    seen: set[Value] = set()
    originals: dict[int, tuple[Symbol, Symbol]] = {}  # by the id of the identity: itself, and what it stands for

    def separate(tensor: Symbol) -> Symbol:
        value = tensor.outputs[0]
        outside = value if trace is None else trace.outside_pause(value)
        if outside not in seen:
            seen.add(outside)
            return tensor if outside is value else Symbol((outside,))
        copy = compose(get("identity").bind(), [tensor], None, hint="identity")
        originals[id(copy)] = copy, tensor
        return copy

    def returned(result: object) -> Any:
        if not originals:
            return result
        visited: set[int] = set()
        for item in passed:
            _replaced(item, original, visited)
        return _replaced(result, original, visited)

    def original(tensor: Symbol) -> Symbol:
        return originals[id(tensor)][1] if id(tensor) in originals else tensor

    passed = containers(args)
    visited: set[int] = set()
    return tuple([_replaced(item, separate, visited) for item in args]), returned


def _replaced(item: object, replace: Callable[[Symbol], Symbol], visited: set[int]) -> Any:
    """The item with every tensor replaced: in lists and dicts in place, in each once; tuples with a replaced tensor are
    made anew.

    visited : the ids of these lists and dicts
    """
    if isinstance(item, Symbol):
        return replace(item)
    if isinstance(item, (list, dict)):
        if id(item) not in visited:
            visited.add(id(item))
            for key, part in item.items() if isinstance(item, dict) else enumerate(item):
                replaced = _replaced(part, replace, visited)
                if replaced is not part:
                    item[key] = replaced
    elif isinstance(item, tuple):
        parts = [_replaced(part, replace, visited) for part in item]
        if any(replaced is not part for replaced, part in zip(parts, item, strict=True)):
            return type(item)._make(parts) if is_named(item) else tuple(parts)  # type: ignore[attr-defined]
    return item
