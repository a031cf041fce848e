"""Fifty training steps of four kinds of network: each compiled step is the eager step from the same parameters.

One batch is learned by heart. Both networks begin every step with the eager parameters: a ResNet multiplies a
difference by ten a step, so that two runs on their own say more about the processor's rounding than about the steps.
"""

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


class Run:
    """A network in training, eager for engine None."""

    def __init__(self, model, engine):
        mx.random.seed(3)
        self.net, shape, classes = MODELS[model]()
        self.net.initialize(mx.init.Xavier())
        self.loss, self.size = gluon.loss.SoftmaxCrossEntropyLoss(), shape[0]
        if engine:
            self.net.hybridize(engine=engine)
            self.loss.hybridize(engine=engine)
        random = np.random.RandomState(0)
        words = model == "language"
        self.x = nd.array(random.randint(0, classes, shape) if words else random.uniform(-1, 1, shape))
        self.y = nd.array(random.randint(0, classes, shape if words else shape[0]))
        self.net(self.x)
        settings = {"learning_rate": RATES[model], "momentum": 0.9, "wd": 1e-4}
        self.trainer = gluon.Trainer(self.net.collect_params(), "sgd", settings)
        self.parameters = self.net._collect_params_with_prefix()

    def values(self):
        return {name: each.data().asnumpy() for name, each in self.parameters.items()}

    def step(self, number):
        """The loss, and the gradients and running statistics by parameter."""
        mx.random.seed(number)
        with autograd.record():
            error = self.loss(self.net(self.x), self.y)
        error.backward()
        self.trainer.step(self.size)
        trained = {name: each for name, each in self.parameters.items() if each.grad_req != "null"}
        statistics = {name: each.data() for name, each in self.parameters.items() if name not in trained}
        gradients = {name: each.grad() for name, each in trained.items()}
        return float(error.mean().asscalar()), *map(to_numpy, (gradients, statistics))


def to_numpy(arrays):
    return {name: array.asnumpy() for name, array in arrays.items()}


def distance(one, other):
    """The largest difference between arrays of the same names, relative to the largest value."""
    largest = max((np.abs(value).max() for value in other.values()), default=0) or 1
    return max((np.abs(one[name] - value).max() for name, value in other.items()), default=0) / largest


@pytest.mark.each_value
@pytest.mark.parametrize("engine", ["numpy", "onnxruntime"])
@pytest.mark.parametrize("model", list(MODELS))
def test_fifty_steps_are_the_eager_ones(model, engine):
    eager, compiled = Run(model, None), Run(model, engine)
    losses, distances = [], []
    for number in range(STEPS):
        for name, parameter in compiled.parameters.items():
            parameter.set_data(eager.parameters[name].data())
        loss, gradients, statistics = eager.step(number)
        losses.append(loss)
        compiled_loss, compiled_gradients, compiled_statistics = compiled.step(number)
        assert abs(compiled_loss - loss) <= 1e-4 * losses[0], number
        distances.append(distance(compiled_gradients, gradients))
        assert distance(compiled_statistics, statistics) <= 1e-4, number
        assert distance(compiled.values(), eager.values()) <= 1e-4, number
    # In some steps a number just beside 0 is rounded to the other side of a relu.
    assert np.median(distances) <= 1e-4 and max(distances) <= 0.1
    assert losses[-1] < 0.9 * losses[0]
