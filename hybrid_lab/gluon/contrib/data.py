"""Samplers beside the main collection, under MXNet's names."""

from typing import TYPE_CHECKING

from hybrid_lab.diagnostics.unknown_names import suggesting as _suggesting
from hybrid_lab.gluon.data import IntervalSampler

__all__ = ["IntervalSampler"]


if not TYPE_CHECKING:  # so that a wrong name stays an error for type checkers
    __getattr__ = _suggesting(__name__, "gluon.contrib.data")
