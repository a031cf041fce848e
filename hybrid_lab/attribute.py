"""Attributes that Symbols get from the scope in which they are composed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hybrid_lab.diagnostics.errors import AttributeSpecError
from hybrid_lab.scopes import ScopeType

__all__ = ["AttrScope"]

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
    """The attributes of a node as `list_attr` gives them: `lr_mult` besides `__lr_mult__`."""
    result = {key: str(value) for key, value in attributes.items()}
    for key in SHORT_NAMES:
        if f"__{key}__" in result:
            result[key] = result[f"__{key}__"]
    return result
