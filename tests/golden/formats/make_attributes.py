"""Made v1_2.hlab, once: attributes of Blocks, and kinds of values that readers of 1.1 do not know."""

from collections import namedtuple

import numpy as np

import hybrid_lab as mx
from hybrid_lab import gluon
from hybrid_lab.gluon import nn

Point = namedtuple("Point", "x y")


class Model(gluon.HybridBlock):
    def __init__(self):
        super().__init__(prefix="model_")
        self.dense = nn.Dense(2, in_units=3, prefix="dense_")
        self.step, self.cfg = 3, {"sizes": (1, 2), "names": {"a", "b"}}
        self.mean, self.first = np.arange(3.0), [self.dense]

    def hybrid_forward(self, F, x):
        return self.dense(x)


if __name__ == "__main__":
    net = Model()
    net.initialize("ones")
    net(mx.nd.ones((2, 3)))
    net.trainer = gluon.Trainer(net.collect_params(), "adam")
    with mx.autograd.record():
        loss = net(mx.nd.ones((2, 3))).sum()
    loss.backward()
    net.trainer.step(1)
    accuracy = mx.metric.Accuracy()
    accuracy.update(mx.nd.array([1.0]), mx.nd.array([[0.0, 1.0]]))
    net.save(
        "v1_2.hlab", aux={"raw": b"\0\1", "point": Point(1, 2), "texts": np.array(["a", "bc"]), "metric": accuracy}
    )
