"""MXNet's `mx.contrib`, of which `amp` is here: training in mixed precision."""

from typing import TYPE_CHECKING

from hybrid_lab.diagnostics.unknown_names import suggesting as _suggesting

from . import amp

__all__ = ["amp"]


if not TYPE_CHECKING:  # so that a wrong name stays an error for type checkers
    __getattr__ = _suggesting(__name__, "contrib")
