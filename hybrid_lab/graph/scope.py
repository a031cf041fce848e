"""Scope: the path of one call of a Block in a trace."""

from __future__ import annotations


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

    def __new__(cls, path: str, caller: Scope | None = None) -> Scope:
        scope = super().__new__(cls, path)
        scope.caller, scope.call, scope.calls = caller, 1, {}
        if caller is not None:
            scope.call = caller.calls[path] = caller.calls.get(path, 0) + 1
        return scope

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)
