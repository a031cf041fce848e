"""Made v1_3.hlab, once: what a plain Block called last."""

import hybrid_lab as mx
from hybrid_lab import gluon, nd
from hybrid_lab.gluon import nn


class Model(gluon.Block):
    def __init__(self):
        super().__init__(prefix="model_")
        self.first, self.second = nn.Dense(4, in_units=3, prefix="first_"), nn.Dense(2, in_units=4, prefix="second_")

    def forward(self, x):
        return self.second(nd.relu(self.first(x)))


if __name__ == "__main__":
    net = Model()
    net.initialize("ones")
    net(mx.nd.ones((2, 3)))
    net.save("v1_3.hlab")
