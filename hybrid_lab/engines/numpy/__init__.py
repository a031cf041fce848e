"""The NumPy engine: always there; the reference for all others."""

from hybrid_lab.engines.numpy.engine import ENGINE, NumPyEngine

__all__ = ["ENGINE", "NumPyEngine"]
