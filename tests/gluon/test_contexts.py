"""A model on several contexts: each call uses the copies that its input's context has, hybridized as eagerly."""

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics import UninitializedError
from hybrid_lab.gluon import nn

CONTEXTS = [mx.cpu(0), mx.cpu(1)]


@pytest.mark.parametrize("active", [False, True])
def test_each_context_has_its_own_copy(active):
    net = nn.Dense(2, in_units=3)
    net.initialize("ones", ctx=CONTEXTS)
    net.hybridize(active, engine="numpy")
    net.weight.data(CONTEXTS[1])[:] = 5
    first, second = (net(nd.ones((1, 3), ctx=context)) for context in CONTEXTS)
    assert first.context == CONTEXTS[0] and (first.asnumpy() == 3).all()
    assert second.context == CONTEXTS[1] and (second.asnumpy() == 15).all()


@pytest.mark.parametrize("active", [False, True])
def test_training_on_two_contexts(active):
    net = nn.HybridSequential()
    net.add(nn.Dense(4, in_units=3), nn.BatchNorm(in_channels=4), nn.Dense(2, in_units=4))
    net.initialize("ones", ctx=CONTEXTS)
    net.hybridize(active, engine="numpy")
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    batch = np.random.RandomState(0).randn(8, 3).astype("float32")
    for _ in range(2):
        with autograd.record():
            losses = [(net(part) ** 2).sum() for part in gluon.utils.split_and_load(batch, CONTEXTS)]
        for loss in losses:
            loss.backward()
        trainer.step(8)
    here, there = (net[2].weight.data(context).asnumpy() for context in CONTEXTS)
    np.testing.assert_array_equal(here, there)
    assert len(net._graph_calls.programs) == (2 if active else 0)


@pytest.mark.parametrize("active", [False, True])
def test_a_context_without_parameters_is_named(active):
    net = nn.Dense(2, in_units=3)
    net.initialize()
    net.hybridize(active, engine="numpy")
    with pytest.raises(UninitializedError, match=r"not initialized on cpu\(1\)"):
        net(nd.ones((1, 3), ctx=mx.cpu(1)))


def test_a_block_moves_and_freezes_its_parameters():
    """By the methods of Gluon 2."""
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=2), nn.BatchNorm(in_channels=3))
    net.initialize()
    net.hybridize()
    x = nd.ones((4, 2))
    before = net(x).asnumpy()
    net.reset_ctx(mx.cpu(1))
    assert {ctx for item in net.collect_params().values() for ctx in item.list_ctx()} == {mx.cpu(1)}
    after = net(x.as_in_context(mx.cpu(1)))
    assert after.context == mx.cpu(1) and np.array_equal(after.asnumpy(), before)
    net.setattr("grad_req", "null")
    assert {item.grad_req for item in net.collect_params().values()} == {"null"}
    with pytest.raises(UninitializedError):
        nn.Dense(2, in_units=3).reset_ctx(mx.cpu(1))
