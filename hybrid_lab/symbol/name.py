"""Automatic names of Symbols: a counter per operator, prefixed inside a Block's name scope, as MXNet numbers them."""

from hybrid_lab.symbol.scopes import NameManager, Prefix

__all__ = ["NameManager", "Prefix"]
