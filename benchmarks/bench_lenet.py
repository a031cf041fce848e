"""LeNet, batch 64: forward, and forward with backward; eager and hybridized, beside the real MXNet in the same run."""

from __future__ import annotations

import numpy as np
from harness import Peer, interleaved, median_ms, oracle, write_table

import hybrid_lab as mx
from hybrid_lab import autograd, gluon
from hybrid_lab.gluon import nn


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


def make(engine: str | None):
    net = Net()
    net.initialize()
    if engine:
        net.hybridize(engine=engine, static_alloc=True, static_shape=True)
    return net


def main(rounds: int = 9, repeats: int = 5) -> None:
    x = mx.nd.array(np.random.RandomState(0).rand(64, 1, 28, 28))

    def forward(net):
        net(x)

    def train(net):
        with autograd.record():
            loss = net(x).square().mean()
        loss.backward()

    ours = {"eager": make(None), "numpy engine": make("numpy"), "onnxruntime engine": make("onnxruntime")}
    peer = Peer(oracle(), "mxnet_lenet.py") if oracle() else None
    rows = []
    for what, function in (("forward", forward), ("forward and backward", train)):
        cases = {
            name: lambda net=net, function=function: median_ms(lambda: function(net), repeats)
            for name, net in ours.items()
        }
        if peer is not None:
            for mode in ("eager", "hybrid"):
                cases[f"MXNet {mode}"] = lambda mode=mode, what=what: peer.median_ms(
                    f"{mode} {'forward' if what == 'forward' else 'train'}", repeats
                )
        for measure in cases.values():
            measure()
        found = interleaved(cases, rounds)
        for name, milliseconds in found.items():
            beside = found.get("MXNet eager" if name in ("eager", "MXNet eager") else "MXNet hybrid")
            rows.append([what, name, f"{milliseconds:.2f}", f"{milliseconds / beside:.2f}" if beside else ""])
    if peer is not None:
        peer.close()
    write_table(
        "lenet",
        "LeNet, batch 64",
        ["work", "who", "ms", "times MXNet"],
        rows,
        "Eager beside MXNet's eager mode, engines beside MXNet hybridized with static_alloc and static_shape. "
        "Medians of interleaved rounds.",
    )


if __name__ == "__main__":
    main()
