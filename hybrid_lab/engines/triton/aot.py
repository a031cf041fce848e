"""Kernels compiled ahead of time, for GPUs that need not be in the machine."""

from __future__ import annotations

from collections.abc import Sequence

from hybrid_lab.engines.triton.binaries import Binary
from hybrid_lab.engines.triton.compiling import compile_all
from hybrid_lab.engines.triton.source import KernelSource


def compile_for(sources: Sequence[KernelSource], target: str) -> list[Binary]:
    """Compile each kernel for `target`. Raises EngineError for an unknown target or a kernel that does not compile."""
    return [binary for binary in compile_all(sources, target) if binary is not None]
