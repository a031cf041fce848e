"""Scopes of Symbols, of which every thread has a stack: scopes of names (`mx.name`), and of attributes."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from hybrid_lab.diagnostics.errors import AttributeSpecError


class _Scopes(threading.local):
    """Per thread: the scopes of one class."""

    def __init__(self, kind: ScopeType) -> None:
        self.scopes: list[Any] = [kind()]


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
            cls._local = _Scopes(cls)

    stack: Any = property(attrgetter("_local.scopes"))
    """The scopes of this thread, outermost first: the list itself, which changes."""

    @property
    def current(cls) -> Any:
        """The innermost scope of this thread."""
        return cls.stack[-1]

    @current.setter
    def current(cls, scope: Any) -> None:
        cls.stack[-1] = scope


class NameManager(metaclass=ScopeType):
    """Gives automatic names, `relu0`, `relu1` ... Use as a context manager to make it current. `gluon.naming.NameScope`
    is a Block's.
    """

    def __init__(self) -> None:
        self._counter: dict[str, int] = {}

    def get(self, name: str | None, hint: str) -> str:
        """`name` if given, else the next `hint` + number."""
        if name:
            return name
        count = self._counter.get(hint, 0)
        self._counter[hint] = count + 1
        return f"{hint}{count}"

    def __enter__(self) -> Any:
        NameManager.stack.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        NameManager.stack.pop()


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


SHORT_NAMES = frozenset({"ctx_group", "lr_mult", "wd_mult", "force_mirroring", "mirror_stage"})
"""Attributes that are written `__lr_mult__` in a graph and may be given and asked for as `lr_mult`."""


class AttrScope(metaclass=ScopeType):
    """Every variable and operator that is composed inside gets these attributes; inner scopes and own ones win.

        with mx.AttrScope(ctx_group="embedding", __lr_mult__="2"):
            weight = mx.sym.var("weight")

    kwargs : attributes, whose values are strings. Raises AttributeSpecError for other values.
    """

    def __init__(self, **kwargs: str) -> None:
        for key, value in kwargs.items():
            if not isinstance(value, str):
                raise AttributeSpecError(f"AttrScope: {key} must be a string, not {type(value).__name__}")
        self._attr = dict(kwargs)
        self._outer: list[dict[str, str]] = []

    def get(self, attr: Mapping[str, str] | None) -> dict[str, str]:
        """`attr` with the attributes of this scope that it lacks."""
        return {**self._attr, **(attr or {})}

    def __enter__(self) -> AttrScope:
        self._outer.append(self._attr)
        self._attr = {**AttrScope.current._attr, **self._attr}
        AttrScope.stack.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        AttrScope.stack.pop()
        self._attr = self._outer.pop()


def scoped(attr: Mapping[str, str] | None = None) -> dict[str, str]:
    """`attr` with the attributes of the current scope, named as graphs name them."""
    attributes: dict[str, str] = AttrScope.current.get(attr)
    return {f"__{key}__" if key in SHORT_NAMES else key: value for key, value in attributes.items()}


def shown(attributes: Mapping[str, Any]) -> dict[str, str]:
    """The attributes of a node as `list_attr` gives them: `lr_mult` in addition to `__lr_mult__`."""
    result = {key: str(value) for key, value in attributes.items()}
    for key in SHORT_NAMES:
        if f"__{key}__" in result:
            result[key] = result[f"__{key}__"]
    return result
