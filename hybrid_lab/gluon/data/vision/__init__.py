"""Data sets of images and their transforms."""

from typing import TYPE_CHECKING

from hybrid_lab.diagnostics.unknown_names import suggesting as _suggesting

from . import transforms

__all__ = ["transforms"]


if not TYPE_CHECKING:  # so that a wrong name stays an error for type checkers
    __getattr__ = _suggesting(__name__, "gluon.data.vision")
