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
OPTIMIZERS = {"sgd": {"learning_rate": 0.05, "momentum": 0.9}, "adam": {"learning_rate": 0.001}}


def train(
    name: str, optimizer: str, hybrid: bool, rank: int, size: int, steps: int, batch: int = 8, parts: int = 1
) -> dict[str, np.ndarray]:
    """The parameters after some steps on this worker's part of each batch.

    parts : one process goes through this many parts of each batch and adds their gradients, as workers do
    """
    build, shape = NETS[name]
    mx.random.seed(7)
    net = build()
    net.initialize(mx.init.Xavier())
    if rank:  # this worker's own values, which the store replaces
        for parameter in net.collect_params().values():
            if parameter._data is not None:
                parameter.set_data(parameter.data() + 1)
    if hybrid:
        net.hybridize()
    store = "dist_sync" if size > 1 else "device"
    trainer = gluon.Trainer(net.collect_params(), optimizer, OPTIMIZERS[optimizer], kvstore=store)
    if parts > 1:
        net.collect_params().setattr("grad_req", "add")
    loss_of, numbers = gluon.loss.SoftmaxCrossEntropyLoss(), np.random.RandomState(3)
    shares = [slice(part * batch // parts, (part + 1) * batch // parts) for part in range(parts)]
    if size > 1:
        shares = [slice(rank * batch // size, (rank + 1) * batch // size)]
    for _ in range(steps):
        x, y = numbers.randn(batch, *shape).astype("float32"), numbers.randint(0, 10, batch)
        for share in shares:
            with autograd.record():
                loss = loss_of(net(nd.array(x[share])), nd.array(y[share]))
            loss.backward()
        trainer.step(batch)
        net.collect_params().zero_grad()
    return {key: value.data().asnumpy() for key, value in net._collect_params_with_prefix().items()}


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
