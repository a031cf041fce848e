"""MXNet's functions for ONNX files, which take and give Symbols. `mx.onnx.export` and `mx.onnx.imports` have Blocks."""

from hybrid_lab.onnx.symbols import export_model, get_model_metadata, import_model, import_to_gluon

__all__ = ["export_model", "get_model_metadata", "import_model", "import_to_gluon"]
