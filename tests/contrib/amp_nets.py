"""Nets for the tests of mixed precision, and what one call of a net gives."""

from __future__ import annotations

import numpy as np

import hybrid_lab as mx
from hybrid_lab import autograd, nd
from hybrid_lab.gluon import HybridBlock, nn, rnn


def uniform(*shape, seed=0, dtype="float32"):
    return np.random.RandomState(seed).uniform(-1, 1, shape).astype(dtype)


# -- nets ------------------------------------------------------------------------------------------------------------


def lenet():
    net = nn.HybridSequential()
    net.add(
        nn.Conv2D(4, 3, activation="relu"),
        nn.BatchNorm(),
        nn.MaxPool2D(2),
        nn.Flatten(),
        nn.Dense(16, activation="tanh"),
        nn.Dense(10),
    )
    return net


class Attention(HybridBlock):
    """Products of arrays, softmax, a sum of a float16 and a float32 value, LayerNorm."""

    def __init__(self):
        super().__init__()
        self.keys, self.queries = nn.Dense(4, flatten=False), nn.Dense(4, flatten=False)
        self.norm, self.slope = nn.LayerNorm(), nn.PReLU()

    def hybrid_forward(self, F, x):
        scores = F.batch_dot(self.queries(x), self.keys(x), transpose_b=True) / 2
        return self.norm(self.slope(x + F.batch_dot(F.softmax(scores), x)))


class TwiceRead(HybridBlock):
    """A parameter that is read as it is and in products."""

    def __init__(self):
        super().__init__()
        self.weight = self.params.get("weight", shape=(5, 5))

    def hybrid_forward(self, F, x, weight):
        return F.dot(F.dot(x, weight), weight) + F.sum(weight**2) / F.exp(weight).mean()


class Scan(HybridBlock):
    """Loops whose bodies compute their states in float16, and a branch."""

    def __init__(self):
        super().__init__()
        self.step, self.end = nn.Dense(3, in_units=3), nn.Dense(3, in_units=3)

    def hybrid_forward(self, F, x):
        outputs, state = F.contrib.foreach(lambda row, state: (state, self.step(row + state)), x, F.zeros((1, 3)))
        rows, last = F.contrib.while_loop(
            lambda count, value: F.sum(self.end(value)) < 1e3,
            lambda count, value: (self.end(value), (count + 1, self.step(value))),
            (F.zeros((1,)), state),
            max_iterations=2,
        )
        chosen = F.contrib.cond(F.sum(state) > 0, lambda: self.end(state), lambda: state * 2)
        return outputs, state, rows, last[1], chosen


class AsksForTheDtype(HybridBlock):
    """2.x style: the code goes another way where its values are float16."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(3, in_units=4)

    def forward(self, x):
        y = self.dense(x)
        return (y + 1 if y.dtype == np.float16 else y * 2).astype("float32")


def lstm():
    return rnn.LSTM(4, num_layers=2, input_size=3)


NETS = {
    "lenet": (lenet, (4, 1, 8, 8)),
    "attention": (Attention, (2, 3, 5)),
    "twice": (TwiceRead, (2, 5)),
    "scan": (Scan, (3, 1, 3)),
    "dtype": (AsksForTheDtype, (2, 4)),
    "lstm": (lstm, (5, 2, 3)),
}


def flat(item):
    return [leaf for part in item for leaf in flat(part)] if isinstance(item, (list, tuple)) else [item]


def run(net, x, train=True):
    """Outputs, the gradients of x and of all parameters, and the states after one call."""
    x = nd.array(x)
    x.attach_grad()
    with autograd.record(train_mode=train):
        outputs = flat(net(x))
    autograd.backward(outputs)
    parameters = net.collect_params().values()
    gradients = [x.grad, *(p.grad() for p in parameters if p.grad_req != "null")]
    states = [p.data() for p in parameters if p.grad_req == "null"]
    return [array.asnumpy() for array in (*outputs, *gradients, *states)]


def made(name, x):
    mx.random.seed(3)
    net = NETS[name][0]()
    net.initialize(mx.init.Xavier())
    net(nd.array(x))
    return net


def close(found, wanted, tolerance):
    assert [(y.shape, y.dtype) for y in found] == [(y.shape, y.dtype) for y in wanted]
    for y, expected in zip(found, wanted, strict=True):
        scale = max(np.abs(expected).max(initial=0.0), 1e-2)
        assert np.abs(y.astype("float64") - expected.astype("float64")).max(initial=0.0) <= tolerance * scale
