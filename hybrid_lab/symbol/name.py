"""Automatic names of Symbols: a counter per operator, prefixed inside a Block's name scope, as MXNet numbers them."""

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.symbol.scopes import NameManager, Prefix

__all__ = ["NameManager", "Prefix"]

_suggest_names(__name__)
