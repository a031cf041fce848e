"""ONNX files, read: checked as data, then composed of the operators of this package."""
