"""An attribute that the code reads gets another value after the trace: the next call follows it, as eagerly."""

import pytest

from hybrid_lab import nd
from hybrid_lab.gluon import HybridBlock, nn


class Scale(HybridBlock):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor
        self.calls = 0
        self.bounds = (0.0, 1.0)

    def hybrid_forward(self, F, x):
        return F.clip(x, *self.bounds) * self.factor


class Outer(HybridBlock):
    def __init__(self):
        super().__init__()
        self.inner = Scale(2)

    def hybrid_forward(self, F, x):
        return self.inner(x) + 1


@pytest.fixture
def x():
    return nd.array([0.5, 3.0])


def test_the_next_call_uses_the_new_value(x):
    net = Scale(2)
    net.hybridize()
    assert net(x).asnumpy().tolist() == [1, 2]
    net.factor = 3
    assert net(x).asnumpy().tolist() == [1.5, 3]
    net.bounds = (0, 10)
    assert net(x).asnumpy().tolist() == [1.5, 9]


def test_graphs_of_the_blocks_above_follow(x):
    net = Outer()
    net.hybridize()
    assert net(x).asnumpy().tolist() == [2, 3]
    net.inner.factor = 4
    assert net(x).asnumpy().tolist() == [3, 5]


def test_attributes_of_layers_count_too():
    net = nn.HybridSequential()
    net.add(nn.Dropout(0.0))
    net.hybridize()
    x = nd.ones((4, 100))
    from hybrid_lab import autograd

    with autograd.record():
        assert net(x).asnumpy().min() == 1
        net[0]._rate = 0.5
        assert net(x).asnumpy().min() == 0


def test_book_keeping_and_equal_values_keep_the_graph(x):
    net = Scale(2)
    net.hybridize()
    net(x)
    kept = net._graphs.first()
    net.calls += 1
    net.factor = 2
    net(x)
    assert net._graphs.first() is kept
