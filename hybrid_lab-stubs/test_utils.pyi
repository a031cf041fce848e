from hybrid_lab.mxnet.test_utils import *
