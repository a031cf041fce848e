"""Samplers and data sets beside the main collection, under MXNet's names."""

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.gluon.data import IntervalSampler

from . import text

__all__ = ["IntervalSampler", "text"]

_suggest_names(__name__)
