from hybrid_lab.mxnet.contrib.onnx import *
