from hybrid_lab.mxnet.libinfo import *
