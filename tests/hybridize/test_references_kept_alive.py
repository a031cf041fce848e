"""What a hybridized Block keeps alive: no array of the user's that no later call can need, no endless traces."""

import gc
import weakref

import numpy as np

from hybrid_lab import explain, nd
from hybrid_lab.gluon import HybridBlock, nn
from hybrid_lab.hybridize import graphs, program_cache


def test_old_weights_go_when_there_are_new_ones():
    net = nn.Dense(4, in_units=4)
    net.initialize()
    net.hybridize(engine="numpy")
    for size in (1, 2):
        for _ in range(3):
            net(nd.ones((size, 4)))
    old = weakref.ref(net.weight.data())
    net.initialize(force_reinit=True)
    x = nd.ones((1, 4))
    y = net(x)
    gc.collect()
    assert old() is None
    rows = explain(net).blocks[0].programs
    assert [row.inputs for row in rows] == ["f32[1,4]", "f32[2,4]", "f32[1,4]"]
    net(nd.ones((2, 4)))
    assert [item.kind for item in net._graph_calls.compilations] == ["first", "shape", "parameter", "parameter"]
    assert np.allclose(y.asnumpy(), x.asnumpy() @ net.weight.data().asnumpy().T)


def test_programs_that_made_room_hold_no_arrays(monkeypatch):
    monkeypatch.setattr(program_cache, "MAX_PROGRAMS", 2)
    net = nn.Dense(4, in_units=4)
    net.initialize()
    net.hybridize(engine="numpy")
    net(nd.ones((1, 4)))
    first = weakref.ref(net._graph_calls.compilations[0].program.forward)
    for size in (2, 3):
        net(nd.ones((size, 4)))
    gc.collect()
    assert first() is None and len(net._graph_calls.compilations) == 3
    assert [row.inputs for row in explain(net).blocks[0].programs] == ["f32[1,4]", "f32[2,4]", "f32[3,4]"]


class Times(HybridBlock):
    def hybrid_forward(self, F, x, number):
        return x * number


def test_changing_numbers_do_not_pile_up_graphs(monkeypatch):
    monkeypatch.setattr(graphs, "MAX_GRAPHS", 4)
    net = Times()
    net.hybridize(engine="numpy")
    x = nd.ones((1,))
    for number in range(10):
        assert net(x, float(number)).asscalar() == number
    numbers = [neutral.in_spec[1][1][2].value for neutral in net._graphs.graphs()]
    assert numbers == [6.0, 7.0, 8.0, 9.0]
    assert len(net._graphs._used) == 4 and net(x, 3.0).asscalar() == 3
