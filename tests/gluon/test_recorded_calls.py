"""Recorded calls of a hybridized Block among other steps: gradients are those of eager calls, or an error."""

import numpy as np

from hybrid_lab import autograd, init, nd
from hybrid_lab.gluon import nn


def both(run):
    """The same run eagerly and hybridized."""
    return run(False), run(True)


def test_a_gradient_that_an_earlier_step_reads_is_not_overwritten():
    def run(active):
        net = nn.HybridSequential()
        net.add(nn.Dense(300, in_units=300, activation="tanh"), nn.Dense(3, in_units=300))
        net.initialize(init.Constant(0.001))
        net.hybridize(active, engine="numpy")
        x, v = nd.ones((4, 300)), nd.ones((300, 300))
        v.attach_grad()
        with autograd.record():
            y = net(x)
        y.backward()
        g = net[0].weight.grad()
        before = g.asnumpy()
        with autograd.record():
            a = (g * v).sum()
            y = net(x * 10).sum() + a
        y.backward()
        np.testing.assert_array_equal(v.grad.asnumpy(), before)
        return net[0].weight.grad().asnumpy()

    eager, hybrid = both(run)
    np.testing.assert_allclose(hybrid, eager, rtol=1e-5)
