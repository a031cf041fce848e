from hybrid_lab.mxnet.rnn import *
