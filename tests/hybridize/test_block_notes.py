"""Exceptions say in which Block they were raised."""

import pytest

from hybrid_lab import gluon, nd
from hybrid_lab.diagnostics import HybridizeError, ShapeError
from hybrid_lab.gluon import nn
from hybrid_lab.insight.states import block_state

X = nd.ones((2, 5))


class Fails(gluon.Block):
    def forward(self, x):
        return x + self.missing_name


class HybridFails(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.relu(x) + {}["key"]


class Misfit(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Dense(4, in_units=5), nn.Dense(3, in_units=7)

    def hybrid_forward(self, F, x):
        return self.b(self.a(x))


def around(*blocks, kind=nn.Sequential):
    net = kind(prefix="net_")
    net.add(*blocks)
    return net


def notes(net, kind):
    net.initialize(force_reinit=True)
    with pytest.raises(kind) as caught:
        net(X)
    return getattr(caught.value, "__notes__", [])


def test_the_path_leads_to_the_block_whose_code_raised():
    inner = around(nn.Dense(5), Fails())
    assert notes(inner, AttributeError) == ["in block net.1 (Fails)"]
    assert notes(around(nn.Dense(5), inner), AttributeError) == ["in block net.1.1 (Fails)"]


@pytest.mark.parametrize("active", [False, True])
def test_code_that_is_traced(active):
    net = around(nn.Dense(5), around(HybridFails(), kind=nn.HybridSequential), kind=nn.HybridSequential)
    net.hybridize(active)
    assert notes(net, KeyError) == ["in block net.1.0 (HybridFails)"]
    assert notes(around(net), KeyError) == ["in block net.0.1.0 (HybridFails)"]


@pytest.mark.parametrize("active", [False, True])
def test_an_error_that_names_the_block_gets_no_second_name(active):
    net = Misfit()
    net.hybridize(active)
    net.initialize()
    with pytest.raises(ShapeError) as caught:
        net(X)
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert text.count(f"block {net.name}.b") == 1
    assert notes(around(net), ShapeError) == ["in block net.0.b (Dense)"]


def test_a_broken_rule_names_its_block_already():
    class Shape(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return len(x)

    net = around(Shape(), kind=nn.HybridSequential)
    net.hybridize()
    assert notes(net, HybridizeError) == []


def test_an_exception_that_is_raised_again_has_one_note():
    error = ValueError("mine")

    class Raises(gluon.Block):
        def forward(self, x):
            raise error

    net = around(Raises())
    for _ in range(2):
        assert notes(net, ValueError) == ["in block net.0 (Raises)"]
    error.add_note("a note of the user")
    assert notes(net, ValueError) == ["a note of the user", "in block net.0 (Raises)"]


def test_a_block_that_is_no_child_is_named_by_itself():
    other = around(Fails())

    class Calls(gluon.Block):
        def forward(self, x):
            return other(x)

    assert notes(Calls(), AttributeError) == ["in block net.0 (Fails)"]


# -- the state after an error behind the trace -------------------------------------------------------------------------


def test_an_error_after_the_trace_is_a_failure_until_a_call_succeeds():
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=5))
    net.hybridize()
    with pytest.raises(gluon.parameter.UninitializedError):
        net(X)
    state = block_state(net, inner=False)
    assert state.state == "failed" and "net.initialize() is missing" in state.why
    assert block_state(net[0]).state == "inlined"
    net.initialize()
    net(X)
    assert block_state(net, inner=False).state == "active"
    with pytest.raises(ShapeError):
        net(nd.ones((2, 6)))
    assert block_state(net, inner=False).state == "failed"
    net(X)
    assert block_state(net, inner=False).state == "active"
