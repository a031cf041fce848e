from hybrid_lab.mxnet.compat import *
