"""ONNX's operators on signals: Fourier transforms and window functions."""
