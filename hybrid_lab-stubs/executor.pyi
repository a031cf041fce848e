from hybrid_lab.mxnet.executor import *
