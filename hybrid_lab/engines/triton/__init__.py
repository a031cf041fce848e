"""The Triton engine: pointwise groups as generated kernels on a GPU (or in Triton's interpreter), the rest through
the counted fallback.
"""

from hybrid_lab.engines.triton.engine import ENGINE

__all__ = ["ENGINE"]
