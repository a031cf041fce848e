"""Pickled nets: the values of parameters and the switches come along; traces, programs and gradients do not."""

import pickle

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, nd
from hybrid_lab.diagnostics import HybridLabError
from hybrid_lab.gluon import nn


@pytest.fixture
def net():
    net = nn.HybridSequential()
    net.add(nn.Dense(3, activation="relu"), nn.BatchNorm(), nn.Dense(2))
    net.initialize()
    return net


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_twin_computes_the_same_and_learns_by_itself(net, hybrid):
    x = nd.array(np.random.RandomState(0).randn(4, 5))
    if hybrid:
        net.hybridize()
    before = net(x).asnumpy()
    twin = pickle.loads(pickle.dumps(net))
    assert np.array_equal(twin(x).asnumpy(), before)
    trainer = gluon.Trainer(twin.collect_params(), "sgd", {"learning_rate": 0.5})
    with autograd.record():
        loss = (twin(x) ** 2).sum()
    loss.backward()
    trainer.step(4)
    assert not np.array_equal(twin(x).asnumpy(), before) and np.array_equal(net(x).asnumpy(), before)


def test_parameters_that_wait_for_their_shapes_are_pickled_as_such(net):
    twin = pickle.loads(pickle.dumps(net))
    assert twin(nd.ones((2, 7))).shape == (2, 2) and twin[0].weight.shape == (3, 7)


def test_a_graph_from_a_file_is_not_pickled(net, tmp_path):
    net.hybridize()
    net(nd.ones((2, 7)))
    net.save(tmp_path / "net.hlab")
    loaded = gluon.load(tmp_path / "net.hlab")
    with pytest.raises(HybridLabError, match="a graph from a file.*net.save"):
        pickle.dumps(loaded)


@pytest.mark.parametrize("text, context", [("cpu", mx.cpu()), ("cpu(0)", mx.cpu()), ("cpu(1)", mx.cpu(1))])
def test_contexts_by_their_names(text, context):
    assert nd.zeros((2,), ctx=text).ctx == context
    layer = nn.Dense(2, in_units=3)
    layer.initialize(ctx=text)
    assert layer.weight.data().ctx == context
    with pytest.raises(HybridLabError, match="no device type 'tpu"):
        nd.zeros((2,), ctx="tpu(0)")
