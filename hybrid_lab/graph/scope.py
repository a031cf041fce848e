"""The Scopes of nodes that are read from a file: one Scope for each call of a Block, as a trace makes them."""

from __future__ import annotations

from hybrid_lab.graph.node import Scope

MOST_BLOCKS = 100
"""Blocks inside one another in the paths of a file; a path with more is one name."""


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
