"""Values that the code reads through containers, objects, classes and globals: which changes are noticed, and when."""

import logging
import weakref
from types import FunctionType

import numpy as np
import pytest

from hybrid_lab import nd
from hybrid_lab.gluon import HybridBlock, nn
from hybrid_lab.hybridize import graphs
from hybrid_lab.hybridize.stale import read_values
from hybrid_lab.lab.kernel.lifecycle import drop_stale

GLOBAL = 2
UNREAD = {"x": 1}


def helper(x):
    return x * GLOBAL


class Settings:
    k = 2


class Reader(HybridBlock):
    k = 2

    def __init__(self):
        super().__init__()
        self.settings = {"s": 2, "inner": {"t": [2]}}
        self.sizes = [2]
        self.config = Settings()
        self.scale1 = 2
        self.table = np.full((1,), 2, "float32")
        self.unread = [0]

    def hybrid_forward(self, F, x):
        x = helper(x) * self.settings["s"] * self.settings["inner"]["t"][0] * self.sizes[0] * self.k * self.config.k
        number = 1
        return F.broadcast_mul(x * getattr(self, f"scale{number}"), F.array(self.table))


def _in_dict(net):
    net.settings["s"] = 3


def _in_nested(net):
    net.settings["inner"]["t"][0] = 3


def _in_list(net):
    net.sizes[0] = 3


def _in_object(net):
    net.config.k = 3


def _in_array(net):
    net.table[:] = 3


CHANGES = [_in_dict, _in_nested, _in_list, _in_object, _in_array]


@pytest.fixture(autouse=True)
def _no_other_blocks(monkeypatch):
    monkeypatch.setattr(graphs, "alive", weakref.WeakSet())


@pytest.fixture
def net():
    net = Reader()
    net.hybridize(engine="numpy")
    assert net(nd.ones((1,))).asscalar() == 256
    return net


@pytest.mark.parametrize("change", CHANGES)
def test_the_lab_drops_a_graph_whose_values_changed(net, change):
    change(net)
    (note,) = drop_stale()
    assert "values that Reader reads changed (" in note and "self." in note and "its graph was dropped" in note
    assert net(nd.ones((1,))).asscalar() == 384
    assert drop_stale() == []


def test_class_attributes_and_globals_count(net, monkeypatch):
    monkeypatch.setattr(Reader, "k", 3)
    assert drop_stale() == ["values that Reader reads changed (Reader.k: 3 instead of 2): its graph was dropped"]
    assert net(nd.ones((1,))).asscalar() == 384
    monkeypatch.setitem(globals(), "GLOBAL", 3)
    assert drop_stale() == ["values that Reader reads changed (GLOBAL: 3 instead of 2): its graph was dropped"]
    assert net(nd.ones((1,))).asscalar() == 576
    monkeypatch.setattr(Settings, "k", 4)
    assert drop_stale() == ["values that Reader reads changed (Settings.k: 4 instead of 2): its graph was dropped"]


def test_variables_around_the_class_count():
    factor = 2

    class Closure(HybridBlock):
        def hybrid_forward(self, F, x):
            return x * factor

    net = Closure()
    net.hybridize(engine="numpy")
    assert net(nd.ones((1,))).asscalar() == 2
    factor = 3
    assert drop_stale() == ["values that Closure reads changed (factor: 3 instead of 2): its graph was dropped"]
    assert net(nd.ones((1,))).asscalar() == 3


