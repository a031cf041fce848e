"""Passed: what a Block's code gets in a trace. The caller's lists and dicts stay the same objects, as in an eager call.

    pair = [x, y]; self.child(pair)     the child may write pair[0] = ..., append to it or keep it: its caller sees it

The styles differ in what a tensor is: a Symbol, or a TracedArray. So containers hold the callee's kind while it runs,
and the caller's kind again when it has returned. Tuples cannot change; they are made anew around other tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hybrid_lab.gluon.hybridized.structure import is_named
from hybrid_lab.ops.framework.operator import get
from hybrid_lab.symbol import tracing
from hybrid_lab.symbol.symbol import Symbol, TracedArray, compose, wrap


class Passed:
    """The arguments of one call in a trace.

    leaves : the tensors that the code gets, in order; no two of them are the same Value
    twice : whether a container comes in at two places, which a change by the code then changes both
    changed : whether the code changed a container that it was given
    """

    def __init__(self, trace: tracing.Trace, args: Sequence[Any]):
        self._trace, self._args = trace, args
        self.leaves: list[Symbol] = []
        self.twice = self.changed = False
        self.outputs: set[Any] = set()
        #: By the id of the callee's tensor: that tensor, and the caller's.
        self._callers: dict[int, tuple[Symbol, Symbol]] = {}
        #: By the id of a container: the container, as often as it comes in; and what it held when the code began.
        self._containers: dict[int, list[Any]] = {}
        self._before: dict[int, list[object]] = {}

    def enter(self) -> list[Any]:
        """The arguments as the callee sees them; called in its scope."""
        arguments = [_converted(item, self._entering, self._containers) for item in self._args]
        self._before = {key: _parts(container) for key, (container, *_) in self._containers.items()}
        self.twice = any(len(places) > 1 for places in self._containers.values())
        return arguments

    def leave(self, result: object = None) -> Any:
        """The result as the caller sees it, and with it every container that was passed; called in its scope."""
        seen: dict[int, list[Any]] = {}
        for container, *_ in self._containers.values():
            _converted(container, self._leaving, seen)
        return _converted(result, self._leaving, seen)

    def returned(self) -> None:
        """The code ran through: note whether it changed anything."""
        for key, before in self._before.items():
            now = _parts(self._containers[key][0])
            if len(now) != len(before) or any(one is not other for one, other in zip(now, before, strict=True)):
                self.changed = True

    def _entering(self, tensor: Symbol) -> Symbol:
        symbol = tensor
        if tensor.outputs[0] in self.outputs:
            # Each argument is a Value of its own, so that the graph of this call alone can be told from the rest.
            symbol = compose(get("identity").bind(), [tensor], None, hint="identity")
        self.outputs.add(symbol.outputs[0])
        symbol = in_style(self._trace, symbol)
        self.leaves.append(symbol)
        self._callers[id(symbol)] = symbol, tensor
        return symbol

    def _leaving(self, tensor: Symbol) -> Symbol:
        known = self._callers.get(id(tensor))
        return in_style(self._trace, tensor) if known is None else known[1]


def in_style(trace: tracing.Trace, tensor: Symbol) -> Symbol:
    """A tensor as the running code's style has it; the same object where it is that already."""
    if trace.arrays == isinstance(tensor, TracedArray):
        return tensor
    return wrap(trace, tensor.outputs)


def _parts(container: Any) -> list[object]:
    """What a list or dict holds, with the dict's keys."""
    return [part for pair in container.items() for part in pair] if isinstance(container, dict) else list(container)


def _converted(item: Any, convert: Callable[[Symbol], Symbol], seen: dict[int, list[Any]]) -> object:
    """The item with every tensor converted: lists and dicts in place, once each; tuples anew where a part differs.

    seen : by id, each list and dict, as often as it is met
    """
    if isinstance(item, Symbol):
        return convert(item)
    if isinstance(item, (list, dict)):
        places = seen.setdefault(id(item), [])
        places.append(item)
        if len(places) > 1:
            return item
        for key, part in item.items() if isinstance(item, dict) else enumerate(item):
            converted = _converted(part, convert, seen)
            if converted is not part:
                item[key] = converted
    elif isinstance(item, tuple):
        parts = [_converted(part, convert, seen) for part in item]
        if any(converted is not part for converted, part in zip(parts, item, strict=True)):
            return type(item)._make(parts) if is_named(item) else tuple(parts)  # type: ignore[attr-defined]
    return item
