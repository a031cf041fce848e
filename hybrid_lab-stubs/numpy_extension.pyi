from hybrid_lab.numpy.extension import *
