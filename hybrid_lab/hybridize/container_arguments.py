"""Lists and dicts among the arguments of a Block: traced code gets its caller's own containers, as in an eager call.

pair = [x, y]; self.child(pair)     the child may write pair[0] = ..., append to it or keep it: its caller sees it
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hybrid_lab.graph.node import Value
from hybrid_lab.hybridize.structure import is_named
from hybrid_lab.ops.framework.operator import get
from hybrid_lab.symbol import tracing
from hybrid_lab.symbol.symbol import Symbol, compose


def containers(args: Iterable[object]) -> list[Any]:
    """The lists and dicts among the arguments and in one another; one that comes twice is listed twice."""
    found: list[Any] = []
    visited: set[int] = set()
    pending = list(args)
    for item in pending:
        if isinstance(item, (list, dict)):
            found.append(item)
        if isinstance(item, (list, dict, tuple)) and id(item) not in visited:
            visited.add(id(item))
            pending += item.values() if isinstance(item, dict) else item
    return found


def contents(container: Any) -> list[object]:
    """What a list or dict holds, with the dict's keys."""
    return [part for pair in container.items() for part in pair] if isinstance(container, dict) else list(container)


def same_objects(one: Sequence[object], two: Sequence[object]) -> bool:
    """Whether two sequences hold the same objects in the same order."""
    return len(one) == len(two) and all(a is b for a, b in zip(one, two, strict=True))


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
