"""Bound Symbols: `Symbol.bind` and `Symbol.simple_bind` give an Executor, which runs compiled programs."""

from __future__ import annotations

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.mxnet.executor.executor import Executor

__all__ = ["Executor"]

_suggest_names(__name__)
