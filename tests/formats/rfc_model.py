"""The model of the RFC: a plain Block on top, HybridBlocks in HybridBlocks below, one child shared, one never called.

With RFC_MODEL=broken in the environment every hybrid_forward raises: the classes are there, their code must not run.
"""

import os

import numpy as np

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.gluon import nn

BROKEN = os.environ.get("RFC_MODEL") == "broken"


def code_runs():
    if BROKEN:
        raise AssertionError("hybrid_forward ran")


class Body(gluon.HybridBlock):
    """Two convolutions around a residual connection, then the shared layer."""

    def __init__(self, shared, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.stem = nn.Conv2D(4, 3, padding=1)
            self.inner = Inner()
        self.shared = shared

    def hybrid_forward(self, F, x):
        code_runs()
        x = F.relu(self.stem(x))
        return self.shared(F.Flatten(self.inner(x) + x))


class Inner(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.conv = nn.Conv2D(4, 3, padding=1)
            self.norm = nn.BatchNorm()

    def hybrid_forward(self, F, x):
        code_runs()
        return F.tanh(self.norm(self.conv(x))) * 0.5


class Head(gluon.HybridBlock):
    """Two inputs, a dict of outputs, a parameter of its own."""

    def __init__(self, shared, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.scale = self.params.get("scale", shape=(1, 6), init="ones")
            self.out = nn.Dense(3)
        self.shared = shared

    def hybrid_forward(self, F, pair, skip, scale):
        code_runs()
        first, second = pair
        y = self.out(F.broadcast_mul(first, scale) + second)
        return {"scores": F.softmax(y), "nothing": None, "parts": [y, first]}


class Net(gluon.Block):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.shared = nn.Dense(6)
            self.body = Body(self.shared)
            self.drop = nn.Dropout(0.5)
            self.head = Head(self.shared)
            self.unused = nn.Dense(5)

    def forward(self, x):
        features = self.drop(self.body(x))
        return self.head((features, features * 2), None)["scores"]


if BROKEN:
    for layer in list(nn.registry.classes().values()):
        if issubclass(layer, gluon.HybridBlock):
            layer.hybrid_forward = lambda self, F, *args, **kwargs: code_runs()


def images(count=2, seed=3):
    return mx.nd.array(np.random.RandomState(seed).uniform(-1, 1, (count, 2, 5, 5)))


def called_net():
    """Initialized, hybridized and called, away from its first running statistics."""
    mx.random.seed(5)
    net = Net()
    net.initialize(mx.init.Xavier())
    net.hybridize(engine="numpy")
    with mx.autograd.record():
        loss = net(images(4)).sum()
    loss.backward()
    net(images())
    return net


def forward_and_gradients(net, x):
    """Outputs in predict mode and the gradients of their weighted sum."""
    with mx.autograd.record(train_mode=False):
        y = net(x)
        loss = (y * mx.nd.array([[1.0, 2.0, -1.0]])).sum()
    loss.backward()
    called = {
        key: p for key, p in net._collect_params_with_prefix().items() if p.grad_req != "null" and p._data is not None
    }
    return y.asnumpy(), {key: p.grad().asnumpy() for key, p in called.items() if not key.startswith("unused")}


def values(net):
    """Copies of all parameters that have values, by their place in the tree."""
    return {
        key: p.data().asnumpy().copy() for key, p in net._collect_params_with_prefix().items() if p._data is not None
    }


def equal(one, two):
    """Whether two models' values are the same, bit for bit."""
    return one.keys() == two.keys() and all(np.array_equal(one[key], two[key]) for key in one)
