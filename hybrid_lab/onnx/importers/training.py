"""ONNX's optimizers of the domain ai.onnx.preview.training."""
