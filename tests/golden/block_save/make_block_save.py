"""Runs under the real MXNet: saves models with `Block.save`, and their inputs and outputs, beside this file."""

from pathlib import Path

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.gluon import nn

folder = Path(__file__).resolve().parent
mx.random.seed(1)


class Two(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.left = nn.Dense(3, in_units=4)
            self.right = nn.Dense(3, in_units=4)

    def hybrid_forward(self, F, x, y):
        return [self.left(x) + self.right(y), F.tanh(x)]


class Plain(gluon.Block):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.body = nn.HybridSequential()
            self.body.add(nn.Conv2D(4, 3, in_channels=2), nn.BatchNorm(in_channels=4), nn.Activation("relu"))
            self.head = nn.Dense(3, in_units=144)

    def forward(self, x):
        return self.head(self.body(x))


for name, net, inputs in [
    ("two", Two(), [mx.nd.random.normal(shape=(2, 4)) for _ in range(2)]),
    ("plain", Plain(), [mx.nd.random.normal(shape=(2, 2, 8, 8))]),
]:
    net.initialize(mx.init.Normal(0.5))
    net.hybridize()
    outputs = net(*inputs)
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    net.save(f"{folder}/{name}")
    arrays = {f"in{index}": each.asnumpy() for index, each in enumerate(inputs)}
    np.savez(f"{folder}/{name}.npz", **arrays, **{f"out{index}": each.asnumpy() for index, each in enumerate(outputs)})
