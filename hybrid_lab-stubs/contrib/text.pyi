from hybrid_lab.mxnet.contrib.text import *
