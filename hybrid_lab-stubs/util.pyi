from hybrid_lab.mxnet.util import *
