"""The networks of `make bench-lab`, each hybridized and called once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.gluon import nn, rnn
from hybrid_lab.gluon.model_zoo import vision


def images(name: str, size: int = 224) -> gluon.Block:
    """A network of the model zoo, called on one image."""
    net = getattr(vision, name)()
    _call(net, (1, 3, size, size))
    return net


class Attention(gluon.HybridBlock):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        self.project = nn.Dense(3 * width, flatten=False)
        self.out = nn.Dense(width, flatten=False)

    def forward(self, x):
        size = self.width // self.heads
        qkv = self.project(x).reshape((0, 0, 3 * self.heads, size)).transpose((0, 2, 1, 3))
        query, key, value = (
            qkv.slice_axis(axis=1, begin=part * self.heads, end=(part + 1) * self.heads).reshape((-3, 0, 0))
            for part in range(3)
        )
        weights = mx.nd.softmax(mx.nd.batch_dot(query, key, transpose_b=True) * size**-0.5)
        mixed = mx.nd.batch_dot(weights, value).reshape((-4, -1, self.heads, 0, 0)).transpose((0, 2, 1, 3))
        return self.out(mixed.reshape((0, 0, -3)))


class EncoderCell(gluon.HybridBlock):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention, self.norm1, self.norm2 = Attention(width, heads), nn.LayerNorm(), nn.LayerNorm()
        self.ffn = nn.HybridSequential()
        self.ffn.add(nn.Dense(4 * width, activation="relu", flatten=False), nn.Dense(width, flatten=False))

    def forward(self, x):
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.ffn(x))


def encoder() -> gluon.Block:
    net = nn.HybridSequential()
    net.add(*(EncoderCell(64, 4) for _ in range(6)))
    _call(net, (2, 16, 64))
    return net


def lstm() -> gluon.Block:
    net = rnn.LSTM(32, num_layers=2, layout="NTC")
    _call(net, (2, 12, 16))
    return net


class Plain(gluon.Block):
    """A Block whose own code stays eager; the Blocks in it are hybrid."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.HybridSequential(), nn.Dense(10)
        self.body.add(nn.Conv2D(16, 3, activation="relu"), nn.BatchNorm(), nn.MaxPool2D(), nn.Flatten())

    def forward(self, x):
        return self.head(self.body(x))


def plain() -> gluon.Block:
    net = Plain()
    _call(net, (2, 3, 32, 32))
    return net.body


class Flat(gluon.HybridBlock):
    """So many operators in one Block, with a skip edge at each seventh."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, x):
        skip = x
        for i in range(self.count * 7 // 9):
            x = x * 0.9 if i % 2 else x + 0.5
            if i % 7 == 6:
                x = skip = (x + skip) * 0.5
        return x


def flat(count: int) -> gluon.Block:
    net = Flat(count)
    net.hybridize(engine="numpy")
    net(mx.nd.ones((4, 4))).wait_to_read()
    return net


NETWORKS: dict[str, Callable[[], gluon.Block]] = {
    "resnet50_v1": lambda: images("resnet50_v1"),
    "densenet121": lambda: images("densenet121"),
    "inception_v3": lambda: images("inception_v3", 299),
    "mobilenet1_0": lambda: images("mobilenet1_0"),
    "vgg16": lambda: images("vgg16", 64),
    "squeezenet1_1": lambda: images("squeezenet1_1"),
    "alexnet": lambda: images("alexnet"),
    "encoder of 6 layers": encoder,
    "LSTM of 2 layers": lstm,
    "a plain Block over hybrid ones": plain,
    "5,000 operators in one Block": lambda: flat(5_000),
    "50,000 operators in one Block": lambda: flat(50_000),
}


def _call(net: gluon.Block, shape: tuple[int, ...]) -> None:
    net.initialize()
    net.hybridize()
    net(mx.nd.array(np.random.RandomState(0).rand(*shape).astype("float32"))).wait_to_read()
