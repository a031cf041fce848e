"""mx.context: the devices arrays live on."""

from __future__ import annotations

from hybrid_lab.diagnostics.unknown_names import suggest_names as _suggest_names
from hybrid_lab.ndarray.context import Context, cpu, cpu_pinned, current_context, gpu, gpu_memory_info, num_gpus

__all__ = ["Context", "cpu", "cpu_pinned", "current_context", "gpu", "gpu_memory_info", "num_gpus"]

_suggest_names(__name__)
