"""A compiled call never changes; what it knows of its parameters from call to call is in its state."""

import copy
import pickle

import numpy as np
import pytest

from hybrid_lab import autograd, gluon, nd
from hybrid_lab.gluon import nn


@pytest.fixture
def net():
    net = nn.Dense(2, in_units=3)
    net.initialize()
    net.hybridize(engine="numpy")
    return net


def attributes(program):
    names = set(type(program).__slots__) - {"__weakref__", "state"}
    return {name: getattr(program, name) for name in names}


def test_calls_change_the_state_alone(net):
    x = nd.ones((1, 3))
    net(x)
    (program,) = net._graph_calls.programs.values()
    before = attributes(program)
    for _ in range(3):
        net(x)
    net.weight.set_data(nd.zeros((2, 3)))
    assert not net(x).asnumpy().any()
    assert list(net._graph_calls.programs.values()) == [program]
    assert all(attributes(program)[name] is value for name, value in before.items())


def test_no_attribute_of_a_compiled_call_can_be_set(net):
    net(nd.ones((1, 3)))
    (program,) = net._graph_calls.programs.values()
    with pytest.raises(AttributeError, match="never changes: its engine cannot be set"):
        program.engine = "torch"


class Both(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x * 2, x * 3


def test_a_backward_from_other_outputs_is_another_compiled_call():
    net, x = Both(), nd.ones((2,))
    net.hybridize(engine="numpy")
    x.attach_grad()
    with autograd.record():
        first, _ = net(x)
    first.backward()
    assert x.grad.asnumpy().tolist() == [2, 2]
    one, other = (each.program for each in net._graph_calls.compilations)
    assert one.differentiated == {0, 1} and other.differentiated == {0}
    assert one.state is not other.state and one.state.head_sets is other.state.head_sets


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_copies_begin_without_programs(net, copied):
    x = nd.ones((1, 3))
    expected = net(x).asnumpy()
    twin = copied(net)
    assert not twin._graph_calls.programs and twin._graph_calls.graphs is twin._graphs
    assert twin._graph_calls.block is twin._graphs.block is twin
    np.testing.assert_array_equal(twin(x).asnumpy(), expected)
    assert len(net._graph_calls.programs) == len(twin._graph_calls.programs) == 1


def test_functions_around_calls_run_in_order_and_can_be_removed(net):
    x, order = nd.ones((1, 3)), []

    def inner(calls, args, run):
        order.append("inner")
        return run()

    def outer(calls, args, run):
        assert calls is net._graph_calls and args == (x,)
        order.append("outer")
        return run()

    expected = net(x).asnumpy()
    net._graph_calls.add_interceptor(inner)
    net._graph_calls.add_interceptor(outer)
    assert np.array_equal(net(x).asnumpy(), expected) and order == ["outer", "inner"]
    net._graph_calls.remove_interceptor(outer)
    net._graph_calls.remove_interceptor(inner)
    net(x)
    assert len(order) == 2 and net._graph_calls.interceptors == ()
