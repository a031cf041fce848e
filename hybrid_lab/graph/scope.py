"""Scope: the path of one call of a Block in a trace."""

from __future__ import annotations

MOST_BLOCKS = 100
"""Blocks inside one another in the paths of a file; a path with more is one name."""


class Scope(str):
    """`net0.features.0`: the Blocks that were running, from the outermost on. All calls of one Block have equal text.

    caller : the Scope of the call that made this one; None of the outermost
    call : which call of this Block by its caller it is, counted from 1
    calls : by text, how many calls were made from this one
    """

    __slots__ = ("call", "caller", "calls")

    caller: Scope | None
    call: int
    calls: dict[str, int]

    def __new__(cls, path: str, caller: Scope | None = None, call: int | None = None) -> Scope:
        """call : the number if it is known; by default the next one"""
        scope = super().__new__(cls, path)
        scope.caller, scope.call, scope.calls = caller, call or 1, {}
        if caller is not None and call is None:
            scope.call = caller.calls[path] = caller.calls.get(path, 0) + 1
        return scope

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)

    @property
    def numbers(self) -> str:
        """The numbers of the calls from the outermost on, itself left out: `2.1`; "" if all are first calls."""
        found: list[int] = []
        scope: Scope | None = self
        while scope is not None and scope.caller is not None:
            found.append(scope.call)
            scope = scope.caller
        return ".".join(map(str, reversed(found))) if any(number > 1 for number in found) else ""


class ReadScopes:
    """Gives the nodes of a file their Scopes: one Scope for each call."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[int, ...]], Scope] = {}

    def scope(self, path: str, numbers: tuple[int, ...] = ()) -> str:
        """The Scope of a node; the path itself if it is too long for Blocks.

        numbers : of the calls, for the last Blocks of the path; the others are first calls
        """
        if not path or path.count(".") > MOST_BLOCKS:
            return path
        known = self._known.get((path, numbers))
        if known is not None:
            return known
        scope: Scope | None = None
        names = path.split(".")
        padded = (*(1,) * (len(names) - len(numbers)), *numbers)[-len(names) :]
        for depth in range(1, len(names) + 1):
            key = ".".join(names[:depth]), padded[:depth]
            if key not in self._known:
                self._known[key] = Scope(key[0], scope, padded[depth - 1])
            scope = self._known[key]
        assert scope is not None
        self._known[path, numbers] = scope
        return scope
