"""Listeners of backward passes: told of each gradient once, after its last change."""

from __future__ import annotations

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, nd
from hybrid_lab.gluon import nn
from hybrid_lab.ndarray import tape
from tests.triton_device import use_triton

WAYS = ("eager", "parts", "numpy", "onnxruntime", "torch", "triton")


@pytest.fixture
def heard():
    """(leaf, its gradient when the listener was told of it), in the order of the calls."""
    seen: list[tuple[tape.Leaf, np.ndarray]] = []

    def hear(leaf):
        seen.append((leaf, leaf.grad.asnumpy().copy()))

    tape.listeners.append(hear)
    yield seen
    tape.listeners.remove(hear)


def _network(way, units, monkeypatch):
    if way == "triton":
        use_triton(monkeypatch)
    elif way in ("onnxruntime", "torch"):
        pytest.importorskip(way)
    net = nn.HybridSequential()
    net.add(*[nn.Dense(units, activation="tanh", in_units=units) for _ in range(3)])
    net.add(nn.Dense(units, in_units=units, params=net[0].collect_params()), nn.Dense(2, in_units=units))
    net.initialize(mx.init.Xavier())
    if way == "parts":
        for child in net:
            child.hybridize()
    elif way != "eager":
        net.hybridize(engine=way)
    return net


@pytest.mark.parametrize("units", [8, 160])
@pytest.mark.parametrize("request_", ["write", "add"])
@pytest.mark.parametrize("way", WAYS)
def test_each_gradient_once(way, request_, units, monkeypatch, heard):
    net = _network(way, units if way != "triton" else 8, monkeypatch)
    net.collect_params().setattr("grad_req", request_)
    x = nd.array(np.random.RandomState(0).randn(4, net[0].weight.shape[1]))
    for _ in range(3):
        heard.clear()
        with autograd.record():
            y = net(x)
            loss = (y * y).mean()
        loss.backward()
        parameters = net.collect_params().values()
        assert [id(leaf) for leaf, _ in heard].count(id(net[0].weight.data().tape_link)) == 1
        assert len(heard) == len(parameters)
        gradients = dict(heard)
        for each in parameters:
            assert np.array_equal(gradients[each.data().tape_link], each.grad().asnumpy())
    assert heard[0][0].grad is net[4].weight.grad() or heard[0][0].grad is net[4].bias.grad()


@pytest.mark.parametrize("way", ["eager", "parts"])
def test_a_step_reads_the_gradient_before_this_pass(way, heard):
    """A gradient that a later step of the pass reads is stored after that step."""

    class Reads(autograd.Function):
        def forward(self, x):
            return x

        def backward(self, dy):
            return dy * weight.grad().sum()

    layer = nn.Dense(3, in_units=3)
    layer.initialize(mx.init.One())
    if way == "parts":
        layer.hybridize()
    weight = layer.weight
    weight.grad()[:] = 2
    x = nd.ones((1, 3))
    x.attach_grad()
    with autograd.record():
        loss = layer(Reads()(x)).sum()
    loss.backward()
    assert x.grad.asnumpy().tolist() == [[54.0] * 3]  # 3 outputs, times the sum of nine numbers 2
    assert weight.grad().asnumpy().tolist() == [[1.0] * 3] * 3
    weight.grad()[:] = 2
    with autograd.record():
        loss = layer(x * weight.grad()[0]).sum()
    loss.backward()
    assert x.grad.asnumpy().tolist() == [[6.0] * 3]
    assert len(heard) == 6


def test_without_listeners_nothing_is_noted():
    x = nd.ones((3,))
    x.attach_grad()
    with autograd.record():
        y = (x * x).sum()
    y.backward()
    assert tape.state.stored is None
