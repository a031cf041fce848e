"""Layers and cells beside the main collection, under MXNet's names."""

from typing import TYPE_CHECKING

from hybrid_lab.diagnostics.unknown_names import suggesting as _suggesting

from . import data, nn, rnn

__all__ = ["data", "nn", "rnn"]


if not TYPE_CHECKING:  # so that a wrong name stays an error for type checkers
    __getattr__ = _suggesting(__name__, "gluon.contrib")
