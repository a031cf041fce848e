"""Automatic names of Symbols: a counter per operator, prefixed inside a Block's name scope, as MXNet numbers them."""

from __future__ import annotations

import threading


class NameManager:
    """Gives `relu0`, `relu1` ... Use as a context manager to make it current. `gluon.naming.NameScope` is a Block's."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def get(self, name: str | None, hint: str) -> str:
        """`name` where given, else the next `hint` + number."""
        if name:
            return name
        count = self._counts.get(hint, 0)
        self._counts[hint] = count + 1
        return f"{hint}{count}"

    def __enter__(self) -> NameManager:
        managers().append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        managers().pop()


class _Local(threading.local):
    def __init__(self) -> None:
        self.stack: list[NameManager] = [NameManager()]


_local = _Local()


def managers() -> list[NameManager]:
    """The managers of this thread, outermost first: the list itself, which changes."""
    return _local.stack


def current() -> NameManager:
    """The innermost name manager of this thread."""
    return _local.stack[-1]
