"""LeNet of the tutorial in the real MXNet: answers {"case", "repeats"} lines with medians in milliseconds."""

import json
import statistics
import sys
import time

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn


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
            self.fc3 = nn.Dense(10)

    def hybrid_forward(self, F, x):
        x = self.pool1(F.relu(self.conv1(x)))
        x = self.pool2(F.relu(self.conv2(x)))
        x = F.relu(self.fc1(x.reshape((0, -1))))
        return self.fc3(F.relu(self.fc2(x)))


def make(hybrid):
    net = Net()
    net.initialize()
    if hybrid:
        net.hybridize(static_alloc=True, static_shape=True)
    return net


x = mx.nd.array(np.random.RandomState(0).rand(64, 1, 28, 28))
nets = {"eager": make(False), "hybrid": make(True)}


def forward(net):
    net(x).wait_to_read()


def train(net):
    with autograd.record():
        loss = net(x).square().mean()
    loss.backward()
    net.conv1.weight.grad().wait_to_read()


for line in sys.stdin:
    request = json.loads(line)
    mode, what = request["case"].split()
    function = forward if what == "forward" else train
    times = []
    for _ in range(request["repeats"]):
        start = time.perf_counter()
        function(nets[mode])
        times.append((time.perf_counter() - start) * 1e3)
    print(json.dumps(statistics.median(times)), flush=True)
