from hybrid_lab.mxnet.contrib.autograd import *
