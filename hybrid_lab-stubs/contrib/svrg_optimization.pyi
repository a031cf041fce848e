from hybrid_lab.mxnet.contrib.svrg_optimization import *
