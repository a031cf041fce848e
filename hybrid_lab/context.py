"""mx.context: the devices arrays live on."""

from __future__ import annotations

from hybrid_lab.ndarray.context import Context, cpu, cpu_pinned, current_context, gpu, gpu_memory_info, num_gpus

__all__ = ["Context", "cpu", "cpu_pinned", "current_context", "gpu", "gpu_memory_info", "num_gpus"]
