from hybrid_lab.mxnet.runtime import *
