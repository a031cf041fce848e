"""Outputs of one operator that reach the result under different conditions."""

import numpy as np
import pytest

from hybrid_lab import autograd, gluon, nd


class Halves(gluon.HybridBlock):
    """Each half of x goes into a branch of its own."""

    def hybrid_forward(self, F, x, first, second):
        left, right = F.split(x, num_outputs=2, axis=0)
        one = F.contrib.cond(first, lambda: left * 2, lambda: F.zeros((2,)))
        two = F.contrib.cond(second, lambda: right * 3, lambda: F.zeros((2,)))
        return one + two


def gradient(net, taken):
    x = nd.array([1.0, 2.0, 3.0, 4.0])
    x.attach_grad()
    x.grad[:] = 7  # a backward writes it
    with autograd.record():
        y = net(x, *(nd.array([number]) for number in taken))
    y.backward()
    return x.grad.asnumpy()


@pytest.mark.parametrize("taken", [(0, 1), (1, 0), (1, 1)], ids=str)
def test_halves_in_branches_that_may_not_be_taken(taken):
    net = Halves()
    wanted = gradient(net, taken)
    net.hybridize(engine="numpy")
    np.testing.assert_array_equal(gradient(net, taken), wanted)
