from hybrid_lab.mxnet.contrib.io import *
