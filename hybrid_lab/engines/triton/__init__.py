"""The Triton engine: graphs as generated kernels on a GPU (or in Triton's interpreter), the rest as fallbacks."""

from hybrid_lab.engines.triton.engine import ENGINE

__all__ = ["ENGINE"]
