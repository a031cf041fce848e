from hybrid_lab.mxnet.viz import *
