from hybrid_lab.mxnet.operator import *
