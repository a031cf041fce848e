"""An attribute that the code reads gets another value after the trace: the next call follows it, as eagerly."""

import pytest

from hybrid_lab import autograd, gluon, nd
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


class Learner(HybridBlock):
    """A model that trains itself, as in the thread about SINGA's."""

    def __init__(self):
        super().__init__()
        self.body = nn.Dense(2, in_units=2)
        self.trainer, self.steps, self.best, self.losses, self.scale = None, 0, None, (), 1.0

    def hybrid_forward(self, F, x):
        return self.body(x) * self.scale

    def train_one_batch(self, x):
        with autograd.record():
            loss = self(x).sum()
        loss.backward()
        if self.trainer is None:
            self.trainer = gluon.Trainer(self.collect_params(), "sgd")
        self.trainer.step(1)
        self.steps += 1
        self.losses = (*self.losses, loss.asscalar())
        self.best = loss if self.best is None else self.best
        return loss

    def fit(self, x):
        for _ in range(3):
            self.train_one_batch(x)
            self.last_seen = x, self.steps

    def keep(self, path):
        self.save_states(path, aux_states={"steps": self.steps}, trainer=self.trainer)


def test_what_only_training_reads_keeps_the_graphs(x, tmp_path):
    net = Learner()
    net.initialize()
    net.hybridize(engine="numpy")
    net.train_one_batch(nd.ones((1, 2)))
    kept, programs = net._graphs.first(), len(net._graph_calls.compilations)
    net.fit(nd.ones((1, 2)))
    assert net.steps == 4 and net._graphs.first() is kept and len(net._graph_calls.compilations) == programs
    net.trainer = gluon.Trainer(net.collect_params(), "adam")
    assert net._graphs.first() is kept
    net.keep(tmp_path / "m")
    assert net._graphs.first() is kept
    net(nd.ones((3, 2)))  # a compile looks for values that changed since the trace
    assert net._graphs.first() is kept
    net.scale = 2.0
    assert net._graphs.first() is None


class Odd(HybridBlock):
    """forward calls a method that also knows how to train, and another Block's method is called by name."""

    def __init__(self):
        super().__init__()
        self.inner, self.factor = Encoder(), 2

    def hybrid_forward(self, F, x):
        return self.either(x, train=False) + self.inner.encode(x)

    def either(self, x, train):
        if train:
            x.sum().backward()
        return x * self.factor


class Encoder(HybridBlock):
    def __init__(self):
        super().__init__()
        self.shift = 1

    def encode(self, x):
        return x + self.shift


@pytest.mark.parametrize("change", [lambda net: setattr(net, "factor", 3), lambda net: setattr(net.inner, "shift", 5)])
def test_what_a_trace_may_have_read_drops_the_graphs(x, change):
    net = Odd()
    net.hybridize()
    before = net(x).asnumpy()
    change(net)
    hybrid = net(x).asnumpy()
    net.hybridize(False)
    assert (hybrid == net(x).asnumpy()).all() and (hybrid != before).any()
