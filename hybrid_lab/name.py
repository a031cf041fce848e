"""Automatic names of Symbols: a counter per operator, prefixed inside a Block's name scope, as MXNet numbers them."""

from __future__ import annotations

from typing import Any

from hybrid_lab.scopes import ScopeType

__all__ = ["NameManager", "Prefix"]


class NameManager(metaclass=ScopeType):
    """Gives `relu0`, `relu1` ... Use as a context manager to make it current. `gluon.naming.NameScope` is a Block's."""

    def __init__(self) -> None:
        self._counter: dict[str, int] = {}

    def get(self, name: str | None, hint: str) -> str:
        """`name` where given, else the next `hint` + number."""
        if name:
            return name
        count = self._counter.get(hint, 0)
        self._counter[hint] = count + 1
        return f"{hint}{count}"

    def __enter__(self) -> Any:
        managers().append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        managers().pop()


class Prefix(NameManager):
    """Puts a prefix before every name, also before names that are given.

    with mx.name.Prefix("mlp_"):
        mx.sym.FullyConnected(data, num_hidden=10, name="fc1")  # mlp_fc1
    """

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def get(self, name: str | None, hint: str) -> str:
        """The prefix and `name`, or the prefix, `hint` and a number."""
        return self._prefix + super().get(name, hint)


def managers() -> list[NameManager]:
    """The managers of this thread, outermost first: the list itself, which changes."""
    return NameManager.stack


def current() -> NameManager:
    """The innermost name manager of this thread."""
    return NameManager.stack[-1]
