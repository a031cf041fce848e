"""Bound Symbols: `Symbol.bind` and `Symbol.simple_bind` give an Executor, which runs compiled programs."""

from __future__ import annotations

from hybrid_lab.mxnet.executor.executor import Executor

__all__ = ["Executor"]
