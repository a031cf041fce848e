"""Data sets of images and their transforms."""

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

from . import transforms

__all__ = ["transforms"]

_suggest_names(__name__)
