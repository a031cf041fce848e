"""The ONNX Runtime engine: maximal regions become sessions with bound buffers, the rest is planned NumPy."""

from hybrid_lab.engines.onnxruntime.engine import ENGINE, OnnxRuntimeEngine

__all__ = ["ENGINE", "OnnxRuntimeEngine"]
