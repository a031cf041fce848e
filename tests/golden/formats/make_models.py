"""Makes an exported model with the real MXNet 1.9.1 (MXNET_MKLDNN_ENABLED=0): run with its Python, in this folder."""

import mxnet as mx
import numpy as np
from mxnet import gluon, nd
from mxnet.gluon import nn


class Net(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.conv1 = nn.Conv2D(4, kernel_size=3, padding=1)
            self.norm = nn.BatchNorm()
            self.conv2 = nn.Conv2D(4, kernel_size=3, padding=1)
            self.pool = nn.MaxPool2D(pool_size=2)
            self.drop = nn.Dropout(0.5)
            self.fc1 = nn.Dense(6)
            self.fc2_weight = self.params.get("fc2_weight", shape=(3, 6))

    def hybrid_forward(self, F, x, fc2_weight):
        x = F.relu(self.norm(self.conv1(x)))
        x = x + self.conv2(x) * 0.5
        x = self.pool(x).reshape((0, -1))
        x = F.relu(self.fc1(self.drop(x)))
        return F.softmax(F.dot(x, fc2_weight, transpose_b=True)), 1 - x


mx.random.seed(7)
np.random.seed(7)
net = Net(prefix="net0_")
net.initialize(mx.init.Xavier())
x = nd.array(np.random.uniform(-1, 1, (2, 2, 6, 6)))
with mx.autograd.record():
    net(x)[0].sum().backward()  # moves the running statistics off their first values
net.hybridize()
outputs = net(x)
net.export("net", epoch=1)
net.save_parameters("net.params")
np.savez("net.npz", x=x.asnumpy(), **{f"y{i}": y.asnumpy() for i, y in enumerate(outputs)})
