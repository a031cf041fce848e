"""ONNX's operators on images: Resize, GridSample, RoiAlign."""
