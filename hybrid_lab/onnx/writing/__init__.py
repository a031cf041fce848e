"""ONNX files, written: networks as nodes, with open sizes and for several opsets."""
