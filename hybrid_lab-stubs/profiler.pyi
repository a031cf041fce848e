from hybrid_lab.mxnet.profiler import *
