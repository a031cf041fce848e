from hybrid_lab.mxnet.contrib.amp import *
