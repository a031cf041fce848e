"""Recorded calls of a hybridized Block among other steps: gradients are those of eager calls, or an error."""

import numpy as np
import pytest

from hybrid_lab import autograd, init, nd
from hybrid_lab.diagnostics import AutogradError
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


# -- gradients of gradients --------------------------------------------------------------------------------------------


def relu_net():
    net = nn.Dense(2, in_units=3, activation="relu")
    net.initialize(init.One())
    net.hybridize(engine="numpy")
    return net


def test_a_second_gradient_refuses_a_parameter_that_only_it_reads():
    net, x = relu_net(), nd.ones((1, 3))
    x.attach_grad()
    with autograd.record():
        y = (net(x) ** 2).sum()
        with autograd.pause():
            net.bias.data()[:] = -100
        with pytest.raises(AutogradError, match=f"needs the parameter {net.bias.name}, .* has been written to since"):
            autograd.grad(y, x, create_graph=True)


def test_a_second_gradient_neither_minds_nor_updates_the_statistics_again():
    def run(active):
        net = nn.HybridSequential()
        net.add(nn.Dense(4, in_units=3), nn.BatchNorm(in_channels=4))
        net.initialize(init.Normal(1.0))
        net[0].weight.set_data(nd.array(np.arange(12.0).reshape(4, 3) % 5))
        net.hybridize(active, engine="numpy")
        x = nd.array(np.sin(np.arange(24.0)).reshape(8, 3))
        x.attach_grad()
        with autograd.record():
            y = net(x) ** 3
            (dx,) = autograd.grad(y, [x], create_graph=True)
            loss = (dx * dx).sum()
        loss.backward()
        return x.grad.asnumpy(), net[1].running_mean.data().asnumpy(), net[1].running_var.data().asnumpy()

    eager, hybrid = both(run)
    for one, other in zip(eager, hybrid, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-4)


def test_the_error_names_the_parameter():
    net, x = relu_net(), nd.ones((1, 3))
    x.attach_grad()
    with autograd.record():
        y = net(x)
    net.weight.data()[:] = 2
    with pytest.raises(AutogradError, match=f"needs the parameter {net.weight.name}, a float32 array"):
        y.backward()


# -- which parameters have gradients -----------------------------------------------------------------------------------


def test_a_gradient_attached_to_the_array_of_a_frozen_parameter():
    def run(active):
        net = nn.Dense(2, in_units=3)
        net.initialize(init.One())
        net.weight.grad_req = "null"
        net.hybridize(active, engine="numpy")
        x = nd.ones((4, 3))
        with autograd.record():
            y = net(x)
        y.backward()
        net.weight.data().attach_grad()
        with autograd.record():
            y = net(x)
        y.backward()
        return net.weight.data().grad.asnumpy()

    eager, hybrid = both(run)
    assert hybrid.tolist() == eager.tolist() == [[4.0] * 3] * 2


def test_switching_between_two_sets_of_gradients_compiles_each_once():
    net = nn.Dense(2, in_units=3)
    net.initialize(init.One())
    net.hybridize(engine="numpy")
    x = nd.ones((1, 3))
    x.attach_grad()
    for step in range(6):
        net.collect_params().setattr("grad_req", "null" if step % 2 else "write")
        with autograd.record():
            y = net(x)
        y.backward()
        assert x.grad.asnumpy().tolist() == [[2.0] * 3]
        if step % 2 == 0:
            assert net.weight.grad().asnumpy().tolist() == [[1.0] * 3] * 2
    assert [item.kind for item in net._graphs.compilations] == ["first", "grad_req"]
    assert "needs no gradient, and 1 more" in net._graphs.compilations[1].reason
