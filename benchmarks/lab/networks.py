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


class ManyReaders(gluon.HybridBlock):
    """So many operators in one Block: every second one reads one value, and each reads one from 60 operators before."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def forward(self, x):
        shared, before = x * 0.5, [x]
        for i in range(self.count // 2):
            x = (x + before[max(0, i - 30)]) * 0.5
            before.append(x)
            x = x - shared
        return x


def flat(count: int, kind: type[gluon.HybridBlock] = Flat) -> gluon.Block:
    net = kind(count)
    net.hybridize(engine="numpy")
    net(mx.nd.ones((4, 4))).wait_to_read()
    return net


class FivePlainNets(gluon.Block):
    """A Block whose own code stays eager, over five nets with graphs of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.nets = [getattr(vision, name)(classes=64) for name in ("resnet18_v1", "mobilenet0_25", "resnet18_v2")]
        self.nets += [nn.Dense(64), nn.LayerNorm()]
        for number, net in enumerate(self.nets):
            self.register_child(net, f"net{number}")

    def forward(self, x):
        images = sum(net(x) for net in self.nets[:3])
        return self.nets[4](self.nets[3](images) + images)


def five_plain_nets() -> gluon.Block:
    net = FivePlainNets()
    _call(net, (1, 3, 64, 64))
    return net


def imported_vit() -> gluon.Block:
    """A vision transformer of 12 layers, written in torch and imported."""
    import torch

    class Layer(torch.nn.Module):
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
            self.attention = torch.nn.MultiheadAttention(width, heads, batch_first=True)
            self.mlp = torch.nn.Sequential(
                torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
            )

        def forward(self, x):
            y = self.norm1(x)
            x = x + self.attention(y, y, y, need_weights=False)[0]
            return x + self.mlp(self.norm2(x))

    class ViT(torch.nn.Module):
        def __init__(self, width: int = 192, heads: int = 3, layers: int = 12) -> None:
            super().__init__()
            self.patches = torch.nn.Conv2d(3, width, 16, 16)
            self.first = torch.nn.Parameter(torch.zeros(1, 1, width))
            self.positions = torch.nn.Parameter(torch.zeros(1, 197, width))
            self.layers = torch.nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
            self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, 1000)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.positions
            return self.head(self.norm(self.layers(x))[:, 0])

    x = torch.rand(1, 3, 224, 224)
    net = mx.torch.imports(ViT().eval(), x)
    net.hybridize()
    net(mx.nd.array(x.numpy())).wait_to_read()
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
    "a plain Block over five nets": five_plain_nets,
    "a ViT imported from torch": imported_vit,
    "5,000 operators in one Block": lambda: flat(5_000),
    "50,000 operators in one Block": lambda: flat(50_000),
    "50,000 operators, a value that half of them read": lambda: flat(33_333, ManyReaders),
}


def _call(net: gluon.Block, shape: tuple[int, ...]) -> None:
    net.initialize()
    net.hybridize()
    net(mx.nd.array(np.random.RandomState(0).rand(*shape).astype("float32"))).wait_to_read()