def test_graphs_around_follow_and_layers_of_the_package_count():
    net = nn.HybridSequential()
    net.add(nn.Dropout(0.5), nn.LeakyReLU(0.5))
    net.hybridize(engine="numpy")
    x = nd.array([-1.0])
    assert net(x).asscalar() == -0.5
    norm = nn.BatchNorm(in_channels=3)
    norm.initialize()
    norm.hybridize(engine="numpy")
    norm(nd.ones((4, 3)))
    assert drop_stale() == []
    norm._kwargs["use_global_stats"] = True
    (note,) = drop_stale()
    assert "BatchNorm reads changed" in note and "._kwargs[:]['use_global_stats']" in note
    outer = nn.HybridSequential()
    outer.add(Reader())
    outer.hybridize(engine="numpy")
    assert outer(nd.ones((1,))).asscalar() == 256
    outer[0].sizes[0] = 3
    assert len(drop_stale()) == 1
    assert outer(nd.ones((1,))).asscalar() == 384


def test_a_name_made_at_run_time_counts_when_it_is_assigned(net):
    net.scale1 = 3
    assert net(nd.ones((1,))).asscalar() == 384


def test_the_same_code_again_keeps_the_graph(net, monkeypatch):
    """As of the cell of a helper function that is run again."""
    kept = net._graphs.first()
    monkeypatch.setitem(globals(), "helper", FunctionType(helper.__code__.replace(), globals()))
    net(nd.ones((1,)))
    assert net._graphs.first() is kept
    monkeypatch.setitem(globals(), "helper", FunctionType((lambda x: x * 5).__code__, globals()))
    net(nd.ones((1,)))
    assert net._graphs.first() is not kept


def test_what_the_code_does_not_read_and_equal_values_keep_the_graph(net, monkeypatch):
    net.config = Settings()
    net(nd.ones((1,)))
    kept = net._graphs.first()
    monkeypatch.setitem(globals(), "UNREAD", {"x": 2})
    net.sizes[:] = [2]
    net.settings["inner"] = {"t": [2]}
    vars(net)["config"] = Settings()
    assert drop_stale() == []
    assert net._graphs.first() is kept


def test_the_next_call_follows_too_and_the_record_of_compiles_says_so(net):
    net.sizes[0] = 3
    assert net(nd.ones((1,))).asscalar() == 384
    first, second = net._graph_calls.compilations
    assert (first.kind, second.kind) == ("first", "value")
    assert second.reason == "another value of self.sizes[0]: 3 instead of 2"
    net.settings["s"] = 5
    assert net(nd.ones((2,))).asnumpy().tolist() == [960, 960]


def test_what_calls_do_not_compare_the_next_compile_does(caplog):
    net = Reader()
    net.settings["inner"]["t"] = [2] + [0] * 400
    net.hybridize(engine="numpy")
    assert net(nd.ones((1,))).asscalar() == 256
    assert "`self.settings['inner']['t']` (it has 401 entries" in caplog.text
    net.settings["inner"]["t"][0] = 3
    with caplog.at_level(logging.WARNING, "hybrid_lab"):
        assert net(nd.ones((2,))).asnumpy().tolist() == [384, 384]
    assert "self.settings changed since the trace" in caplog.text
    net.settings["inner"]["t"][0] = 4
    net.hybridize(engine="numpy")
    assert net(nd.ones((1,))).asscalar() == 512


def test_a_cell_notices_what_calls_do_not_compare():
    net = Reader()
    net.settings["inner"]["t"] = [2] + [0] * 400
    net.hybridize(engine="numpy")
    net(nd.ones((1,)))
    assert drop_stale() == []
    net.settings["inner"]["t"][0] = 3
    assert drop_stale() == ["values that Reader reads changed (self.settings): its graph was dropped"]
    assert net(nd.ones((1,))).asscalar() == 384


class Simple(HybridBlock):
    k = 2

    def __init__(self):
        super().__init__()
        self.m = 3

    def hybrid_forward(self, F, x):
        return x * self.k * self.m


def test_values_by_name_are_looked_at_only_if_calls_may_not_compare_them(monkeypatch):
    monkeypatch.setattr(read_values, "read_values", None)
    net = Simple()
    net.hybridize(engine="numpy")
    net(nd.ones((1,)))
    net(nd.ones((2,)))
    assert drop_stale() == []


