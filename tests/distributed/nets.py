"""Networks and training steps that tests run in one process and in several."""

from __future__ import annotations

from typing import Any

import numpy as np

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.gluon import HybridBlock, nn, rnn
from hybrid_lab.gluon.model_zoo import vision


class Encoder(HybridBlock):
    """One layer of a transformer's encoder, with a head."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.query, self.key, self.value = (nn.Dense(16, flatten=False) for _ in range(3))
            self.norm, self.head = nn.LayerNorm(), nn.Dense(10)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        weights = F.softmax(F.batch_dot(self.query(x), self.key(x), transpose_b=True) / 4)
        return self.head(self.norm(x + F.batch_dot(weights, self.value(x))))


class Last(HybridBlock):
    """An LSTM and a head on its last output."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        with self.name_scope():
            self.lstm, self.head = rnn.LSTM(12, layout="NTC"), nn.Dense(10)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return self.head(F.slice_axis(self.lstm(x), axis=1, begin=-1, end=None))


def lenet() -> HybridBlock:
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, activation="relu"), nn.MaxPool2D(2), nn.Flatten(), nn.Dense(16, activation="tanh"))
    net.add(nn.Dense(10))
    return net


def resnet18() -> HybridBlock:
    """With fixed statistics: those of a batch are other ones in a half of it."""
    net = vision.resnet18_v1(classes=10, thumbnail=True)
    for block in _blocks(net):
        if isinstance(block, nn.BatchNorm):
            block._use_global_stats = True
            block._kwargs["use_global_stats"] = True
    return net


def _blocks(block: Any) -> Any:
    yield block
    for child in block._children.values():
        yield from _blocks(child)


NETS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "lenet": (lenet, (1, 12, 12)),
    "resnet18": (resnet18, (3, 8, 8)),
    "lstm": (Last, (5, 6)),
    "encoder": (Encoder, (5, 16)),
}
"""Name -> (how it is built, the shape of one sample)."""
# The gradient of a key's bias in attention is rounding alone: divided by its size plus 1e-8, it would be a full step.
OPTIMIZERS = {
    "sgd": {"learning_rate": 0.05, "momentum": 0.9},
    "adam": {"learning_rate": 0.001, "epsilon": 1e-3},
}


class Training:
    """A network and its Trainer, with the same first values everywhere.

    parts : one process goes through this many parts of each batch and adds their gradients, as workers do
    """

    def __init__(self, name: str, optimizer: str, hybrid: bool, rank: int, size: int, parts: int = 1) -> None:
        build, self._shape = NETS[name]
        mx.random.seed(7)
        self.net = build()
        self.net.initialize(mx.init.Xavier())
        if rank:  # this worker's own values, which the store replaces
            for parameter in self.net.collect_params().values():
                if parameter._data is not None:
                    parameter.set_data(parameter.data() + 1)
        if hybrid:
            self.net.hybridize()
        store = "dist_sync" if size > 1 else "device"
        self._trainer = gluon.Trainer(self.net.collect_params(), optimizer, OPTIMIZERS[optimizer], kvstore=store)
        if parts > 1:
            self.net.collect_params().setattr("grad_req", "add")
        self._loss, self._numbers = gluon.loss.SoftmaxCrossEntropyLoss(), np.random.RandomState(3)
        self._shares = [(part, parts) for part in range(parts)] if size == 1 else [(rank, size)]

    def step(self, batch: int) -> None:
        """One step on a batch that only depends on the number of steps before."""
        x = self._numbers.randn(batch, *self._shape).astype("float32")
        y = self._numbers.randint(0, 10, batch)
        for part, parts in self._shares:
            share = slice(part * batch // parts, (part + 1) * batch // parts)
            with autograd.record():
                loss = self._loss(self.net(nd.array(x[share])), nd.array(y[share]))
            loss.backward()
        self._trainer.step(batch)
        self.net.collect_params().zero_grad()

    def values(self) -> dict[str, np.ndarray]:
        return {key: value.data().asnumpy() for key, value in self.net._collect_params_with_prefix().items()}

    def take(self, values: dict[str, np.ndarray]) -> None:
        """Go on from these parameters."""
        for key, value in self.net._collect_params_with_prefix().items():
            value.set_data(nd.array(values[key]))


def train(
    name: str, optimizer: str, hybrid: bool, rank: int, size: int, steps: int, batch: int = 8, parts: int = 1
) -> dict[str, np.ndarray]:
    """The parameters after some steps on this worker's part of each batch."""
    training = Training(name, optimizer, hybrid, rank, size, parts)
    for _ in range(steps):
        training.step(batch)
    return training.values()


def largest_difference_of_a_step(
    name: str, optimizer: str, hybrid: bool, rank: int, size: int, steps: int, batch: int = 8
) -> float:
    """Rank 0 does each step of the workers alone, too, from their parameters: the largest difference after it."""
    together, largest = Training(name, optimizer, hybrid, rank, size), 0.0
    alone = Training(name, optimizer, hybrid, 0, 1, parts=size)
    for number in range(steps):
        if rank == 0 and number:  # the first step completes the shapes
            alone.take(together.values())
        together.step(batch)
        if rank == 0:
            alone.step(batch)
            found, expected = together.values(), alone.values()
            largest = max(largest, *(float(np.abs(found[key] - expected[key]).max()) for key in found))
    return largest


def sync_norms(rank: int, size: int) -> dict[Any, dict[str, np.ndarray]]:
    """Outputs, gradients and statistics of a SyncBatchNorm on this worker's part of batches, which are not equal."""
    if size > 1:
        mx.kv.create("dist_sync")
    numbers, found = np.random.RandomState(5), {}
    for hybrid in (False, True):
        for shape in ((6, 3), (6, 3, 4), (6, 3, 2, 5)):
            net = gluon.contrib.nn.SyncBatchNorm(num_devices=size)
            net.initialize()
            if hybrid:
                net.hybridize()
            whole, head = (numbers.randn(*shape).astype("float32") * 2 + 1 for _ in range(2))
            own = slice(None) if size == 1 else slice(0, 2) if rank == 0 else slice(2, None)
            x = nd.array(whole[own])
            x.attach_grad()
            net(x)  # in prediction: the running statistics, in every worker
            for _ in range(2):
                with autograd.record():
                    y = net(x)
                y.backward(nd.array(head[own]))
            arrays = {"y": y, "dx": x.grad, "dgamma": net.gamma.grad(), "dbeta": net.beta.grad()}
            arrays |= {"mean": net.running_mean.data(), "var": net.running_var.data()}
            found[hybrid, shape] = {key: array.asnumpy() for key, array in arrays.items()}
    return found
