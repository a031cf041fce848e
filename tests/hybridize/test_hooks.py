"""Forward hooks in hybridized models: those inside a graph do not run in calls, and the user is told."""

import logging

import pytest

import hybrid_lab as mx
from hybrid_lab import nd
from hybrid_lab.gluon import nn


@pytest.fixture
def net():
    net = nn.HybridSequential()
    inner = nn.HybridSequential()
    inner.add(nn.Dense(2, in_units=3))
    net.add(inner)
    net.initialize()
    return net


def called(caplog):
    found = [record.getMessage() for record in caplog.records if "forward hooks" in record.getMessage()]
    caplog.clear()
    return found


def test_hooks_inside_a_graph_are_told_once(net, caplog):
    calls = []
    net[0][0].register_forward_hook(lambda *args: calls.append(args))
    net(nd.ones((1, 3)))
    with caplog.at_level(logging.WARNING, "hybrid_lab"):
        assert len(calls) == 1 and not called(caplog)
        net.hybridize(engine="numpy")
        net(nd.ones((1, 3)))
        (told,) = called(caplog)
        net(nd.ones((1, 3)))
        net(nd.ones((2, 3)))
        assert not called(caplog) and len(calls) == 2
    dense = net[0][0]
    assert told.startswith(f"the forward hooks of {dense.name} (Dense) run once")
    assert f"hook {net.name} itself" in told
    assert "its forward hooks do not run in calls" in " ".join(str(mx.explain(net)).split())


def test_a_hook_that_comes_after_the_trace_is_told_at_once(net, caplog):
    net.hybridize(engine="numpy")
    net(nd.ones((1, 3)))
    with caplog.at_level(logging.WARNING, "hybrid_lab"):
        net[0][0].register_forward_pre_hook(lambda *args: None)
        assert f"hook {net.name} itself" in called(caplog)[-1]


def test_hooks_of_the_outermost_block_run_and_the_package_s_own_are_no_news(net, caplog, tmp_path):
    calls = []
    net.register_forward_hook(lambda *args: calls.append(args))
    net.hybridize(engine="numpy")
    with caplog.at_level(logging.WARNING, "hybrid_lab"):
        net(nd.ones((1, 3)))
        net(nd.ones((1, 3)))
        net.summary(nd.ones((1, 3)))
        mx.compare(net, nd.ones((1, 3)))
        assert not called(caplog)
    assert len(calls) >= 2
