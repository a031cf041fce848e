from hybrid_lab.mxnet.base import *
