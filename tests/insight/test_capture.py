"""capture: results and gradients of Blocks inside a model, the same in eager and hybridized calls."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.gluon import access, nn, rnn
from hybrid_lab.insight.states import blocks_below
from hybrid_lab.ndarray.random_state import state


class Pair(gluon.HybridBlock):
    """Two results, one of them its input."""

    def hybrid_forward(self, F, x):
        return F.tanh(x), x


class Twice(gluon.HybridBlock):
    """One child called twice, another with several results, draws between them."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.fc = nn.Dense(6, flatten=False)
            self.drop = nn.Dropout(0.5)
            self.pair = Pair()

    def hybrid_forward(self, F, x):
        y, z = self.pair(self.drop(self.fc(self.fc(x))))
        return self.drop(y) * z


class Modern(gluon.HybridBlock):
    """2.x style."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Dense(3)

    def forward(self, x):
        return mx.nd.relu(self.inner(x)) * 2


class Looping(gluon.HybridBlock):
    """A child inside a loop."""

    def __init__(self):
        super().__init__()
        self.step = nn.Dense(6, flatten=False)

    def hybrid_forward(self, F, x):
        def body(entry, states):
            new = F.tanh(self.step(entry) + states)
            return new, new

        return F.contrib.foreach(body, x, F.zeros_like(F.sum(x, axis=0)))[0]


class Mixed(gluon.Block):
    """Hybrid children in a plain Block."""

    def __init__(self):
        super().__init__()
        self.body = convolutions()
        self.head = nn.Dense(2)

    def forward(self, x):
        return self.head(self.body(x))


def convolutions():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3), nn.BatchNorm(), nn.Activation("relu"), nn.Dropout(0.5), nn.Dense(5))
    return net


def cells():
    net = rnn.HybridSequentialRNNCell()
    net.add(rnn.LSTMCell(6), rnn.GRUCell(6))

    class Unrolled(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.cells = net

        def hybrid_forward(self, F, x):
            return self.cells.unroll(3, x, layout="NTC", merge_outputs=True)[0]

    return Unrolled()


IMAGES, ROWS = (2, 3, 8, 8), (2, 3, 6)
NETS = {
    "convolutions": (convolutions, IMAGES),
    "twice": (Twice, ROWS),
    "2.x": (Modern, ROWS),
    "loop": (Looping, ROWS),
    "plain": (Mixed, IMAGES),
    "cells": (cells, ROWS),
}


def make(kind):
    build, shape = NETS[kind]
    net = build()
    net.initialize(mx.init.Normal(0.3))
    x = nd.array(np.random.RandomState(1).normal(size=shape))
    net(x)
    return net, x


def train(net, x, *names, grad=True):
    """What one recorded call gives, from the same random numbers each time."""
    mx.random.seed(5)
    states = {name: p.data().copy() for name, p in net.collect_params().items() if p.grad_req == "null"}
    with mx.capture(net, *names, grad=grad) as seen:
        with autograd.record():
            y = net(x)
        y.backward()
    for name, values in states.items():
        net.collect_params()[name].set_data(values)
    return seen, y, {name: p.grad().asnumpy() for name, p in net.collect_params().items() if p.grad_req != "null"}


def flat(result):
    return [item for part in result for item in flat(part)] if isinstance(result, (tuple, list)) else [result]


def close(one, other):
    np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("engine", ["numpy", "onnxruntime", "torch"])
@pytest.mark.parametrize("kind", NETS)
def test_hybrid_equals_eager(kind, engine):
    net, x = make(kind)
    eager, y, gradients = train(net, x, "*")
    net.hybridize(engine=engine)
    hybrid, z, others = train(net, x, "*")
    uncalled = {"cells"} if kind == "cells" else set()  # unroll() calls the cells themselves
    assert set(eager) == set(hybrid) == {path for path, _ in blocks_below(net)} - uncalled
    close(y, z)
    for path in eager:
        pairs = list(zip(flat(eager[path]), flat(hybrid[path]), strict=True))
        assert pairs
        for one, other in pairs:
            close(one, other)
            assert (one.grad is None) == (other.grad is None)
            if one.grad is not None:
                close(one.grad, other.grad)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, others[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", NETS)
def test_later_calls_are_as_before(kind):
    net, x = make(kind)
    net.hybridize()
    caches = [access.calls(block) for _, block in blocks_below(net) if isinstance(block, gluon.HybridBlock)]

    def programs():
        return [list(cache.programs.values()) for cache in caches], [cache.graphs.graphs() for cache in caches]

    def results():
        mx.random.seed(7)
        with autograd.train_mode():
            return net(x).asnumpy(), state.get_state()

    with autograd.record():
        net(x).backward()
    before, known = results(), programs()
    with mx.capture(net, "*"):
        inside = results()
    np.testing.assert_allclose(inside[0], before[0], rtol=1e-4, atol=1e-5)
    assert inside[1] == before[1] and programs() == known
    np.testing.assert_array_equal(results()[0], before[0])
    assert all(calls.interceptors == () for calls in caches)
    assert not any(block._forward_hooks for _, block in blocks_below(net))


@pytest.mark.parametrize("hybridized", [False, True])
def test_gradients_are_those_of_the_values(hybridized):
    net = nn.HybridSequential()
    net.add(nn.Dense(3), nn.Dense(1))
    net.initialize()
    x = nd.ones((2, 4))
    net(x)
    net.hybridize(hybridized)
    with mx.capture(net, "0", "", grad=True) as seen:
        with autograd.record():
            y = (net(x) * 3).sum()
        y.backward()
    np.testing.assert_allclose(seen[""].grad.asnumpy(), np.full((2, 1), 3.0))
    wanted = 3 * net[1].weight.data().asnumpy().repeat(2, 0)
    np.testing.assert_allclose(seen["0"].grad.asnumpy(), wanted, rtol=1e-6)
    with mx.capture(net, "0", grad=True) as seen:
        net(x)
    assert seen["0"].grad is None


def test_second_gradients_pass_through():
    net, x = make("2.x")
    x.attach_grad()

    def second():
        with autograd.record():
            (first,) = autograd.grad(nd.tanh(net(x)).sum(), [x], create_graph=True)
            (first * first).sum().backward()
        return x.grad.copy()

    wanted = second()
    with mx.capture(net, "inner", grad=True) as seen:
        close(second(), wanted)
    assert seen["inner"].grad is not None


def test_the_values_are_copies():
    net, x = make("convolutions")
    with mx.capture(net, "") as seen:
        y = net(x)
        kept = y.asnumpy()
        y[:] = 0
    np.testing.assert_array_equal(seen[""].asnumpy(), kept)


def test_names():
    net, x = make("plain")
    with mx.capture(net, "body.[01]", net.head, net.name) as seen:
        net(x)
    assert list(seen) == ["body.0", "body.1", "head", ""] and "head" in seen
    with pytest.raises(KeyError, match="'body.2' is not captured"):
        seen["body.2"]
    with mx.capture(net, "head") as seen:
        pass
    with pytest.raises(KeyError, match="'head' was not called"):
        seen["head"]


@pytest.mark.parametrize(
    ("name", "words"),
    [("body.7", "did you mean 'body.4'"), ("haed", "did you mean 'head'"), ("x*", "has no Block 'x\\*'")],
)
def test_unknown_names_are_refused_with_similar_ones(name, words):
    net, _ = make("plain")
    with pytest.raises(HybridLabError, match=words):
        mx.capture(net, name)
    with pytest.raises(HybridLabError, match="name the Blocks"):
        mx.capture(net)
    with pytest.raises(HybridLabError, match="is no Block of"):
        mx.capture(net, nn.Dense(3))
    with pytest.raises(HybridLabError, match="needs a Block"):
        mx.capture(3, name)


def test_replacing_works_in_eager_runs_only():
    net, x = make("convolutions")
    bias = net[4].bias.data().asnumpy()
    with mx.capture(net, "3", replace=lambda y: y * 0) as seen:
        np.testing.assert_allclose(net(x).asnumpy(), np.stack([bias, bias]))
    assert not seen["3"].asnumpy().any() and net(x).asnumpy().any() and "forward" not in vars(net[3])
    net.hybridize()
    with mx.capture(net, "3", replace=lambda y: y * 0), pytest.raises(HybridLabError, match="hybridize\\(False\\)"):
        net(x)
    assert np.isfinite(net(x).asnumpy()).all()


def test_a_graph_from_a_file(tmp_path):
    net, x = make("convolutions")
    net.hybridize()
    net(x)
    net.save(tmp_path / "net.hlab")
    with mx.capture(net, "*") as wanted:
        net(x)
    opened = gluon.load(tmp_path / "net.hlab")
    opened.hybridize()
    with mx.capture(opened, "*") as seen:
        opened(x)
    assert {"0", "1", "2", "4"} <= set(seen)
    for path in seen:
        close(seen[path], wanted[path])


def test_the_page_shows_each_value():
    net, x = make("twice")
    with mx.capture(net, "*", grad=True) as seen:
        with autograd.record():
            y = net(x)
        y.backward()
    assert "pair: float32[2, 3, 6], float32[2, 3, 6]" in repr(seen)
    page = seen._repr_html_()
    assert "output 1" in page and "gradient" in page and "<script" not in page
