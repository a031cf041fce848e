from hybrid_lab.mxnet.model import *
