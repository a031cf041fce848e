from hybrid_lab.mxnet.registry import *
