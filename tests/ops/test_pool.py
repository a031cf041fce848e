"""Pooling where its norm has no derivative."""

import numpy as np
import pytest

from hybrid_lab import autograd, nd
from hybrid_lab.gluon import HybridBlock


class Norms(HybridBlock):
    """The p-norms of windows."""

    def __init__(self, power):
        super().__init__()
        self.power = power

    def hybrid_forward(self, F, x):
        return F.Pooling(x, kernel=(2, 2), stride=(2, 2), pool_type="lp", p_value=self.power)


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("power", [1, 2, 3])
def test_a_window_of_zeros_has_the_gradient_0(power, hybrid):
    numbers = np.zeros((1, 1, 2, 4), "float32")
    numbers[..., 2:] = 1
    x, net = nd.array(numbers), Norms(power)
    net.hybridize(hybrid)
    x.attach_grad()
    with autograd.record():
        net(x).backward()
    np.testing.assert_allclose(x.grad.asnumpy(), numbers * 4 ** (1 / power - 1), rtol=1e-5)
