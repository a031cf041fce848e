"""The NumPy engine: always there, planned memory, one generated function per graph; the reference for all others."""

from hybrid_lab.engines.numpy.build import build
from hybrid_lab.engines.numpy.engine import ENGINE, NumPyEngine

__all__ = ["ENGINE", "NumPyEngine", "build"]
