from hybrid_lab.mxnet.callback import *
