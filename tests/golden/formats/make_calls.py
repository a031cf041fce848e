"""Made v1_1.hlab and its expected output, once: an archive of an old version is never written again."""

import numpy as np

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.gluon import nn


class Again(gluon.HybridBlock):
    """Calls one layer three times."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.layer = nn.Dense(2)

    def hybrid_forward(self, F, x):
        for _ in range(3):
            x = F.tanh(self.layer(x))
        return x


if __name__ == "__main__":
    mx.random.seed(1)
    net = Again()
    net.initialize(mx.init.Xavier())
    net.hybridize(engine="numpy")
    x = mx.nd.array([[0.5, -1.0], [2.0, 0.25]])
    y = net(x)
    net.save("v1_1.hlab")
    np.savez("v1_1.npz", x=x.asnumpy(), y=y.asnumpy())
