"""Fifty training steps of four kinds of network: the compiled steps follow the eager ones.

One batch is learned by heart. Through a ResNet rounding grows tenfold a step: there a run that rounds otherwise is
measured by how far eager steps go from themselves when the input changes by one part in ten million.
"""

import functools

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.gluon import nn
from hybrid_lab.gluon.model_zoo import vision

STEPS = 50


def lenet():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(6, 5), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(2))
    net.add(nn.Conv2D(16, 5, activation="relu"), nn.MaxPool2D(2), nn.Dense(32, activation="relu"))
    net.add(nn.Dropout(0.3), nn.Dense(10))
    return net, (16, 1, 20, 20), 10


def resnet18():
    """ResNet-18 at a quarter of its width."""
    net = vision.ResNetV1(vision.BasicBlockV1, (2, 2, 2, 2), (16, 16, 32, 64, 128), classes=10, thumbnail=True)
    return net, (8, 3, 16, 16), 10


class Language(gluon.HybridBlock):
    """Two LSTM layers with dropout over word vectors, and scores for the next word."""

    def __init__(self):
        super().__init__()
        self.words, self.drop = nn.Embedding(50, 24), nn.Dropout(0.2)
        self.layers = gluon.rnn.LSTM(32, num_layers=2, dropout=0.2, input_size=24)
        self.scores = nn.Dense(50, flatten=False)

    def hybrid_forward(self, F, x):
        return self.scores(self.drop(self.layers(self.drop(self.words(x)))))


def language():
    return Language(), (12, 6), 50


class Encoder(gluon.HybridBlock):
    """Self-attention with one head and a GELU layer, normalized, with dropout."""

    def __init__(self, units):
        super().__init__()
        self.scale = units**-0.5
        self.qkv, self.out = nn.Dense(3 * units, flatten=False), nn.Dense(units, flatten=False)
        self.norm1, self.norm2 = nn.LayerNorm(), nn.LayerNorm()
        self.wide, self.gelu = nn.Dense(4 * units, flatten=False), nn.GELU()
        self.narrow, self.drop = nn.Dense(units, flatten=False), nn.Dropout(0.1)

    def hybrid_forward(self, F, x):
        q, k, v = F.split(self.qkv(x), num_outputs=3, axis=2)
        weights = F.softmax(F.batch_dot(q, k, transpose_b=True) * self.scale)
        x = self.norm1(x + self.drop(self.out(F.batch_dot(weights, v))))
        return self.norm2(x + self.drop(self.narrow(self.gelu(self.wide(x)))))


def encoder():
    net = nn.HybridSequential()
    net.add(Encoder(16), Encoder(16), nn.Dense(10))
    return net, (4, 8, 16), 10


MODELS = {"lenet": lenet, "resnet18": resnet18, "language": language, "encoder": encoder}
RATES = {"lenet": 0.02, "resnet18": 0.0001, "language": 0.5, "encoder": 0.02}


@functools.cache
def train(model, engine, noise=0.0):
    """The loss of every step, and every parameter at the end. noise : relative change of the input."""
    mx.random.seed(3)
    net, shape, classes = MODELS[model]()
    net.initialize(mx.init.Xavier())
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    if engine:
        net.hybridize(engine=engine)
        loss.hybridize(engine=engine)
    random = np.random.RandomState(0)
    words = model == "language"
    x = nd.array(random.randint(0, classes, shape) if words else random.uniform(-1, 1, shape))
    y = nd.array(random.randint(0, classes, shape if words else shape[0]))
    if noise:
        x = x * (1 + noise * nd.array(random.standard_normal(shape)))
    net(x)
    settings = {"learning_rate": RATES[model], "momentum": 0.9, "wd": 1e-4}
    trainer = gluon.Trainer(net.collect_params(), "sgd", settings)
    losses = []
    for _ in range(STEPS):
        with autograd.record():
            error = loss(net(x), y)
        error.backward()
        trainer.step(shape[0])
        losses.append(float(error.mean().asscalar()))
    return losses, {key: each.data().asnumpy() for key, each in net._collect_params_with_prefix().items()}


def distance(one, other):
    """How far two runs are apart: in losses, relative to the largest, and in parameters, likewise."""
    losses = np.abs(np.subtract(one[0], other[0])).max() / max(other[0])
    largest = max(np.abs(value).max() for value in other[1].values())
    return losses, max(np.abs(one[1][name] - value).max() for name, value in other[1].items()) / largest


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("model", list(MODELS))
def test_fifty_steps_follow_eager_ones(model, engine):
    eager = train(model, None)
    assert eager[0][-1] < 0.9 * eager[0][0]
    losses, parameters = distance(train(model, engine), eager)
    allowed = [1e-4, 1e-4]
    if (model, engine) == ("resnet18", "onnxruntime"):
        allowed = [max(1e-4, 3 * each) for each in distance(train(model, "numpy", noise=1e-7), eager)]
        assert max(allowed) < 0.05
    assert losses <= allowed[0]
    assert parameters <= allowed[1]
