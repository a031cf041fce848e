"""What hybridized Blocks tell of: traces, compiles, failures and changes; without a listener nothing is done for it."""

import pytest

from hybrid_lab import gluon, nd
from hybrid_lab.diagnostics.hybridize_error import HybridizeError
from hybrid_lab.gluon import nn
from hybrid_lab.hybridize import events


@pytest.fixture
def heard():
    """(event, what was told) in order, while the test runs."""
    told = []
    end = events.listen(
        **{
            event: lambda *facts, event=event: told.append((event, *facts))
            for event in ("traced", "compiled", "failed", "changed")
        }
    )
    yield told
    end()


class Faulty(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return x if x.sum() > 0 else -x


def dense():
    net = nn.Dense(2, in_units=3)
    net.initialize()
    net.hybridize(engine="numpy")
    return net


def events_of(heard, block):
    return [event for event, about, *_ in heard if about is block and event != "changed"]


def facts_of(heard, wanted):
    return [fact for event, _, *facts in heard if event == wanted for fact in facts]


def test_a_first_call_is_traced_and_compiled(heard):
    net = dense()
    net(nd.ones((1, 3)))
    assert events_of(heard, net) == ["traced", "compiled"]
    (graph,) = net._graphs.graphs()
    assert facts_of(heard, "traced") == [graph]
    assert facts_of(heard, "compiled") == net._graph_calls.compilations


def test_a_second_call_tells_nothing_and_a_new_size_that_it_was_compiled(heard):
    net = dense()
    net(nd.ones((1, 3)))
    heard.clear()
    net(nd.ones((1, 3)))
    assert heard == []
    net(nd.ones((2, 3)))
    assert events_of(heard, net) == ["compiled"]


def test_a_failed_trace_tells_why(heard):
    net = Faulty()
    net.hybridize(engine="numpy", strict=True)
    with pytest.raises(HybridizeError):
        net(nd.ones((1, 3)))
    assert events_of(heard, net) == ["failed"]
    assert heard[-1][2] is net._graph_calls.failures.last


def test_changes_are_told(heard):
    net = dense()
    heard.clear()
    net(nd.ones((1, 3)))
    assert ("changed", net) in heard
    heard.clear()
    net.hybridize(False)
    assert ("changed", net) in heard


def test_a_listener_that_ended_hears_nothing():
    told = []
    end = events.listen(changed=told.append)
    end()
    end()  # a second time does nothing
    dense()(nd.ones((1, 3)))
    assert told == []


def test_there_is_no_other_event():
    with pytest.raises(KeyError, match="called"):
        events.listen(called=print)
