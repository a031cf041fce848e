"""Made v1_0.hlab and its expected outputs, once: an archive of an old version is never written again.

Kept to show what is inside. For a new schema add another file of this kind.
"""

import numpy as np

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.gluon import nn


class Tower(gluon.HybridBlock):
    def __init__(self, shared, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.conv = nn.Conv2D(3, 3, padding=1)
            self.norm = nn.BatchNorm()
            self.table = self.params.get_constant("table", [[1.0, 2.0, 3.0]])
        self.shared = shared

    def hybrid_forward(self, F, x, table):
        y = F.relu(self.norm(self.conv(x))).mean(axis=(2, 3))
        return {"sum": self.shared(y + table), "parts": [y, None], "noise": F.Dropout(y, p=0.5)}


class Model(gluon.Block):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.shared = nn.Dense(2)
            self.tower = Tower(self.shared)
            self.unused = nn.Dense(4)

    def forward(self, x):
        return self.tower(x)["sum"]


if __name__ == "__main__":
    mx.random.seed(1)
    net = Model(prefix="model_")
    net.initialize(mx.init.Xavier())
    net.hybridize(engine="numpy")
    x = mx.nd.array(np.random.RandomState(1).uniform(-1, 1, (2, 2, 4, 4)))
    net(x)
    trainer = gluon.Trainer([p for p in net.collect_params().values() if p._data is not None], "adam")
    with mx.autograd.record():
        loss = net(x).sum()
    loss.backward()
    trainer.step(1, ignore_stale_grad=True)
    mx.save_cached_graphs(net, "v1_0.hlab", trainer=trainer, aux={"epoch": 1, "x": x, "list": [1, (2.5, None)]})
    np.savez("v1_0.npz", x=x.asnumpy(), y=net(x).asnumpy())
