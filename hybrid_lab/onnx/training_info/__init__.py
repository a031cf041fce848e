"""The training information of ONNX files, written and read: initializers, the loss, steps of optimizers."""
