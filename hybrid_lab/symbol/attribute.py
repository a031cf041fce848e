"""Attributes that Symbols get from the scope in which they are composed."""

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.symbol.scopes import AttrScope

__all__ = ["AttrScope"]

_suggest_names(__name__)