class Plain(HybridBlock):
    k = 2

    def hybrid_forward(self, F, x):
        return x * self.k * getattr(self, "further", 1)


class Base(HybridBlock):
    def hybrid_forward(self, F, x):
        return x * 2


class Derived(Base):
    def hybrid_forward(self, F, x):
        return super().hybrid_forward(F, x) + 0


def test_a_method_that_super_calls_is_compared(monkeypatch):
    net = Derived()
    net.hybridize(engine="numpy")
    assert net(nd.ones((1,))).asscalar() == 2
    monkeypatch.setattr(Base, "hybrid_forward", lambda self, F, x: x * 3)
    assert net(nd.ones((1,))).asscalar() == 3


def test_attributes_that_were_not_there_at_the_trace_and_those_that_go():
    net = Plain()
    net.hybridize(engine="numpy")
    results = [net(nd.ones((1,))).asscalar()]
    for change in (
        lambda: setattr(net, "k", 3),  # in front of the class's
        lambda: setattr(net, "further", 5),
        lambda: delattr(net, "k"),
        lambda: delattr(net, "further"),
    ):
        change()
        assert drop_stale() == []  # seen at once
        results.append(net(nd.ones((1,))).asscalar())
    assert results == [2, 3, 15, 10, 2] and drop_stale() == []


def test_what_blocks_read_is_not_looked_for_again_after_each_cell(monkeypatch):
    """Their values are compared, and not looked for again: beside 5,000 Blocks that took 150 ms a cell."""
    nets = [Plain() for _ in range(3)]
    for net in nets:
        net.hybridize(engine="numpy")
        net(nd.ones((1,)))
    assert drop_stale() == []
    with monkeypatch.context() as patch:
        patch.setattr(graphs, "guard_of", None)
        assert drop_stale() == []
    nets[0].k = 2
    monkeypatch.setattr(Plain, "k", 4)
    assert drop_stale() == [
        "values that Plain reads changed (Plain.k: 4 instead of 2): the graphs of 2 Blocks were dropped"
    ]
    assert [net(nd.ones((1,))).asscalar() for net in nets] == [2, 4, 4]


def test_an_attribute_that_hides_one_of_the_class_is_seen_at_once():
    class Switched(HybridBlock):
        negative = False

        def hybrid_forward(self, F, x):
            return -x if self.negative else x

    net, x = Switched(), nd.array([1.0, 2.0])
    net.hybridize()
    assert net(x).asnumpy().tolist() == [1, 2]
    net.negative = True
    assert net(x).asnumpy().tolist() == [-1, -2]


def test_a_new_attribute_of_a_block_below_is_seen_by_the_graphs_around_it():
    net = nn.HybridSequential()
    net.add(Plain())
    net.hybridize(engine="numpy")
    results = [net(nd.ones((1,))).asscalar()]
    net[0].further = 5
    results.append(net(nd.ones((1,))).asscalar())
    assert results == [2, 10]


def test_attributes_that_the_code_does_not_read_keep_the_graph_and_properties_change_it():
    class Doubled(HybridBlock):
        _half = 1
        _kept = {"tripled": 3}  # noqa: RUF012 - what the setter changes in place

        @property
        def factor(self):
            return 2 * self._half

        @factor.setter
        def factor(self, value):
            self._half = value / 2

        @property
        def tripled(self):
            return self._kept["tripled"]

        @tripled.setter
        def tripled(self, value):
            self._kept["tripled"] = value

        def hybrid_forward(self, F, x):
            return x * self.factor * self.tripled

    net = Doubled()
    net.hybridize(engine="numpy")
    net(nd.ones((1,)))
    kept = net._graphs.first()
    net.note = "not read"
    del net.note
    assert net._graphs.first() is kept
    net.factor = 6
    assert net(nd.ones((1,))).asscalar() == 18
    net.tripled = 1
    assert net(nd.ones((1,))).asscalar() == 6
