from hybrid_lab.mxnet.module import *
