from hybrid_lab.mxnet.contrib import amp as amp
from hybrid_lab.mxnet.contrib import autograd as autograd
from hybrid_lab.mxnet.contrib import io as io
from hybrid_lab.mxnet.contrib import onnx as onnx
from hybrid_lab.mxnet.contrib import svrg_optimization as svrg_optimization
from hybrid_lab.mxnet.contrib import text as text
