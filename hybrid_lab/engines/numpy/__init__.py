"""The NumPy engine: always available; the reference for all other engines."""

from hybrid_lab.engines.numpy.engine import ENGINE, NumPyEngine

__all__ = ["ENGINE", "NumPyEngine"]
