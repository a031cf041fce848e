"""Made v1_4.hlab, once: the histograms of values and gradients."""

import hybrid_lab as mx
from hybrid_lab.gluon import nn

if __name__ == "__main__":
    net = nn.HybridSequential(prefix="model_")
    net.add(nn.Dense(2, in_units=3, prefix="dense_"))
    net.initialize("ones")
    with mx.autograd.record():
        loss = net(mx.nd.ones((2, 3))).sum()
    loss.backward()
    net.save("v1_4.hlab")
