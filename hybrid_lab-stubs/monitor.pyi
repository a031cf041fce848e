from hybrid_lab.mxnet.monitor import *
