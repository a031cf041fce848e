from hybrid_lab.mxnet.engine import *
