"""Attributes that Symbols get from the scope in which they are composed."""

from hybrid_lab.symbol.scopes import AttrScope

__all__ = ["AttrScope"]
