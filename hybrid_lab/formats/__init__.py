"""Files a model is written to and read from: the .hlab archive, MXNet's own files, ONNX, safetensors."""
