"""MXNet's `mx.contrib`, of which `amp` is here: training in mixed precision."""

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

from . import amp

__all__ = ["amp"]

_suggest_names(__name__)
