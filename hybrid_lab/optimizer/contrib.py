"""MXNet's `optimizer.contrib`: GroupAdaGrad, which `optimizer` has too."""

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names

from .stepwise import GroupAdaGrad

__all__ = ["GroupAdaGrad"]

_suggest_names(__name__)
