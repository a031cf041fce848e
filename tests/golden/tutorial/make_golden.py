"""The hybrid tutorial in the real MXNet 1.9.1: weights, inputs, outputs and gradients. Run in the oracle's environment.

MXNET_MKLDNN_ENABLED=0 .oracle/bin/python tests/golden/tutorial/make_golden.py
"""

import os

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn

HERE = os.path.dirname(os.path.abspath(__file__))


class Net(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.conv1 = nn.Conv2D(6, kernel_size=5)
            self.pool1 = nn.MaxPool2D(pool_size=2)
            self.conv2 = nn.Conv2D(16, kernel_size=5)
            self.pool2 = nn.MaxPool2D(pool_size=2)
            self.fc1 = nn.Dense(120)
            self.fc2 = nn.Dense(84)
            self.fc3_weight = self.params.get("fc3_weight", shape=(10, 84))

    def hybrid_forward(self, F, x, fc3_weight):
        x = self.pool1(F.relu(self.conv1(x)))
        x = self.pool2(F.relu(self.conv2(x)))
        x = x.reshape((0, -1))
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return F.dot(x, fc3_weight, transpose_b=True)


def main():
    mx.random.seed(42)
    net = Net()
    net.initialize(mx.init.Xavier(magnitude=2.24))
    x = mx.nd.random_normal(shape=(4, 1, 28, 28))
    net(x)
    net.save_parameters(os.path.join(HERE, "lenet.params"))
    net.hybridize()
    net(x)
    net.export(os.path.join(HERE, "lenet"), epoch=1)
    x.attach_grad()
    labels = mx.nd.array([3, 1, 4, 1])
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    with autograd.record():
        y = net(x)
        loss = loss_of(y, labels)
    loss.backward()
    held = {
        "x": x.asnumpy(),
        "labels": labels.asnumpy(),
        "y": y.asnumpy(),
        "loss": loss.asnumpy(),
        "grad:x": x.grad.asnumpy(),
    }
    for path, parameter in net._collect_params_with_prefix().items():
        held["grad:" + path] = parameter.grad().asnumpy()
    np.savez_compressed(os.path.join(HERE, "lenet.npz"), **held)


if __name__ == "__main__":
    main()
