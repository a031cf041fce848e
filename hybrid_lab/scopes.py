"""The metaclass of scopes such as name managers and attribute scopes, of which every thread has a stack."""

from __future__ import annotations

import threading
from typing import Any


class ScopeType(type):
    """Metaclass: a class of scopes, used in `with` statements, has a stack for each thread.

        NameManager.current          # the innermost scope of this thread
        NameManager.current = other  # takes its place

    A class whose direct metaclass this is starts each thread with a scope made without arguments; its subclasses share
    the stack.
    """

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> None:
        super().__init__(name, bases, namespace)
        if not any(isinstance(base, ScopeType) for base in bases):
            cls._local = threading.local()

    @property
    def stack(cls) -> list[Any]:
        """The scopes of this thread, outermost first: the list itself, which changes."""
        scopes: list[Any] | None = getattr(cls._local, "scopes", None)
        if scopes is None:
            base = next(each for each in reversed(cls.__mro__) if isinstance(each, ScopeType))
            scopes = cls._local.scopes = []
            scopes.append(base())
        return scopes

    @property
    def current(cls) -> Any:
        """The innermost scope of this thread."""
        return cls.stack[-1]

    @current.setter
    def current(cls, scope: Any) -> None:
        cls.stack[-1] = scope
